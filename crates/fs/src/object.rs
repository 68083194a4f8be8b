//! Reads of objects.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use cairn_auth::Caller;
use cairn_base::{BlockId, BodyId, Error, GroupId, Ino, Result, limits};
use futures_util::{Stream, StreamExt, TryStreamExt, stream};

use crate::Fs;
use crate::cache::PIECE_BYTES;
use crate::open_objects::NameRef;
use crate::ops::open_object::{OpenInode, OpenObject, OpenRange, OpenedObject, ReadExtents};
use crate::readers::ReadGuard;
use crate::rows::{Bucket, Content, Extent, Inode, ObjectAttributes, Place};
use crate::sending::{PieceStream, Sending};

/// Bytes of an object, piece by piece. An error ends the stream: all bytes before it are right.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// Zeros for holes.
pub(crate) static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Number of pieces of a stream that are fetched at the same time.
const READ_AHEAD: usize = 2;

/// Times that an object is opened again because it is replaced or truncated meanwhile.
const TRIES: u32 = 8;

/// An object that is open for reading. Its bytes are those of one state, whatever happens to it
/// meanwhile:
/// - the first 64 MiB, always;
/// - the range for which it was opened by [`Fs::open_for`]. If that has many extents, the last of
///   them can be read only while the bytes of the object do not change, and are an error otherwise.
///
/// Other bytes may have changed in place since then.
#[derive(Clone)]
pub struct Object {
    pub(crate) fs: Fs,
    opened: Arc<OpenedObject>,
    further: Option<Arc<Further>>,
    /// Keeps the blocks of this state from being deleted.
    pub(crate) guard: ReadGuard,
    /// True if its further reads of the metadata must not be answered from memory, either.
    is_anew: bool,
}

/// Further extents of an object, in the state that was opened.
struct Further {
    range: Range<u64>,
    extents: Vec<Extent>,
    /// True if more extents were requested.
    is_cut: bool,
}

impl Further {
    /// Returns the extents in `window`, if they are known.
    fn within(&self, window: &Range<u64>) -> Option<Vec<Extent>> {
        let Range { start, end } = *window;
        if start < self.range.start || end > self.range.end {
            return None;
        }
        let first = self.extents.partition_point(|extent| extent.end() <= start);
        let within = self.extents[first..].iter().take_while(|extent| extent.offset < end);
        Some(within.filter_map(|extent| extent.slice(start, end)).collect())
    }
}

impl Fs {
    /// Opens an object for reading.
    pub async fn open(&self, caller: &Caller, bucket: &str, key: &str) -> Result<Object> {
        if let Some(opened) = self.open_now(caller, bucket, key) {
            return opened;
        }
        let guard = self.read_guard();
        let verb = OpenObject { bucket: bucket.into(), key: key.into() };
        let opened = Arc::new(self.inner.meta.read(caller, verb).await?);
        Ok(Object::new(self, opened, guard))
    }

    /// Opens an object for reading a range: `wanted` returns the range once the object is found, if
    /// there is one.
    ///
    /// # Errors
    /// `Unavailable` if the object is replaced again and again meanwhile.
    pub async fn open_for(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        wanted: impl Fn(&Object) -> Option<Range<u64>>,
    ) -> Result<Object> {
        let mut object = self.open(caller, bucket, key).await?;
        for _ in 0..TRIES {
            // Most objects are short: their requests need no look at the headers here.
            if object.is_open_for(&(0..object.size())) {
                return Ok(object);
            }
            let Some(range) = wanted(&object).filter(|range| !object.is_open_for(range)) else {
                return Ok(object);
            };
            object = match object.with_further(range).await {
                Err(Error::NotFound(_)) => self.open(caller, bucket, key).await?,
                opened => opened?,
            };
        }
        Err(Error::Unavailable(format!("{bucket}/{key} is replaced again and again")))
    }

