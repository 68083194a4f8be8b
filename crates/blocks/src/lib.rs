//! Blocks on a local disk: immutable runs of bytes, written once, checksummed, packed one after
//! another into segment files, found by an index in memory.
//!
//! This crate is not a file system (blocks have no names but ids), not a cache in memory (every
//! read is of the file and verified; [`KeptBlocks`] keeps remote blocks on a local disk), and not
//! replication (that is the crate `cluster`). It has no timers of its own: the owner of a [`Store`]
//! calls [`Store::compact`] and [`Store::scrub`] when it sees fit.
//!
//! ```text
//!   put ──► reserve ──► write (many at once) ──► group sync ──► index ──► acknowledged
//!                           │                        │
//!                      0000002a.seg            one fdatasync for everything
//!                      0000002a.hint           that is written by then
//!
//!   get ──► index ──► read header, table, sub-blocks ──► verify ──► bytes, or Corrupt
//! ```
//!
//! docs/format-blocks.md describes every byte.

mod blocks;
mod config;
#[deny(clippy::indexing_slicing)]
mod format;

mod failing;
mod files;
mod index;
mod log;
mod memory;

mod state;

#[deny(clippy::indexing_slicing)]
mod scan;
mod shared;

mod append;
mod read;
mod recover;
mod syncer;

mod delete;
mod near;

mod store;

mod compact;
mod disk_cache;
mod scrub;

pub use append::How;
pub use blocks::{
    BlockCounters, BlockInfo, BlockPlace, Blocks, KeptStats, Manner, NodeCounts, Peers, TimedCount,
    Usage, Wish,
};
pub use compact::CompactReport;
pub use config::{Config, Durability};
pub use disk_cache::KeptBlocks;
pub use near::NearBlocks;
pub use recover::OpenReport;
pub use scrub::{ScrubProgress, ScrubReport, SickBlock};
pub use store::Store;
