//! Inodes as they are shown.

use cairn_base::{Ino, Timestamp};
use cairn_fs::rows::{Inode, Kind};

/// The size that a directory shows.
const DIRECTORY_BYTES: u64 = 4096;

/// An inode, with what was written to it here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// Never used again for anything else.
    pub ino: Ino,
    pub kind: Kind,
    /// Permission bits with setuid, setgid and sticky, no kind bits.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    /// Grows with every change.
    pub ctime: Timestamp,
    /// When it was made.
    pub btime: Timestamp,
    /// Names this state of it: another state has another number, which need not be greater. A
    /// change that was made here and is not durable yet has another number later.
    pub change: u64,
}

impl Attributes {
    pub fn of(ino: Ino, inode: &Inode) -> Attributes {
        Attributes {
            ino,
            kind: inode.kind,
            mode: inode.mode & 0o7777,
            nlink: inode.nlink,
            uid: inode.uid,
            gid: inode.gid,
            size: if inode.is_directory() { DIRECTORY_BYTES } else { inode.size },
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
            btime: inode.btime,
            change: inode.change,
        }
    }
}
