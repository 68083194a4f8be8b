//! The namespace of the store as a deterministic state machine: buckets, directories, files,
//! objects, uploads, users, and which blocks hold what.
//!
//! It is not: a door (it knows no HTTP and no FUSE), a keeper of file contents beyond what is
//! small enough to be inline, or anything with a clock or randomness of its own.
//!
//! ```text
//!   fs ──► Master::run(caller, verb) ──► executor ── apply(view, verb) ──► reply
//!                                           │  one thread, one after another
//!                                           ▼
//!                                      committer ── batch ──► Engine (memory | embedded)
//!          Master::read(caller, verb) ──► apply over durable rows only, on any thread
//! ```

pub mod check;
pub mod dump;
pub mod engine;
mod erased;
pub mod keys;
pub mod master;
mod memo;
mod meta;
pub mod mounts;
pub mod ops;
mod rest;
pub mod rows;
pub mod session;
mod shown;
mod verb;
mod view;
mod watched;
pub mod wire;

pub use master::Master;
pub use memo::Memo;
pub use meta::{Meta, Stats};
pub use verb::{Context, Verb};
pub use view::{Changes, Source, Stop, View, Want};
pub use watched::Watched;
pub use wire::WireVerb;
