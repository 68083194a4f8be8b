//! Records of logs as stock shippers send them, made lines of files that are appended to durably.
//!
//! It is not: a door (it knows no HTTP), nor does it decide on rights (the operations of the store
//! do, for the user who sends).
//!
//! ```text
//!   loki, bulk, otlp, journal ──► RecordBatch: a line for each record, by source
//!                                   │
//!                     Intake::push ─┴─► <bucket>/<source>/<day>.jsonl
//!                                   │     Gather: one append for all that wait for a file
//!                                   └─► Outcome: what was refused, and what failed
//! ```
//!
//! Bytes of clients are read where they lie. What they may become is bounded in `limits`.

pub mod limits;

pub mod day;
pub mod json;
mod level;
mod protobuf;
mod source;
mod unpack;

mod counts;
mod gather;
pub mod levels;

mod paths;

mod batch;
mod mark;

pub mod bulk;
pub mod journal;
pub mod loki;
pub mod otlp;
mod syslog;

pub mod otlp_json;

mod intake;

pub mod follow;
pub mod retention;

pub mod settle;

mod listen;

pub use batch::RecordBatch;
pub use bulk::Item;
pub use counts::{Counts, Protocol};
pub use gather::{Gather, Held};
pub use intake::{Intake, Key, Outcome, call_of, key_of};
pub use level::{Level, LevelClass};
pub use listen::{Handshake, Incoming, Options, ShakeHands, serve};
pub use paths::{LogPaths, PathTemplate};
pub use unpack::Coding;
