//! Estimates the number of rows before they are read.

use cairn_base::{Result, limits};

use super::tables::Table;
use crate::engine::Snapshot;
use crate::rows::{Row, Usage};

/// Approximate length of the longest object that has no body, bytes.
const WITHOUT_BODY: u64 = 16 << 10;

/// An estimate of the rows to check, from the counts of buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Estimate {
    /// Inodes and bodies, which a check keeps in memory. Directories and parts are not counted.
    pub kept: u64,
    pub rows: u64,
    /// Rows of extents among these.
    pub chunks: u64,
}

impl Estimate {
    /// Makes the estimate.
    ///
    /// # Errors
    /// Those of the snapshot.
    pub fn of(snapshot: &dyn Snapshot) -> Result<Estimate> {
        let mut estimate = Estimate::default();
        for row in Table::of(snapshot, b'n') {
            // A row that cannot be read is a finding of the check.
            let Ok(Usage { objects, bytes, .. }) = Usage::decode(&row?.1) else { continue };
            let bodies = objects.min(bytes / WITHOUT_BODY);
            let chunks = bodies.saturating_add(bytes / limits::CHUNK_BYTES);
            estimate.kept = estimate.kept.saturating_add(objects).saturating_add(bodies);
            // Each object has an inode and an entry.
            estimate.rows = estimate.rows.saturating_add(objects.saturating_mul(2));
            estimate.rows = estimate.rows.saturating_add(chunks);
            estimate.chunks = estimate.chunks.saturating_add(chunks);
        }
        Ok(estimate)
    }

    /// Returns the number of portions such that each has at most `most` of these inodes and bodies.
    pub fn portions(&self, most: usize) -> u64 {
        self.kept.div_ceil(most.max(1) as u64).max(1)
    }
}
