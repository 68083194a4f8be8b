//! The counters of a session.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

#[derive(Default)]
pub struct Counters {
    pub hits: AtomicU64,
    pub calls: AtomicU64,
    pub reads: AtomicU64,
    pub recalls: AtomicU64,
}

/// The work of a session since its start.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Reads answered from leased rows.
    pub reads_leased: u64,
    /// Calls to a master, without renewals.
    pub calls: u64,
    /// Reads among these calls, for rows that were not leased.
    pub reads_asked: u64,
    /// Rows recalled.
    pub recalls: u64,
    pub rows: u64,
    pub bytes: u64,
    /// Directories that the session holds, operations that it has run there on its own and that
    /// the master has not, and operations that the master has run and that may be lost.
    pub directories: u64,
    pub posted: u64,
    pub kept: u64,
    /// Time since a master last answered.
    pub silence: Duration,
}

impl Counters {
    /// Returns the counters, with the number of leased rows and their bytes.
    pub fn stats(&self, rows: u64, bytes: u64) -> Stats {
        Stats {
            reads_leased: self.hits.load(Relaxed),
            calls: self.calls.load(Relaxed),
            reads_asked: self.reads.load(Relaxed),
            recalls: self.recalls.load(Relaxed),
            rows,
            bytes,
            directories: 0,
            posted: 0,
            kept: 0,
            silence: Duration::ZERO,
        }
    }
}
