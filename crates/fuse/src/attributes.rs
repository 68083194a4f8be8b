//! Attributes of inodes in the form of the kernel.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cairn_base::Timestamp;
use cairn_posix::{Attributes, Kind, SetTime};
use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};

/// Unit in which files are read, as `stat` shows it, bytes.
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

pub fn attributes(shown: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(shown.ino.0),
        size: shown.size,
        blocks: shown.size.div_ceil(512),
        atime: to_system(shown.atime),
        mtime: to_system(shown.mtime),
        ctime: to_system(shown.ctime),
        crtime: to_system(shown.btime),
        kind: kind(shown.kind),
        perm: shown.mode as u16,
        nlink: shown.nlink,
        uid: shown.uid,
        gid: shown.gid,
        rdev: 0,
        blksize: BLOCK,
        flags: 0,
    }
}

/// Returns the attributes that stand for "there is no such name".
pub fn nothing() -> FileAttr {
    let time = UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK,
        flags: 0,
    }
}

pub fn to_system(time: Timestamp) -> SystemTime {
    let nanos = Duration::from_nanos(time.0.unsigned_abs());
    let time =
        if time.0 < 0 { UNIX_EPOCH.checked_sub(nanos) } else { UNIX_EPOCH.checked_add(nanos) };
    time.unwrap_or(UNIX_EPOCH)
}

/// Converts a requested time. `fuser` gives a time before 1970 as its seconds and its nanoseconds,
/// both counted backwards; the kernel means nanoseconds forward from the second.
fn asked_for(time: SystemTime) -> Timestamp {
    let nanos = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp(nanos(after)),
        Err(before) => {
            let forward = 2 * i64::from(before.duration().subsec_nanos());
            Timestamp(forward.saturating_sub(nanos(before.duration())))
        }
    }
}

pub fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(asked_for(time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_are_as_the_kernel_means_them() {
        for (secs, nanos) in
            [(0i64, 0u32), (1_700_000_000, 123_456_789), (-1, 0), (-5, 500_000_000)]
        {
            let asked = match u64::try_from(secs) {
                Ok(secs) => UNIX_EPOCH + Duration::new(secs, nanos),
                // The form of `fuser`.
                Err(_) => UNIX_EPOCH - Duration::new(secs.unsigned_abs(), nanos),
            };
            let time = asked_for(asked);
            assert_eq!(time, Timestamp(secs * 1_000_000_000 + i64::from(nanos)));
        }
        assert_eq!(to_system(Timestamp(-1)), UNIX_EPOCH - Duration::from_nanos(1));
        assert_eq!(to_system(Timestamp(1)), UNIX_EPOCH + Duration::from_nanos(1));
    }
}
