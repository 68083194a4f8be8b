//! Sizes of a master.

use std::sync::Arc;

use cairn_base::Threads;

/// Sizes of a master.
#[derive(Clone, Debug)]
pub struct Config {
    /// Memory of the row cache, bytes.
    pub cache_bytes: usize,
    /// Operations that may be accepted and not answered; others wait.
    pub accepted_ops: usize,
    /// Operations that may wait for rows at the same time.
    pub parked_ops: usize,
    /// Threads that read rows for them.
    pub fetch_threads: usize,
    /// Operations whose rows are read together.
    pub fetch_ops: usize,
    /// The executor reads missing rows itself, without parking the operation, as long as that
    /// takes no longer than this for one operation, microseconds. 0: it never does.
    pub inline_us: u64,
    /// Memory of the leases of all sessions together, bytes; beyond it the oldest are recalled.
    pub lease_bytes: usize,
    /// The seam by which threads of the master run; without it, each is one of the operating
    /// system.
    pub threads: Option<Arc<dyn Threads>>,
}

impl Config {
    /// For an engine that is asked through a network.
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
