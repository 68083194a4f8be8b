//! Watches progress. Members that answer, and logs that have entries to send, commit or apply, must
//! make progress. Stalls are reported, and ended if a member can do that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Number of elections within [`ELECTIONS_TIME`] that is too many.
const ELECTIONS_MAX: usize = 6;
const ELECTIONS_TIME: Duration = Duration::from_secs(60);

/// A stall: a part of a member that makes no progress without a known reason.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stall {
    /// Another member answers this leader, lacks entries, and receives none of them.
    Follower(u64),
    /// A majority answers this leader, and confirms none of the entries that it has sent.
    Commits,
    /// Entries are committed, and this member applies none of them.
    Applying,
    /// Elections follow each other, and no leader stays in office.
    Elections,
}

/// The state of a member at one moment. Entries are counted: an index plus one.
#[derive(Clone, Debug, Default)]
pub struct ProgressSample {
    pub term: u64,
    /// Number of entries of the log; of those committed, as far as this member knows; and of those
    /// applied here.
    pub entries: u64,
    pub committed: u64,
    pub applied: u64,
    /// Set on a leader if a majority has answered lately.
    pub has_majority: bool,
    /// Progress, on a leader, of each other member that has answered lately.
    pub followers: BTreeMap<u64, FollowerProgress>,
}

/// The progress of another member as its leader sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowerProgress {
    /// Number of entries that it has; 0 if that is unknown.
    pub entries: u64,
    /// Pages of snapshots that it received.
    pub pages: u64,
}

/// An amount of work done, and the time since it has stayed the same.
#[derive(Clone, Copy, Debug)]
struct Standing {
    done: (u64, u64),
    since: Duration,
}

/// Compares samples of a member with those before.
#[derive(Debug)]
pub struct ProgressWatch {
    /// Time without progress after which something counts as a stall.
    limit: Duration,
    standing: BTreeMap<Stall, Standing>,
    term: Option<u64>,
    /// Times at which newer terms were seen.
    elections: VecDeque<Duration>,
}

impl ProgressWatch {
    pub fn new(limit: Duration) -> ProgressWatch {
        let (standing, elections) = (BTreeMap::new(), VecDeque::new());
        ProgressWatch { limit, standing, term: None, elections }
    }

    /// Takes a sample; returns the stalls and their durations.
    pub fn observe(&mut self, now: Duration, sample: &ProgressSample) -> BTreeMap<Stall, Duration> {
        let mut due = BTreeMap::new();
        for (member, progress) in &sample.followers {
            if progress.entries < sample.entries {
                due.insert(Stall::Follower(*member), (progress.entries, progress.pages));
            }
        }
        if sample.has_majority && sample.committed < sample.entries {
            due.insert(Stall::Commits, (sample.committed, 0));
        }
        if sample.applied < sample.committed {
            due.insert(Stall::Applying, (sample.applied, 0));
        }
        self.standing.retain(|stall, standing| due.get(stall) == Some(&standing.done));
        for (stall, done) in due {
            self.standing.entry(stall).or_insert(Standing { done, since: now });
        }
        let lasts = |standing: &Standing| now.saturating_sub(standing.since);
        let standing = self.standing.iter().map(|(stall, standing)| (*stall, lasts(standing)));
        let mut stalls: BTreeMap<Stall, Duration> =
            standing.filter(|(_, lasts)| *lasts >= self.limit).collect();
        if let Some(since) = self.count_elections(now, sample.term) {
            stalls.insert(Stall::Elections, now.saturating_sub(since));
        }
        stalls
    }

    /// Counts newer terms; returns the time of the first of too many.
    fn count_elections(&mut self, now: Duration, term: u64) -> Option<Duration> {
        let former = self.term.replace(term).unwrap_or(term);
        let newer = usize::try_from(term.saturating_sub(former)).unwrap_or(usize::MAX);
        self.elections.extend(std::iter::repeat_n(now, newer.min(ELECTIONS_MAX)));
        while self.elections.front().is_some_and(|at| now.saturating_sub(*at) > ELECTIONS_TIME) {
            self.elections.pop_front();
        }
        let first = self.elections.len().checked_sub(ELECTIONS_MAX)?;
        self.elections.drain(..first);
        self.elections.front().copied()
    }
}

