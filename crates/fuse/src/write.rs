//! Writing files.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use cairn_auth::{Caller, Posix};
use cairn_base::{Error, Result, SessionId};
use cairn_fs::ops::clone::CloneFile;
use fuser::{FileHandle, OpenFlags, ReplyEmpty, ReplyWrite, WriteFlags};

use crate::errno;
use crate::nodes::{Handle, Mount};
use crate::open::{is_appended, is_synced};
use crate::who::Who;

const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;
/// Owns nothing.
const NOBODY: u32 = 65_534;
/// What one request copies, at most: the answer has 32 bits.
const COPIED_BYTES: u64 = u32::MAX as u64 & !0xFFF;

/// On whose behalf bytes are written: as the file was opened. Where the kernel says that whoever
/// writes now is not root, it is somebody else than root, and the file is no longer setuid.
fn writer(opener: &Caller, kills: bool) -> Cow<'_, Caller> {
    match opener.posix() {
        Some(posix) if kills && posix.uid == 0 => {
            let nobody = Posix { uid: NOBODY, gid: NOBODY, groups: Vec::new() };
            Cow::Owned(opener.clone().with_posix(nobody))
        }
        _ => Cow::Borrowed(opener),
    }
}

impl Mount {
    pub fn write(
        self: &Arc<Mount>,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        (kills, flags): (WriteFlags, OpenFlags),
        reply: ReplyWrite,
    ) {
        let timer = self.time("write");
        let handle = match self.usable(handle) {
            Ok(handle) => handle,
            Err(error) => return reply.error(errno::of(&error)),
        };
        self.stats.bytes_written.fetch_add(data.len() as u64, Ordering::Relaxed);
        let syncs = handle.syncs || is_synced(flags);
        // As the description is now: a program may have changed it since it was opened.
        let appends = is_appended(flags);
        let kills = kills.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        if !appends && !syncs && !self.is_full_of_dirt() {
            self.take(&handle, &writer(&handle.caller, kills), offset, data);
            return reply.written(data.len() as u32);
        }
        let (mount, data) = (Arc::clone(self), Bytes::copy_from_slice(data));
        self.work(timer, async move {
            let (size, writer) = (data.len() as u32, writer(&handle.caller, kills));
            let written = match appends {
                true => mount.append(&handle, &writer, offset, data).await,
                false => {
                    let room = mount.has_room(&handle.node).await;
                    room.map(|()| mount.take(&handle, &writer, offset, &data))
                }
            };
            let synced = match written {
                Ok(()) if syncs => mount.sync_file(&handle).await,
                written => written,
            };
            match synced {
                Ok(()) => reply.written(size),
                Err(error) => reply.error(errno::of_inode(&error)),
            }
        });
    }

    /// Keeps bytes to be written back.
    fn take(self: &Arc<Mount>, handle: &Handle, writer: &Caller, offset: u64, data: &[u8]) {
        // Before they are there: they may be written back as soon as they are.
        let all = data.len() as u64;
        self.add_dirty(all);
        let (more, eager) = handle.node.write(writer, offset, data);
        self.not_dirty(all - more);
        if eager {
            let (mount, node) = (Arc::clone(self), Arc::clone(&handle.node));
            self.spawn(async move {
                node.flush_whole(|bytes| mount.less_dirty(bytes)).await;
            });
        }
    }

    /// The store orders those who append, on all mounts and at all doors.
    async fn append(
        &self,
        handle: &Handle,
        writer: &Caller,
        offset: u64,
        data: Bytes,
    ) -> Result<()> {
        let node = &handle.node;
        if node.is_dirty() {
            node.flush(|bytes| self.less_dirty(bytes)).await?;
        }
        let appended = self.fs.append_inode(writer, node.ino, data).await?;
        if appended.offset != offset || !handle.appends {
            // The kernel believed that the end was elsewhere, or keeps pages of what it wrote.
            self.known.change(node.ino, false);
            self.kernel.forget_attributes(node.ino);
        }
        Ok(())
    }

