//! Writing: bytes go into blocks as they come, several blocks at once, and are published by one
//! operation when all of them are durable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use cairn_auth::Caller;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{
    BlockId, BodyId, Error, Owner, Party, Redundancy, Result, Scope, SessionId, Share, Stage,
    Stages, Timestamp, limits, stage,
};
use cairn_blocks::Wish;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Fs;
use crate::garbage::Abandoned;
use crate::incoming::{Held, Wanted};
use crate::ops::conditions::Conditions;
use crate::ops::multipart::{PutPart, UploadName};
use crate::ops::put_object::{MayWrite, NewContent, PutObject, PutReply, StageExtents};
use crate::ops::resumable::PutResumable;
use crate::party::party_of;
use crate::rows::{Checksum, Extent, Extents, ObjectAttributes, Place, Resumable};

/// Memory is taken for an upload as its bytes come: as much again as it has, but no less and no
/// more than this at once, bytes.
const MEMORY_STEP_MIN: usize = 16 << 10;
const MEMORY_STEP_MAX: usize = 256 << 10;
/// The step for an upload that had to wait, bytes. It becomes a block: a chunk takes 1,024 of them,
/// so they must not be much smaller.
const MEMORY_STEP_WAITED: usize = 128 << 10;
/// Chunk rows sent ahead of publication in one operation, so that no operation is large.
const STAGE_CHUNKS: usize = 256;

/// Takes the bytes of one object or part.
pub struct BodyWriter {
    fs: Fs,
    buffer: BytesMut,
    /// The party that these bytes count for.
    party: Party,
    /// Memory that `buffer` may use, and how much that is.
    shares: Vec<Share>,
    granted: usize,
    puts: JoinSet<(Result<Extent>, Option<Stages>)>,
    /// The bucket, and the key of an object that goes when this one is published.
    place: (String, Option<String>),
    /// As many bytes as quotas have let in.
    let_in: u64,
    draft: Draft,
}

/// Bytes that were written and not published yet. Dropped, it is abandoned.
pub struct Written {
    draft: Draft,
    inline: Bytes,
}

/// The extents so far. Dropped without having been published, what they name is given up.
struct Draft {
    fs: Fs,
    body: Option<BodyId>,
    size: u64,
    /// Of blocks that are durable.
    chunks: BTreeMap<u32, Extents>,
    /// Where blocks begin that are on their way, or were lost.
    pending: BTreeSet<u64>,
    /// Where blocks should go: to where the one before went.
    wish: Wish,
    staged: bool,
    /// Bytes that count for quotas until they are published, or given up.
    held: Vec<Held>,
}

/// The parts of an object besides its bytes.
#[derive(Clone, Debug, Default)]
pub struct PutRequest {
    pub bucket: String,
    pub key: String,
    pub object: ObjectAttributes,
    pub tags: Vec<(String, String)>,
    pub conditions: Conditions,
}

impl Fs {
    /// Begins to write an object or a part, if the caller may write in the bucket. Nothing is
    /// visible until what [`BodyWriter::finish`] gives is put somewhere.
    pub async fn begin(&self, caller: &Caller, bucket: &str) -> Result<BodyWriter> {
        self.begin_for(caller, party_of(caller), bucket).await
    }

    /// The same, with memory that counts for another party than the caller.
    pub async fn begin_for(
        &self,
        caller: &Caller,
        party: Party,
        bucket: &str,
    ) -> Result<BodyWriter> {
        let may = MayWrite { bucket: bucket.into() };
        let replicas = match self.read_now(caller, &may) {
            Some(decided) => decided?,
            None => self.read(caller, may).await?,
        };
        self.inner.meta.check_space()?;
        let mut draft = Draft::empty(self);
        draft.wish.redundancy = Redundancy::from_number(replicas);
        Ok(BodyWriter {
            fs: self.clone(),
            buffer: BytesMut::new(),
            party,
            shares: Vec::new(),
            granted: 0,
            puts: JoinSet::new(),
            place: (bucket.to_owned(), None),
            let_in: limits::QUOTA_UNASKED,
            draft,
        })
    }

