//! Records of logs as stock shippers send them: each becomes a line that is appended durably to a
//! file.
//!
//! This crate is not a door (it knows no HTTP), and it does not decide on rights (the operations of
//! the store do, for the user that sends records).
//!
//! ```text
//!   loki, bulk, otlp, journal ──► RecordBatch: a line for each record, by source
//!                                   │
//!                     Intake::push ─┴─► <bucket>/<source>/<day>.jsonl
//!                                   │     Gather: one append for all that wait for a file
//!                                   └─► Outcome: refused and failed records
//! ```
//!
//! Bytes of clients are read in place. Their growth is bounded in `limits`.

pub mod limits;

pub mod json;

pub mod day;
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
pub use gather::{Gather, HeldMemory};
pub use intake::{Intake, Key, Outcome, call_of, key_of};
pub use level::{Level, LevelClass};
pub use listen::{Handshake, Incoming, Options, ShakeHands, serve};
pub use paths::{LogPaths, PathTemplate};
pub use unpack::Coding;
