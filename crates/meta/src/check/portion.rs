//! A part of all inodes, bodies and uploads, and how many rows there may be.

use cairn_base::{BodyId, Ino, Result, UploadId, limits};

use super::tables::Table;
use crate::engine::Snapshot;
use crate::rows::{Row, Usage};

/// About the longest object that has no body, bytes.
const WITHOUT_BODY: u64 = 16 << 10;

/// The inodes, bodies and uploads that one pass over the rows compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Portion {
    number: u64,
    of: u64,
}

impl Portion {
    /// All of them together are all that there is.
    pub fn each(of: u64) -> impl Iterator<Item = Portion> {
        let of = of.max(1);
        (0..of).map(move |number| Portion { number, of })
    }

    /// The one that also checks what is not of an inode, a body or an upload.
    pub fn is_first(self) -> bool {
        self.number == 0
    }

    pub fn has_inode(self, ino: Ino) -> bool {
        self.has(ino.0)
    }

    pub fn has_body(self, body: BodyId) -> bool {
        self.has(body.session.0.rotate_left(32) ^ body.counter)
    }

    pub fn has_upload(self, upload: UploadId) -> bool {
        self.has(upload.0)
    }

    fn has(self, number: u64) -> bool {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.of == 1 || mixed % self.of == self.number
    }
}

/// How much there may be to check, from what buckets count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Estimate {
    /// Inodes and bodies, which a check has in memory. Directories and parts are not counted.
    pub kept: u64,
    pub rows: u64,
    /// Of these, rows of extents.
    pub chunks: u64,
}

impl Estimate {
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
            // An inode and an entry for each.
            estimate.rows = estimate.rows.saturating_add(objects.saturating_mul(2));
            estimate.rows = estimate.rows.saturating_add(chunks);
            estimate.chunks = estimate.chunks.saturating_add(chunks);
        }
        Ok(estimate)
    }

    /// So many portions that each has at most `most` of these inodes and bodies.
    pub fn portions(&self, most: usize) -> u64 {
        self.kept.div_ceil(most.max(1) as u64).max(1)
    }
}
