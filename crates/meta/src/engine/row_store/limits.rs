//! How much rows take before they are at rest.

use std::time::Duration;

/// How a row store uses memory and disk.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Memory of rows before they are moved into the table; commits wait at four times as much.
    pub memtable_bytes: usize,
    /// redb's page cache.
    pub cache_bytes: usize,
    /// Space put by on the disk so that deletes go on when it is full; 0: none.
    pub reserve_bytes: u64,
    /// Rows in memory move into the table when there was no commit for this long.
    pub idle: Duration,
    /// `false`: checkpoints run inside of commits, for tests that must be reproducible.
    pub background: bool,
}