    /// Does the same as [`Fs::open`] if everything is in memory; otherwise returns `None`.
    pub fn open_now(&self, caller: &Caller, bucket: &str, key: &str) -> Option<Result<Object>> {
        let guard = self.read_guard();
        let object = |opened| Object::new(self, opened, guard);
        let name = NameRef { bucket, key, principal: caller.principal() };
        let opened = &self.inner.opened;
        if caller.posix().is_none()
            && let Some(memo) = opened.get(&name)
            && self.inner.meta.is_current(&memo)
        {
            return Some(Ok(object(Arc::clone(&memo.reply))));
        }
        let verb = OpenObject { bucket: bucket.into(), key: key.into() };
        let memo = match self.inner.meta.read_memo(caller, &verb)? {
            Ok(memo) => memo.map(Arc::new),
            Err(error) => return Some(Err(error)),
        };
        let found = Arc::clone(&memo.reply);
        if caller.posix().is_none() {
            opened.insert(name.to_name(), Arc::new(memo));
        }
        Some(Ok(object(found)))
    }

    fn read_guard(&self) -> ReadGuard {
        self.inner.readers.enter()
    }
}

impl Object {
    pub(crate) fn new(fs: &Fs, opened: Arc<OpenedObject>, guard: ReadGuard) -> Object {
        Object { fs: fs.clone(), opened, further: None, guard, is_anew: false }
    }

    /// Returns the object with all extents to be read anew.
    pub(crate) fn anew(self) -> Object {
        Object { is_anew: true, ..self }
    }

    /// Returns whether the object was opened for `range`. It always is for the first 64 MiB.
    pub fn is_open_for(&self, range: &Range<u64>) -> bool {
        let is_known = |further: &Further| {
            further.range.start <= range.start && (range.end <= further.range.end || further.is_cut)
        };
        !matches!(self.opened.inode.content, Content::Body(_))
            || range.end <= limits::CHUNK_BYTES
            || self.further.as_deref().is_some_and(is_known)
    }

    /// Returns the present state of the object, opened for `range` as well. If the range reaches to
    /// the end, bytes that were appended since are included.
    async fn with_further(&self, range: Range<u64>) -> Result<Object> {
        let (fs, guard) = (self.fs.clone(), self.fs.read_guard());
        let start = range.start - range.start % limits::CHUNK_BYTES;
        let end = if range.end == self.size() { u64::MAX } else { range.end };
        let verb = OpenRange { ino: self.ino(), start, end };
        let found = fs.inner.meta.read(&Caller::system(), verb).await?;
        let is_cut = found.end < end.min(found.opened.inode.size);
        let further = Further { range: start..found.end, extents: found.extents, is_cut };
        let further = Some(Arc::new(further));
        Ok(Object { fs, opened: Arc::new(found.opened), further, guard, is_anew: false })
    }

    pub fn ino(&self) -> Ino {
        self.opened.ino
    }

    pub fn inode(&self) -> &Inode {
        &self.opened.inode
    }

    /// Returns the settings of its bucket.
    pub fn bucket(&self) -> &Bucket {
        &self.opened.opened.bucket
    }

    /// Returns headers and digests, if it has any.
    pub fn attributes(&self) -> Option<&ObjectAttributes> {
        self.opened.inode.object.as_deref()
    }

    /// Returns the length in bytes. A directory that is shown as an object has none.
    pub fn size(&self) -> u64 {
        if self.opened.inode.is_directory() { 0 } else { self.opened.inode.size }
    }

    /// Returns the ETag without quotes.
    pub fn etag(&self) -> String {
        self.opened.inode.etag(self.opened.ino)
    }

    /// Returns the bytes of `range` without a copy, if all of them are in memory and in one run;
    /// otherwise returns `None`.
    pub fn read_now(&self, range: Range<u64>) -> Option<Bytes> {
        if range.is_empty() {
            return Some(Bytes::new());
        }
        match &self.opened.inode.content {
            Content::Empty => None,
            Content::Inline(bytes) => {
                let whole = range.end <= bytes.len() as u64;
                whole.then(|| bytes.slice(range.start as usize..range.end as usize))
            }
            Content::Body(_) => {
                let part = self.one_extent(&range)?;
                match part.place {
                    Place::Inline(bytes) => Some(bytes),
                    Place::Block { group, block, offset } => {
                        let end = offset + part.len as u32;
                        self.fs.inner.cached(group, block, offset..end)
                    }
                    Place::Body { .. } => None,
                }
            }
        }
    }

