//! The audit: records of requests that change something or are refused, and lines of JSON on their
//! way to sinks.
//!
//! It is not: a place that knows doors, files or buckets. The part that answers a request makes the
//! record, and the program provides the sinks.
//!
//! ```text
//!   request answered ──► AuditRecord ──► LineLog ──┬─► LineQueue ──► drain: a thread ──► LineSink
//!                                                  ├─► LineQueue ──► drain: a thread ──► LineSink
//!                                                  └─► RecentLines, which the console shows
//! ```

mod actor;
pub mod levels;
mod queue;
mod recent;
mod refusals;

mod drain;
mod lines;

mod record;

pub use actor::Actor;
pub use drain::{LineSink, drain};
pub use lines::{LineLog, Names};
pub use queue::{LineQueue, QueueCounts};
pub use recent::RecentLines;
pub use record::{AccessRecord, AuditOutcome, AuditRecord, Noting, cut};
