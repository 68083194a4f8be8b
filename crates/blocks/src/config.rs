//! The options of a block store.

use std::sync::Arc;

use cairn_base::rng::RealRng;
use cairn_base::{Rng, Threads};

/// When a block is acknowledged. Deletions are always on the disk before they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// When it is on the disk.
    Sync,
    /// When it is in the page cache. A power cut loses it; the death of the process does not.
    Async,
}

#[derive(Clone)]
pub struct Config {
    /// A disk of another cluster is refused.
    pub cluster: [u8; 16],
    /// As is another disk of this cluster.
    pub disk: [u8; 16],
    pub durability: Durability,
    /// The size of a segment file. A record that does not fit gets a larger one for itself; on a
    /// disk that is nearly full they are smaller.
    pub segment_bytes: u64,
    /// Kept back so that deletions can be recorded and segments be compacted when the disk is full.
    /// It is 7/8 of `segment_bytes`; with less, only segments with more than a quarter of dead
    /// bytes could be compacted.
    pub reserve_bytes: u64,
    /// Left free for others on the same disk.
    pub spare_bytes: u64,
    /// With [`Durability::Async`], syncs once so much is not.
    pub unsynced_bytes: u64,
    /// Threads that sync. Where a lone sync waits long for the disk, several at once are faster
    /// than one for all.
    pub syncers: usize,
    /// Where the salts of segments come from.
    pub rng: Arc<dyn Rng>,
    /// The threads for work that waits for the disk; if `None`, threads of the operating system.
    pub threads: Option<Arc<dyn Threads>>,
}

impl Config {
    pub fn new(cluster: [u8; 16], disk: [u8; 16]) -> Config {
        Config {
            cluster,
            disk,
            durability: Durability::Sync,
            segment_bytes: 256 << 20,
            reserve_bytes: 224 << 20,
            spare_bytes: 0,
            unsynced_bytes: 32 << 20,
            syncers: 4,
            rng: Arc::new(RealRng),
            threads: None,
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("durability", &self.durability)
            .field("segment_bytes", &self.segment_bytes)
            .field("reserve_bytes", &self.reserve_bytes)
            .field("spare_bytes", &self.spare_bytes)
            .finish_non_exhaustive()
    }
}
