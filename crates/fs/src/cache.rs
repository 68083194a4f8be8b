//! Hot pieces of blocks in memory. Blocks never change, so nothing is ever invalidated.

use std::hash::{BuildHasher, RandomState};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use cairn_base::{BlockId, GroupId, Result, Stage, stage};
use quick_cache::{DefaultHashBuilder, Lifecycle, Weighter};

use crate::fs::{Inner, Stats};

/// Blocks are cached and read from disk in pieces of this length, bytes.
pub const PIECE_BYTES: u64 = 256 << 10;

/// Pieces that had to go and are remembered: with 256 KiB each, of 16 GiB.
const EVICTED: usize = 1 << 16;

type Key = (BlockId, u32);

/// Of a block.
#[derive(Clone)]
struct Piece {
    bytes: Bytes,
    /// The memory is that of several pieces, which were read together. They also go about together,
    /// unless some are hit: so these get memory of their own then.
    is_part: bool,
}

pub(crate) struct Cache {
    pieces: quick_cache::sync::Cache<Key, Piece, ByLength, DefaultHashBuilder, Evictions>,
    evicted: Arc<Evicted>,
    hits: AtomicU64,
    misses: AtomicU64,
    misses_again: AtomicU64,
}

/// Which pieces had to go for want of room, lately: hashes, of which later ones take the places of
/// earlier ones.
struct Evicted {
    hasher: RandomState,
    hashes: Box<[AtomicU32]>,
}

impl Evicted {
    fn new() -> Arc<Evicted> {
        let hashes = (0..EVICTED).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Evicted { hasher: RandomState::new(), hashes })
    }

    fn place(&self, key: &Key) -> (&AtomicU32, u32) {
        let hash = self.hasher.hash_one(key);
        (&self.hashes[hash as usize % EVICTED], (hash >> 32) as u32 | 1)
    }

    fn has(&self, key: &Key) -> bool {
        let (place, hash) = self.place(key);
        place.load(Ordering::Relaxed) == hash
    }
}

/// What the cache tells of evictions.
#[derive(Clone)]
struct Evictions(Arc<Evicted>);

impl Lifecycle<Key, Piece> for Evictions {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), key: Key, _: Piece) {
        let (place, hash) = self.0.place(&key);
        place.store(hash, Ordering::Relaxed);
    }
}

#[derive(Clone)]
struct ByLength;

impl Weighter<Key, Piece> for ByLength {
    fn weight(&self, _: &Key, piece: &Piece) -> u64 {
        piece.bytes.len() as u64 + 100
    }
}

impl Cache {
    pub(crate) fn new(bytes: u64) -> Cache {
        let items = (bytes / PIECE_BYTES).max(64) as usize;
        let (hasher, evicted) = (DefaultHashBuilder::default(), Evicted::new());
        let lifecycle = Evictions(Arc::clone(&evicted));
        Cache {
            pieces: quick_cache::sync::Cache::with(items, bytes, ByLength, hasher, lifecycle),
            evicted,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            misses_again: AtomicU64::new(0),
        }
    }

    fn get(&self, key: &Key) -> Option<Bytes> {
        let Some(Piece { bytes, is_part }) = self.pieces.get(key) else {
            self.missed(key);
            return None;
        };
        self.hits.fetch_add(1, Ordering::Relaxed);
        if is_part {
            self.insert(*key, Bytes::copy_from_slice(&bytes));
        }
        Some(bytes)
    }

    /// Keeps bytes that are alone in their memory.
    fn insert(&self, key: Key, bytes: Bytes) {
        self.pieces.insert(key, Piece { bytes, is_part: false });
    }

