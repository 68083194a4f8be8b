//! The purpose for which a file is opened.

use cairn_fs::ops::posix::{READ, SEARCH, WRITE};

/// The intent of a caller with a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Intent {
    pub reads: bool,
    pub writes: bool,
    /// True if the caller needs the right to execute the file instead of the right to read it.
    pub executes: bool,
    /// True if all writes go to the end of the file, and no client caches pages of them.
    pub appends: bool,
    /// True if written bytes are durable when they are written.
    pub syncs: bool,
    /// True if the caller may have the file open already, as clients of NFS open files on their
    /// own: then its owner may do anything whatever the mode says, and a caller that may execute
    /// the file may read it.
    pub resumes: bool,
}

impl Intent {
    pub const READING: Intent = Intent {
        reads: true,
        writes: false,
        executes: false,
        appends: false,
        syncs: false,
        resumes: false,
    };
    pub const WRITING: Intent = Intent { reads: false, writes: true, ..Intent::READING };
    pub const BOTH: Intent = Intent { writes: true, ..Intent::READING };

    /// Returns the rights that this intent needs.
    pub(crate) fn wanted(self) -> u32 {
        let bit = |is_wanted, bit| if is_wanted { bit } else { 0 };
        bit(self.reads, READ) | bit(self.writes, WRITE) | bit(self.executes, SEARCH)
    }
}
