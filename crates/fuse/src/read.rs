//! Reading files.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use cairn_base::{Error, Ino, Result};
use cairn_fs::Object;
use fuser::{FileHandle, ReplyData, ReplyLseek};

use crate::errno;
use crate::node::{Local, Node};
use crate::nodes::{Handle, Mount};

const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

impl Mount {
    pub fn read(
        self: &Arc<Mount>,
        (ino, handle): (Ino, FileHandle),
        offset: u64,
        size: u32,
        reply: ReplyData,
    ) {
        let timer = self.time("read");
        let handle = match self.reader(ino, handle) {
            Ok(handle) => handle,
            Err(error) => return reply.error(errno::of(&error)),
        };
        let range = offset..offset.saturating_add(u64::from(size));
        if let Some(bytes) = self.read_now(&handle, &range) {
            self.stats.bytes_read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            return reply.data(&bytes);
        }
        let mount = Arc::clone(self);
        self.work(timer, async move {
            match mount.read_range(&handle, range).await {
                Ok(bytes) => {
                    mount.stats.bytes_read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    reply.data(&bytes);
                }
                Err(error) => reply.error(errno::of_inode(&error)),
            }
        });
    }

    /// Where all of it is in memory.
    fn read_now(&self, handle: &Handle, range: &Range<u64>) -> Option<Bytes> {
        let node = &handle.node;
        let local = node.local(range);
        let object = self.fs.open_inode_now(&handle.caller, node.ino, true)?.ok()?;
        let stored = clip(range, object.size());
        if local.has_bytes() || local.end > object.size() {
            return None;
        }
        let bytes = object.read_now(stored)?;
        node.remember(&object);
        Some(bytes)
    }

    async fn read_range(&self, handle: &Handle, range: Range<u64>) -> Result<Bytes> {
        let node = &handle.node;
        // First: what is written back in the meantime is in one of the two, or both.
        let local = node.local(&range);
        let object = self.object(handle).await?;
        let read = merge(&object, &local, &range).await;
        match read {
            // It has been told so many blocks that this one was forgotten, or it has another
            // session: once more, with what is true now.
            Err(Error::Denied(_)) => {
                let object = self.fs.open_inode_anew(&handle.caller, node.ino, true).await?;
                merge(&object, &local, &range).await
            }
            read => read,
        }
    }

    async fn object(&self, handle: &Handle) -> Result<Object> {
        let node: &Node = &handle.node;
        match self.fs.open_inode(&handle.caller, node.ino, true).await {
            Ok(object) => {
                node.remember(&object);
                Ok(object)
            }
            Err(Error::NotFound(text)) => node.last().ok_or(Error::NotFound(text)),
            Err(error) => Err(error),
        }
    }

    pub fn seek(
        self: &Arc<Mount>,
        (ino, handle): (Ino, FileHandle),
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let timer = self.time("other");
        let handle = match self.reader(ino, handle) {
            Ok(handle) if matches!(whence, SEEK_DATA | SEEK_HOLE) => handle,
            _ => return reply.error(fuser::Errno::EINVAL),
        };
        // There is nothing before the beginning, as there is nothing behind the end.
        let Ok(offset) = u64::try_from(offset) else { return reply.error(fuser::Errno::ENXIO) };
        let mount = Arc::clone(self);
        self.work(timer, async move {
            let found = async {
                // Holes are those of the store.
                handle.node.flush(|bytes| mount.less_dirty(bytes)).await?;
                let object = mount.object(&handle).await?;
                object.seek(offset, whence == SEEK_HOLE).await
            };
            match found.await {
                Ok(Some(at)) => reply.offset(i64::try_from(at).unwrap_or(i64::MAX)),
                Ok(None) => reply.error(fuser::Errno::ENXIO),
                Err(error) => reply.error(errno::of_inode(&error)),
            }
        });
    }
}

fn clip(range: &Range<u64>, size: u64) -> Range<u64> {
    range.start.min(size)..range.end.min(size)
}

/// The bytes of the store with those that are here over them.
async fn merge(object: &Object, local: &Local, range: &Range<u64>) -> Result<Bytes> {
    let all = clip(range, object.size().max(local.end));
    let stored = clip(&all, object.size());
    let bytes = object.read_all(stored).await?;
    if !local.has_bytes() && bytes.len() as u64 == all.end - all.start {
        return Ok(bytes);
    }
    let mut bytes = bytes.to_vec();
    bytes.resize((all.end - all.start) as usize, 0);
    local.overlay(&all, &mut bytes);
    Ok(bytes.into())
}
