//! The attributes of inodes, as callers see them.

use cairn_base::{Ino, Timestamp};
use cairn_fs::rows::{Inode, Kind};

/// Size of a directory, bytes, as callers see it.
const DIRECTORY_BYTES: u64 = 4096;

/// The attributes of an inode, including local writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// Number of the inode, which is never reused.
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
    /// Time of the last change; grows with every change.
    pub ctime: Timestamp,
    /// Time at which the inode was made.
    pub btime: Timestamp,
    /// Number of this state of the inode: another state has another number, which need not be
    /// greater. The number of a local change is replaced when the change becomes durable.
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
