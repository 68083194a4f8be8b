//! Limits of rows before they are at rest.

use std::time::Duration;

/// Memory and disk that a row store uses.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of rows in memory before they are moved into the table; commits wait at four times as
    /// much.
    pub memtable_bytes: usize,
    /// Bytes of redb's page cache.
    pub cache_bytes: usize,
    /// Bytes of disk space reserved for deletes on a full disk; 0 for none.
    pub reserve_bytes: u64,
    /// Time without commits after which rows in memory move into the table.
    pub idle: Duration,
    /// Runs checkpoints in the background; `false` runs them inside commits, for reproducible
    /// tests.
    pub background: bool,
}