    /// Does the same as [`Object::read_now`], for bytes in several runs.
    pub fn read_parts_now(&self, range: Range<u64>) -> Option<Vec<Bytes>> {
        if let Some(bytes) = self.read_now(range.clone()) {
            return Some(vec![bytes]);
        }
        let Content::Body(body) = self.opened.inode.content else { return None };
        let (mut parts, mut at) = (Vec::new(), range.start);
        for extent in self.extents_now(body, &range)? {
            // No part may be a hole.
            if extent.offset != at {
                return None;
            }
            at = extent.end();
            match extent.place {
                Place::Inline(bytes) => parts.push(bytes),
                Place::Block { group, block, offset } => {
                    let range = offset..offset + extent.len as u32;
                    self.fs.inner.cached_parts(group, block, range, &mut parts)?;
                }
                Place::Body { .. } => return None,
            }
        }
        (at == range.end).then_some(parts)
    }

    /// Returns the extents of a range that lies in one chunk, if they are in memory.
    fn extents_now(&self, body: BodyId, range: &Range<u64>) -> Option<Vec<Extent>> {
        let slice = |extents: &[Extent]| {
            let parts = extents.iter().filter_map(|extent| extent.slice(range.start, range.end));
            parts.collect()
        };
        if range.end <= limits::CHUNK_BYTES {
            return Some(slice(&self.opened.extents));
        }
        let chunk = range.start / limits::CHUNK_BYTES;
        if self.is_anew || chunk != (range.end - 1) / limits::CHUNK_BYTES {
            return None;
        }
        let start = chunk * limits::CHUNK_BYTES;
        let end = start + limits::CHUNK_BYTES;
        let verb = ReadExtents { bucket: self.opened.opened.id, body, start, end };
        let known = self.fs.read_kept_now(&Caller::system(), &verb)?.ok()?;
        Some(slice(&known))
    }

    /// Returns the bytes of `range`, which must lie in the object.
    pub fn read(&self, range: Range<u64>) -> ByteStream {
        self.read_for(range, None)
    }

    /// Reads like [`Object::read`], for a client that may take the bytes slowly: further bytes come
    /// once most of the bytes before were dropped. So a caller that gathers them would wait for
    /// ever.
    pub fn send(&self, range: Range<u64>) -> ByteStream {
        self.read_for(range, Some(&self.fs.inner.sending))
    }

    fn read_for(&self, range: Range<u64>, sending: Option<&Arc<Sending>>) -> ByteStream {
        if range.start > range.end || range.end > self.size() {
            let error = Error::RangeNotSatisfiable { size: self.size() };
            return stream::once(async { Err(error) }).boxed();
        }
        match self.read_now(range.clone()) {
            Some(bytes) if bytes.is_empty() => stream::empty().boxed(),
            Some(bytes) => stream::once(async { Ok(bytes) }).boxed(),
            None => self.stream(range, sending),
        }
    }

    /// Returns all bytes of `range` in one piece; for small ranges only.
    pub async fn read_all(&self, range: Range<u64>) -> Result<Bytes> {
        if let Some(bytes) = self.read_now(range.clone()) {
            return Ok(bytes);
        }
        if let Some((group, block, part)) = self.run_of(&range).await? {
            let _held = &self.guard;
            return self.fs.inner.fetch(group, block, part).await;
        }
        let most = range.end.min(self.size()).saturating_sub(range.start);
        let mut whole = BytesMut::with_capacity(most as usize);
        let mut stream = self.read(range);
        while let Some(piece) = stream.next().await {
            whole.extend_from_slice(&piece?);
        }
        Ok(whole.freeze())
    }

