//! The facts remembered of the rows: enough to compare each table with the others.

use std::collections::{HashMap, HashSet};

use cairn_base::{BlockId, BodyId, BucketId, Ino, UploadId};

use crate::rows::{BucketKind, Drain, Kind, Usage};

#[derive(Default)]
pub struct Facts {
    /// Of the portion.
    pub inodes: HashMap<Ino, InodeFacts>,
    pub directories: HashMap<Ino, DirectoryFacts>,
    pub uploads: HashMap<UploadId, UploadFacts>,
    pub bodies: HashMap<BodyId, BodyFacts>,
    /// Of all that there are, as is all that follows: of each directory the one it is in, and its
    /// bucket.
    pub tree: HashMap<Ino, (Ino, BucketId)>,
    pub buckets: HashMap<BucketId, BucketFacts>,
    /// Of uploads.
    pub drains: HashMap<UploadId, Drain>,
    /// Bodies that are being put together: they do not own the bodies that they refer to.
    pub prepared: HashSet<BodyId>,
    pub freed: HashSet<BlockId>,
    pub highest_ino: u64,
}

impl Facts {
    /// The facts that another number of portions makes fewer.
    pub fn kept(&self) -> usize {
        self.inodes.len() + self.directories.len() + self.uploads.len() + self.bodies.len()
    }
}

/// Of an inode's own row, and of those that lead to it.
pub struct InodeFacts {
    pub kind: Kind,
    pub implicit: bool,
    pub bucket: BucketId,
    /// Of a directory.
    pub parent: Ino,
    pub nlink: u32,
    /// Entries found.
    pub names: u32,
    pub xattrs: u32,
    pub tags: u32,
    pub xattrs_found: u32,
    pub tags_found: u32,
}

#[derive(Default)]
pub struct DirectoryFacts {
    pub entries: u64,
    pub directories: u64,
    pub tally_entries: u64,
    pub tally_directories: u64,
    /// The inode that an entry says this directory is in, for each entry of it.
    pub found_in: Option<Ino>,
}

#[derive(Default)]
pub struct BucketFacts {
    pub kind: BucketKind,
    /// As its row says; `None` without a row.
    pub name: Option<String>,
    /// As its entry in the root says.
    pub entry: Option<Vec<u8>>,
    pub usage: Option<Usage>,
    pub objects: u64,
    pub bytes: u64,
    pub uploads: u64,
}

#[derive(Default)]
pub struct UploadFacts {
    /// In progress, in this bucket.
    pub live: Option<BucketId>,
    pub drain: Option<Drain>,
    /// The object whose part table it is, and how many parts that has.
    pub table_of: Option<(Ino, u32)>,
    pub parts: u64,
    /// Those of them that are in the completed object.
    pub taken: u64,
}

#[derive(Default)]
pub struct BodyFacts {
    /// References found: of inodes and parts, and of extents of other bodies.
    pub direct: u64,
    pub by_extents: u64,
    /// As its `r` row says.
    pub counted: Option<u64>,
    pub drain: Option<Drain>,
    /// A file that has it, to name in findings.
    pub file: Option<Ino>,
    /// The longest file that has it, bytes.
    pub longest: u64,
    /// All bytes up to here were written by one PUT: there must be no hole.
    pub whole: u64,
    /// It is that of a part, which is never all holes.
    pub is_part: bool,
    /// It has rows of extents.
    pub present: bool,
}

impl BodyFacts {
    pub fn references(&self) -> u64 {
        self.direct + self.by_extents
    }
}
