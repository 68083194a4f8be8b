//! Decisions about which masters vote, only learn, may begin or go, and which is to serve: pure
//! functions.

use std::collections::BTreeSet;

use cairn_base::{Error, NodeId, Result};
use cairn_meta::engine::raft::MemberStatus;
use cairn_meta::engine::raft::entry::Members;

use crate::limits::MEMBER_LAG;

/// Members that keep the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seats {
    pub voters: BTreeSet<u64>,
    pub learners: BTreeSet<u64>,
}

/// The request that another master serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HandOver {
    pub to: NodeId,
    pub why: String,
}

/// The state by which a leader decides.
pub struct Standing {
    /// Status of the leader's own member.
    pub status: MemberStatus,
    /// The masters of the cluster map.
    pub masters: BTreeSet<u64>,
    /// Masters from which beats arrive.
    pub up: BTreeSet<u64>,
    /// Masters that are being removed.
    pub leaving: BTreeSet<u64>,
    /// Members that answer the leader.
    pub answering: BTreeSet<u64>,
}

impl Standing {
    /// Returns the next members, if they differ from the current ones.
    pub fn next_seats(&self) -> Option<Seats> {
        let masters = &self.masters - &self.leaving;
        let up = &self.up & &masters;
        let MemberStatus { members, member, .. } = &self.status;
        seats(members, *member, &masters, &up, &self.caught_up())
    }

    /// Returns the masters that may be asked to serve in place of this one.
    pub fn heirs(&self) -> BTreeSet<u64> {
        &self.working() - &self.leaving
    }

    /// Returns true if `node` votes or learns.
    pub fn is_member(&self, node: u64) -> bool {
        let Members { voters, learners } = &self.status.members;
        voters.iter().any(|ids| ids.contains(&node)) || learners.contains(&node)
    }

    /// Checks that a majority of the voters that remain without `node` work.
    ///
    /// # Errors
    /// `Conflict` if not.
    pub fn check_removable(&self, node: NodeId) -> Result<()> {
        let left = self.status.members.voters.iter().flatten().filter(|id| **id != node.0);
        let left: BTreeSet<u64> = left.copied().collect();
        if node.0 == self.status.member && left.is_empty() {
            return Err(Error::Conflict(format!(
                "node {node} serves as the master, and no other one votes: let two more masters \
                 join first"
            )));
        }
        let working = (&left & &self.working()).len();
        if working * 2 > left.len() {
            return Ok(());
        }
        let left = left.len();
        Err(Error::Conflict(format!(
            "without node {node} there are {left} voters, of which {working} are up and have \
             caught up: no majority. Bring the others back first, or let another master join"
        )))
    }

    /// Checks that the member of `node` may begin anew. At most a minority of the masters, or one
    /// of two, may lack entries at a time.
    ///
    /// # Errors
    /// `Conflict` if not.
    pub fn check_refill(&self, node: NodeId) -> Result<()> {
        let caught_up = self.caught_up();
        let others = self.masters.iter().filter(|id| **id != node.0);
        let lacking = others.filter(|id| !caught_up.contains(id)).count() + 1;
        let most = (self.masters.len().saturating_sub(1) / 2).max(1);
        if lacking <= most {
            return Ok(());
        }
        Err(Error::Conflict(format!(
            "of {} masters, {} others are away or have not caught up: start them; node {node} \
             keeps what it has until they have caught up",
            self.masters.len(),
            lacking - 1
        )))
    }

    /// Checks that `node` may begin as a new member with an empty directory. It begins as a
    /// learner, whatever it was before.
    ///
    /// # Errors
    /// `Conflict` if it is a member that had entries, or is being removed. `Unavailable` if this
    /// member does not lead, and so does not know what others have.
    pub fn check_entry(&self, node: NodeId) -> Result<()> {
        if self.leaving.contains(&node.0) {
            let text = "is being removed: let a new directory join with a new token";
            return Err(Error::Conflict(format!("node {node} {text}")));
        }
        let MemberStatus { members, followers, .. } = &self.status;
        let votes = members.voters.iter().any(|ids| ids.contains(&node.0));
        if votes || followers.get(&node.0).is_some_and(Option::is_some) {
            return Err(Error::Conflict(format!(
                "node {node} keeps the metadata already, and its directory has lost what it had: \
                 it must not vote again under this number. Remove it (cairn cluster remove DIR \
                 {node}), and let a new directory join with a new token"
            )));
        }
        if !self.status.leads() {
            return Err(Error::Unavailable("this master leads no longer: ask again".into()));
        }
        Ok(())
    }

