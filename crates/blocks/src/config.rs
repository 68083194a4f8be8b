//! The options of a block store.

use std::sync::Arc;

use cairn_base::rng::RealRng;
use cairn_base::{Rng, Threads};

/// The moment at which a block is acknowledged. Deletions are acknowledged only when they are on
/// the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Acknowledges a block when it is on the disk.
    Sync,
    /// Acknowledges a block when it is in the page cache. A power cut loses it; the death of the
    /// process does not.
    Async,
}

#[derive(Clone)]
pub struct Config {
    /// Number of the cluster. A disk of another cluster is refused.
    pub cluster: [u8; 16],
    /// Number of the disk. Another disk of this cluster is refused.
    pub disk: [u8; 16],
    pub durability: Durability,
    /// The size of a segment file. A record that does not fit gets a larger file for itself; on a
    /// disk that is nearly full, files are smaller.
    pub segment_bytes: u64,
    /// Bytes reserved so that deletions can be recorded and segments be compacted when the disk is
    /// full: 7/8 of `segment_bytes`. With a smaller reserve, only segments with more than a quarter
    /// of dead bytes could be compacted.
    pub reserve_bytes: u64,
    /// Bytes left free for other programs on the same disk.
    pub spare_bytes: u64,
    /// With [`Durability::Async`], a sync begins at this many unsynced bytes.
    pub unsynced_bytes: u64,
    /// Number of threads that sync. On disks where each sync takes long, several syncs at once are
    /// faster than one for all.
    pub syncers: usize,
    /// Source of the salts of segments.
    pub rng: Arc<dyn Rng>,
    /// Threads for work that waits for the disk; if `None`, threads of the operating system.
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