    /// Publishes an object; durable and visible at every door when it returns.
    pub async fn put_object(
        &self,
        caller: &Caller,
        request: PutRequest,
        written: Written,
    ) -> Result<PutReply> {
        let (draft, content) = written.into_content();
        let verb = PutObject {
            bucket: request.bucket,
            key: request.key,
            session: draft.session(),
            content,
            size: draft.size,
            object: request.object,
            tags: request.tags,
            conditions: request.conditions,
        };
        draft.publish(self.run(caller, verb)).await
    }

    /// Publishes a part of a multipart upload.
    pub async fn put_part(
        &self,
        caller: &Caller,
        name: UploadName,
        number: u32,
        written: Written,
        etag: String,
        checksums: Vec<Checksum>,
    ) -> Result<()> {
        let (draft, content) = written.into_content();
        let (session, size) = (draft.session(), draft.size);
        let verb = PutPart { name, number, session, content, size, etag, checksums };
        draft.publish(self.run(caller, verb)).await
    }
}

impl Fs {
    /// Adds the next bytes to a resumable upload, which has come to `offset`.
    pub async fn put_resumable(
        &self,
        caller: &Caller,
        name: UploadName,
        (offset, expires): (u64, Timestamp),
        written: Written,
        etag: String,
    ) -> Result<Resumable> {
        let (draft, content) = written.into_content();
        let (session, size, number) = (draft.session(), draft.size, 0);
        let part = PutPart { name, number, session, content, size, etag, checksums: Vec::new() };
        draft.publish(self.run(caller, PutResumable { part, offset, expires })).await
    }
}

impl BodyWriter {
    /// Bytes taken so far.
    pub fn size(&self) -> u64 {
        self.draft.size + self.buffer.len() as u64
    }

    /// Has quotas let in the bytes that a client has announced, before any of them comes. The key
    /// is of an object, and not of a part of one: what is there under it makes room.
    ///
    /// # Errors
    /// `Full` if a quota leaves too little room for them.
    pub async fn expect(&mut self, announced: Option<u64>, key: Option<&str>) -> Result<()> {
        self.place.1 = key.map(str::to_owned);
        match announced.filter(|bytes| *bytes > self.let_in) {
            Some(bytes) => self.let_in(Wanted::Exactly(bytes)).await,
            None => Ok(()),
        }
    }

    /// The bytes that are let in without being asked for are among those of the first time.
    async fn let_in(&mut self, wanted: Wanted) -> Result<()> {
        let (bucket, key) = &self.place;
        let held = self.fs.let_in(bucket, key.as_deref(), wanted).await?;
        self.draft.held.extend(held);
        self.let_in = match wanted {
            Wanted::Exactly(bytes) => self.let_in.max(bytes),
            Wanted::Portion => self.let_in.saturating_add(limits::QUOTA_PORTION),
        };
        Ok(())
    }

