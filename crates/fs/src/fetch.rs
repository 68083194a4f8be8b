//! Bytes of blocks, from memory or from the block store.

use std::ops::{Range, RangeInclusive};

use bytes::{Bytes, BytesMut};
use cairn_base::{BlockId, GroupId, Result, Stage, stage};

use crate::cache::{PIECE_BYTES, piece_of};
use crate::fs::Inner;

impl Inner {
    /// Returns bytes of a block if they lie in one cached piece.
    pub(crate) fn cached(&self, _: GroupId, block: BlockId, range: Range<u32>) -> Option<Bytes> {
        let (piece, start) = piece_of(range.start);
        if range.end > start + PIECE_BYTES as u32 {
            return None;
        }
        let _looking = stage::enter(Stage::Cache);
        let bytes = self.cache.get(&(block, piece))?;
        let wanted = (range.start - start) as usize..(range.end - start) as usize;
        (wanted.end <= bytes.len()).then(|| bytes.slice(wanted))
    }

    /// Adds bytes of a block piece by piece, if all of these pieces are cached.
    pub(crate) fn cached_parts(
        &self,
        group: GroupId,
        block: BlockId,
        range: Range<u32>,
        parts: &mut Vec<Bytes>,
    ) -> Option<()> {
        let pieces = piece_of(range.start).0..=piece_of(range.end - 1).0;
        if pieces.clone().any(|piece| !self.cache.has(&(block, piece))) {
            return None;
        }
        for piece in pieces {
            let start = range.start.max(piece * PIECE_BYTES as u32);
            let end = range.end.min((piece + 1) * PIECE_BYTES as u32);
            parts.push(self.cached(group, block, start..end)?);
        }
        Some(())
    }

    /// Caches a block that was written here: the writer of a file often reads it next.
    pub(crate) fn keep(&self, block: BlockId, data: &Bytes) {
        for (piece, bytes) in (0..).zip(data.chunks(PIECE_BYTES as usize)) {
            // Copied: each piece is evicted by itself, and must not keep more memory.
            self.cache.insert((block, piece), Bytes::copy_from_slice(bytes));
        }
    }

    /// Returns bytes of a block, from memory or from the block store. Never blocks an async worker.
    pub(crate) async fn fetch(
        &self,
        group: GroupId,
        block: BlockId,
        range: Range<u32>,
    ) -> Result<Bytes> {
        let (first, _) = piece_of(range.start);
        let (last, _) = piece_of(range.end - 1);
        if first == last {
            return self.fetch_piece(group, block, range).await;
        }
        if self.reads_spans && !self.has_some(block, first..=last) {
            return self.fetch_pieces(group, block, range).await;
        }
        // Some pieces are cached. One read of all of them is faster than assembling them, if it
        // need not wait.
        if self.reads_spans
            && !self.has_all(block, first..=last)
            && let Some(bytes) = self.blocks.get_now(group, block, range.clone())?
        {
            return Ok(bytes);
        }
        let mut whole = BytesMut::with_capacity(range.len());
        for piece in first..=last {
            let start = range.start.max(piece * PIECE_BYTES as u32);
            let end = range.end.min((piece + 1) * PIECE_BYTES as u32);
            whole.extend_from_slice(&self.fetch_piece(group, block, start..end).await?);
        }
        Ok(whole.freeze())
    }

    fn has_all(&self, block: BlockId, mut pieces: RangeInclusive<u32>) -> bool {
        pieces.all(|piece| self.cache.has(&(block, piece)))
    }

    fn has_some(&self, block: BlockId, mut pieces: RangeInclusive<u32>) -> bool {
        pieces.any(|piece| self.cache.has(&(block, piece)))
    }

    /// Fetches several pieces at once, none of them cached. They are cached unless it is just as
    /// easy to get them again.
    async fn fetch_pieces(
        &self,
        group: GroupId,
        block: BlockId,
        range: Range<u32>,
    ) -> Result<Bytes> {
        let (first, start) = piece_of(range.start);
        let bytes = self.ask(group, block, start..range.end).await?;
        let is_near = self.blocks.manner().is_near;
        for (number, at) in (first..).zip((0..bytes.len()).step_by(PIECE_BYTES as usize)) {
            let (key, end) = ((block, number), bytes.len().min(at + PIECE_BYTES as usize));
            self.cache.missed(&key);
            if !is_near {
                self.cache.insert_part(key, bytes.slice(at..end));
            }
        }
        Ok(bytes.slice((range.start - start) as usize..))
    }

    async fn ask(&self, group: GroupId, block: BlockId, range: Range<u32>) -> Result<Bytes> {
        match self.blocks.get_now(group, block, range.clone())? {
            Some(bytes) => Ok(bytes),
            None => self.blocks.get(group, block, range).await,
        }
    }

    /// Fetches a range within one piece. Reads from the beginning of the piece to the end of the
    /// range, and caches these bytes.
    async fn fetch_piece(
        &self,
        group: GroupId,
        block: BlockId,
        range: Range<u32>,
    ) -> Result<Bytes> {
        if let Some(bytes) = self.cached(group, block, range.clone()) {
            return Ok(bytes);
        }
        let (piece, start) = piece_of(range.start);
        let bytes = self.ask(group, block, start..range.end).await?;
        self.cache.insert((block, piece), bytes.clone());
        Ok(bytes.slice((range.start - start) as usize..))
    }
}