    fn missed(&self, key: &Key) {
        self.misses.fetch_add(1, Ordering::Relaxed);
        if self.evicted.has(key) {
            self.misses_again.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            cache_hits: self.hits.load(Ordering::Relaxed),
            cache_misses: self.misses.load(Ordering::Relaxed),
            cache_misses_again: self.misses_again.load(Ordering::Relaxed),
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

    /// Keeps a block that was written here: who wrote a file often reads it next.
    pub(crate) fn keep(&self, block: BlockId, data: &Bytes) {
        for (piece, bytes) in (0..).zip(data.chunks(PIECE_BYTES as usize)) {
            // A copy, for what is kept must not keep more in memory.
            self.cache.insert((block, piece), Bytes::copy_from_slice(bytes));
        }
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
        if self.reads_spans && !self.has_some(block, first..=last) {
            return self.fetch_pieces(group, block, range).await;
        }
        let mut whole = BytesMut::with_capacity(range.len());
        for piece in first..=last {
            let start = range.start.max(piece * PIECE_BYTES as u32);
            let end = range.end.min((piece + 1) * PIECE_BYTES as u32);
            whole.extend_from_slice(&self.fetch_piece(group, block, start..end).await?);
        }
        Ok(whole.freeze())
    }

    fn has_some(&self, block: BlockId, mut pieces: RangeInclusive<u32>) -> bool {
        pieces.any(|piece| self.cache.pieces.contains_key(&(block, piece)))
    }

    /// As [`Inner::fetch`] of several pieces, none of them cached, at once. They are kept if it is
    /// not as easy to get them again.
    async fn fetch_pieces(
        &self,
        group: GroupId,
        block: BlockId,
        range: Range<u32>,
    ) -> Result<Bytes> {
        let (first, start) = piece_of(range.start);
        let bytes = self.ask(group, block, start..range.end).await?;
        let is_near = self.blocks.is_near();
        for (number, at) in (first..).zip((0..bytes.len()).step_by(PIECE_BYTES as usize)) {
            let (key, end) = ((block, number), bytes.len().min(at + PIECE_BYTES as usize));
            self.cache.missed(&key);
            if !is_near {
                let piece = Piece { bytes: bytes.slice(at..end), is_part: true };
                self.cache.pieces.insert(key, piece);
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
        let bytes = self.ask(group, block, start..range.end).await?;
        self.cache.insert((block, piece), bytes.clone());
        Ok(bytes.slice((range.start - start) as usize..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_base::SessionId;

    #[test]
    fn what_is_hit_keeps_no_more_than_itself_in_memory() {
        let key = (BlockId { session: SessionId(1), counter: 1 }, 0);
        let cache = Cache::new(100_000);
        let read = Bytes::from(vec![7; 5000]);
        cache.pieces.insert(key, Piece { bytes: read.slice(..1000), is_part: true });
        assert_eq!(cache.get(&key).unwrap(), read[..1000]);
        assert!(read.is_unique());
        assert_eq!(cache.get(&key).unwrap(), read[..1000]);
    }

    #[test]
    fn misses_of_what_had_to_go_are_told_from_those_of_what_was_never_there() {
        let key = |counter| (BlockId { session: SessionId(1), counter }, 0);
        let cache = Cache::new(100_000);
        let read = |counter| {
            if cache.get(&key(counter)).is_none() {
                cache.insert(key(counter), Bytes::from_static(&[7; 1000]));
            }
        };
        (0..1000).for_each(read);
        let first = cache.stats();
        assert_eq!((first.cache_misses, first.cache_misses_again), (1000, 0));
        (0..1000).for_each(read);
        let second = cache.stats();
        let again = second.cache_misses - first.cache_misses;
        assert!(again > 800, "{again}");
        // Two pieces may share a place.
        let known = second.cache_misses_again;
        assert!(known <= again && known > again - 50, "{known} of {again}");
        // One without room misses all, and all but the first of each again.
        let cache = Cache::new(0);
        for _ in 0..10 {
            assert!(cache.get(&key(1)).is_none());
            cache.insert(key(1), Bytes::from_static(&[7; 1000]));
        }
        assert_eq!(cache.stats().cache_misses_again, 9);
    }
}