    pub fn allocate(
        self: &Arc<Mount>,
        handle: FileHandle,
        (who, mode): (Who, i32),
        (offset, length): (u64, u64),
        reply: ReplyEmpty,
    ) {
        let timer = self.time("other");
        let handle = match self.usable(handle) {
            Ok(handle) if handle.writes => handle,
            _ => return reply.error(fuser::Errno::EBADF),
        };
        let mount = Arc::clone(self);
        self.work(timer, async move {
            let caller = who.caller(&mount.user);
            match mount.allocate_range(&handle, &caller, (offset, length), mode).await {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno::of_inode(&error)),
            }
        });
    }

    /// Room is not set apart: a file is as long as asked for, and a hole. In each mode it is no
    /// longer setuid after that, where whoever asks is not root.
    async fn allocate_range(
        &self,
        handle: &Handle,
        caller: &Caller,
        (offset, length): (u64, u64),
        mode: i32,
    ) -> Result<()> {
        let node = &handle.node;
        let end = offset.checked_add(length).ok_or_else(|| Error::TooLarge("a file".into()))?;
        node.flush(|bytes| self.less_dirty(bytes)).await?;
        match mode {
            0 => self.fs.extend(caller, node.ino, end).await.map(drop),
            KEEP_SIZE => self.fs.extend(caller, node.ino, 0).await.map(drop),
            mode if mode == PUNCH_HOLE | KEEP_SIZE => {
                self.fs.punch(caller, node.ino, offset, length).await.map(drop)
            }
            mode if mode & !KEEP_SIZE == ZERO_RANGE => {
                self.fs.punch(caller, node.ino, offset, length).await?;
                if mode & KEEP_SIZE == 0 {
                    self.fs.extend(caller, node.ino, end).await?;
                }
                Ok(())
            }
            _ => Err(Error::NotImplemented(format!("fallocate mode {mode}"))),
        }
    }

    /// Copies `length` bytes of a file, by reference. Where that does not go, the kernel reads and
    /// writes the bytes instead.
    pub fn copy_range(
        self: &Arc<Mount>,
        (source, source_offset): (FileHandle, u64),
        (target, offset): (FileHandle, u64),
        (who, length): (Who, u64),
        reply: ReplyWrite,
    ) {
        let timer = self.time("copy");
        let (source, target) = match (self.usable(source), self.usable(target)) {
            (Ok(source), Ok(target)) if target.writes => (source, target),
            _ => return reply.error(fuser::Errno::EBADF),
        };
        let mount = Arc::clone(self);
        self.work(timer, async move {
            let (from, to) = ((&*source, source_offset), (&*target, offset));
            let caller = who.caller(&mount.user);
            match mount.copied(&caller, from, to, length.min(COPIED_BYTES)).await {
                // It was at most that many.
                Ok(copied) => reply.written(copied as u32),
                Err(Error::TooLarge(_) | Error::Conflict(_)) => {
                    reply.error(fuser::Errno::EOPNOTSUPP);
                }
                Err(error) => reply.error(errno::of_inode(&error)),
            }
        });
    }

    async fn copied(
        &self,
        caller: &Caller,
        (source, source_offset): (&Handle, u64),
        (target, offset): (&Handle, u64),
        length: u64,
    ) -> Result<u64> {
        for handle in [source, target] {
            handle.node.flush(|bytes| self.less_dirty(bytes)).await?;
        }
        let session = target.node.session()?;
        let (from, to) = (source.node.ino, target.node.ino);
        let copied = match (source_offset, offset) {
            (0, 0) => self.clone_file((source, target), caller, session, length).await?,
            _ => None,
        };
        let copied = match copied {
            Some(size) => size,
            None => {
                let (from, to) = ((from, source_offset), (to, offset));
                self.fs.copy_range(caller, session, from, to, length).await?
            }
        };
        for handle in [source, target] {
            handle.node.forget_body().await;
        }
        Ok(copied)
    }

    /// Copies all of a file that has at most `length` bytes into an empty one: they share a body
    /// then. Returns how many bytes that were; `None` if they are not such files.
    async fn clone_file(
        &self,
        (source, target): (&Handle, &Handle),
        caller: &Caller,
        session: SessionId,
        length: u64,
    ) -> Result<Option<u64>> {
        let (from, to) = (source.node.ino, target.node.ino);
        let size = self.fs.open_inode(&source.caller, from, true).await?.size();
        let is_empty = self.fs.open_inode(&target.caller, to, true).await?.size() == 0;
        if !is_empty || size == 0 || size > length {
            return Ok(None);
        }
        let clone = CloneFile { source: from, ino: to, session, size };
        match self.fs.run(caller, clone).await {
            Ok(_) => Ok(Some(size)),
            Err(Error::Conflict(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
