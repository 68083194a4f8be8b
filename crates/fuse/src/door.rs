//! Requests of the kernel, taken apart. Each is a method of [`Desk`].

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use cairn_base::Ino;
use cairn_posix::{Changes, LockRequest, LockSpace, Mode};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, INodeNo, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};

use crate::attributes::set_time;
use crate::desk::{Desk, open};
use crate::files::HandlePosition;
use crate::flags;
use crate::kernel_request::KernelRequest;
use crate::names::NamePlace;
use crate::turns::{MANY_BYTES, Turns};
use crate::who::who;

/// The other side of the kernel.
pub struct Door {
    desk: Desk,
    turns: Turns,
}

impl Door {
    pub fn new(desk: Desk, turns: Turns) -> Door {
        Door { desk, turns }
    }
}

fn inode(number: INodeNo) -> Ino {
    Ino(number.0)
}

impl Filesystem for Door {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        flags::agree(config, !self.desk.opens_nothing);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _request = self.turns.request(KernelRequest::new(request, parent), false);
        self.desk.lookup(who(request), inode(parent), name, reply);
    }

    fn forget(&self, request: &Request, ino: INodeNo, nlookup: u64) {
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        self.desk.posix.forget(inode(ino), nlookup);
    }

    fn getattr(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        // For a handle the kernel asks on its own, before it reads.
        self.desk.getattr(who(request), inode(ino), handle.is_none(), reply);
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
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        let (atime, mtime) = (atime.map(set_time), mtime.map(set_time));
        let changes = Changes { mode, uid, gid, size, atime, mtime };
        self.desk.setattr(who(request), inode(ino), changes, handle, reply);
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        self.desk.read_link(who(request), inode(ino), reply);
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
        let _request = self.turns.request(KernelRequest::new(request, parent), false);
        self.desk.make_node(who(request), inode(parent), name, mode, umask, reply);
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
        let _request = self.turns.request(KernelRequest::new(request, parent), false);
        self.desk.make_directory(
            who(request),
            inode(parent),
            name,
            Mode { bits: mode, umask },
            reply,
        );
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _request = self.turns.request(KernelRequest::new(request, parent), false);
        self.desk.remove_file(who(request), inode(parent), name, reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _request = self.turns.request(KernelRequest::new(request, parent), false);
        self.desk.remove_directory(who(request), inode(parent), name, reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let _request = self.turns.request(KernelRequest::new(request, parent), false);
        self.desk.make_symlink(who(request), inode(parent), name, target, reply);
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
        let _request = self.turns.request(KernelRequest::new(request, parent), false);
        let source = NamePlace { parent: inode(parent), name };
        let target = NamePlace { parent: inode(new_parent), name: new_name };
        self.desk.rename(who(request), source, target, flags, reply);
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        self.desk.make_link(who(request), inode(ino), inode(parent), name, reply);
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        if self.desk.opens_nothing {
            // The kernel does not ask again, and reports no closing.
            return reply.error(Errno::ENOSYS);
        }
        self.desk.open(who(request), inode(ino), flags, reply);
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _request =
            self.turns.request(KernelRequest::new(request, ino), size as usize >= MANY_BYTES);
        self.desk.read((inode(ino), handle), offset, size, reply);
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        kills: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _request =
            self.turns.request(KernelRequest::new(request, ino), data.len() >= MANY_BYTES);
        self.desk.write(handle, offset, data, kills, flags, reply);
    }

    fn flush(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        if self.desk.opens_nothing {
            return reply.error(Errno::ENOSYS);
        }
        self.desk.flush(handle, owner, reply);
    }

    fn release(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        self.desk.release(handle, reply);
    }

    fn fsync(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        if self.desk.opens_nothing {
            return reply.error(Errno::ENOSYS);
        }
        self.desk.sync(handle, reply);
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        self.desk.open_directory(inode(ino), reply);
    }

    fn readdir(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let _request = self.turns.request(KernelRequest::new(request, ino), true);
        self.desk.list(who(request), handle, offset, reply);
    }

    fn readdirplus(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let _request = self.turns.request(KernelRequest::new(request, ino), true);
        self.desk.list_with_attributes(who(request), handle, offset, reply);
    }

    fn releasedir(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        self.desk.posix.close_directory(open(handle));
        reply.ok();
    }

    fn fsyncdir(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        self.desk.sync_directory(handle, reply);
    }

    fn statfs(&self, request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        self.desk.statfs(who(request), inode(ino), reply);
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
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        self.desk.set_xattr(who(request), inode(ino), name, value, flags, reply);
    }

    fn getxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        self.desk.get_xattr(who(request), inode(ino), name, size, reply);
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        self.desk.list_xattrs(who(request), inode(ino), size, reply);
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        self.desk.remove_xattr(who(request), inode(ino), name, reply);
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
        let _request = self.turns.request(KernelRequest::new(request, parent), false);
        let (mode, flags) = (Mode { bits: mode, umask }, OpenFlags(flags));
        self.desk.create(who(request), inode(parent), name, mode, flags, reply);
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        self.desk.allocate(handle, who(request), mode, (offset, length), reply);
    }

    fn lseek(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        self.desk.seek((inode(ino), handle), offset, whence, reply);
    }

    fn getlk(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        last: u64,
        kind: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        // There is no such request by flock(2).
        let space = LockSpace::Fcntl;
        let kind = match flags::lock(kind) {
            Ok(kind) => kind,
            Err(refused) => return reply.error(refused),
        };
        let wanted = LockRequest { owner: owner.0, pid, start, last, kind, space };
        self.desk.test_lock(handle, wanted, reply);
    }

    fn setlk(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        last: u64,
        kind: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        let space = LockSpace::Both;
        let kind = match flags::lock(kind) {
            Ok(kind) => kind,
            Err(refused) => return reply.error(refused),
        };
        let wanted = LockRequest { owner: owner.0, pid, start, last, kind, space };
        self.desk.set_lock(request.pid(), handle, wanted, sleep, reply);
    }

    fn poll(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        // Files are always ready: after this reply the kernel says so on its own, and does not ask
        // again.
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        reply.error(Errno::ENOTTY);
    }

    fn copy_file_range(
        &self,
        request: &Request,
        ino: INodeNo,
        source: FileHandle,
        source_offset: u64,
        _: INodeNo,
        target: FileHandle,
        target_offset: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let _request = self.turns.request(KernelRequest::new(request, ino), false);
        let source = HandlePosition { handle: source, offset: source_offset };
        let target = HandlePosition { handle: target, offset: target_offset };
        self.desk.copy_range(who(request), source, target, length, reply);
    }
}
