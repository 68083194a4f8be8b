//! Sizes of the files and reserves of a store, by the size of its disk.

use std::path::Path;

use cairn_meta::engine::embedded;

use crate::failure::{Failure, Result};

const MIB: u64 = 1 << 20;

/// Sizes of files on one disk, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    segment: u64,
    blocks_reserve: u64,
    log_segment: u64,
    meta_reserve: u64,
}

impl Sizes {
    /// Returns the sizes for the disk of `path`.
    pub fn of(path: &Path) -> Result<Sizes> {
        let stat = rustix::fs::statvfs(path).map_err(|error| Failure::file(path, &error.into()))?;
        Ok(Sizes::of_disk(stat.f_blocks.saturating_mul(stat.f_frsize)))
    }

    /// Returns the sizes for a disk of `bytes` bytes. From 8 GiB on all have their greatest values.
    fn of_disk(bytes: u64) -> Sizes {
        let part = |of: u64, least: u64, most: u64| (bytes / of / MIB).clamp(least, most) * MIB;
        let segment = part(32, 16, 256);
        Sizes {
            segment,
            blocks_reserve: segment / 8 * 7,
            log_segment: part(128, 8, 16),
            meta_reserve: part(64, 16, 48),
        }
    }

    pub fn of_meta(&self) -> embedded::Config {
        embedded::Config {
            memtable_bytes: self.log_segment as usize,
            log_segment_bytes: self.log_segment,
            reserve_bytes: self.meta_reserve,
            ..embedded::Config::default()
        }
    }

    pub fn of_blocks(&self, cluster: [u8; 16], disk: [u8; 16]) -> cairn_blocks::Config {
        cairn_blocks::Config {
            segment_bytes: self.segment,
            reserve_bytes: self.blocks_reserve,
            spare_bytes: self.spare(),
            ..cairn_blocks::Config::new(cluster, disk)
        }
    }

    /// Returns the space that blocks leave to the metadata, so that small operations are still
    /// possible.
    fn spare(&self) -> u64 {
        2 * self.meta_reserve
    }

    /// Returns the free space without which no store is begun: what it takes before the first
    /// object, what it leaves free, and a little for objects.
    pub fn new_store(&self) -> u64 {
        let log = u64::from(self.of_meta().log_segments) * self.log_segment;
        log + self.meta_reserve + self.blocks_reserve + self.spare() + self.segment / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_takes_little_of_its_disk() {
        let new_store = |gib: u64| Sizes::of_disk(gib << 30).new_store() / MIB;
        assert_eq!(Sizes::of_disk(0).new_store() / MIB, 106);
        assert_eq!([1, 2, 4, 8, 1 << 20].map(new_store), [124, 248, 368, 512, 512]);
        for gib in [0, 1, 8, 1 << 20] {
            let sizes = Sizes::of_disk(gib << 30);
            // No batch of the master is longer than what it takes plus one operation.
            let batch = cairn_base::limits::BATCH_BYTES + cairn_base::limits::OP_BYTES;
            assert!(sizes.log_segment as usize > batch, "{gib}");
        }
    }
}
