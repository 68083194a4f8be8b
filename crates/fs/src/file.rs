//! Files by inode number, as mounts use them: read, written at any place, truncated.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::{BodyId, Error, Ino, Owner, Result, SessionId, Timestamp, limits};
use cairn_meta::Meta;
use cairn_meta::session::client::Forgotten;
use tokio::sync::Mutex;

use crate::metadata_change::MetadataChange;
use crate::ops::append::AppendReply;
use crate::ops::body::Data;
use crate::ops::coalesce::ReadChunk;
use crate::ops::copy_range::CopyRange;
use crate::ops::edit::COALESCE_BYTES;
use crate::ops::for_call::{CallId, ForCall, Once};
use crate::ops::getattr::Access;
use crate::ops::open_object::OpenInode;
use crate::ops::truncate::{Extend, PunchHole, Truncate};
use crate::ops::write::Write;
use crate::ops::write_over::WriteOver;
use crate::rows::{Content, Extent, Inode, Place};
use crate::{Fs, Object};

/// Most runs in one block.
pub const PACKED_RUNS: usize = 128;
/// Number of extents that one operation publishes.
const PUBLISHED_EXTENTS: usize = 256;
/// Attempts to make room for extents, while others write to the same chunk.
const COMPACTIONS: u32 = 4;
/// Lost rounds against other writers after which the caller has to try again.
const TRIES: u32 = 16;

/// A place in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilePosition {
    pub ino: Ino,
    pub offset: u64,
}

/// Runs of bytes of a file, written as one block and not published yet.
#[derive(Clone, Debug)]
pub struct UploadedRuns {
    /// Extents at their places in the file.
    extents: Vec<Extent>,
    target: Target,
}

/// The body that blocks are written for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Target {
    body: BodyId,
    /// True if the body is not the file's yet.
    is_spare: bool,
}

/// A piece of a file that is published at once.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Offset and bytes, at most [`limits::INLINE_BYTES`].
    Inline(u64, Bytes),
    Block(UploadedRuns),
}

/// The state of a file that bytes overwrite, some time before they are published.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Over {
    /// The number of the last change of the file's bytes.
    pub base: u64,
    /// The time of change that was shown with the bytes.
    pub shown: Timestamp,
}

/// Writes to one file. Blocks may be written in advance; nothing is visible before it is published.
pub struct FileWriter {
    fs: Fs,
    ino: Ino,
    target: Mutex<Option<Target>>,
}

impl Fs {
    /// Opens a file for reading. With `opened`, its mode was checked before.
    pub async fn open_inode(&self, caller: &Caller, ino: Ino, opened: bool) -> Result<Object> {
        let guard = self.inner.readers.enter();
        let found = self.read_kept(caller, OpenInode { ino, opened }).await?;
        Ok(Object::new(self, found, guard))
    }

    /// Opens a file like [`Fs::open_inode`], but never from memory, and its extents are not read
    /// from memory, either: a server then lists its blocks for a mount again.
    pub async fn open_inode_anew(&self, caller: &Caller, ino: Ino, opened: bool) -> Result<Object> {
        let guard = self.inner.readers.enter();
        let found = self.inner.meta.read_anew(caller, OpenInode { ino, opened }).await?;
        Ok(Object::new(self, Arc::new(found), guard).anew())
    }

    /// Does the same as [`Fs::open_inode`] if everything is in memory; otherwise returns `None`.
    pub fn open_inode_now(
        &self,
        caller: &Caller,
        ino: Ino,
        opened: bool,
    ) -> Option<Result<Object>> {
        let guard = self.inner.readers.enter();
        let found = self.read_kept_now(caller, &OpenInode { ino, opened })?;
        Some(found.map(|found| Object::new(self, found, guard)))
    }

    /// Calls `changed` before a change that others make to rows read here is acknowledged to them.
    /// It must not block. Not for a master in this process.
    pub fn on_change(&self, changed: impl Fn(MetadataChange) + Send + Sync + 'static) {
        let Meta::Remote(client) = &self.inner.meta else { return };
        client.set_on_forget(Box::new(move |forgotten| match forgotten {
            Forgotten::All => changed(MetadataChange::All),
            Forgotten::Rows(keys) => keys.iter().map(MetadataChange::of).for_each(&changed),
            Forgotten::Changing(keys) => keys.iter().map(MetadataChange::by_us).for_each(&changed),
            Forgotten::Changed | Forgotten::Unleased => changed(MetadataChange::Other),
        }));
    }

    /// Returns the time for which rows that were just read from memory stay true without further
    /// notice.
    pub fn lease_left(&self) -> Duration {
        match &self.inner.meta {
            Meta::Local { .. } => Duration::ZERO,
            Meta::Remote(client) => client.lease_left(),
        }
    }

