//! Copies a part of a file by reference: only bytes in the metadata are moved.

use bytes::Bytes;
use cairn_auth::Action;
use cairn_base::{BodyId, Error, Ino, SessionId, limits};
use serde::{Deserialize, Serialize};

use super::body::{FILE_BYTES, fork, open_file, own_body, refer, store_changed};
use super::edit::{extents_between, insert, replace};
use super::namespace::chunk_of;
use super::posix::{READ, check_mode, open_inode};
use super::sharing::{check_shared, unshared};
use crate::rows::{Content, Extent, Inode, Kind, Place};
use crate::{Context, Stop, Verb, View, keys};

/// Most that one operation copies: bytes, extents, and bytes in the metadata.
const STEP_BYTES: u64 = 16 * limits::CHUNK_BYTES;
const STEP_EXTENTS: usize = 512;
const STEP_INLINE: u64 = limits::OP_BYTES as u64 / 8;

/// Copies bytes of another file of the bucket, or from elsewhere in the same file. They are parts
/// of the body of the source from then on, which is shared.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopyRange {
    pub source: Ino,
    pub source_offset: u64,
    pub ino: Ino,
    pub offset: u64,
    /// Number of bytes; at most up to the end of the source.
    pub len: u64,
    pub session: SessionId,
    /// Set if the caller holds both files open: their modes were checked then.
    pub opened: bool,
    /// Unused body of the session, for a file that has no body of its own.
    pub spare: BodyId,
}

/// The result of copying.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CopyRangeReply {
    pub inode: Inode,
    /// Number of bytes that were copied: 0 at the end of the source; else some, and there may be
    /// more.
    pub len: u64,
}

impl Verb for CopyRange {
    type Reply = CopyRangeReply;
    const NAME: &'static str = "copy_range";
    const LEASES_CHANGES: bool = true;

    fn changes(&self) -> Vec<Bytes> {
        vec![keys::inode(self.ino)]
    }

    /// Copies the range.
    ///
    /// # Errors
    /// `CrossBucket` for files of two buckets; `Invalid` for overlapping ranges of one file.
    /// `TooLarge` for more than one operation can do: fewer bytes, or chunks that are coalesced
    /// first, may be possible. `NotImplemented` if the source has too many pieces to be shared.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<CopyRangeReply, Stop> {
        let source = self.open_source(view, context)?;
        let mut inode = open_file(view, context, self.ino, self.session, self.opened)?;
        if source.bucket != inode.bucket {
            let what = format!("inode {} from inode {}", self.ino, self.source);
            return Err(Error::CrossBucket(what).into());
        }
        let len = self.len.min(source.size.saturating_sub(self.source_offset));
        if len == 0 {
            return Ok(CopyRangeReply { inode, len });
        }
        self.check_range(len)?;
        let former = unshared(view, &source.content)?;
        let (pieces, len) = self.pieces(view, &source, len.min(STEP_BYTES))?;
        let end = self.offset + len;
        if !put_inline(&mut inode, self.offset, end, &pieces) {
            let own = self.own_body(view, &mut inode, end, &pieces)?;
            replace(view, context, own, self.offset, end, split(pieces))?;
        }
        check_shared(view, former)?;
        let size = inode.size.max(end);
        store_changed(view, context, self.ino, &mut inode, size)?;
        Ok(CopyRangeReply { inode, len })
    }
}

impl CopyRange {
    fn open_source(&self, view: &mut View<'_>, context: &Context) -> Result<Inode, Stop> {
        let source = open_inode(view, context, self.source, Action::GetObject)?;
        let what = |kind| format!("inode {} is a {kind:?}", self.source);
        match source.kind {
            Kind::File => {}
            Kind::Directory => return Err(Error::IsDirectory(what(source.kind)).into()),
            other => return Err(Error::Invalid(what(other)).into()),
        }
        if !self.opened {
            check_mode(context, &source, READ)?;
        }
        Ok(source)
    }