    /// Takes further bytes. Waits while too many are on their way to disk.
    pub async fn push(&mut self, mut bytes: Bytes) -> Result<()> {
        if self.size() + bytes.len() as u64 > limits::OBJECT_BYTES {
            let what = format!("object of more than {} bytes", limits::OBJECT_BYTES);
            return Err(Error::TooLarge(what));
        }
        while self.size() + bytes.len() as u64 > self.let_in {
            Box::pin(self.let_in(Wanted::Portion)).await?;
        }
        while !bytes.is_empty() {
            let room = self.block_room();
            let granted = self.granted - self.buffer.len();
            if granted == 0 {
                self.take_memory().await?;
                continue;
            }
            let piece = bytes.split_to(bytes.len().min(room).min(granted));
            self.make_room(piece.len(), room);
            self.buffer.extend_from_slice(&piece);
            if piece.len() == room {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// A small object gets what it needs; anything longer a whole block at once, so that no byte
    /// is copied from one buffer to the next. Memory that is not written to costs nothing.
    fn make_room(&mut self, len: usize, room: usize) {
        if self.buffer.len() + len > self.buffer.capacity() {
            let is_small = self.buffer.is_empty() && len <= limits::INLINE_BYTES;
            self.buffer.reserve(if is_small { len } else { room });
        }
    }

    /// Bytes that still fit in the block being filled: blocks do not cross the border of a chunk.
    fn block_room(&self) -> usize {
        let to_border = limits::CHUNK_BYTES - self.draft.size % limits::CHUNK_BYTES;
        limits::BLOCK_BYTES.min(to_border as usize) - self.buffer.len()
    }

    /// Waits for memory with empty hands: an upload that waits holds none that another waits for.
    async fn take_memory(&mut self) -> Result<()> {
        let memory = &Arc::clone(&self.fs.inner.upload_memory);
        let step = self.buffer.len().clamp(MEMORY_STEP_MIN, MEMORY_STEP_MAX);
        let share = match memory.take_now(self.party, step as u64) {
            Some(share) => share,
            None => {
                self.flush().await?;
                let taken = memory.take(self.party, MEMORY_STEP_WAITED as u64);
                stage::time(Stage::Write, taken).await
            }
        };
        self.granted += share.amount() as usize;
        self.shares.push(share);
        Ok(())
    }

    /// Sends the buffer on its way as a block.
    async fn flush(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        while self.puts.len() >= self.fs.inner.config.parallel_blocks {
            self.join().await?;
        }
        let (put, shares) = self.next_put()?;
        let mut put = Scope::new(stage::of_task(), Box::pin(put));
        self.puts.spawn(async move {
            let _held = shares;
            let outcome = (&mut put).await;
            (outcome, put.stages)
        });
        self.draft.stage().await
    }

    /// Names the next block and prepares its writing. The outcome is told to the draft.
    fn next_put(
        &mut self,
    ) -> Result<(impl Future<Output = Result<Extent>> + Send + use<>, Vec<Share>)> {
        let inner = self.fs.inner.clone();
        let (offset, len) = (self.draft.size, self.buffer.len() as u64);
        let (block, owner) = self.draft.add_block(self.buffer.len())?;
        let data = std::mem::take(&mut self.buffer).freeze();
        let wish = self.draft.wish;
        let put = async move {
            let group = inner.blocks.write(wish, block, owner, data).await?;
            Ok(Extent { offset, len, place: Place::Block { group, block, offset: 0 } })
        };
        self.granted = 0;
        Ok((put, std::mem::take(&mut self.shares)))
    }

    async fn join(&mut self) -> Result<()> {
        let begun = Instant::now();
        match stage::time(Stage::Write, self.puts.join_next()).await {
            None => Ok(()),
            Some(Ok((put, stages))) => {
                stage::divide(Stage::Write, begun.elapsed(), stages.as_ref());
                self.draft.landed(put?);
                Ok(())
            }
            Some(Err(error)) => Err(Error::Io(std::io::Error::other(error))),
        }
    }

    /// Waits until all blocks are durable.
    ///
    /// # Errors
    /// Also where a block failed before, of which [`BodyWriter::push`] has told.
    pub async fn finish(mut self) -> Result<Written> {
        let mut inline = Bytes::new();
        if self.draft.body.is_none() && self.buffer.len() <= limits::INLINE_BYTES {
            inline = std::mem::take(&mut self.buffer).freeze();
            self.draft.size = inline.len() as u64;
        } else if !self.buffer.is_empty() {
            let (put, _held) = self.next_put()?;
            let extent = put.await?;
            self.draft.landed(extent);
        }
        while !self.puts.is_empty() {
            self.join().await?;
        }
        if !self.draft.pending.is_empty() {
            return Err(Error::Unavailable("a block of it was not written".into()));
        }
        let draft = std::mem::replace(&mut self.draft, Draft::empty(&self.fs));
        Ok(Written { draft, inline })
    }
}

impl Drop for BodyWriter {
    /// Blocks may still be on their way: they are given up when they have arrived.
    fn drop(&mut self) {
        if self.puts.is_empty() {
            return;
        }
        let mut puts = std::mem::take(&mut self.puts);
        let mut draft = std::mem::replace(&mut self.draft, Draft::empty(&self.fs));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                while let Some(put) = puts.join_next().await {
                    if let Ok((Ok(extent), _)) = put {
                        draft.landed(extent);
                    }
                }
            });
        }
    }
}

