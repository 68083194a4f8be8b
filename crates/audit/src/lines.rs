//! A log: each line is an object of JSON, and goes to all sinks of the log.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use cairn_base::{Clock, Error, Party, Result, UserId, rfc3339};
use serde::Serialize;

use crate::actor::Actor;
use crate::queue::LineQueue;
use crate::recent::RecentLines;
use crate::refusals::Refusals;

/// Returns the name of a user, if that is possible without waiting.
pub type Names = Arc<dyn Fn(UserId) -> Option<Arc<str>> + Send + Sync>;

thread_local! {
    /// The last second whose time this thread formatted, and its text.
    static SECOND: RefCell<(i64, String)> = const { RefCell::new((i64::MIN, String::new())) };
}

/// Takes objects, and gives each as a line to the sinks. Never waits. Clones share its state.
#[derive(Clone)]
pub struct LineLog {
    clock: Arc<dyn Clock>,
    names: Names,
    root: Arc<str>,
    queues: Arc<[Arc<LineQueue>]>,
    /// Last lines, if they are kept in memory.
    recent: Option<Arc<RecentLines>>,
    /// Limits of the records of requests without a user, if there are such limits.
    pub(crate) refusals: Option<Arc<Refusals>>,
}

impl fmt::Debug for LineLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineLog").field("queues", &self.queues).finish_non_exhaustive()
    }
}

impl LineLog {
    pub fn new(clock: Arc<dyn Clock>, names: Names, queues: &[Arc<LineQueue>]) -> LineLog {
        let (root, queues) = ("root".into(), queues.into());
        LineLog { clock, names, root, queues, recent: None, refusals: None }
    }

    /// Keeps the last lines of the log in memory.
    #[must_use]
    pub fn remembered(self) -> LineLog {
        LineLog { recent: Some(Arc::default()), ..self }
    }

    /// Returns the last lines, if they are kept.
    pub fn recent(&self) -> Option<&Arc<RecentLines>> {
        self.recent.as_ref()
    }

    /// Limits the records of requests without a user to a few, and counts the others.
    #[must_use]
    pub fn bounded(self) -> LineLog {
        LineLog { refusals: Some(Arc::default()), ..self }
    }

    /// Returns true if changes that could not be recorded are refused.
    pub fn is_required(&self) -> bool {
        self.queues.iter().any(|queue| queue.is_required())
    }

    /// Checks that each sink has room for the record of another change, if records are required.
    ///
    /// # Errors
    /// `Full` if not.
    pub fn check_room(&self) -> Result<()> {
        match self.queues.iter().find(|queue| !queue.has_room()) {
            None => Ok(()),
            Some(queue) => Err(Error::Full(format!(
                "the audit cannot be written ({} of {}), and without a record nothing is changed: \
                 make room for it",
                queue.sink, queue.log
            ))),
        }
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Returns the current time in the form for lines.
    pub(crate) fn time(&self) -> String {
        let now = self.clock.now();
        SECOND.with_borrow_mut(|(second, text)| {
            if *second != now.secs() {
                (*second, *text) = (now.secs(), rfc3339(now));
                // The part that all times of this second share.
                text.truncate(text.len() - "000Z".len());
            }
            let millis = now.subsec_nanos() / 1_000_000;
            let digit = |of: u32| char::from(b'0' + (millis / of % 10) as u8);
            let mut time = String::with_capacity(text.len() + 4);
            time.push_str(text);
            time.extend([digit(100), digit(10), digit(1), 'Z']);
            time
        })
    }

    /// Adds the name of the user to a record.
    pub(crate) fn name(&self, actor: &mut Actor) {
        let Some(user) = actor.user else { return };
        actor.name = match user {
            UserId::ROOT => Some(Arc::clone(&self.root)),
            user => (self.names)(user),
        };
    }

    pub(crate) fn write(&self, party: Party, record: &impl Serialize) {
        self.write_of(party, record, false);
    }

    /// Writes a record. `has_changed` says that a change was made, or may have been.
    pub(crate) fn write_of(&self, party: Party, record: &impl Serialize, has_changed: bool) {
        let mut line = Vec::with_capacity(512);
        match serde_json::to_writer(&mut line, record) {
            Ok(()) => line.push(b'\n'),
            Err(error) => return tracing::error!(%error, "a record is no JSON"),
        }
        self.queues.iter().for_each(|queue| queue.add_of(party, &line, has_changed));
        if let Some(recent) = &self.recent {
            recent.add(party, &line);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cairn_base::Timestamp;

    use super::*;

    struct FixedClock(i64);

    impl Clock for FixedClock {
        fn now(&self) -> Timestamp {
            Timestamp(self.0)
        }

        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }
    }

    #[test]
    fn times_are_written_as_ever() {
        for ns in [0, 1_999_000_000, 1_001_000_000, 1_795_699_917_042_000_000, -1] {
            let log = LineLog::new(Arc::new(FixedClock(ns)), Arc::new(|_| None), &[]);
            assert_eq!(log.time(), rfc3339(Timestamp(ns)));
        }
    }
}
