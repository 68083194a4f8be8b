//! The log of this process: its lines are counted, and kept for a bucket if that is wanted.
//!
//! Only lines of level `info` and above count: an append to a bucket makes lines of lower levels,
//! and each of them would cause another append.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use cairn_audit::{LineQueue, levels};
use cairn_base::{Party, Timestamp, rfc3339};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

static QUEUE: OnceLock<Arc<LineQueue>> = OnceLock::new();

/// Keeps lines from here on.
pub fn keep() {
    let _ = QUEUE.set(Arc::new(LineQueue::new("log", "bucket")));
}

/// Returns the lines, if they are kept.
pub fn queue() -> Option<Arc<LineQueue>> {
    QUEUE.get().cloned()
}

/// Sees each line of the log.
pub struct OwnLog;

impl<S: Subscriber> Layer<S> for OwnLog {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let level = match *metadata.level() {
            Level::ERROR => "error",
            Level::WARN => "warn",
            _ => "info",
        };
        levels::add(metadata.target(), level);
        let Some(queue) = QUEUE.get() else { return };
        let mut members = Members(Map::new());
        members.set("time", rfc3339(Timestamp::from_system_time(SystemTime::now())));
        members.set("level", level);
        members.set("target", metadata.target());
        event.record(&mut members);
        let line = format!("{}\n", Value::Object(members.0));
        queue.add(Party::Other, line.as_bytes());
    }
}

/// Fields of an event.
struct Members(Map<String, Value>);

impl Members {
    fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }
}

impl Visit for Members {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), value);
    }
}