impl Written {
    /// Bytes.
    pub fn size(&self) -> u64 {
        self.draft.size
    }

    fn into_content(mut self) -> (Draft, NewContent) {
        let content = match self.draft.body {
            None => NewContent::Inline(std::mem::take(&mut self.inline)),
            Some(body) => NewContent::Body {
                body,
                chunks: self.draft.chunks.iter().map(|(at, row)| (*at, row.clone())).collect(),
                staged: self.draft.staged,
            },
        };
        (self.draft, content)
    }
}

impl Draft {
    fn empty(fs: &Fs) -> Draft {
        Draft {
            fs: fs.clone(),
            body: None,
            size: 0,
            chunks: BTreeMap::new(),
            pending: BTreeSet::new(),
            wish: Wish::default(),
            staged: false,
            held: Vec::new(),
        }
    }

    /// The session that all of it belongs to, and that alone may publish it.
    fn session(&self) -> SessionId {
        self.body.map_or_else(|| self.fs.session(), |body| body.session)
    }

    /// Names a block at the end.
    ///
    /// # Errors
    /// `Unavailable` if the session has ended in which the body was begun.
    fn add_block(&mut self, len: usize) -> Result<(BlockId, Owner)> {
        let inner = &self.fs.inner;
        let block = inner.new_block()?;
        let body = *self.body.get_or_insert(BodyId { session: block.session, ..inner.new_body() });
        if body.session != block.session {
            let text = format!("session {} has ended, in which the upload began", body.session);
            return Err(Error::Unavailable(text));
        }
        let chunk = chunk_at(self.size);
        self.pending.insert(self.size);
        self.size += len as u64;
        Ok((block, Owner { body, chunk }))
    }

    /// A block is durable.
    fn landed(&mut self, extent: Extent) {
        self.pending.remove(&extent.offset);
        if let Place::Block { group, .. } = extent.place {
            self.wish.group = Some(group);
        }
        let extents = &mut self.chunks.entry(chunk_at(extent.offset)).or_default().extents;
        let at = extents.partition_point(|before| before.offset < extent.offset);
        extents.insert(at, extent);
    }

    /// Sends chunk rows ahead when there are many: those that are whole.
    async fn stage(&mut self) -> Result<()> {
        let open = chunk_at(self.pending.first().copied().unwrap_or(self.size));
        let (Some(body), true) = (self.body, self.chunks.range(..open).count() > STAGE_CHUNKS)
        else {
            return Ok(());
        };
        let session = self.session();
        let whole = self.chunks.range(..open);
        let chunks: Vec<_> = whole.map(|(at, row)| (*at, row.clone())).collect();
        self.staged = true;
        let staged = StageExtents { session, body, chunks };
        self.fs.run(&Caller::system(), staged).await?;
        self.chunks = self.chunks.split_off(&open);
        Ok(())
    }

    /// Publishes it by `operation`. Where the outcome is not known, for nobody answered or nobody
    /// waits for the answer any more, nothing is given up: orphans are found when the session has
    /// ended.
    async fn publish<T>(mut self, operation: impl Future<Output = Result<T>>) -> Result<T> {
        let body = self.body.take();
        if is_planted(Bug::HangUpGivesUp) {
            self.body = body;
        }
        let outcome = operation.await;
        let is_known = !matches!(outcome, Ok(_) | Err(Error::Unavailable(_)));
        self.body = body.filter(|_| is_known);
        outcome
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let Some(body) = self.body else { return };
        let mut abandoned = self.fs.inner.abandoned.lock();
        if self.staged {
            abandoned.push(Abandoned::Body(body));
        }
        for extent in self.chunks.values().flat_map(|row| &row.extents) {
            if let Place::Block { group, block, .. } = extent.place {
                abandoned.push(Abandoned::Block(group, block));
            }
        }
    }
}

/// The chunk that `offset` of a body lies in.
fn chunk_at(offset: u64) -> u32 {
    (offset / limits::CHUNK_BYTES) as u32
}