    fn caught_up(&self) -> BTreeSet<u64> {
        caught_up(&self.status, &self.answering)
    }

    fn working(&self) -> BTreeSet<u64> {
        &self.up & &self.caught_up()
    }
}

/// Returns the members that have nearly all of the leader's log, and answer it: the leader itself,
/// whose `status` this is, and those of the others that are `answering` and lack at most
/// [`MEMBER_LAG`] entries. Only these count for a future majority, and only they become voters or
/// leaders.
pub fn caught_up(status: &MemberStatus, answering: &BTreeSet<u64>) -> BTreeSet<u64> {
    let has_all = |id: &&u64| status.lag_of(**id).is_some_and(|lag| lag <= MEMBER_LAG);
    let others = status.followers.keys().filter(|id| answering.contains(id)).filter(has_all);
    others.copied().chain([status.member]).collect()
}

/// Returns the next members, if they differ from those `now`.
///
/// `masters`: those of the cluster map that do not leave. `up`: masters among these from which
/// beats arrive. `caught_up`: the result of the function of that name. The `leader` is not
/// replaced: it votes even if an interrupted step would have ended without it, since no member can
/// lead such a step to its end.
///
/// One voter stays alone until there are three, since two are no safer than one; three stay until
/// there are five. A voter that leaves is replaced in the same step if a learner has caught up. If
/// none has, four voters become three, since a fourth one only adds to a majority. Two stay two:
/// each has all that was acknowledged, and a learner need not.
pub fn seats(
    now: &Members,
    leader: u64,
    masters: &BTreeSet<u64>,
    up: &BTreeSet<u64>,
    caught_up: &BTreeSet<u64>,
) -> Option<Seats> {
    let last = now.voters.last().cloned().unwrap_or_default();
    let known: BTreeSet<u64> = now.voters.iter().flatten().chain(&now.learners).copied().collect();
    let mut voters = &last & masters;
    voters.extend(masters.get(&leader));
    let works = |id: &u64| caught_up.contains(id) && up.contains(id);
    let ready = masters.iter().filter(|id| works(id) && !voters.contains(id));
    let ready: Vec<u64> = ready.copied().collect();
    let target = match voters.len() + ready.len() {
        0..=2 => voters.len(),
        3 | 4 => 3,
        _ => 5,
    };
    let missing = target.saturating_sub(voters.len());
    voters.extend(ready.into_iter().take(missing));
    while voters.len() > target {
        // Of the voters that may go, first one that does not work, otherwise the newest.
        let least = voters.iter().filter(|id| **id != leader).max_by_key(|id| (!works(id), **id));
        let Some(least) = least.copied() else { break };
        voters.remove(&least);
    }
    let is_member = |id: &&u64| known.contains(id) || up.contains(id);
    let learners = masters.iter().filter(is_member).filter(|id| !voters.contains(id));
    let learners: BTreeSet<u64> = learners.copied().collect();
    let same = now.voters == [voters.clone()] && now.learners == learners;
    (!same).then_some(Seats { voters, learners })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use cairn_meta::engine::raft::entry::EntryId;

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
        match seats(&now, 1, &set(masters), &set(up), &set(caught)) {
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
    fn four_voters_become_three_and_never_fewer() {
        let four: &[&[u64]] = &[&[1, 2, 3, 4]];
        let all = &[1, 2, 3, 4];
        assert_eq!(next(four, &[], all, all, all), "{1, 2, 3} {4}");
        // One that does not work goes first: it is away, or behind.
        assert_eq!(next(four, &[], all, &[1, 3, 4], all), "{1, 3, 4} {2}");
        assert_eq!(next(four, &[], all, all, &[1, 2, 4]), "{1, 2, 4} {3}");
        // One of five is removed while another one is away.
        let five: &[&[u64]] = &[&[1, 2, 3, 4, 5]];
        assert_eq!(next(five, &[], all, &[1, 2, 4], &[1, 2, 4]), "{1, 2, 4} {3}");
        assert_eq!(
            next(five, &[6], &[1, 2, 3, 4, 6], &[1, 2, 3, 4, 6], &[1, 2, 3, 4, 6]),
            "{1, 2, 3, 4, 6} {}"
        );
        // As few as were removed by name.
        assert_eq!(next(&[&[1, 2, 3]], &[], &[1, 2], &[1, 2], &[1, 2]), "{1, 2} {}");
        assert_eq!(next(&[&[1, 2]], &[], &[1, 2], &[1], &[1]), "same");
    }

    #[test]
    fn those_have_caught_up_that_answer_and_lack_little() {
        let id = |index| Some(EntryId { term: 1, index });
        let status = MemberStatus {
            member: 1,
            generation: 1,
            term: 1,
            leader: Some(1),
            members: Members::default(),
            last: id(5000),
            applied: id(5000),
            silence: Duration::ZERO,
            followers: [
                (2, Some(5000)),
                (3, Some(5000 - MEMBER_LAG)),
                (4, Some(4999 - MEMBER_LAG)),
                (5, None),
                (6, Some(5000)),
            ]
            .into(),
            failure: None,
            stalls: BTreeMap::new(),
            damage: None,
            undecided: None,
        };
        assert_eq!(caught_up(&status, &set(&[2, 3, 4, 5, 7])), set(&[1, 2, 3]));
    }

    /// Makes the standing of five masters; member 1 leads, unless `leader` says otherwise.
    fn standing(voters: &[&[u64]], learners: &[u64], leader: Option<u64>) -> Standing {
        let members = Members {
            voters: voters.iter().map(|ids| set(ids)).collect(),
            learners: set(learners),
        };
        let known: BTreeSet<u64> = members.voters.iter().flatten().copied().collect();
        let others = known.into_iter().chain(members.learners.iter().copied());
        let followers = if leader == Some(1) {
            others.filter(|id| *id != 1).map(|id| (id, Some(7))).collect()
        } else {
            BTreeMap::new()
        };
        let last = Some(EntryId { term: 1, index: 7 });
        let status = MemberStatus {
            member: 1,
            generation: 9,
            term: 1,
            leader,
            members,
            last,
            applied: last,
            silence: Duration::ZERO,
            followers,
            failure: None,
            stalls: BTreeMap::new(),
            damage: None,
            undecided: None,
        };
        let all = set(&[1, 2, 3, 4, 5]);
        let leaving = BTreeSet::new();
        Standing { status, masters: all.clone(), up: all.clone(), leaving, answering: all }
    }

    fn is_conflict(result: Result<()>) -> bool {
        matches!(result, Err(Error::Conflict(_)))
    }

    /// Voters, learners, whether the learner has entries, and whether it may begin.
    type Case = (&'static [&'static [u64]], &'static [u64], bool, bool);

    #[test]
    fn only_one_that_has_promised_nothing_begins() {
        let node = NodeId(2);
        // The node is a voter, before a joint step, after it, or both; one that learns and has
        // something, or is not known to; nobody. Only the last two may begin.
        let cases: [Case; 8] = [
            (&[&[1, 2, 3]], &[], true, false),
            (&[&[1, 2, 3]], &[], false, false),
            (&[&[1, 2, 3], &[1, 3, 4]], &[], true, false),
            (&[&[1, 3, 4], &[1, 2, 3]], &[], false, false),
            (&[&[1, 2, 3], &[1, 2, 4]], &[], false, false),
            (&[&[1, 3, 4]], &[2], true, false),
            (&[&[1, 3, 4]], &[2], false, true),
            (&[&[1, 3, 4]], &[], false, true),
        ];
        for (voters, learners, has_entries, may) in cases {
            for leader in [Some(1), Some(3), None] {
                for is_leaving in [false, true] {
                    let mut standing = standing(voters, learners, leader);
                    if let Some(has) = standing.status.followers.get_mut(&node.0) {
                        *has = has_entries.then_some(1);
                    }
                    standing.leaving.extend(is_leaving.then_some(node.0));
                    let (result, leads) = (standing.check_entry(node), leader == Some(1));
                    let shown = format!("{voters:?} {learners:?} {leader:?}: {result:?}");
                    let votes = voters.iter().any(|ids| ids.contains(&node.0));
                    match result {
                        Ok(()) => assert!(may && leads && !is_leaving, "{shown}"),
                        Err(Error::Unavailable(_)) => {
                            assert!(!leads && !is_leaving && !votes, "{shown}");
                        }
                        result => {
                            assert!(is_conflict(result), "{shown}");
                            assert!(is_leaving || votes || leads && !may, "{shown}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn one_goes_where_a_majority_of_the_others_works() {
        let standing = |up: &[u64], answering: &[u64], voters: &[&[u64]]| {
            let (up, answering) = (set(up), set(answering));
            Standing { up, answering, ..standing(voters, &[4], Some(1)) }
        };
        let three: &[&[u64]] = &[&[1, 2, 3]];
        let check = |up: &[u64], answering: &[u64], voters, node| {
            is_conflict(standing(up, answering, voters).check_removable(NodeId(node)))
        };
        for node in [1, 2, 3] {
            assert!(!check(&[1, 2, 3, 4], &[2, 3, 4], three, node), "{node}");
        }
        // One that does not work may go, and no other one.
        assert!(!check(&[1, 2], &[2], three, 3));
        assert!(check(&[1, 2], &[2], three, 2) && check(&[1, 2], &[2], three, 1));
        assert!(check(&[1, 2, 3], &[2], three, 2), "one that does not answer works not");
        // One that learns may go as long as a majority works.
        assert!(!check(&[1, 2], &[2], three, 4) && check(&[1], &[], three, 4));
        // All voters of an interrupted step count.
        let joint: &[&[u64]] = &[&[1, 2, 3], &[1, 2, 5]];
        assert!(check(&[1, 2], &[2], joint, 2) && !check(&[1, 2, 5], &[2, 5], joint, 3));
        let alone: &[&[u64]] = &[&[1]];
        assert!(check(&[1], &[], alone, 1) && !check(&[1], &[], alone, 4));
    }

    #[test]
    fn a_minority_is_filled_at_a_time() {
        let refused = |masters: &[u64], answering: &[u64], node| {
            let voters = [masters];
            let (masters, answering) = (set(masters), set(answering));
            let standing = Standing { masters, answering, ..standing(&voters, &[], Some(1)) };
            is_conflict(standing.check_refill(NodeId(node)))
        };
        assert!(!refused(&[1, 2, 3], &[2, 3], 3));
        assert!(!refused(&[1, 2, 3], &[2], 3), "it does not answer itself");
        assert!(refused(&[1, 2, 3], &[3], 3), "another one is away");
        assert!(!refused(&[1, 2], &[], 2), "one of two has all");
        assert!(!refused(&[1, 2, 3, 4, 5], &[2, 3], 4));
        assert!(refused(&[1, 2, 3, 4, 5], &[2], 3));
    }

    #[test]
    fn heirs_work_and_stay() {
        let mut five = standing(&[&[1, 2, 3]], &[4], Some(1));
        assert_eq!(five.heirs(), set(&[1, 2, 3, 4]));
        five.leaving = set(&[2]);
        five.up = set(&[1, 2, 3]);
        five.answering = set(&[2, 4]);
        assert_eq!(five.heirs(), set(&[1]));
        assert!([1, 2, 3, 4].iter().all(|id| five.is_member(*id)) && !five.is_member(5));
    }

    #[test]
    fn a_step_that_was_interrupted_is_ended() {
        assert_eq!(next(&[&[1], &[1, 2, 3]], &[], &[1, 2, 3], &[1, 2, 3], &[]), "{1, 2, 3} {}");
    }

    #[test]
    fn a_leader_that_an_interrupted_step_leaves_out_votes() {
        let four = &[1, 2, 3, 4];
        assert_eq!(next(&[&[1, 2, 4], &[2, 3, 4]], &[], four, four, four), "{1, 2, 3} {4}");
        assert_eq!(next(&[&[1, 2, 4], &[2, 3, 4]], &[], four, &[1, 3, 4], four), "{1, 3, 4} {2}");
    }
}
