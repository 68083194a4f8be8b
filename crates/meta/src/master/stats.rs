//! Counters of a master.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::Checkpoints;

/// Counters of the work that a master has done and has to do.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Batches committed.
    pub batches: u64,
    /// Operations in these batches and between them.
    pub ops: u64,
    /// Rows changed by committed batches.
    pub rows: u64,
    /// Time in `Engine::commit`, microseconds.
    pub commit_us: u64,
    /// Commits that failed or whose outcome had to be found out.
    pub commits_failed: u64,
    /// Runs of operations that had to wait for rows.
    pub op_misses: u64,
    /// Rows and ranges that the executor read itself.
    pub rows_inline: u64,
    /// Reads answered from memory.
    pub reads_cached: u64,
    /// Reads answered from the engine.
    pub reads_missed: u64,
    /// Operations accepted and not answered.
    pub in_flight: u64,
    /// Operations that the executor has not looked at.
    pub queued: u64,
    /// Rows in the cache, and their bytes.
    pub cache_rows: u64,
    pub cache_bytes: u64,
    /// Leases of sessions, and the memory that they take, bytes.
    pub leases: u64,
    pub lease_bytes: u64,
    /// Recalls that sessions have not acknowledged.
    pub recalls: u64,
    /// Directories that sessions hold, and the files that they made there.
    pub delegated_directories: u64,
    pub delegated_files: u64,
    /// Memory of rows that are not at rest yet, bytes.
    pub memory_bytes: u64,
    /// The last published batch.
    pub durable_batch: u64,
    /// Checkpoints of the engine since it was opened.
    pub checkpoints: Checkpoints,
}

/// Counters of the threads of a master.
#[derive(Default)]
pub struct Counters {
    pub batches: Counter,
    pub ops: Counter,
    pub rows: Counter,
    pub commit_us: Counter,
    /// Time of the last commit, microseconds.
    pub last_commit_us: AtomicU64,
    pub commits_failed: Counter,
    pub op_misses: Counter,
    pub rows_inline: Counter,
    pub reads_cached: Counter,
    pub reads_missed: Counter,
    /// Current number of leases; `lease_bytes` is their memory.
    pub leases: AtomicU64,
    pub lease_bytes: AtomicU64,
    /// Current number of recalls that were not acknowledged.
    pub recalls: AtomicU64,
    /// Current number of directories that sessions hold, and of files that they made there.
    pub delegated_directories: AtomicU64,
    pub delegated_files: AtomicU64,
}

/// A number that only grows, on a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
