//! A log: each line is an object of JSON, and goes to all sinks of the log.

use std::fmt;
use std::sync::Arc;

use cairn_base::{Clock, UserId, rfc3339};
use serde::Serialize;

use crate::queue::LineQueue;

/// The name of a user, if it can be said without waiting.
pub type Names = Arc<dyn Fn(UserId) -> Option<String> + Send + Sync>;

/// Takes objects, and gives each as a line to sinks. Never waits. Clones are the same.
#[derive(Clone)]
pub struct LineLog {
    clock: Arc<dyn Clock>,
    names: Names,
    queues: Arc<[Arc<LineQueue>]>,
}

impl fmt::Debug for LineLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineLog").field("queues", &self.queues).finish_non_exhaustive()
    }
}

impl LineLog {
    pub fn new(clock: Arc<dyn Clock>, names: Names, queues: &[Arc<LineQueue>]) -> LineLog {
        LineLog { clock, names, queues: queues.into() }
    }

    /// Now, as it is in lines.
    pub fn time(&self) -> String {
        rfc3339(self.clock.now())
    }

    pub fn name_of(&self, user: UserId) -> Option<String> {
        if user == UserId::ROOT {
            return Some("root".to_owned());
        }
        (self.names)(user)
    }

    pub fn write(&self, record: &impl Serialize) {
        let mut line = Vec::with_capacity(512);
        match serde_json::to_writer(&mut line, record) {
            Ok(()) => line.push(b'\n'),
            Err(error) => return tracing::error!(%error, "a record is no JSON"),
        }
        self.queues.iter().for_each(|queue| queue.add(&line));
    }
}
