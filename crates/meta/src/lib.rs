//! The namespace of the store as a deterministic state machine: buckets, directories, files,
//! objects, uploads and users, and the blocks that hold their bytes.
//!
//! It is not: a door (it knows no HTTP and no FUSE), or a keeper of file contents beyond those
//! small enough to be inline. Nothing in it has a clock or randomness of its own.
//!
//! ```text
//!   fs ──► Master::run(caller, verb) ──► executor ── apply(view, verb) ──► reply
//!                                           │  one thread, one after another
//!                                           ▼
//!                                      committer ── batch ──► Engine
//!          Master::read(caller, verb) ──► apply over durable rows only, on any thread
//! ```
//!
//! The modules below form four layers: engines, the namespace, sessions, the master. A module uses
//! only modules that are listed before it, and no files use each other in a circle:
//! docs/decisions/0024.

mod rest;
mod row_watches;
mod watched;

// Engines.
pub mod engine;

// The namespace.
pub mod keys;
mod memo;
mod needs;
pub mod order;
pub mod rows;
mod view;

mod verb;

mod erased;
mod shown;

pub mod ops;

mod sights;

pub mod mounts;

pub mod capabilities;
pub mod check;
pub mod dump;
pub mod wire;

// Sessions.
pub mod session;

// The master.
pub mod master;

// The metadata through either of the two.
mod meta;

pub use master::Master;
pub use memo::Memo;
pub use meta::{Meta, Stats};
pub use needs::{Needs, VerbNeeds};
pub use row_watches::{RowWatch, RowWatches};
pub use sights::{Sight, seeing};
pub use verb::{Context, Verb};
pub use view::{Changes, Source, Stop, View, Want};
pub use watched::Watched;
pub use wire::WireVerb;
