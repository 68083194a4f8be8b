//! The kernel's requests, taken apart. Each is a method of [`Mount`].

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use cairn_base::Ino;
use cairn_fs::ops::setattr::Setattr;
use cairn_fs::rows::Space;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo,
    InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use crate::attributes::set_time;
use crate::awake::Awake;
use crate::locks::Wanted;
use crate::nodes::Mount;
use crate::turns::{MANY_BYTES, Turns};
use crate::who::Who;

/// The longest request, bytes.
const REQUEST_BYTES: u32 = 1 << 20;
/// Requests that the kernel has outstanding by itself: reading ahead, mostly.
const BACKGROUND: u16 = 64;

/// The other side of the kernel.
pub struct Door {
    mount: Arc<Mount>,
    turns: Turns,
}

impl Door {
    /// Its requests are taken by so many threads.
    pub fn new(mount: Arc<Mount>, threads: usize, awake: Option<Arc<Awake>>) -> Door {
        Door { turns: Turns::new(Arc::clone(&mount.kernel), threads, awake), mount }
    }
}

fn inode(number: INodeNo) -> Ino {
    Ino(number.0)
}

impl Filesystem for Door {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What an older kernel does not know, it does without.
        for wanted in [
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
            // A directory's default list comes before the umask.
            InitFlags::FUSE_DONT_MASK,
        ] {
            let _ = config.add_capabilities(wanted);
        }
        if !self.mount.opens_nothing {
            let _ = config.add_capabilities(InitFlags::FUSE_POSIX_LOCKS);
            let _ = config.add_capabilities(InitFlags::FUSE_FLOCK_LOCKS);
        }
        let _ = config.set_max_write(REQUEST_BYTES);
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _request = self.turns.request(false);
        self.mount.lookup(Who::of(request), inode(parent), name, reply);
    }

    fn forget(&self, _: &Request, ino: INodeNo, nlookup: u64) {
        let _request = self.turns.request(false);
        if self.mount.known.leave(inode(ino), nlookup) {
            self.mount.gone.forget(inode(ino));
        }
    }

    fn getattr(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let _request = self.turns.request(false);
        // By a handle the kernel asks for itself, before it reads.
        self.mount.getattr(Who::of(request), inode(ino), handle.is_none(), reply);
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let _request = self.turns.request(false);
        let (atime, mtime) = (atime.map(set_time), mtime.map(set_time));
        let mode = mode.map(|mode| mode & 0o7777);
        let verb = Setattr { ino: inode(ino), mode, uid, gid, atime, mtime };
        let handle = handle.and_then(|handle| self.mount.handle(handle).ok());
        // Its mode was checked for whoever opened it; the rest counts for whoever cuts it.
        let opened = handle.is_some_and(|handle| handle.writes);
        self.mount.setattr(Who::of(request), verb, size, opened, reply);
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        let _request = self.turns.request(false);
        self.mount.read_link(Who::of(request), inode(ino), reply);
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let _request = self.turns.request(false);
        self.mount.make_node(Who::of(request), (inode(parent), name), (mode, umask), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let _request = self.turns.request(false);
        self.mount.make_directory(Who::of(request), (inode(parent), name), (mode, umask), reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _request = self.turns.request(false);
        self.mount.remove_file(Who::of(request), (inode(parent), name), reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _request = self.turns.request(false);
        self.mount.remove_directory(Who::of(request), (inode(parent), name), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let _request = self.turns.request(false);
        self.mount.make_symlink(Who::of(request), (inode(parent), name), target, reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _request = self.turns.request(false);
        let (source, target) = ((inode(parent), name), (inode(new_parent), new_name));
        self.mount.rename(Who::of(request), source, target, flags, reply);
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let _request = self.turns.request(false);
        self.mount.make_link(Who::of(request), inode(ino), (inode(parent), name), reply);
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _request = self.turns.request(false);
        if self.mount.opens_nothing {
            // The kernel does not ask again, and says nothing of closing.
            return reply.error(Errno::ENOSYS);
        }
        self.mount.open(Who::of(request), inode(ino), flags, reply);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _request = self.turns.request(size as usize >= MANY_BYTES);
        self.mount.read((inode(ino), handle), offset, size, reply);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        kills: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _request = self.turns.request(data.len() >= MANY_BYTES);
        self.mount.write(handle, offset, data, (kills, flags), reply);
    }

    fn flush(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let _request = self.turns.request(false);
        if self.mount.opens_nothing {
            return reply.error(Errno::ENOSYS);
        }
        self.mount.flush(handle, owner, reply);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let _request = self.turns.request(false);
        self.mount.release(handle, reply);
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        let _request = self.turns.request(false);
        if self.mount.opens_nothing {
            return reply.error(Errno::ENOSYS);
        }
        self.mount.sync(handle, reply);
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let _request = self.turns.request(false);
        let handle = self.mount.open_directory(inode(ino));
        // The names are kept as long as what they name: the kernel drops them when the mtime is
        // another, and later it asks for names and attributes in one.
        let mut flags = FopenFlags::FOPEN_CACHE_DIR;
        if self.mount.known.is_listed(inode(ino)) {
            flags |= FopenFlags::FOPEN_KEEP_CACHE;
        }
        reply.opened(handle, flags);
    }

    fn readdir(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let _request = self.turns.request(true);
        self.mount.list(Who::of(request), handle, offset, reply);
    }

    fn readdirplus(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let _request = self.turns.request(true);
        self.mount.list_with_attributes(Who::of(request), handle, offset, reply);
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        let _request = self.turns.request(false);
        self.mount.close_directory(handle);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        let _request = self.turns.request(false);
        self.mount.sync_directory(handle, reply);
    }

    fn statfs(&self, request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let _request = self.turns.request(false);
        self.mount.statfs(Who::of(request), inode(ino), reply);
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let _request = self.turns.request(false);
        self.mount.set_xattr(Who::of(request), inode(ino), (name, value), flags, reply);
    }

    fn getxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let _request = self.turns.request(false);
        self.mount.get_xattr(Who::of(request), inode(ino), name, size, reply);
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let _request = self.turns.request(false);
        self.mount.list_xattrs(Who::of(request), inode(ino), size, reply);
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _request = self.turns.request(false);
        self.mount.remove_xattr(Who::of(request), inode(ino), name, reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let _request = self.turns.request(false);
        self.mount.create(Who::of(request), (inode(parent), name), (mode, umask), flags, reply);
    }

    fn fallocate(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let _request = self.turns.request(false);
        let who = (Who::of(request), mode);
        self.mount.allocate(handle, who, (offset, length), reply);
    }

    fn lseek(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let _request = self.turns.request(false);
        self.mount.seek((inode(ino), handle), offset, whence, reply);
    }

    fn getlk(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        last: u64,
        kind: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let _request = self.turns.request(false);
        // There is no such question by flock(2).
        let wanted = Wanted { owner: owner.0, pid, start, last, kind, space: Space::Fcntl };
        self.mount.test_lock(handle, wanted, reply);
    }

    fn setlk(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        last: u64,
        kind: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let _request = self.turns.request(false);
        let wanted = Wanted { owner: owner.0, pid, start, last, kind, space: Space::Both };
        self.mount.set_lock(request.pid(), handle, wanted, sleep, reply);
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        let _request = self.turns.request(false);
        // Files are ready at all times: the kernel says so by itself, and does not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        let _request = self.turns.request(false);
        reply.error(Errno::ENOTTY);
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _: INodeNo,
        source: FileHandle,
        source_offset: u64,
        _: INodeNo,
        target: FileHandle,
        target_offset: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let _request = self.turns.request(false);
        let (source, target) = ((source, source_offset), (target, target_offset));
        self.mount.copy_range(source, target, (Who::of(request), length), reply);
    }
}
