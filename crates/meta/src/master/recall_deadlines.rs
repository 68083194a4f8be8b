//! Requests to sessions to give something up that are not fulfilled yet, and since when. No
//! client's liveness rests on the word of another: a session that does not fulfil a request within
//! a lease is ended, as if its lease had lapsed.
//!
//! The time is counted by this master, and only while it works: no session is to blame for an
//! acknowledgement that a stalled disk holds up. A session's own requests never stop the count, and
//! requests to it never depend on another session: docs/decisions/0021.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Clock, Ino, SessionId};
use parking_lot::Mutex;

use crate::engine::Lease;

/// A step of the master that takes longer than this is a stall, microseconds.
const STALL_US: u64 = 250_000;
/// Most time that is counted between two looks at the clock: beyond that, the process did not run.
const GAP: Duration = Duration::from_secs(1);

/// A clock that runs only while the master works.
pub struct Working {
    clock: Arc<dyn Clock>,
    lease: Option<Arc<Lease>>,
    /// Time since which the thread of this kind is at the same step, microseconds; 0 while it waits
    /// for work.
    executing: AtomicU64,
    committing: AtomicU64,
    fetching: Mutex<Fetching>,
    counted: Mutex<WorkTimer>,
}

#[derive(Default)]
struct Fetching {
    begun: u64,
    /// Start times of fetches, in the order in which they began.
    since: BTreeMap<u64, u64>,
}

#[derive(Default)]
struct WorkTimer {
    looked: Option<Duration>,
    time: Duration,
}

/// A step of the master that does not depend on any client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Execute,
    Commit,
}

impl Working {
    pub fn new(clock: Arc<dyn Clock>, lease: Option<Arc<Lease>>) -> Working {
        Working {
            clock,
            lease,
            executing: AtomicU64::new(0),
            committing: AtomicU64::new(0),
            fetching: Mutex::default(),
            counted: Mutex::default(),
        }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.clock.monotonic().as_micros()).unwrap_or(u64::MAX).max(1)
    }

    fn since(&self, step: Step) -> &AtomicU64 {
        match step {
            Step::Execute => &self.executing,
            Step::Commit => &self.committing,
        }
    }

    /// Notes that a thread begins a step.
    pub fn begin(&self, step: Step) {
        self.since(step).store(self.now_us(), Ordering::SeqCst);
    }

    /// Notes that a thread has nothing to do.
    pub fn rest(&self, step: Step) {
        self.since(step).store(0, Ordering::SeqCst);
    }

    /// Runs a function that reads the disk.
    pub fn fetch<T>(&self, fetch: impl FnOnce() -> T) -> T {
        let number = {
            let mut fetching = self.fetching.lock();
            fetching.begun += 1;
            let number = fetching.begun;
            fetching.since.insert(number, self.now_us());
            number
        };
        let fetched = fetch();
        self.fetching.lock().since.remove(&number);
        fetched
    }

    fn is_stalled(&self) -> bool {
        let now = self.now_us();
        let is_long = |since: u64| since > 0 && now.saturating_sub(since) > STALL_US;
        let fetching = self.fetching.lock().since.first_key_value().map_or(0, |(_, since)| *since);
        is_long(self.executing.load(Ordering::SeqCst))
            || is_long(self.committing.load(Ordering::SeqCst))
            || is_long(fetching)
            || self.lease.as_ref().is_some_and(|lease| !lease.is_held())
    }

    /// Returns the time for which this master has worked. Between two calls it grows by no more
    /// than the time between them.
    pub fn time(&self) -> Duration {
        let is_stalled = self.is_stalled();
        let mut counted = self.counted.lock();
        let now = self.clock.monotonic();
        let looked = counted.looked.replace(now).unwrap_or(now);
        if !is_stalled {
            counted.time += now.saturating_sub(looked).min(GAP);
        }
        counted.time
    }
}

/// The requests to all sessions.
pub struct RecallDeadlines {
    working: Arc<Working>,
    sessions: Mutex<HashMap<SessionId, One>>,
}

#[derive(Default)]
struct One {
    /// Recalls that were not acknowledged, with the times when they were sent.
    recalls: VecDeque<(u64, Duration)>,
    /// Directories that were not given back. Another attachment does not change that.
    directories: BTreeMap<Ino, Duration>,
}

impl One {
    fn since(&self) -> Option<Duration> {
        let recall = self.recalls.front().map(|(_, since)| *since);
        recall.into_iter().chain(self.directories.values().copied()).min()
    }

    fn is_empty(&self) -> bool {
        self.recalls.is_empty() && self.directories.is_empty()
    }
}

impl RecallDeadlines {
    pub fn new(working: Arc<Working>) -> RecallDeadlines {
        RecallDeadlines { working, sessions: Mutex::default() }
    }

    /// Notes that a recall was sent.
    pub fn recalled(&self, session: SessionId, number: u64) {
        let now = self.working.time();
        self.sessions.lock().entry(session).or_default().recalls.push_back((number, now));
    }

    /// Notes that all recalls up to this number were acknowledged.
    pub fn acknowledged(&self, session: SessionId, number: u64) {
        self.done(session, |one| {
            while one.recalls.pop_front_if(|(sent, _)| *sent <= number).is_some() {}
        });
    }

    /// Notes that the session holds no leases.
    pub fn let_go(&self, session: SessionId) {
        self.done(session, |one| one.recalls.clear());
    }

