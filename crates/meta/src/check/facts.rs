//! Facts collected from the rows: enough to compare each table with the others.

use std::collections::{HashMap, HashSet};

use cairn_base::{BlockId, BodyId, BucketId, Ino, UploadId, UserId};

use crate::rows::{BucketKind, Drain, Kind, Usage};

#[derive(Default)]
pub struct Facts {
    /// Inodes of the portion, as are the directories, uploads and bodies.
    pub inodes: HashMap<Ino, InodeFacts>,
    pub directories: HashMap<Ino, DirectoryFacts>,
    pub uploads: HashMap<UploadId, UploadFacts>,
    pub bodies: HashMap<BodyId, BodyFacts>,
    /// Parent and bucket of every directory. This and the fields below are of all portions.
    pub tree: HashMap<Ino, (Ino, BucketId)>,
    pub buckets: HashMap<BucketId, BucketFacts>,
    /// Drains of uploads.
    pub drains: HashMap<UploadId, Drain>,
    /// Bodies that are being put together: they do not own the bodies that they refer to.
    pub prepared: HashSet<BodyId>,
    pub freed: HashSet<BlockId>,
    /// Number of unfinished uploads by the user who began them.
    pub initiators: HashMap<UserId, u64>,
    pub highest_ino: u64,
}

impl Facts {
    /// Number of the facts that depend on the number of portions: more portions have fewer each.
    pub fn kept(&self) -> usize {
        self.inodes.len() + self.directories.len() + self.uploads.len() + self.bodies.len()
    }
}

/// The facts of an inode's own row, and of the rows that lead to it.
pub struct InodeFacts {
    pub kind: Kind,
    pub implicit: bool,
    pub bucket: BucketId,
    /// Parent of a directory.
    pub parent: Ino,
    pub nlink: u32,
    /// Number of entries found.
    pub names: u32,
    pub xattrs: u32,
    pub tags: u32,
    pub xattrs_found: u32,
    pub tags_found: u32,
}

/// A sum over the entries of a directory, and one over its ordered entries. They are equal if the
/// entries are.
#[derive(Default)]
pub struct OrderedFacts {
    pub entries: u64,
    pub ordered: u64,
}

#[derive(Default)]
pub struct DirectoryFacts {
    pub entries: u64,
    pub directories: u64,
    pub tally_entries: u64,
    pub tally_directories: u64,
    /// Entries, and ordered entries, if each entry must have one.
    pub ordered: Option<OrderedFacts>,
    /// Parent according to the directory's entry.
    pub found_in: Option<Ino>,
}

#[derive(Default)]
pub struct BucketFacts {
    pub kind: BucketKind,
    /// Name in the bucket's row; `None` without a row.
    pub name: Option<String>,
    pub owner: UserId,
    /// Other users with rights in the bucket.
    pub granted: Vec<UserId>,
    /// Name of the bucket's entry in the root.
    pub entry: Option<Vec<u8>>,
    pub usage: Option<Usage>,
    pub objects: u64,
    pub bytes: u64,
    pub uploads: u64,
    /// Bytes of parts that the uploads count.
    pub upload_bytes: u64,
}

#[derive(Default)]
pub struct UploadFacts {
    /// Bucket in which the upload is in progress.
    pub live: Option<BucketId>,
    pub drain: Option<Drain>,
    /// Object whose part table it is, and the number of parts of that object.
    pub table_of: Option<(Ino, u32)>,
    pub parts: u64,
    pub part_bytes: u64,
    /// Bytes that the upload's row counts.
    pub counted_bytes: u64,
    /// Parts that are in the completed object.
    pub taken: u64,
}

#[derive(Default)]
pub struct BodyFacts {
    /// References found of inodes and parts; `by_extents` counts those of extents of other bodies.
    pub direct: u64,
    pub by_extents: u64,
    /// Count in the body's `r` row.
    pub counted: Option<u64>,
    pub drain: Option<Drain>,
    /// File that has the body, to be named in findings.
    pub file: Option<Ino>,
    /// Length of the longest file that has it, bytes.
    pub longest: u64,
    /// End of the bytes that were written by one PUT: there must be no hole before it.
    pub whole: u64,
    /// Set for the body of a part, which is never all holes.
    pub is_part: bool,
    /// Set if the body has rows of extents.
    pub present: bool,
}

impl BodyFacts {
    pub fn references(&self) -> u64 {
        self.direct + self.by_extents
    }
}