    /// Brings bytes that will be read soon nearer, with as little work as possible. Errors are left
    /// to the read.
    pub async fn will_read(&self, range: Range<u64>) {
        if range.is_empty() || self.read_parts_now(range.clone()).is_some() {
            return;
        }
        if let Ok(Some((group, block, part))) = self.run_of(&range).await
            && self.fs.inner.blocks.will_read(group, block, part)
        {
            return;
        }
        let _ = self.read_all(range).await;
    }

    /// Returns the part of an extent that `range` is, if it lies in a known extent.
    fn one_extent(&self, range: &Range<u64>) -> Option<Extent> {
        let holds = |extent: &&Extent| extent.offset <= range.start && range.end <= extent.end();
        self.opened.extents.iter().find(holds)?.slice(range.start, range.end)
    }

    /// Returns the part of a block that `range` is, if it lies in one block.
    async fn run_of(&self, range: &Range<u64>) -> Result<Option<(GroupId, BlockId, Range<u32>)>> {
        let Content::Body(body) = self.opened.inode.content else { return Ok(None) };
        let one_chunk = range.start / limits::CHUNK_BYTES == (range.end - 1) / limits::CHUNK_BYTES;
        if !one_chunk || range.end > self.size() {
            return Ok(None);
        }
        let extents = self.extents(body, range.clone()).await?;
        Ok(match &extents[..] {
            [Extent { place: Place::Block { group, block, offset }, len, .. }]
                if *len == range.end - range.start =>
            {
                Some((*group, *block, *offset..offset + *len as u32))
            }
            _ => None,
        })
    }

    /// Returns pieces of at most [`PIECE_BYTES`], some of them read ahead.
    fn stream(&self, range: Range<u64>, sending: Option<&Arc<Sending>>) -> ByteStream {
        let body = match &self.opened.inode.content {
            Content::Body(body) => *body,
            Content::Empty => return holes(range.end - range.start),
            Content::Inline(bytes) => {
                let len = bytes.len() as u64;
                let data = bytes.slice(range.start.min(len) as usize..range.end.min(len) as usize);
                let rest = (range.end - range.start) - data.len() as u64;
                return stream::once(async { Ok(data) }).chain(holes(rest)).boxed();
            }
        };
        let object = self.clone();
        let steps = windows(range);
        let reads = stream::iter(steps)
            .then(move |window| {
                let object = object.clone();
                async move {
                    let extents = object.extents(body, window.clone()).await?;
                    Ok::<_, Error>(stream::iter(pieces(extents, window).into_iter().map(Ok)))
                }
            })
            .try_flatten()
            .map_ok({
                let object = self.clone();
                move |piece| {
                    let object = object.clone();
                    async move { object.piece(piece).await }
                }
            });
        match sending {
            None => reads.try_buffered(READ_AHEAD).boxed(),
            Some(sending) => PieceStream::new(reads, sending).boxed(),
        }
    }

    /// Returns the extents in a window of its body.
    ///
    /// # Errors
    /// `Conflict` if it has another body by now, or has changed in place although it was opened for
    /// the bytes of one state.
    pub(crate) async fn extents(&self, body: BodyId, window: Range<u64>) -> Result<Vec<Extent>> {
        if let Some(known) = self.further.as_ref().and_then(|further| further.within(&window)) {
            return Ok(known);
        }
        if window.end <= limits::CHUNK_BYTES {
            return Ok(self.extents_now(body, &window).unwrap_or_default());
        }
        let extents = match self.extents_now(body, &window) {
            Some(extents) => extents,
            None => self.ask_extents(body, window).await?,
        };
        // Checked after the read, since extents are deleted with their body.
        self.check_same(body, self.further.is_some()).await?;
        Ok(extents)
    }

    async fn ask_extents(&self, body: BodyId, window: Range<u64>) -> Result<Vec<Extent>> {
        let (meta, caller) = (&self.fs.inner.meta, Caller::system());
        let Range { start, end } = window;
        let verb = ReadExtents { bucket: self.opened.opened.id, body, start, end };
        let extents = if self.is_anew {
            meta.read_anew(&caller, verb.clone()).await
        } else {
            meta.read(&caller, verb.clone()).await
        };
        match extents {
            // A server lists for a mount only the blocks of bodies that were opened through it. The
            // mount knows this body because it has written to it.
            Err(Error::Denied(_)) => {
                meta.read_anew(&caller, OpenInode { ino: self.opened.ino, opened: true }).await?;
                meta.read(&caller, verb).await
            }
            extents => extents,
        }
    }

