//! The purpose for which a file is opened.

use cairn_fs::ops::posix::{READ, SEARCH, WRITE};

/// The intent of a caller with a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Intent {
    pub reads: bool,
    pub writes: bool,
    /// Needs the right to execute it in place of that to read it.
    pub executes: bool,
    /// It was opened so, and nobody keeps pages of what is written by it.
    pub appends: bool,
    /// Written bytes are durable when they are written.
    pub syncs: bool,
    /// Somebody who has the file open elsewhere may ask: its owner may whatever the mode says, and
    /// who may execute it may read it. As servers of NFS do, whose clients open files on their own.
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

    /// The rights it takes.
    pub(crate) fn wanted(self) -> u32 {
        let bit = |is_wanted, bit| if is_wanted { bit } else { 0 };
        bit(self.reads, READ) | bit(self.writes, WRITE) | bit(self.executes, SEARCH)
    }
}
