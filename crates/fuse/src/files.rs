//! Files: opening, reading, writing and closing them.

use std::ffi::OsStr;

use cairn_base::{Error, Ino, Result};
use cairn_posix::{Mode, Who, Writing};
use fuser::{
    Errno, FileHandle, LockOwner, OpenFlags, ReplyCreate, ReplyData, ReplyEmpty, ReplyLseek,
    ReplyOpen, ReplyWrite, WriteFlags,
};

use crate::attributes::attributes;
use crate::desk::{Desk, GENERATION, open, text};
use crate::{errno, flags};

/// Most bytes that one request copies: the answer has 32 bits.
const COPIED_BYTES: u64 = u32::MAX as u64 & !0xFFF;

/// A place in a file that a program has open.
#[derive(Clone, Copy)]
pub struct HandlePosition {
    pub handle: FileHandle,
    pub offset: u64,
}

fn reply_done(reply: ReplyEmpty, done: Result<()>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno::of_inode(&error)),
    }
}

impl Desk {
    pub fn open(&self, who: Who, ino: Ino, flags: OpenFlags, reply: ReplyOpen) {
        let timer = self.time("open");
        let opened = self.posix.open(who, ino, flags::intent(flags));
        self.answer(timer, opened, move |opened| match opened {
            Ok(opened) => {
                let flags = flags::opened(flags, opened.is_locked);
                reply.opened(FileHandle(opened.file.0), flags);
            }
            Err(error) => reply.error(errno::of_inode(&error)),
        });
    }

    pub fn create(
        &self,
        who: Who,
        parent: Ino,
        name: &OsStr,
        mode: Mode,
        flags: OpenFlags,
        reply: ReplyCreate,
    ) {
        let name = match text(name) {
            Ok(name) => name,
            Err(refused) => return reply.error(refused),
        };
        let timer = self.time("create");
        let (intent, exclusive) = (flags::intent(flags), flags::is_exclusive(flags));
        let created = self.posix.create(who, parent, name, mode, intent, exclusive);
        let seen = self.paths.name(parent, name.as_bytes());
        let name = Some(OsStr::new(name));
        self.answer_of(name, timer, created, move |created| match created {
            Ok((entry, opened)) => {
                seen.stands_for(entry.attributes.ino, false);
                let attributes = attributes(&entry.attributes);
                let handle = FileHandle(opened.file.0);
                let flags = flags::opened(flags, opened.is_locked);
                reply.created(&entry.keeps_name, &attributes, GENERATION, handle, flags);
            }
            Err(error) => reply.error(errno::of_name(&error)),
        });
    }

    pub fn read(&self, file: (Ino, FileHandle), offset: u64, size: u32, reply: ReplyData) {
        let timer = self.time("read");
        let read = self.posix.read(self.source(file.0, file.1), offset, size);
        self.answer(timer, read, move |read| match read {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(errno::of_inode(&error)),
        });
    }

    pub fn seek(&self, file: (Ino, FileHandle), offset: i64, whence: i32, reply: ReplyLseek) {
        let timer = self.time("other");
        let sought = match flags::sought(whence) {
            Ok(sought) => sought,
            Err(refused) => return reply.error(refused),
        };
        // There is nothing before the start, as there is nothing behind the end.
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        let found = self.posix.seek(self.source(file.0, file.1), offset, sought);
        self.answer(timer, found, move |found| match found {
            Ok(Some(at)) => reply.offset(i64::try_from(at).unwrap_or(i64::MAX)),
            Ok(None) => reply.error(Errno::ENXIO),
            Err(error) => reply.error(errno::of_inode(&error)),
        });
    }

    pub fn write(
        &self,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        kills: WriteFlags,
        flags: OpenFlags,
        reply: ReplyWrite,
    ) {
        let timer = self.time("write");
        let writing = Writing {
            // The current flags of the description: a program may have changed them since it was
            // opened.
            appends: flags::is_appended(flags),
            syncs: flags::is_synced(flags),
            kills_setuid: kills.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
        };
        let size = data.len() as u32;
        let written = self.posix.write(open(handle), offset, data, writing);
        self.answer(timer, written, move |written| match written {
            Ok(()) => reply.written(size),
            Err(error) => reply.error(errno::of_inode(&error)),
        });
    }

    pub fn flush(&self, handle: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        let timer = self.time("flush");
        let flushed = self.posix.flush(open(handle), owner.0);
        self.answer(timer, flushed, move |flushed| reply_done(reply, flushed));
    }

    pub fn sync(&self, handle: FileHandle, reply: ReplyEmpty) {
        let timer = self.time("fsync");
        let synced = self.posix.sync(open(handle));
        self.answer(timer, synced, move |synced| reply_done(reply, synced));
    }

    pub fn sync_directory(&self, handle: FileHandle, reply: ReplyEmpty) {
        let timer = self.time("fsync");
        let synced = self.posix.sync_directory(open(handle));
        self.answer(timer, synced, move |synced| reply_done(reply, synced));
    }

    pub fn release(&self, handle: FileHandle, reply: ReplyEmpty) {
        let timer = self.time("release");
        let released = self.posix.release(open(handle));
        self.answer(timer, released, move |()| reply.ok());
    }

    pub fn allocate(
        &self,
        handle: FileHandle,
        who: Who,
        mode: i32,
        range: (u64, u64),
        reply: ReplyEmpty,
    ) {
        let timer = self.time("other");
        if !self.posix.is_writable(open(handle)) {
            return reply.error(Errno::EBADF);
        }
        let allocation = match flags::allocation(mode) {
            Ok(allocation) => allocation,
            Err(refused) => return reply.error(refused),
        };
        let done = self.posix.allocate(open(handle), who, range.0, range.1, allocation);
        self.answer(timer, done, move |done| reply_done(reply, done));
    }

    /// Copies a range by reference. If that is not possible, the kernel reads and writes the bytes
    /// instead.
    pub fn copy_range(
        &self,
        who: Who,
        source: HandlePosition,
        target: HandlePosition,
        length: u64,
        reply: ReplyWrite,
    ) {
        let timer = self.time("copy");
        let (from, to) = (open(source.handle), open(target.handle));
        if !self.posix.is_usable(from) || !self.posix.is_writable(to) {
            return reply.error(Errno::EBADF);
        }
        let length = length.min(COPIED_BYTES);
        let copied = self.posix.copy_range(from, source.offset, to, target.offset, who, length);
        self.answer(timer, copied, move |copied| match copied {
            // The number is at most the requested one.
            Ok(copied) => reply.written(copied as u32),
            Err(Error::TooLarge(_) | Error::Conflict(_)) => reply.error(Errno::EOPNOTSUPP),
            Err(error) => reply.error(errno::of_inode(&error)),
        });
    }
}
