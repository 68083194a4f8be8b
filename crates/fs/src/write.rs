//! Writes: bytes go into blocks as they arrive, several blocks at once, and are published by one
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
use crate::garbage::GarbageItem;
use crate::incoming::{AdmissionRequest, QuotaHold};
use crate::ops::buckets::FindBucket;
use crate::ops::conditions::Conditions;
use crate::ops::key_names::{check_bytes, is_for_s3_alone};
use crate::ops::multipart::{PutPart, UploadName};
use crate::ops::put_object::{MayWrite, NewContent, PutObject, PutReply, StageExtents};
use crate::ops::resumable::PutResumable;
use crate::party::party_of;
use crate::rows::{Checksum, Extent, Extents, ObjectAttributes, Place, Resumable};

/// Bytes of memory that an upload takes at once, as its bytes arrive: as much as it already has,
/// within these limits.
const MEMORY_STEP_MIN: usize = 16 << 10;
const MEMORY_STEP_MAX: usize = 256 << 10;
/// Bytes that an upload takes at once after it had to wait. They become a block: a chunk then has
/// 1,024 blocks, so they must not be much smaller.
const MEMORY_STEP_WAITED: usize = 128 << 10;
/// Number of chunk rows sent in one operation ahead of publication, so that no operation is large.
const STAGE_CHUNKS: usize = 256;

/// Takes the bytes of one object or part.
pub struct BodyWriter {
    fs: Fs,
    buffer: BytesMut,
    /// The party that these bytes count for.
    party: Party,
    /// Memory that `buffer` may use, and its amount.
    shares: Vec<Share>,
    granted: usize,
    puts: JoinSet<(Result<Extent>, Option<Stages>)>,
    /// The bucket, and the key of the object that is replaced when this one is published.
    place: (String, Option<String>),
    /// Number of bytes that quotas have admitted.
    let_in: u64,
    draft: Draft,
}

/// Bytes that were written and not published yet. They are abandoned when this is dropped.
pub struct WrittenBody {
    draft: Draft,
    inline: Bytes,
}

/// The extents so far. Their blocks are abandoned when this is dropped without being published.
struct Draft {
    fs: Fs,
    body: Option<BodyId>,
    size: u64,
    /// Extents of blocks that are durable, by chunk.
    chunks: BTreeMap<u32, Extents>,
    /// Offsets of blocks that are in progress, or were lost.
    pending: BTreeSet<u64>,
    /// Preferred place of blocks: the group of the block before.
    wish: Wish,
    staged: bool,
    /// Bytes that count for quotas until they are published or abandoned.
    held: Vec<QuotaHold>,
}

/// Everything about an object except its bytes.
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
    /// visible until the result of [`BodyWriter::finish`] is published.
    pub async fn begin(&self, caller: &Caller, bucket: &str) -> Result<BodyWriter> {
        self.begin_for(caller, party_of(caller), bucket).await
    }

    /// Begins like [`Fs::begin`], with memory that counts for another party than the caller.
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

    /// Checks that a bucket takes bytes under a key. Only keys that not every bucket takes need a
    /// look at it; others are checked when the object is published.
    async fn check_key(&self, bucket: &str, key: &str) -> Result<()> {
        if !is_for_s3_alone(key) {
            return Ok(());
        }
        let verb = FindBucket { name: bucket.to_owned() };
        match self.read(&Caller::system(), verb).await? {
            Some(opened) => check_bytes(&opened.bucket, key),
            None => Ok(()),
        }
    }

    /// Publishes an object. It is durable, and visible at every door, when this returns.
    pub async fn put_object(
        &self,
        caller: &Caller,
        request: PutRequest,
        written: WrittenBody,
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
        written: WrittenBody,
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
    /// Adds bytes at the end of a resumable upload, which has reached `offset`.
    pub async fn put_resumable(
        &self,
        caller: &Caller,
        name: UploadName,
        offset: u64,
        expires: Timestamp,
        written: WrittenBody,
        etag: String,
    ) -> Result<Resumable> {
        let (draft, content) = written.into_content();
        let (session, size, number) = (draft.session(), draft.size, 0);
        let part = PutPart { name, number, session, content, size, etag, checksums: Vec::new() };
        draft.publish(self.run(caller, PutResumable { part, offset, expires })).await
    }
}

impl BodyWriter {
    /// Returns the number of bytes taken so far.
    pub fn size(&self) -> u64 {
        self.draft.size + self.buffer.len() as u64
    }