    fn check_range(&self, len: u64) -> Result<(), Error> {
        let end = self.offset.saturating_add(len);
        if end > FILE_BYTES {
            return Err(Error::TooLarge(format!(
                "a file of {end} bytes; must be at most {FILE_BYTES}"
            )));
        }
        let source_end = self.source_offset + len;
        if self.source == self.ino && self.offset < source_end && self.source_offset < end {
            let what = format!("bytes {} and {} of one file", self.source_offset, self.offset);
            return Err(Error::Invalid(format!("{what}: the ranges of {len} bytes overlap")));
        }
        Ok(())
    }

    /// Returns the pieces that the source has in `len` bytes, at their places in the target, and,
    /// if they are too much for one operation, the number of bytes that were taken.
    fn pieces(
        &self,
        view: &mut View<'_>,
        source: &Inode,
        len: u64,
    ) -> Result<(Vec<Extent>, u64), Stop> {
        let (start, end) = (self.source_offset, self.source_offset + len);
        let found = match &source.content {
            Content::Empty => Vec::new(),
            Content::Inline(bytes) => {
                let place = Place::Inline(bytes.clone());
                let all = Extent { offset: 0, len: bytes.len() as u64, place };
                all.slice(start, end).into_iter().collect()
            }
            Content::Body(body) => {
                let extents = extents_between(view, *body, start, end)?;
                extents.into_iter().map(|extent| refer(*body, extent)).collect()
            }
        };
        let (mut pieces, mut inline) = (Vec::new(), 0);
        for extent in found {
            let extent = Extent { offset: extent.offset - start + self.offset, ..extent };
            if matches!(extent.place, Place::Inline(_)) {
                inline += extent.len;
            }
            if pieces.len() == STEP_EXTENTS || inline > STEP_INLINE && !pieces.is_empty() {
                return Ok((pieces, extent.offset - self.offset));
            }
            insert(&mut pieces, extent);
        }
        Ok((pieces, len))
    }

    /// Returns the body that takes the pieces. A body that would refer to itself becomes a part of
    /// a new one.
    fn own_body(
        &self,
        view: &mut View<'_>,
        inode: &mut Inode,
        end: u64,
        pieces: &[Extent],
    ) -> Result<BodyId, Stop> {
        let refers = |body: BodyId| {
            let to = |place: &Place| matches!(place, Place::Body { body: to, .. } if *to == body);
            pieces.iter().any(|piece| to(&piece.place))
        };
        match inode.content {
            Content::Body(body) if self.source == self.ino && refers(body) => {
                fork(view, body, self.spare, self.offset, end)?;
                inode.content = Content::Body(self.spare);
                Ok(self.spare)
            }
            _ => own_body(view, inode, self.spare, self.offset, end),
        }
    }
}

/// Replaces the bytes from `start` to `end` by pieces, if the file is small and stays so.
fn put_inline(inode: &mut Inode, start: u64, end: u64, pieces: &[Extent]) -> bool {
    let present = match &inode.content {
        Content::Empty => &[],
        Content::Inline(present) => &present[..],
        Content::Body(_) => return false,
    };
    let len = pieces.last().map_or(0, Extent::end);
    if len > limits::INLINE_BYTES as u64 {
        return false;
    }
    let mut all = present.to_vec();
    let clamp = |offset: u64| offset.min(present.len() as u64) as usize;
    all[clamp(start)..clamp(end)].fill(0);
    all.resize(all.len().max(len as usize), 0);
    for piece in pieces {
        let Place::Inline(bytes) = &piece.place else { return false };
        all[piece.offset as usize..piece.end() as usize].copy_from_slice(bytes);
    }
    inode.content = if all.is_empty() { Content::Empty } else { Content::Inline(all.into()) };
    true
}

/// Splits pieces at the ends of chunks, and returns each with the chunk that it begins in.
fn split(pieces: Vec<Extent>) -> Vec<(u32, Extent)> {
    let mut placed = Vec::with_capacity(pieces.len());
    for piece in pieces {
        for chunk in chunk_of(piece.offset)..=chunk_of(piece.end() - 1) {
            let start = u64::from(chunk) * limits::CHUNK_BYTES;
            let part = piece.slice(start, start + limits::CHUNK_BYTES);
            placed.extend(part.map(|part| (chunk, part)));
        }
    }
    placed
}
