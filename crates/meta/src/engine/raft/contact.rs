//! Times when this member heard from others, and whether it may keep them from an election.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cairn_base::planted::{Bug, is_planted};
use parking_lot::Mutex;

/// Contact with other members. Times are of `Clock::monotonic`.
#[derive(Default)]
pub struct Contact {
    state: Mutex<ContactState>,
    deaf: AtomicBool,
    stands_down: AtomicBool,
}

#[derive(Default)]
struct ContactState {
    /// Time when a leader was last heard.
    leader: Duration,
    /// Time when the latest answered message to each other member was sent.
    answers: BTreeMap<u64, Duration>,
    /// Time until which this member has to follow a leader that hands over to it.
    invited: Duration,
    /// Time without a leader for which this member gives no vote and asks for none; `None` unless
    /// it is a suspect.
    suspicion: Option<Duration>,
}

impl Contact {
    /// Notes that a leader whose term is not over was heard.
    pub fn hear_leader(&self, now: Duration) {
        let mut state = self.state.lock();
        state.leader = state.leader.max(now);
    }

    /// Makes this member a suspect: it may have lost the end of its log, and leaves elections to
    /// the others for `time` after its start, or after a leader was heard last. If they elect
    /// nobody in that time, it votes.
    pub fn suspect(&self, time: Duration) {
        self.state.lock().suspicion = Some(time);
    }

    /// Notes that this member has what it may have lost.
    pub fn clear_suspicion(&self) {
        self.state.lock().suspicion = None;
    }

    /// Returns whether this member neither votes nor asks for votes now.
    pub fn is_suspect(&self, now: Duration) -> bool {
        let state = self.state.lock();
        let is_suspect = state.suspicion.is_some_and(|time| now < state.leader + time);
        is_suspect && !is_planted(Bug::SuspectVotes)
    }

    pub fn heard_leader(&self) -> Duration {
        self.state.lock().leader
    }

    /// Notes that `member` answered a message sent at `sent`.
    pub fn answered(&self, member: u64, sent: Duration) {
        let mut state = self.state.lock();
        let last = state.answers.entry(member).or_default();
        *last = sent.max(*last);
    }

    /// Returns the last time at which a majority of each set, including `me`, was heard; `since` if
    /// none was heard since then.
    pub fn majority(
        &self,
        me: u64,
        voters: &[BTreeSet<u64>],
        since: Duration,
        now: Duration,
    ) -> Duration {
        let state = self.state.lock();
        let heard = |id: &u64| {
            if *id == me { now } else { state.answers.get(id).copied().unwrap_or(since).max(since) }
        };
        let of_set = |ids: &BTreeSet<u64>| {
            let mut times: Vec<Duration> = ids.iter().map(heard).collect();
            times.sort_unstable();
            // The members from this time on are a majority.
            times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or(now)
        };
        voters.iter().map(of_set).min().unwrap_or(now)
    }

    /// Returns the other members that answered a message sent at `since` or later.
    pub fn answering(&self, since: Duration) -> BTreeSet<u64> {
        let state = self.state.lock();
        let answering = state.answers.iter().filter(|(_, sent)| **sent >= since);
        answering.map(|(member, _)| *member).collect()
    }

    /// Returns whether this leader must not keep others from an election, as it has long heard no
    /// majority, or is handing over.
    pub fn is_deaf(&self) -> bool {
        self.deaf.load(Ordering::Acquire) || self.stands_down.load(Ordering::Acquire)
    }

    pub fn set_deaf(&self, deaf: bool) -> bool {
        self.deaf.swap(deaf, Ordering::AcqRel) != deaf
    }

    /// Sets whether this leader is silent.
    pub fn stand_down(&self, stands_down: bool) {
        self.stands_down.store(stands_down, Ordering::Release);
    }

    /// Notes that a leader hands over to this member, which has to start an election by `until`; 0
    /// ends it.
    pub fn invite(&self, until: Duration) {
        self.state.lock().invited = until;
    }

    pub fn is_invited(&self, now: Duration) -> bool {
        now < self.state.lock().invited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_is_as_old_as_its_oldest_part() {
        let secs = Duration::from_secs;
        let contact = Contact::default();
        let three = [BTreeSet::from([1, 2, 3])];
        let heard = |voters: &[BTreeSet<u64>]| contact.majority(1, voters, secs(1), secs(100));
        assert_eq!(heard(&three), secs(1));
        contact.answered(2, secs(50));
        assert_eq!(heard(&three), secs(50));
        contact.answered(3, secs(70));
        contact.answered(3, secs(60));
        assert_eq!(heard(&three), secs(70));
        assert_eq!(heard(&[BTreeSet::from([1, 2, 3, 4, 5])]), secs(50));
        assert_eq!(heard(&[BTreeSet::from([1, 2, 3]), BTreeSet::from([4, 5, 1])]), secs(1));
        assert_eq!(heard(&[BTreeSet::from([1])]), secs(100));
        assert_eq!(heard(&[BTreeSet::from([1, 2])]), secs(50));
    }
}