    /// Checks that its bytes still are those of `body`, and, with `is_unchanged`, that none of them
    /// has changed.
    ///
    /// # Errors
    /// `Conflict` if they are not.
    pub(crate) async fn check_same(&self, body: BodyId, is_unchanged: bool) -> Result<()> {
        let (caller, verb) = (Caller::system(), OpenInode { ino: self.ino(), opened: true });
        let found = if self.is_anew {
            self.fs.inner.meta.read_anew(&caller, verb).await.map(Arc::new)
        } else {
            self.fs.read_kept(&caller, verb).await
        };
        let is_same = match found {
            Ok(found) => {
                let (now, then) = (&found.inode, &self.opened.inode);
                now.content == Content::Body(body)
                    && (!is_unchanged || now.data_change == then.data_change)
            }
            Err(Error::NotFound(_)) => false,
            Err(error) => return Err(error),
        };
        if is_same {
            Ok(())
        } else {
            Err(Error::Conflict("it was changed while it was read".into()))
        }
    }

    async fn piece(&self, piece: Piece) -> Result<Bytes> {
        match piece {
            Piece::Hole(len) => Ok(Bytes::from_static(&ZEROS[..len])),
            Piece::Data(Extent { place: Place::Inline(bytes), .. }) => Ok(bytes),
            Piece::Data(Extent { place: Place::Block { group, block, offset }, len, .. }) => {
                let _held = &self.guard;
                let range = offset..offset + len as u32;
                self.fs.inner.fetch(group, block, range).await
            }
            Piece::Data(extent) => {
                Err(Error::corrupt("leaf extent", format!("{extent:?}"), "a block or bytes"))
            }
        }
    }
}

/// The piece that a stream sends at once.
pub(crate) enum Piece {
    /// Zeros, at most the length of [`ZEROS`].
    Hole(usize),
    Data(Extent),
}

fn holes(len: u64) -> ByteStream {
    stream::iter(hole_pieces(len).map(|len| Ok(Bytes::from_static(&ZEROS[..len])))).boxed()
}

fn hole_pieces(len: u64) -> impl Iterator<Item = usize> + Send {
    let step = ZEROS.len() as u64;
    (0..len.div_ceil(step)).map(move |at| (len - at * step).min(step) as usize)
}

/// Returns `range` cut at the boundaries of chunks.
pub(crate) fn windows(range: Range<u64>) -> impl Iterator<Item = Range<u64>> + Send {
    let mut start = range.start;
    std::iter::from_fn(move || {
        (start < range.end).then(|| {
            let border = (start / limits::CHUNK_BYTES + 1) * limits::CHUNK_BYTES;
            let window = start..border.min(range.end);
            start = window.end;
            window
        })
    })
}

/// Returns the pieces of a window: its extents, cut to the size of one send, and the holes between.
pub(crate) fn pieces(extents: Vec<Extent>, window: Range<u64>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut at = window.start;
    for extent in extents {
        pieces.extend(hole_pieces(extent.offset.saturating_sub(at)).map(Piece::Hole));
        at = extent.end();
        let mut start = extent.offset;
        // Cut at the boundaries of cached pieces.
        let skipped = match extent.place {
            Place::Block { offset, .. } => u64::from(offset) % PIECE_BYTES,
            _ => 0,
        };
        let mut end = start + PIECE_BYTES - skipped;
        while start < extent.end() {
            pieces.extend(extent.slice(start, end.min(extent.end())).map(Piece::Data));
            start = end;
            end += PIECE_BYTES;
        }
    }
    pieces.extend(hole_pieces(window.end.saturating_sub(at)).map(Piece::Hole));
    pieces
}