    pub fn writer(&self, ino: Ino) -> FileWriter {
        FileWriter { fs: self.clone(), ino, target: Mutex::new(None) }
    }

    /// Appends at the end that the file has at this append's turn.
    pub async fn append_inode(
        &self,
        caller: &Caller,
        ino: Ino,
        record: Bytes,
    ) -> Result<AppendReply> {
        let (mut use_spare, mut futile) = (false, 0);
        for round in 1..=TRIES {
            let access = Access { ino, wanted: 0 };
            let (inode, shared) = self.read(caller, access).await?;
            let spare = use_spare || shared;
            match self.append_to(caller, ino, (&inode, true), &record, spare).await {
                Err(Error::Conflict(_)) => use_spare = !use_spare,
                Err(why @ Error::TooLarge(_)) if round < TRIES => {
                    self.make_room(ino, inode.size, &record, why, &mut futile).await?;
                }
                Err(error) => return Err(error),
                Ok(appended) => {
                    if appended.inline_bytes >= COALESCE_BYTES as u64 {
                        self.coalesce(caller, ino, appended.offset).await;
                    }
                    return Ok(appended);
                }
            }
        }
        Err(Error::Unavailable(format!(
            "appending to inode {ino}: too many clients append to it at once"
        )))
    }

    /// Truncates a file, or extends it by a hole.
    pub async fn truncate(
        &self,
        caller: &Caller,
        ino: Ino,
        size: u64,
        opened: bool,
    ) -> Result<Inode> {
        loop {
            let (session, spare) = (self.session(), self.inner.new_body());
            let truncated =
                self.run(caller, Truncate { ino, session, opened, spare, size }).await?;
            if !truncated.more {
                return Ok(truncated.inode);
            }
        }
    }

    /// Truncates like [`Fs::truncate`], for a call: returns `None` if that was done before.
    pub async fn truncate_for(
        &self,
        caller: &Caller,
        call: CallId,
        ino: Ino,
        opened: bool,
        size: u64,
    ) -> Result<Option<Inode>> {
        loop {
            let (session, spare) = (self.session(), self.inner.new_body());
            let verb = Truncate { ino, session, opened, spare, size };
            match self.run(caller, ForCall { call, verb }).await? {
                Once::Done(truncated) if !truncated.more => return Ok(Some(truncated.inode)),
                Once::Done(_) => {}
                Once::Before(_) => return Ok(None),
            }
        }
    }

    /// Extends a file that the caller has open to `end` at least, by a hole.
    pub async fn extend(&self, caller: &Caller, ino: Ino, end: u64) -> Result<Inode> {
        let session = self.session();
        self.run(caller, Extend { ino, session, opened: true, end }).await
    }

