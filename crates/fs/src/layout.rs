//! The layout of one state of an object, by which its bytes can be read without the metadata.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::{BlockId, Error, GroupId, Result, limits};
use futures_util::{StreamExt, stream};

use crate::object::{ByteStream, Object, Piece, ZEROS, pieces, windows};
use crate::rows::{Content, Extent, Place};
use crate::sending::{PieceStream, Sending};

/// The blocks, for readers only.
#[async_trait]
pub trait BlockReader: Send + Sync + 'static {
    /// Returns bytes `range` of a block, verified; `NotFound` if there is no such block.
    async fn get(&self, group: GroupId, block: BlockId, range: Range<u32>) -> Result<Bytes>;
}

/// The extents of an object or of a part of it: in order, without overlaps, in blocks or inline. A
/// range that no extent covers is zeros.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    size: u64,
    extents: Arc<[Extent]>,
}

impl Layout {
    /// Returns a layout.
    ///
    /// # Errors
    /// `Invalid` if an extent is empty, out of order, overlaps another, is beyond the end or in
    /// another body.
    pub fn new(size: u64, extents: Vec<Extent>) -> Result<Layout> {
        let mut at = 0;
        for extent in &extents {
            let fits = match &extent.place {
                Place::Block { offset, .. } => {
                    let end = u64::from(*offset).checked_add(extent.len);
                    end.is_some_and(|end| end <= u64::from(u32::MAX))
                }
                Place::Inline(bytes) => bytes.len() as u64 == extent.len,
                Place::Body { .. } => false,
            };
            let end = extent.offset.checked_add(extent.len).filter(|end| *end <= size);
            match end {
                Some(end) if fits && extent.offset >= at && extent.len > 0 => at = end,
                _ => {
                    return Err(Error::Invalid(format!(
                        "the layout has an extent at {} that is empty, out of order or \
                            beyond the end",
                        extent.offset
                    )));
                }
            }
        }
        Ok(Layout { size, extents: extents.into() })
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Returns the layout of `range` as if there were no other bytes.
    pub fn part(&self, range: Range<u64>) -> Layout {
        let cut = |extent: &Extent| {
            let part = extent.slice(range.start, range.end)?;
            Some(Extent { offset: part.offset - range.start, ..part })
        };
        let extents: Vec<Extent> = self.extents.iter().filter_map(cut).collect();
        Layout { size: range.end.saturating_sub(range.start), extents: extents.into() }
    }

    /// Returns the bytes of `range`, which must lie in the layout, for a client, like
    /// [`Object::send`]. An error ends the stream: all bytes before it are right.
    pub fn send(
        &self,
        blocks: &Arc<dyn BlockReader>,
        range: Range<u64>,
        sending: &Arc<Sending>,
    ) -> ByteStream {
        if range.start > range.end || range.end > self.size {
            let error = Error::RangeNotSatisfiable { size: self.size };
            return stream::once(async { Err(error) }).boxed();
        }
        let (extents, blocks) = (Arc::clone(&self.extents), Arc::clone(blocks));
        let steps = windows(range).flat_map(move |window| {
            let within = extents.iter().filter_map(|e| e.slice(window.start, window.end));
            pieces(within.collect(), window)
        });
        let reads = steps.map(move |piece| Ok(fetch(Arc::clone(&blocks), piece)));
        PieceStream::new(stream::iter(reads), sending).boxed()
    }
}

async fn fetch(blocks: Arc<dyn BlockReader>, piece: Piece) -> Result<Bytes> {
    match piece {
        Piece::Hole(len) => Ok(Bytes::from_static(&ZEROS[..len])),
        Piece::Data(Extent { place: Place::Inline(bytes), .. }) => Ok(bytes),
        Piece::Data(Extent { place: Place::Block { group, block, offset }, len, .. }) => {
            let bytes = blocks.get(group, block, offset..offset + len as u32).await?;
            if bytes.len() as u64 != len {
                return Err(Error::corrupt("length of a block's part", bytes.len(), len));
            }
            Ok(bytes)
        }
        Piece::Data(extent) => {
            Err(Error::corrupt("leaf extent", format!("{extent:?}"), "a block or bytes"))
        }
    }
}

impl Object {
    /// Returns the layout; `None` if it has more than `most` extents.
    ///
    /// # Errors
    /// `Conflict` if its bytes have changed since it was opened, and it has more than 64 MiB.
    pub async fn layout(&self, most: usize) -> Result<Option<Layout>> {
        let mut all: Vec<Extent> = Vec::new();
        match &self.inode().content {
            Content::Empty => {}
            Content::Inline(bytes) => {
                let len = self.size().min(bytes.len() as u64);
                let place = Place::Inline(bytes.slice(..len as usize));
                all.extend((len > 0).then_some(Extent { offset: 0, len, place }));
            }
            Content::Body(body) => {
                for window in windows(0..self.size()) {
                    all.extend(self.extents(*body, window).await?);
                    if all.len() > most {
                        return Ok(None);
                    }
                }
                if self.size() > limits::CHUNK_BYTES {
                    self.check_same(*body, true).await?;
                }
            }
        }
        Layout::new(self.size(), all).map(Some)
    }

    /// Keeps the blocks of this state from being deleted for `time`, while this process runs. All
    /// blocks that are freed from now on wait as well.
    pub fn hold(&self, time: Duration) {
        self.fs.inner.readers.hold(&self.guard, self.fs.inner.clock.monotonic() + time);
    }
}
