//! Sizes of a master.

use std::sync::Arc;

use cairn_base::Threads;

/// Sizes of a master.
#[derive(Clone, Debug)]
pub struct Config {
    /// Memory of the row cache, bytes.
    pub cache_bytes: usize,
    /// Operations that may be accepted and not answered yet; others wait.
    pub accepted_ops: usize,
    /// Operations that may wait for rows at the same time.
    pub parked_ops: usize,
    /// Threads that read rows for parked operations.
    pub fetch_threads: usize,
    /// Operations whose rows are read together.
    pub fetch_ops: usize,
    /// Longest time, in microseconds, for which the executor reads the missing rows of one
    /// operation itself rather than park the operation. 0: it never does.
    pub inline_us: u64,
    /// Memory of the leases of all sessions together, bytes; beyond it the oldest leases are
    /// recalled.
    pub lease_bytes: usize,
    /// Seam through which threads of the master run; without it, each is a thread of the operating
    /// system.
    pub threads: Option<Arc<dyn Threads>>,
}

impl Config {
    /// Returns sizes for an engine that is reached over a network.
    pub fn far() -> Config {
        Config { inline_us: 0, fetch_threads: 2, fetch_ops: 128, ..Config::default() }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            cache_bytes: 16 << 20,
            accepted_ops: 4096,
            parked_ops: 256,
            fetch_threads: 4,
            fetch_ops: 16,
            inline_us: 150,
            lease_bytes: 128 << 20,
            threads: None,
        }
    }
}