    /// Makes a hole of a range of a file that the caller has open; the size stays.
    pub async fn punch(&self, caller: &Caller, ino: Ino, offset: u64, len: u64) -> Result<Inode> {
        let (mut len, mut compactions) = (len, 0);
        loop {
            let (session, spare) = (self.session(), self.inner.new_body());
            let punch = PunchHole { ino, session, opened: true, spare, offset, len };
            match self.run(caller, punch).await {
                Ok(punched) if punched.remaining == 0 => return Ok(punched.inode),
                Ok(punched) => len = punched.remaining,
                // Each hole splits an extent in two. Some become zeros that are stored.
                Err(Error::TooLarge(_)) if compactions < COMPACTIONS => {
                    compactions += 1;
                    let last = offset.saturating_add(len - 1);
                    let [first, last] = [offset, last].map(|at| (at / limits::CHUNK_BYTES) as u32);
                    self.compact_chunk(caller, ino, first).await?;
                    if last != first {
                        self.compact_chunk(caller, ino, last).await?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Copies `len` bytes of a file to another by reference; both are open. Returns the number of
    /// bytes copied: fewer if the source ends, or something failed on the way.
    ///
    /// # Errors
    /// `CrossBucket`, `TooLarge` and `NotImplemented` if the bytes must be moved.
    pub async fn copy_range(
        &self,
        caller: &Caller,
        session: SessionId,
        from: FilePosition,
        to: FilePosition,
        len: u64,
    ) -> Result<u64> {
        let (mut done, mut step, mut compactions) = (0, len, 0);
        while done < len {
            let (source, source_offset) = (from.ino, from.offset + done);
            let (ino, offset) = (to.ino, to.offset + done);
            let (len, spare, opened) = (step.min(len - done), self.inner.new_body(), true);
            let verb =
                CopyRange { source, source_offset, ino, offset, len, session, opened, spare };
            match self.run(caller, verb).await {
                Ok(copied) if copied.len == 0 => break,
                Ok(copied) => done += copied.len,
                Err(Error::TooLarge(_)) if len > limits::CHUNK_BYTES => {
                    step = limits::CHUNK_BYTES;
                }
                Err(Error::TooLarge(_)) if compactions < COMPACTIONS => {
                    compactions += 1;
                    let last = (offset + len - 1) / limits::CHUNK_BYTES;
                    for chunk in offset / limits::CHUNK_BYTES..=last {
                        self.compact_chunk(caller, ino, chunk as u32).await?;
                    }
                }
                Err(error) if done == 0 => return Err(error),
                Err(error) => {
                    tracing::debug!(%ino, %error, "copied in part");
                    break;
                }
            }
        }
        Ok(done)
    }

    /// Rewrites a chunk of a file with too many extents, in runs of a block. Bytes that were
    /// changed meanwhile stay as they are.
    pub async fn compact_chunk(&self, caller: &Caller, ino: Ino, chunk: u32) -> Result<()> {
        let Some((body, extents)) = self.read(caller, ReadChunk { ino, chunk }).await? else {
            return Ok(());
        };
        let mut object = self.open_inode(caller, ino, true).await?;
        let step = limits::BLOCK_BYTES as u64;
        let start = u64::from(chunk) * limits::CHUNK_BYTES;
        for at in (start..start + limits::CHUNK_BYTES).step_by(limits::BLOCK_BYTES) {
            let within = |extent: &&Extent| extent.offset >= at && extent.end() <= at + step;
            let replaces: Vec<Extent> = extents.iter().filter(within).cloned().collect();
            let (Some(first), Some(last)) = (replaces.first(), replaces.last()) else { continue };
            let range = first.offset..last.end().min(object.size());
            if replaces.len() < 2 || range.end < last.end() {
                continue;
            }
            let data = match object.read_all(range.clone()).await {
                // The server no longer knows that it named this block to the mount: the file is
                // opened anew.
                Err(Error::Denied(_)) => {
                    object = self.open_inode_anew(caller, ino, true).await?;
                    if object.size() < range.end {
                        continue;
                    }
                    object.read_all(range.clone()).await?
                }
                data => data?,
            };
            let owner = Owner { body, chunk };
            let extent = self.write_block(caller, ino, owner, false, data).await?;
            let with = Extent { offset: range.start, ..extent };
            self.replace(caller, ino, body, chunk, replaces, with).await?;
        }
        Ok(())
    }
}

impl FileWriter {
    async fn target(&self, caller: &Caller) -> Result<Target> {
        let mut target = self.target.lock().await;
        if let Some(target) = *target
            && target.body.session == self.fs.session()
        {
            return Ok(target);
        }
        let access = Access { ino: self.ino, wanted: 0 };
        let (inode, shared) = self.fs.read(caller, access).await?;
        let found = match inode.content {
            Content::Body(body) if !shared => Target { body, is_spare: false },
            _ => Target { body: self.fs.inner.new_body(), is_spare: true },
        };
        *target = Some(found);
        Ok(found)
    }

    /// Writes runs, in order, as one block: at most [`limits::BLOCK_BYTES`] and [`PACKED_RUNS`] of
    /// them, all in one chunk.
    pub async fn upload(&self, caller: &Caller, runs: &[(u64, Bytes)]) -> Result<UploadedRuns> {
        let target = self.target(caller).await?;
        let chunk = runs.first().map_or(0, |(offset, _)| (offset / limits::CHUNK_BYTES) as u32);
        let data = match runs {
            [(_, data)] => data.clone(),
            runs => runs.iter().flat_map(|(_, data)| data.iter().copied()).collect(),
        };
        let owner = Owner { body: target.body, chunk };
        let block = self.fs.write_block(caller, self.ino, owner, false, data.clone()).await?;
        if let Place::Block { block, .. } = block.place {
            self.fs.inner.keep(block, &data);
        }
        let mut at = 0;
        let mut extents = Vec::with_capacity(runs.len());
        for (offset, data) in runs {
            let end = at + data.len() as u64;
            let part = block.slice(at, end).unwrap_or_else(|| block.clone());
            extents.push(Extent { offset: *offset, ..part });
            at = end;
        }
        Ok(UploadedRuns { extents, target })
    }

    /// Publishes runs that do not overlap, in `session`; they are durable when this returns. Blocks
    /// come first, several in one operation. With `over`, they are published only if the file is
    /// still in that state. `over` is then set to the new state, also if only some of the runs were
    /// published.
    ///
    /// # Errors
    /// `PreconditionFailed` if the file has another state; then some runs may have been published.
    /// `Conflict` if blocks were written for a body that is not the file's any more: upload them
    /// again, after [`FileWriter::forget`]. `Unavailable` or `Denied` once the session has ended.
    pub async fn publish(
        &self,
        caller: &Caller,
        session: SessionId,
        pieces: Vec<Piece>,
        over: &mut Option<Over>,
    ) -> Result<()> {
        let mut blocks: Vec<UploadedRuns> = Vec::new();
        let mut inline = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Inline(offset, data) => inline.push((offset, data)),
                Piece::Block(uploaded) => blocks.push(uploaded),
            }
        }
        let mut rest = VecDeque::from(blocks);
        while let Some(first) = rest.pop_front() {
            let (target, mut run) = (first.target, first.extents);
            while let Some(next) = rest.pop_front_if(|next| {
                next.target == target && run.len() + next.extents.len() <= PUBLISHED_EXTENTS
            }) {
                run.extend(next.extents);
            }
            self.publish_blocks(caller, session, (target, run), over).await?;
        }
        for (offset, data) in inline {
            self.write(caller, session, offset, Data::Inline(data), None, over).await?;
        }
        Ok(())
    }

    async fn publish_blocks(
        &self,
        caller: &Caller,
        session: SessionId,
        (target, mut run): (Target, Vec<Extent>),
        over: &mut Option<Over>,
    ) -> Result<()> {
        run.sort_by_key(|extent| extent.offset);
        let offset = run.first().map_or(0, |first| first.offset);
        let relative = |extent: Extent| Extent { offset: extent.offset - offset, ..extent };
        let extents = run.into_iter().map(relative).collect();
        let data = Data::Blocks { body: target.body, extents };
        let spare = {
            let known = self.target.lock().await;
            // A body that became the file's is never spare again, whatever happens to the file.
            (*known == Some(target) && target.is_spare).then_some(target.body)
        };
        self.write(caller, session, offset, data, spare, over).await?;
        if spare.is_some() {
            *self.target.lock().await = Some(Target { is_spare: false, ..target });
        }
        Ok(())
    }

    /// Chunks with too many extents are rewritten first.
    async fn write(
        &self,
        caller: &Caller,
        session: SessionId,
        offset: u64,
        data: Data,
        spare: Option<BodyId>,
        over: &mut Option<Over>,
    ) -> Result<()> {
        let (fs, ino) = (&self.fs, self.ino);
        let mut compactions = 0;
        loop {
            let spare = spare.unwrap_or_else(|| fs.inner.new_body());
            let data = data.clone();
            let end = offset + data.len();
            let write = Write { ino, session, opened: true, spare, offset, data };
            let written = match *over {
                None => fs.run(caller, write).await,
                Some(Over { base, shown }) => {
                    let over = WriteOver { write: write.clone(), base, shown };
                    match fs.run(caller, over).await {
                        // The master is of an earlier version.
                        Err(Error::NotImplemented(_)) => fs.run(caller, write).await,
                        written => written,
                    }
                }
            };
            match written {
                Ok(inode) => {
                    if let Some(over) = over {
                        over.base = inode.data_change;
                    }
                    return Ok(());
                }
                Err(Error::TooLarge(_)) if compactions < COMPACTIONS => {
                    compactions += 1;
                    let chunks = offset / limits::CHUNK_BYTES..end.div_ceil(limits::CHUNK_BYTES);
                    for chunk in chunks {
                        fs.compact_chunk(caller, ino, chunk as u32).await?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Forgets the body: further blocks are written for the body that the file has then.
    pub async fn forget(&self) {
        *self.target.lock().await = None;
    }
}

/// Searches for data and holes in an object.
impl Object {
    /// Returns the offset of the first byte at or after `offset` that is data, or with `hole` of
    /// the first byte of a hole, of which there is one at the end. Returns `None` if there is no
    /// such byte.
    pub async fn seek(&self, offset: u64, hole: bool) -> Result<Option<u64>> {
        let size = self.size();
        if offset >= size {
            return Ok(None);
        }
        let body = match &self.inode().content {
            Content::Empty => return Ok(hole.then_some(offset)),
            Content::Inline(bytes) => {
                let end = bytes.len() as u64;
                return Ok(if hole {
                    Some(offset.max(end).min(size))
                } else {
                    (offset < end).then_some(offset)
                });
            }
            Content::Body(body) => *body,
        };
        let mut at = offset;
        for window in crate::object::windows(offset..size) {
            for extent in self.extents(body, window.clone()).await? {
                if hole && extent.offset > at {
                    return Ok(Some(at));
                }
                if !hole {
                    return Ok(Some(extent.offset.max(at)));
                }
                at = extent.end();
            }
            if hole && at < window.end {
                return Ok(Some(at));
            }
            at = window.end;
        }
        Ok(hole.then_some(size))
    }
}
