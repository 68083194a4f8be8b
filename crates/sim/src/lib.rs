//! A disk in memory that does to a store what disks do: it loses, reorders and tears un-synced
//! writes, fails the n-th call, fills up, flips bits. It is seeded, so its faults can be repeated.
//!
//! It is not: a model of one file system. It takes from the store every promise that the contract
//! of [`cairn_base::Disk`] does not make, also those that ext4 happens to keep.
//!
//! ```text
//!   store ──► SimDisk ──► names: live, durable, un-synced operations
//!                    └──► files: live image, durable image, un-synced sectors (every version)
//!
//!   snapshot() ──► Snapshot ──► crash_image(seed) ──► SimDisk after a power cut
//! ```
//!
//! It also has tools that tests of several crates share: made-up values of any type ([`sample`]),
//! and files of messages and rows that were sent or stored once ([`golden`]).

mod fault;
mod hex;
mod image;

pub mod sample;

pub mod golden;

mod inode;

mod state;

mod crash;

mod disk;

pub use disk::{SimDisk, Snapshot};
pub use fault::{Call, Fault};

/// Bytes of the unit that a disk writes whole or not at all. (Tearing within one is simulated too.)
pub const SECTOR_BYTES: usize = 512;

/// Returns every how many calls, bits or cuts a test tries one: 1 in the long form of the tests.
pub fn stride() -> usize {
    if scale() > 1 { 1 } else { 4 }
}

/// Returns how many times the usual work a test is to do: `CAIRN_TEST_SCALE`, or 1. The long form
/// of the tests sets it.
pub fn scale() -> u64 {
    let scale = std::env::var("CAIRN_TEST_SCALE").ok().and_then(|scale| scale.parse().ok());
    scale.unwrap_or(1)
}
