//! The cache of hot pieces of blocks in memory. Blocks never change, so nothing is ever
//! invalidated.

#![expect(clippy::disallowed_methods, reason = "the hash decides only what is counted")]

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bytes::Bytes;
use cairn_base::BlockId;
use quick_cache::{DefaultHashBuilder, Lifecycle, Weighter};

/// Bytes of the pieces in which blocks are cached and read from disk.
pub const PIECE_BYTES: u64 = 256 << 10;

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    pub cache_hits: u64,
    pub cache_misses: u64,
    /// Number of those misses whose piece had been cached before, and was evicted.
    pub cache_misses_again: u64,
    pub cache_bytes: u64,
    /// Largest size of the cache, bytes.
    pub cache_limit_bytes: u64,
}

/// Number of evicted pieces that are remembered: 16 GiB of pieces of 256 KiB.
const EVICTED: usize = 1 << 16;

pub(crate) type Key = (BlockId, u32);

/// A piece of a block.
#[derive(Clone)]
struct Piece {
    bytes: Bytes,
    /// True if the memory holds several pieces, which were read together. They are also evicted at
    /// about the same time, unless some are hit: these get memory of their own then.
    is_part: bool,
}

pub(crate) struct Cache {
    pieces: quick_cache::sync::Cache<Key, Piece, ByLength, DefaultHashBuilder, Evictions>,
    evicted: Arc<RecentEvictions>,
    hits: AtomicU64,
    misses: AtomicU64,
    misses_again: AtomicU64,
}

/// The pieces that were evicted recently: hashes, of which later ones replace earlier ones.
struct RecentEvictions {
    hasher: RandomState,
    hashes: Box<[AtomicU32]>,
}

impl RecentEvictions {
    fn new() -> Arc<RecentEvictions> {
        let hashes = (0..EVICTED).map(|_| AtomicU32::new(0)).collect();
        Arc::new(RecentEvictions { hasher: RandomState::new(), hashes })
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

/// Receives evictions from the cache.
#[derive(Clone)]
struct Evictions(Arc<RecentEvictions>);

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
        let (hasher, evicted) = (DefaultHashBuilder::default(), RecentEvictions::new());
        let lifecycle = Evictions(Arc::clone(&evicted));
        Cache {
            pieces: quick_cache::sync::Cache::with(items, bytes, ByLength, hasher, lifecycle),
            evicted,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            misses_again: AtomicU64::new(0),
        }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Bytes> {
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

    /// Inserts bytes that are alone in their memory.
    pub(crate) fn insert(&self, key: Key, bytes: Bytes) {
        self.pieces.insert(key, Piece { bytes, is_part: false });
    }

    /// Inserts a part of bytes that were read together.
    pub(crate) fn insert_part(&self, key: Key, bytes: Bytes) {
        self.pieces.insert(key, Piece { bytes, is_part: true });
    }

    pub(crate) fn has(&self, key: &Key) -> bool {
        self.pieces.contains_key(key)
    }

    pub(crate) fn missed(&self, key: &Key) {
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

/// Returns the number of the piece that `offset` lies in, and the offset in the block at which that
/// piece begins.
pub(crate) fn piece_of(offset: u32) -> (u32, u32) {
    let piece = offset / PIECE_BYTES as u32;
    (piece, piece * PIECE_BYTES as u32)
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
        // A cache without room misses all pieces, and all but the first of each are misses again.
        let cache = Cache::new(0);
        for _ in 0..10 {
            assert!(cache.get(&key(1)).is_none());
            cache.insert(key(1), Bytes::from_static(&[7; 1000]));
        }
        assert_eq!(cache.stats().cache_misses_again, 9);
    }
}
