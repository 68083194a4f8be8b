//! Which masters vote, and which only learn: a pure function.

use std::collections::BTreeSet;

use cairn_meta::engine::raft::entry::Members;

/// Members that keep the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seats {
    pub voters: BTreeSet<u64>,
    pub learners: BTreeSet<u64>,
}

/// The next members, if they differ from those `now`.
///
/// `masters`: of the cluster map, without those that leave. `up`: of these, the ones that were
/// heard. `caught_up`: members that have nearly all of the leader's log. One voter stays alone
/// until there are three, since two are no safer than one; so do three until there are five. A
/// voter that leaves is replaced in the same step if a learner has caught up.
pub fn seats(
    now: &Members,
    masters: &BTreeSet<u64>,
    up: &BTreeSet<u64>,
    caught_up: &BTreeSet<u64>,
) -> Option<Seats> {
    let last = now.voters.last().cloned().unwrap_or_default();
    let known: BTreeSet<u64> = now.voters.iter().flatten().chain(&now.learners).copied().collect();
    let mut voters = &last & masters;
    let ready = caught_up.iter().filter(|id| masters.contains(id) && up.contains(id));
    let ready: Vec<u64> = ready.filter(|id| !voters.contains(id)).copied().collect();
    let target = match voters.len() + ready.len() {
        0..=2 => voters.len(),
        3 | 4 => voters.len().max(3),
        _ => voters.len().max(5),
    };
    let missing = target.saturating_sub(voters.len());
    voters.extend(ready.into_iter().take(missing));
    let is_member = |id: &&u64| known.contains(id) || up.contains(id);
    let learners = masters.iter().filter(is_member).filter(|id| !voters.contains(id));
    let learners: BTreeSet<u64> = learners.copied().collect();
    let same = now.voters == [voters.clone()] && now.learners == learners;
    (!same).then_some(Seats { voters, learners })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ids: &[u64]) -> BTreeSet<u64> {
        ids.iter().copied().collect()
    }

    fn next(
        voters: &[&[u64]],
        learners: &[u64],
        masters: &[u64],
        up: &[u64],
        caught: &[u64],
    ) -> String {
        let voters = voters.iter().map(|ids| set(ids)).collect();
        let now = Members { voters, learners: set(learners) };
        match seats(&now, &set(masters), &set(up), &set(caught)) {
            None => "same".into(),
            Some(Seats { voters, learners }) => format!("{voters:?} {learners:?}"),
        }
    }

    #[test]
    fn one_becomes_three_and_three_become_five() {
        assert_eq!(next(&[&[1]], &[], &[1], &[1], &[]), "same");
        // The second one learns, and waits for the third.
        assert_eq!(next(&[&[1]], &[], &[1, 2], &[1, 2], &[]), "{1} {2}");
        assert_eq!(next(&[&[1]], &[2], &[1, 2], &[1, 2], &[2]), "same");
        assert_eq!(next(&[&[1]], &[2], &[1, 2, 3], &[1, 2, 3], &[2]), "{1} {2, 3}");
        assert_eq!(next(&[&[1]], &[2, 3], &[1, 2, 3], &[1, 2, 3], &[2]), "same");
        assert_eq!(next(&[&[1]], &[2, 3], &[1, 2, 3], &[1, 2, 3], &[2, 3]), "{1, 2, 3} {}");
        assert_eq!(next(&[&[1, 2, 3]], &[4], &[1, 2, 3, 4], &[1, 2, 3, 4], &[4]), "same");
        let five = [1, 2, 3, 4, 5];
        assert_eq!(next(&[&[1, 2, 3]], &[4, 5], &five, &five, &[4, 5]), "{1, 2, 3, 4, 5} {}");
    }

    #[test]
    fn one_that_was_not_heard_is_no_member() {
        assert_eq!(next(&[&[1]], &[], &[1, 2], &[1], &[]), "same");
        // Nor does it get a vote, even if it has all of the log.
        assert_eq!(next(&[&[1]], &[2, 3], &[1, 2, 3], &[1, 2], &[2, 3]), "same");
        // A voter that is away stays one.
        assert_eq!(next(&[&[1, 2, 3]], &[], &[1, 2, 3], &[1, 2], &[2]), "same");
    }

    #[test]
    fn one_that_leaves_is_replaced_in_the_same_step() {
        assert_eq!(next(&[&[1, 2, 3]], &[4], &[1, 2, 4], &[1, 2, 4], &[2, 4]), "{1, 2, 4} {}");
        assert_eq!(next(&[&[1, 2, 3]], &[], &[1, 2], &[1, 2], &[2]), "{1, 2} {}");
        assert_eq!(next(&[&[1, 2]], &[4], &[1, 2, 4], &[1, 2, 4], &[2, 4]), "{1, 2, 4} {}");
        assert_eq!(next(&[&[1, 2]], &[], &[1], &[1], &[]), "{1} {}");
        assert_eq!(next(&[&[1]], &[2], &[1], &[1], &[2]), "{1} {}");
    }

    #[test]
    fn a_step_that_was_interrupted_is_ended() {
        assert_eq!(next(&[&[1], &[1, 2, 3]], &[], &[1, 2, 3], &[1, 2, 3], &[]), "{1, 2, 3} {}");
    }
}