/// Returns the stalls of `now` that were not among those `before`, and those of `before` that are
/// over.
pub fn changed(
    before: &BTreeMap<Stall, Duration>,
    now: &BTreeMap<Stall, Duration>,
) -> (BTreeSet<Stall>, BTreeSet<Stall>) {
    let keys = |stalls: &BTreeMap<Stall, Duration>| stalls.keys().copied().collect::<BTreeSet<_>>();
    let (before, now) = (keys(before), keys(now));
    (&now - &before, &before - &now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn leader(entries: u64, committed: u64, follower: FollowerProgress) -> ProgressSample {
        ProgressSample {
            term: 3,
            entries,
            committed,
            applied: committed,
            has_majority: true,
            followers: BTreeMap::from([(7, follower)]),
        }
    }

    fn has(entries: u64, pages: u64) -> FollowerProgress {
        FollowerProgress { entries, pages }
    }

    /// Observes samples a second apart, starting at 0; returns the stalls after the last one.
    fn stalls_of(samples: impl IntoIterator<Item = ProgressSample>) -> Vec<(Stall, u64)> {
        let mut watch = ProgressWatch::new(LIMIT);
        let mut stalls = BTreeMap::new();
        for (second, sample) in samples.into_iter().enumerate() {
            stalls = watch.observe(secs(second as u64), &sample);
        }
        stalls.into_iter().map(|(stall, lasts)| (stall, lasts.as_secs())).collect()
    }

    #[test]
    fn a_follower_that_gets_nothing_is_named() {
        let still = |count: usize| std::iter::repeat_n(leader(100, 100, has(10, 0)), count);
        assert_eq!(stalls_of(still(10)), []);
        assert_eq!(stalls_of(still(12)), [(Stall::Follower(7), 11)]);
    }

    #[test]
    fn a_follower_that_moves_or_has_all_is_not() {
        assert_eq!(stalls_of((0..30).map(|n| leader(100, 100, has(10 + n, 0)))), []);
        assert_eq!(stalls_of((0..30).map(|n| leader(100, 100, has(10, n)))), [], "a snapshot");
        assert_eq!(stalls_of((0..30).map(|_| leader(100, 100, has(100, 0)))), []);
        let away = ProgressSample { followers: BTreeMap::new(), ..leader(100, 100, has(0, 0)) };
        assert_eq!(stalls_of(std::iter::repeat_n(away, 30)), [], "it does not answer");
    }

    #[test]
    fn entries_that_no_majority_confirms_or_nobody_applies() {
        let uncommitted = leader(100, 90, has(100, 0));
        assert_eq!(stalls_of(std::iter::repeat_n(uncommitted.clone(), 12)), [(Stall::Commits, 11)]);
        let alone = ProgressSample { has_majority: false, ..uncommitted };
        assert_eq!(stalls_of(std::iter::repeat_n(alone, 30)), [], "that is known otherwise");
        let unapplied = ProgressSample { applied: 5, ..leader(100, 100, has(100, 0)) };
        assert_eq!(stalls_of(std::iter::repeat_n(unapplied, 12)), [(Stall::Applying, 11)]);
    }

    #[test]
    fn elections_without_an_end() {
        let of_term = |term| ProgressSample { term, ..ProgressSample::default() };
        assert_eq!(stalls_of((0..6).map(of_term)), [], "five newer terms");
        assert_eq!(stalls_of((0..8).map(of_term)), [(Stall::Elections, 5)]);
        assert_eq!(stalls_of((0..40).map(|n| of_term(n / 20))), []);
        let calm = (0..8).chain(std::iter::repeat_n(8, 80)).map(of_term);
        assert_eq!(stalls_of(calm), [], "over after a minute");
    }
}
