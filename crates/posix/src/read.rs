//! Reads files.

use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use bytes::Bytes;
use cairn_base::{Error, Ino, Result};
use cairn_fs::Object;
use futures_util::poll;

use crate::answer::Answer;
use crate::handle::{Descriptor, Handle};
use crate::intent::Intent;
use crate::node::Local;
use crate::posix::Posix;
use crate::who::Who;

/// Number of times that a file is opened again because its bytes have moved.
const TRIES: u32 = 3;

/// The source of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    File(Descriptor),
    /// A file that is not opened here. The rights of the reader were checked elsewhere.
    Unopened(Ino),
}

/// The kind of range that is looked for in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sought {
    Data,
    Hole,
}

impl Posix {
    /// Returns at most `size` bytes from `offset` on; fewer at the end of the file.
    pub fn read(
        self: &Arc<Posix>,
        source: Source,
        offset: u64,
        size: u32,
    ) -> Answer<Result<Bytes>> {
        let handle = match self.reader(source) {
            Ok(handle) => handle,
            Err(error) => return Answer::Now(Err(error)),
        };
        let range = offset..offset.saturating_add(u64::from(size));
        if let Some(bytes) = self.read_now(&handle, &range) {
            self.bytes_read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            return Answer::Now(Ok(bytes));
        }
        let posix = Arc::clone(self);
        Answer::later(async move {
            let bytes = posix.read_range(&handle, range).await?;
            posix.bytes_read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            Ok(bytes)
        })
    }

    /// Reads like [`Posix::read`], for a caller that opens nothing: any caller that may open the
    /// file with this intent may read it. The bytes are returned in consecutive parts.
    pub fn read_once(
        self: &Arc<Posix>,
        who: Who,
        ino: Ino,
        intent: Intent,
        offset: u64,
        size: u32,
    ) -> Answer<Result<Vec<Bytes>>> {
        let range = offset..offset.saturating_add(u64::from(size));
        // There are no local bytes on top of the store's.
        if self.files.node(ino).is_none()
            && let Some(Ok(object)) = self.fs.open_inode_now(&who.caller(&self.user), ino, false)
            && let Some(parts) = object.read_parts_now(clip(&range, object.size()))
        {
            return Answer::Now(Ok(self.has_read(parts)));
        }
        let posix = Arc::clone(self);
        Answer::later(async move {
            if posix.files.node(ino).is_none()
                && let Ok(object) = posix.fs.open_inode(&who.caller(&posix.user), ino, false).await
                && let Ok(bytes) =
                    posix.read_stored(&object, ino, clip(&range, object.size())).await
            {
                return Ok(posix.has_read(vec![bytes]));
            }
            let file = posix.open(who, ino, intent).await?.file;
            let read = posix.read(Source::File(file), offset, size).await;
            posix.release(file).await;
            read.map(|bytes| vec![bytes])
        })
    }

    fn has_read(&self, parts: Vec<Bytes>) -> Vec<Bytes> {
        let bytes: usize = parts.iter().map(Bytes::len).sum();
        self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
        parts
    }

    /// Reads bytes of the store. If the read has to wait, and the file is read in sequence, the
    /// next bytes are fetched meanwhile.
    async fn read_stored(
        self: &Arc<Posix>,
        object: &Object,
        ino: Ino,
        range: Range<u64>,
    ) -> Result<Bytes> {
        let next = self.ahead.next(ino, &range);
        let mut work = pin!(object.read_all(range));
        if let Poll::Ready(read) = poll!(work.as_mut()) {
            return read;
        }
        for range in next {
            let range = clip(&range, object.size());
            let Some(room) = self.ahead.room().filter(|_| !range.is_empty()) else { break };
            let object = object.clone();
            self.runtime.spawn(async move {
                object.will_read(range).await;
                drop(room);
            });
        }
        work.await
    }

    /// Returns the handle through which a source is read.
    fn reader(&self, source: Source) -> Result<Arc<Handle>> {
        match source {
            Source::File(file) => self.usable(file),
            Source::Unopened(ino) => Ok(self.files.reader(ino, || Who::root().caller(&self.user))),
        }
    }

    /// Returns bytes if all of them are in memory.
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
        // The local state first: bytes that are written back meanwhile are in it, in the store, or
        // in both.
        let mut local = node.local(&range);
        let mut object = self.object(handle).await?;
        if local.is_over_others(object.inode()) {
            // Bytes taken before others wrote must not hide those of the others.
            node.flush(|bytes| self.dirt.less(bytes)).await?;
            local = node.local(&range);
            object = self.object(handle).await?;
        }
        for _ in 0..TRIES {
            match merge(&object, &local, &range).await {
                // The server has forgotten that it named this block, or the session has changed, or
                // the file got another body: the file is opened anew and read again.
                Err(Error::Denied(_) | Error::Conflict(_)) => {
                    object = self.fs.open_inode_anew(&handle.caller, node.ino, true).await?;
                }
                read => return read,
            }
        }
        merge(&object, &local, &range).await
    }

    async fn object(&self, handle: &Handle) -> Result<Object> {
        let node = &handle.node;
        match self.fs.open_inode(&handle.caller, node.ino, true).await {
            Ok(object) => {
                node.remember(&object);
                Ok(object)
            }
            Err(Error::NotFound(text)) => node.last().ok_or(Error::NotFound(text)),
            Err(error) => Err(error),
        }
    }

    /// Returns the offset, from `offset` on, of the next data or hole; `None` if there is none
    /// before the end.
    pub fn seek(
        self: &Arc<Posix>,
        source: Source,
        offset: u64,
        sought: Sought,
    ) -> Answer<Result<Option<u64>>> {
        let handle = match self.reader(source) {
            Ok(handle) => handle,
            Err(error) => return Answer::Now(Err(error)),
        };
        let posix = Arc::clone(self);
        Answer::later(async move {
            // Holes are those of the store.
            handle.node.flush(|bytes| posix.dirt.less(bytes)).await?;
            let object = posix.object(&handle).await?;
            object.seek(offset, sought == Sought::Hole).await
        })
    }
}

fn clip(range: &Range<u64>, size: u64) -> Range<u64> {
    range.start.min(size)..range.end.min(size)
}

/// Returns the bytes of the store with the local bytes on top.
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