    /// Notes that a directory must be given back.
    pub fn wanted_back(&self, session: SessionId, directory: Ino) {
        let now = self.working.time();
        let mut sessions = self.sessions.lock();
        sessions.entry(session).or_default().directories.entry(directory).or_insert(now);
    }

    /// Notes that a directory was given back.
    pub fn given_back(&self, session: SessionId, directory: Ino) {
        self.done(session, |one| {
            one.directories.remove(&directory);
        });
    }

    fn done(&self, session: SessionId, done: impl FnOnce(&mut One)) {
        let mut sessions = self.sessions.lock();
        let Some(one) = sessions.get_mut(&session) else { return };
        done(one);
        if one.is_empty() {
            sessions.remove(&session);
        }
    }

    /// Returns whether a session has left a request unfulfilled for `most`.
    pub fn is_late(&self, session: SessionId, most: Duration) -> bool {
        let since = self.sessions.lock().get(&session).and_then(One::since);
        self.is_past(since, most)
    }

    /// Returns the sessions with unfulfilled requests, and the age of each one's oldest request.
    pub fn all(&self) -> Vec<(SessionId, Duration)> {
        let now = self.working.time();
        let sessions = self.sessions.lock();
        let since = sessions.iter().filter_map(|(session, one)| Some((*session, one.since()?)));
        since.map(|(session, since)| (session, now.saturating_sub(since))).collect()
    }

    /// Returns whether the session has not given a directory back for `most`. Attaching again does
    /// not reset that.
    pub fn keeps_late(&self, session: SessionId, most: Duration) -> bool {
        let sessions = self.sessions.lock();
        let first = |one: &One| one.directories.values().copied().min();
        let since = sessions.get(&session).and_then(first);
        drop(sessions);
        self.is_past(since, most)
    }

    fn is_past(&self, since: Option<Duration>, most: Duration) -> bool {
        let is_due = |since| self.working.time() >= since + most;
        since.is_some_and(is_due) && !is_planted(Bug::RecallWithoutDeadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_base::Timestamp;

    #[derive(Default)]
    struct SetClock(AtomicU64);

    impl Clock for SetClock {
        fn now(&self) -> Timestamp {
            Timestamp(0)
        }

        fn monotonic(&self) -> Duration {
            Duration::from_millis(1000 + self.0.load(Ordering::SeqCst))
        }
    }

    const ONE: SessionId = SessionId(1);
    const MOST: Duration = Duration::from_secs(10);

    struct Setup {
        clock: Arc<SetClock>,
        working: Arc<Working>,
        asked: RecallDeadlines,
    }

    fn setup() -> Setup {
        let clock = Arc::new(SetClock::default());
        let working = Arc::new(Working::new(clock.clone(), None));
        Setup { clock, asked: RecallDeadlines::new(working.clone()), working }
    }

    impl Setup {
        /// Lets time pass, with four looks at it per second.
        fn pass(&self, secs: u64) {
            for _ in 0..secs * 4 {
                self.clock.0.fetch_add(250, Ordering::SeqCst);
                self.working.time();
            }
        }
    }

    #[test]
    fn a_recall_has_a_lease_to_be_acknowledged() {
        let setup = setup();
        setup.asked.recalled(ONE, 1);
        setup.pass(5);
        setup.asked.recalled(ONE, 2);
        setup.pass(4);
        assert!(!setup.asked.is_late(ONE, MOST));
        assert_eq!(setup.asked.all(), [(ONE, Duration::from_secs(9))]);
        setup.pass(1);
        assert!(setup.asked.is_late(ONE, MOST));
        setup.asked.acknowledged(ONE, 1);
        assert!(!setup.asked.is_late(ONE, MOST), "the second one was sent later");
        setup.pass(5);
        assert!(setup.asked.is_late(ONE, MOST));
        setup.asked.let_go(ONE);
        assert!(!setup.asked.is_late(ONE, MOST));
    }

    #[test]
    fn another_attachment_gives_no_more_time_for_a_directory() {
        let setup = setup();
        setup.asked.wanted_back(ONE, Ino(7));
        setup.pass(9);
        setup.asked.let_go(ONE);
        setup.asked.wanted_back(ONE, Ino(7));
        setup.pass(1);
        assert!(setup.asked.is_late(ONE, MOST));
        setup.asked.given_back(ONE, Ino(7));
        assert!(!setup.asked.is_late(ONE, MOST));
    }

    #[test]
    fn while_the_disk_stalls_nothing_is_counted() {
        for step in [Step::Execute, Step::Commit] {
            let setup = setup();
            setup.asked.recalled(ONE, 1);
            setup.working.begin(step);
            setup.pass(30);
            assert!(!setup.asked.is_late(ONE, MOST));
            // Steps that end are no stall, however many there are.
            for _ in 0..12 * 4 {
                setup.working.begin(step);
                setup.pass_once();
            }
            assert!(setup.asked.is_late(ONE, MOST));
        }
        let setup = setup();
        setup.asked.recalled(ONE, 1);
        setup.working.fetch(|| setup.pass(30));
        assert!(!setup.asked.is_late(ONE, MOST));
    }

    #[test]
    fn a_process_that_was_stopped_blames_nobody() {
        let setup = setup();
        setup.asked.recalled(ONE, 1);
        setup.clock.0.fetch_add(3_600_000, Ordering::SeqCst);
        assert!(!setup.asked.is_late(ONE, MOST));
    }

    impl Setup {
        fn pass_once(&self) {
            self.clock.0.fetch_add(250, Ordering::SeqCst);
            self.working.time();
        }
    }
}
