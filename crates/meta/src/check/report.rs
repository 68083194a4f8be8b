//! Findings of a check.

use bytes::Bytes;
use cairn_base::{BlockId, BodyId, BucketId, Ino, UploadId};

/// Most findings that are kept in a report; further ones are only counted.
const FINDINGS: usize = 1000;

/// The subject of a finding.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum About {
    /// The store as a whole.
    Store,
    /// A row that cannot be read, by its key.
    Row(Bytes),
    Inode(Ino),
    Body(BodyId),
    Block(BlockId),
    Bucket(BucketId),
    Upload(UploadId),
}

impl std::fmt::Display for About {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            About::Store => f.write_str("store"),
            About::Row(key) => write!(f, "row {key:?}"),
            About::Inode(ino) => write!(f, "inode {ino}"),
            About::Body(body) => write!(f, "body {body}"),
            About::Block(block) => write!(f, "block {block}"),
            About::Bucket(bucket) => write!(f, "bucket {bucket}"),
            About::Upload(upload) => write!(f, "upload {upload}"),
        }
    }
}

/// A contradiction between rows, or a damaged row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub about: About,
    pub what: String,
}

/// The findings of a check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The batch that was checked.
    pub batch: u64,
    pub rows: u64,
    pub buckets: u64,
    pub directories: u64,
    /// Inodes that are not directories.
    pub files: u64,
    /// Bodies with at least one reference.
    pub bodies: u64,
    /// Multipart uploads in progress.
    pub uploads: u64,
    /// Bodies and uploads that are still to be drained, and blocks that are still to be freed: no
    /// damage.
    pub drains: u64,
    pub freed_blocks: u64,
    /// The first findings.
    pub findings: Vec<Finding>,
    /// Number of all findings.
    pub finding_count: u64,
}

impl Report {
    /// Adds the findings of another pass over the same rows. The first pass has counted the rows.
    pub(super) fn take(&mut self, is_first: bool, other: Report) {
        if is_first {
            *self = other;
            return;
        }
        self.bodies += other.bodies;
        self.finding_count += other.finding_count;
        let room = FINDINGS.saturating_sub(self.findings.len());
        self.findings.extend(other.findings.into_iter().take(room));
    }

    /// Adds a finding.
    pub(super) fn add(&mut self, about: About, what: impl Into<String>) {
        self.finding_count += 1;
        if self.findings.len() < FINDINGS {
            self.findings.push(Finding { about, what: what.into() });
        }
    }
}
