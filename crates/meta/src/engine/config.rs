//! Memory and disk of an engine with a log of its own.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::Rng;
use cairn_base::rng::RealRng;

use super::row_store::Limits;

/// Memory and disk of an engine with a log of its own.
#[derive(Clone)]
pub struct Config {
    /// Bytes of committed rows in memory before they are moved into the table; commits wait at four
    /// times as much.
    pub memtable_bytes: usize,
    /// Bytes of redb's page cache.
    pub cache_bytes: usize,
    /// Number of files of the log (at least 2) and bytes of each; no batch may be larger than one
    /// file. Both matter only when the engine's files are made.
    pub log_segments: u32,
    pub log_segment_bytes: u64,
    /// Bytes of disk space reserved for deletes on a full disk; 0 for none.
    pub reserve_bytes: u64,
    /// Time without commits after which rows in memory move into the table.
    pub idle: Duration,
    /// Runs checkpoints in the background; `false` runs them inside commits, for reproducible
    /// tests.
    pub background: bool,
    /// Draws the log's id.
    pub rng: Arc<dyn Rng>,
}

impl Config {
    /// Returns the limits for the row store.
    pub(super) fn limits(&self) -> Limits {
        Limits {
            memtable_bytes: self.memtable_bytes,
            cache_bytes: self.cache_bytes,
            reserve_bytes: self.reserve_bytes,
            idle: self.idle,
            background: self.background,
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            memtable_bytes: 16 << 20,
            cache_bytes: 16 << 20,
            log_segments: 5,
            log_segment_bytes: 16 << 20,
            reserve_bytes: 48 << 20,
            idle: Duration::from_secs(2),
            background: true,
            rng: Arc::new(RealRng),
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("memtable_bytes", &self.memtable_bytes)
            .field("cache_bytes", &self.cache_bytes)
            .field("log_segments", &self.log_segments)
            .field("log_segment_bytes", &self.log_segment_bytes)
            .field("reserve_bytes", &self.reserve_bytes)
            .finish_non_exhaustive()
    }
}