    /// Asks the bucket and the quotas to admit the bytes that a client has announced, before any of
    /// them arrives. The key is stated for an object, and not for a part of one: the object under
    /// it makes room.
    ///
    /// # Errors
    /// `Invalid` if the bucket takes no bytes under the key, `Full` if a quota leaves too little
    /// room for them.
    pub async fn expect(&mut self, announced: Option<u64>, key: Option<&str>) -> Result<()> {
        if let (Some(1..), Some(key)) = (announced, key) {
            self.fs.check_key(&self.place.0, key).await?;
        }
        self.place.1 = key.map(str::to_owned);
        match announced.filter(|bytes| *bytes > self.let_in) {
            Some(bytes) => self.let_in(AdmissionRequest::Exactly(bytes)).await,
            None => Ok(()),
        }
    }

    /// Admits bytes. An upload's first bytes are admitted without asking
    /// ([`limits::QUOTA_UNASKED`]); an announced length includes them.
    async fn let_in(&mut self, wanted: AdmissionRequest) -> Result<()> {
        let (bucket, key) = &self.place;
        let held = self.fs.let_in(bucket, key.as_deref(), wanted).await?;
        self.draft.held.extend(held);
        self.let_in = match wanted {
            AdmissionRequest::Exactly(bytes) => self.let_in.max(bytes),
            AdmissionRequest::Portion => self.let_in.saturating_add(limits::QUOTA_PORTION),
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
            Box::pin(self.let_in(AdmissionRequest::Portion)).await?;
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

    /// Makes room in the buffer: a small object gets exactly its length; anything longer a whole
    /// block at once, so that no byte is copied from one buffer to the next. Memory that is not
    /// written to costs nothing.
    fn make_room(&mut self, len: usize, room: usize) {
        if self.buffer.len() + len > self.buffer.capacity() {
            let is_small = self.buffer.is_empty() && len <= limits::INLINE_BYTES;
            self.buffer.reserve(if is_small { len } else { room });
        }
    }

    /// Returns the number of bytes that still fit in the current block: blocks do not cross the
    /// boundary of a chunk.
    fn block_room(&self) -> usize {
        let to_border = limits::CHUNK_BYTES - self.draft.size % limits::CHUNK_BYTES;
        limits::BLOCK_BYTES.min(to_border as usize) - self.buffer.len()
    }

    /// Takes memory. If it has to wait, the buffer is written first: an upload that waits holds no
    /// memory that another waits for.
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

    /// Begins to write the buffer as a block.
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

    /// Names the next block and prepares its writing. The draft must receive the outcome.
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
    /// Also reports a block that failed before, although [`BodyWriter::push`] has reported it.
    pub async fn finish(mut self) -> Result<WrittenBody> {
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
        Ok(WrittenBody { draft, inline })
    }
}

impl Drop for BodyWriter {
    /// Blocks may still be in progress: they are abandoned when they are done.
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

impl WrittenBody {
    /// Returns the length in bytes.
    pub fn size(&self) -> u64 {
        self.draft.size
    }

    /// Publishes the bytes by an operation, which is given their session and content.
    pub(crate) async fn publish<T, F: Future<Output = Result<T>>>(
        self,
        operation: impl FnOnce(SessionId, NewContent) -> F,
    ) -> Result<T> {
        let (draft, content) = self.into_content();
        let session = draft.session();
        draft.publish(operation(session, content)).await
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

    /// Returns the session that the body belongs to; only that session may publish it.
    fn session(&self) -> SessionId {
        self.body.map_or_else(|| self.fs.session(), |body| body.session)
    }

    /// Names a block at the end.
    ///
    /// # Errors
    /// `Unavailable` if the session in which the body was begun has ended.
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

    /// Notes that a block is durable.
    fn landed(&mut self, extent: Extent) {
        self.pending.remove(&extent.offset);
        if let Place::Block { group, .. } = extent.place {
            self.wish.group = Some(group);
        }
        let extents = &mut self.chunks.entry(chunk_at(extent.offset)).or_default().extents;
        let at = extents.partition_point(|before| before.offset < extent.offset);
        extents.insert(at, extent);
    }

    /// Sends complete chunk rows ahead if there are many.
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

    /// Publishes the body by `operation`. If the outcome is unknown (no answer came, or the caller
    /// stopped waiting for it), nothing is abandoned: orphans are found when the session has ended.
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
            abandoned.push(GarbageItem::Body(body));
        }
        for extent in self.chunks.values().flat_map(|row| &row.extents) {
            if let Place::Block { group, block, .. } = extent.place {
                abandoned.push(GarbageItem::Block(group, block));
            }
        }
    }
}

/// Returns the chunk that `offset` of a body lies in.
fn chunk_at(offset: u64) -> u32 {
    (offset / limits::CHUNK_BYTES) as u32
}
