//! Flags and numbers of the kernel, and what they mean.

use cairn_posix::{Allocation, Intent, Kind, LockKind, RenameMode, Sought, XattrMode};
use fuser::{Errno, FopenFlags, InitFlags, KernelConfig, OpenAccMode, OpenFlags, RenameFlags};
use rustix::fs::OFlags;

/// Flag by which the kernel says that a file is opened to be executed.
const FOR_EXECUTION: i32 = 0x20;
/// `O_DSYNC` of Linux, a part of `O_SYNC`: the flag of rustix is all of it.
const DATA_SYNC: i32 = 0o10_000;

const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;

const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

/// Numbers of fcntl(2).
const LOCK_READ: i32 = 0;
const LOCK_WRITE: i32 = 1;
pub const LOCK_UNLOCK: i32 = 2;

/// Longest request, bytes.
const REQUEST_BYTES: u32 = 1 << 20;
/// Requests that the kernel has outstanding on its own, at most: reading ahead, mostly.
const BACKGROUND: u16 = 64;

/// Abilities that the mount wants of the kernel. An older kernel lacks some of them.
const CAPABILITIES: [InitFlags; 11] = [
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_AUTO_INVAL_DATA,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    InitFlags::FUSE_MAX_PAGES,
    InitFlags::FUSE_POSIX_ACL,
    // The default list of a directory has priority over the umask.
    InitFlags::FUSE_DONT_MASK,
];

/// Asks the kernel for all that a mount uses; with `has_locks`, also for locks.
pub fn agree(config: &mut KernelConfig, has_locks: bool) {
    for wanted in CAPABILITIES {
        let _ = config.add_capabilities(wanted);
    }
    if has_locks {
        let _ = config.add_capabilities(InitFlags::FUSE_POSIX_LOCKS);
        let _ = config.add_capabilities(InitFlags::FUSE_FLOCK_LOCKS);
    }
    let _ = config.set_max_write(REQUEST_BYTES);
    let _ = config.set_max_background(BACKGROUND);
}

fn bits(flags: OpenFlags) -> OFlags {
    OFlags::from_bits_retain(flags.0 as u32)
}

/// Returns the intent of a program that opens a file.
pub fn intent(flags: OpenFlags) -> Intent {
    let (reads, writes) = match flags.acc_mode() {
        OpenAccMode::O_RDONLY => (true, false),
        OpenAccMode::O_WRONLY => (false, true),
        OpenAccMode::O_RDWR => (true, true),
    };
    let executes = !writes && flags.0 & FOR_EXECUTION != 0;
    let (appends, syncs) = (writes && is_appended(flags), writes && is_synced(flags));
    let reads = reads && !executes;
    Intent { reads, writes, executes, appends, syncs, ..Intent::default() }
}

/// Returns how an opened file behaves. Pages are kept from one opening to the next: they go when
/// the file changes elsewhere. A program that only writes needs none, and saves a copy; the kernel
/// does not know where appended bytes go.
///
/// For a file that is `locked` here, the kernel reports each descriptor that is closed: all locks
/// of its process go with it.
pub fn opened(flags: OpenFlags, locked: bool) -> FopenFlags {
    let intent = intent(flags);
    let only_writes = intent.writes && !intent.reads;
    if intent.appends || only_writes || bits(flags).contains(OFlags::DIRECT) {
        return FopenFlags::FOPEN_DIRECT_IO;
    }
    if intent.writes || locked {
        FopenFlags::FOPEN_KEEP_CACHE
    } else {
        FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH
    }
}

/// Returns true if bytes are durable when they are written: for a file, or for one write.
pub fn is_synced(flags: OpenFlags) -> bool {
    flags.0 & DATA_SYNC != 0
}

/// Returns true if the bytes of a write go to the end of the file.
pub fn is_appended(flags: OpenFlags) -> bool {
    bits(flags).contains(OFlags::APPEND)
}

pub fn is_exclusive(flags: OpenFlags) -> bool {
    bits(flags).contains(OFlags::EXCL)
}

/// Returns the kind of inode that `mknod` makes. Devices of another machine mean nothing here.
pub fn kind(mode: u32) -> Result<Kind, Errno> {
    match mode & 0o170_000 {
        0o010_000 => Ok(Kind::Fifo),
        0o140_000 => Ok(Kind::Socket),
        0o100_000 | 0 => Ok(Kind::File),
        _ => Err(Errno::EPERM),
    }
}

