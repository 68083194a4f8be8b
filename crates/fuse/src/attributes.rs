//! Inodes as the kernel wants them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cairn_base::{Ino, Timestamp};
use cairn_fs::ops::setattr::SetTime;
use cairn_fs::rows::{Inode, Kind};
use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};

/// What files are read in, as `stat` shows it, bytes.
const BLOCK: u32 = 1 << 17;

pub fn kind(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
    }
}

pub fn attributes(ino: Ino, inode: &Inode) -> FileAttr {
    let size = if inode.is_directory() { 4096 } else { inode.size };
    FileAttr {
        ino: INodeNo(ino.0),
        size,
        blocks: size.div_ceil(512),
        atime: to_system(inode.atime),
        mtime: to_system(inode.mtime),
        ctime: to_system(inode.ctime),
        crtime: to_system(inode.btime),
        kind: kind(inode.kind),
        perm: (inode.mode & 0o7777) as u16,
        nlink: inode.nlink,
        uid: inode.uid,
        gid: inode.gid,
        rdev: 0,
        blksize: BLOCK,
        flags: 0,
    }
}

/// What stands for "there is no such name".
pub fn nothing() -> FileAttr {
    FileAttr { ino: INodeNo(0), ..attributes(Ino(0), &Inode::default()) }
}

pub fn to_system(time: Timestamp) -> SystemTime {
    let nanos = Duration::from_nanos(time.0.unsigned_abs());
    let time =
        if time.0 < 0 { UNIX_EPOCH.checked_sub(nanos) } else { UNIX_EPOCH.checked_add(nanos) };
    time.unwrap_or(UNIX_EPOCH)
}

pub fn from_system(time: SystemTime) -> Timestamp {
    let nanos = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp(nanos(after)),
        Err(before) => Timestamp(-nanos(before.duration())),
    }
}

pub fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(from_system(time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_both_ways() {
        for nanos in [0, 1, -1, 1_700_000_000_123_456_789, -5_000_000_001] {
            assert_eq!(from_system(to_system(Timestamp(nanos))), Timestamp(nanos));
        }
    }
}
