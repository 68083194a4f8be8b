//! Hot pieces of blocks in memory. Blocks never change, so nothing is ever invalidated.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use cairn_base::{BlockId, GroupId, Result, Stage, stage};
use quick_cache::Weighter;

use crate::fs::{Inner, Stats};

/// Blocks are cached and read from disk in pieces of this length, bytes.
pub(crate) const PIECE_BYTES: u64 = 256 << 10;

type Key = (BlockId, u32);

pub(crate) struct Cache {
    pieces: quick_cache::sync::Cache<Key, Bytes, ByLength>,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Clone)]
struct ByLength;

impl Weighter<Key, Bytes> for ByLength {
    fn weight(&self, _: &Key, piece: &Bytes) -> u64 {
        piece.len() as u64 + 100
    }
}

impl Cache {
    pub(crate) fn new(bytes: u64) -> Cache {
        let items = (bytes / PIECE_BYTES).max(64) as usize;
        Cache {
            pieces: quick_cache::sync::Cache::with_weighter(items, bytes, ByLength),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    fn get(&self, key: &Key) -> Option<Bytes> {
        let found = self.pieces.get(key);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            cache_hits: self.hits.load(Ordering::Relaxed),
            cache_misses: self.misses.load(Ordering::Relaxed),
            cache_bytes: self.pieces.weight(),
            cache_limit_bytes: self.pieces.capacity(),
        }
    }
}

/// The piece that `offset` lies in, and where in the block it begins.
fn piece_of(offset: u32) -> (u32, u32) {
    let piece = offset / PIECE_BYTES as u32;
    (piece, piece * PIECE_BYTES as u32)
}

impl Inner {
    /// Bytes of a block if they lie in one cached piece.
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

    /// Bytes of a block, from memory or from the block store. Never blocks an async worker.
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
        let mut whole = BytesMut::with_capacity(range.len());
        for piece in first..=last {
            let start = range.start.max(piece * PIECE_BYTES as u32);
            let end = range.end.min((piece + 1) * PIECE_BYTES as u32);
            whole.extend_from_slice(&self.fetch_piece(group, block, start..end).await?);
        }
        Ok(whole.freeze())
    }

    /// As [`Inner::fetch`] within one piece. The whole piece is read, if the block is that long;
    /// of the last piece of a block no more is known than the range asked for, so that much.
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
        let wanted = start..range.end;
        let bytes = match self.blocks.get_now(group, block, wanted.clone())? {
            Some(bytes) => bytes,
            None => self.blocks.get(group, block, wanted).await?,
        };
        self.cache.pieces.insert((block, piece), bytes.clone());
        Ok(bytes.slice((range.start - start) as usize..))
    }
}