pub fn rename(flags: RenameFlags) -> Result<RenameMode, Errno> {
    match flags {
        flags if flags.is_empty() => Ok(RenameMode::Replace),
        RenameFlags::RENAME_NOREPLACE => Ok(RenameMode::NoReplace),
        RenameFlags::RENAME_EXCHANGE => Ok(RenameMode::Exchange),
        _ => Err(Errno::EINVAL),
    }
}

pub fn sought(whence: i32) -> Result<Sought, Errno> {
    match whence {
        SEEK_DATA => Ok(Sought::Data),
        SEEK_HOLE => Ok(Sought::Hole),
        _ => Err(Errno::EINVAL),
    }
}

pub fn allocation(mode: i32) -> Result<Allocation, Errno> {
    match mode {
        0 => Ok(Allocation::Extend),
        KEEP_SIZE => Ok(Allocation::KeepSize),
        mode if mode == PUNCH_HOLE | KEEP_SIZE => Ok(Allocation::Punch),
        mode if mode & !KEEP_SIZE == ZERO_RANGE => {
            Ok(Allocation::Zero { keeps_size: mode & KEEP_SIZE != 0 })
        }
        _ => Err(Errno::EOPNOTSUPP),
    }
}

pub fn xattr(flags: i32) -> Result<XattrMode, Errno> {
    match flags {
        0 => Ok(XattrMode::Set),
        XATTR_CREATE => Ok(XattrMode::Create),
        XATTR_REPLACE => Ok(XattrMode::Replace),
        _ => Err(Errno::EINVAL),
    }
}

pub fn lock(kind: i32) -> Result<LockKind, Errno> {
    match kind {
        LOCK_READ => Ok(LockKind::Read),
        LOCK_WRITE => Ok(LockKind::Write),
        LOCK_UNLOCK => Ok(LockKind::Unlock),
        _ => Err(Errno::EINVAL),
    }
}

pub fn lock_number(exclusive: bool) -> i32 {
    if exclusive { LOCK_WRITE } else { LOCK_READ }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(access: i32, more: OFlags) -> OpenFlags {
        OpenFlags(access | more.bits() as i32)
    }

    const READ_ONLY: i32 = 0;
    const WRITE_ONLY: i32 = 1;
    const BOTH: i32 = 2;

    #[test]
    fn what_a_file_is_opened_for_is_what_its_flags_say() {
        let none = OFlags::empty();
        assert_eq!(intent(flags(READ_ONLY, none)), Intent::READING);
        assert_eq!(intent(flags(WRITE_ONLY, none)), Intent::WRITING);
        assert_eq!(intent(flags(BOTH, none)), Intent::BOTH);
        let executes = intent(OpenFlags(FOR_EXECUTION));
        assert_eq!(executes, Intent { executes: true, ..Intent::default() });
        let appends = intent(flags(WRITE_ONLY, OFlags::APPEND | OFlags::SYNC));
        assert_eq!(appends, Intent { appends: true, syncs: true, ..Intent::WRITING });
        // For a program that only reads, both mean nothing.
        let reads = intent(flags(READ_ONLY, OFlags::APPEND | OFlags::SYNC));
        assert_eq!(reads, Intent::READING);
    }

    #[test]
    fn pages_are_kept_where_the_kernel_knows_what_is_in_them() {
        let direct = FopenFlags::FOPEN_DIRECT_IO;
        for (access, more) in
            [(WRITE_ONLY, OFlags::empty()), (BOTH, OFlags::APPEND), (READ_ONLY, OFlags::DIRECT)]
        {
            assert_eq!(opened(flags(access, more), false), direct);
        }
        let (keeps, reads) = (FopenFlags::FOPEN_KEEP_CACHE, flags(READ_ONLY, OFlags::empty()));
        assert_eq!(opened(reads, false), keeps | FopenFlags::FOPEN_NOFLUSH);
        assert_eq!(opened(reads, true), keeps, "each descriptor that is closed is heard of");
        assert_eq!(opened(flags(BOTH, OFlags::empty()), false), keeps);
    }

    #[test]
    fn modes_of_fallocate_are_what_linux_calls_so() {
        assert_eq!(allocation(0), Ok(Allocation::Extend));
        assert_eq!(allocation(1), Ok(Allocation::KeepSize));
        assert_eq!(allocation(3), Ok(Allocation::Punch));
        assert_eq!(allocation(16), Ok(Allocation::Zero { keeps_size: false }));
        assert_eq!(allocation(17), Ok(Allocation::Zero { keeps_size: true }));
        for unknown in [2, 8, 32, 64, 19] {
            assert!(allocation(unknown).is_err(), "{unknown}");
        }
    }
}
