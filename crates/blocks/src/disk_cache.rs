//! A cache of remote blocks on a local disk: pieces that are read are kept here, too.
//!
//! Blocks never change and their ids are never reused, so a kept piece is never stale: either it is
//! there, whole and verified, or it is missing. A lost piece costs one remote read.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::{BlockId, Disk, Error, GroupId, Owner, Result};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::blocks::{BlockCounters, BlockInfo, BlockPlace, Blocks, KeptStats, Manner, Usage, Wish};
use crate::config::{Config, Durability};
use crate::store::Store;

/// Number of pieces on their way to the disk; any beyond that are not kept.
const WRITES: usize = 64;
/// Fraction of the cache that is dropped when the cache is full: one of this many parts.
const PARTS: u64 = 8;
const SEGMENT_BYTES: Range<u64> = 16 << 20..256 << 20;

/// A piece of a block as it is kept: piece `n` of a block is a block of group `n + 1`.
type Piece = (GroupId, BlockId);

/// Remote blocks, behind a cache on a disk of this machine.
pub struct KeptBlocks {
    elsewhere: Arc<dyn Blocks>,
    kept: Arc<DiskCache>,
    piece_bytes: u32,
}

struct DiskCache {
    store: Store,
    limit_bytes: u64,
    /// Pieces in the order in which they were written, as far as that is known.
    order: Mutex<VecDeque<Piece>>,
    writes: Semaphore,
    /// Held while room is made.
    making_room: tokio::sync::Mutex<()>,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl KeptBlocks {
    /// Opens the cache. Reads begin at multiples of `piece_bytes`, and are no longer than that. The
    /// cache takes up to about `limit_bytes` of `disk`, which must hold nothing else. Blocks the
    /// thread.
    ///
    /// # Errors
    /// Same errors as [`Store::open`].
    pub fn open(
        elsewhere: Arc<dyn Blocks>,
        disk: Arc<dyn Disk>,
        limit_bytes: u64,
        piece_bytes: u32,
    ) -> Result<KeptBlocks> {
        let segment_bytes = (limit_bytes / 2 / PARTS).clamp(SEGMENT_BYTES.start, SEGMENT_BYTES.end);
        let config = Config {
            durability: Durability::Async,
            segment_bytes,
            reserve_bytes: segment_bytes / 8 * 7,
            spare_bytes: segment_bytes,
            // Any other kind of store on the disk is refused.
            ..Config::new(*b"kept blocks     ", *b"kept blocks     ")
        };
        let store = Store::open(disk, config)?;
        let mut known: Vec<Piece> = Vec::new();
        for group in store.groups() {
            let blocks = store.inventory_now(group, None, usize::MAX);
            known.extend(blocks.into_iter().map(|info| (group, info.block)));
        }
        // Sessions have no order, but the blocks of one session have.
        known.sort_by_key(|(_, block)| block.counter);
        let kept = DiskCache {
            store,
            limit_bytes,
            order: Mutex::new(known.into()),
            writes: Semaphore::new(WRITES),
            making_room: tokio::sync::Mutex::new(()),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        };
        Ok(KeptBlocks { elsewhere, kept: Arc::new(kept), piece_bytes })
    }

    /// Returns the piece that a range of a block is kept as; `None` if the range is not a piece.
    fn piece(&self, block: BlockId, range: &Range<u32>) -> Option<Piece> {
        let number = range.start / self.piece_bytes;
        let is_one = range.start.is_multiple_of(self.piece_bytes)
            && !range.is_empty()
            && range.len() <= self.piece_bytes as usize;
        is_one.then(|| (GroupId(number + 1), block))
    }

    /// Writes a piece in the background: the reader does not wait for it.
    fn keep(&self, piece: Piece, bytes: Bytes) {
        let kept = Arc::clone(&self.kept);
        tokio::spawn(async move {
            if let Ok(_permit) = kept.writes.try_acquire() {
                kept.write(piece, bytes).await;
            }
        });
    }
}

impl DiskCache {
    async fn write(&self, (group, block): Piece, bytes: Bytes) {
        match self.store.put(group, block, Owner::default(), bytes).await {
            Ok(()) => self.order.lock().push_back((group, block)),
            Err(Error::Exists(_) | Error::Conflict(_)) => return,
            Err(Error::Full(_)) => {}
            Err(error) => return tracing::warn!(%error, "a block is not kept on this disk"),
        }
        if self.is_full()
            && let Ok(_alone) = self.making_room.try_lock()
            && let Err(error) = self.make_room().await
        {
            tracing::warn!(%error, "making room for blocks that are kept");
        }
    }

    fn bytes(&self) -> u64 {
        self.store.usage_now().map_or(0, |usage| usage.live_bytes + usage.dead_bytes)
    }

    fn is_full(&self) -> bool {
        self.store.is_short_of_space() || self.bytes() > self.limit_bytes
    }

    /// Deletes the oldest pieces. They are in the oldest segments, which compaction then removes
    /// without copies.
    async fn make_room(&self) -> Result<()> {
        let mut gone: BTreeMap<GroupId, Vec<BlockId>> = BTreeMap::new();
        {
            let mut order = self.order.lock();
            let count = order.len().div_ceil(PARTS as usize);
            for (group, block) in order.drain(..count) {
                gone.entry(group).or_default().push(block);
            }
        }
        for (group, blocks) in gone {
            self.store.delete(group, &blocks).await?;
        }
        self.store.blocking(|store| store.compact(false).map(drop)).await
    }

    /// Returns the kept bytes of a piece; a piece that fails its checksum, or is too short, is
    /// dropped.
    async fn read(&self, (group, block): Piece, length: u32) -> Option<Bytes> {
        match self.store.get(group, block, 0..length).await {
            Ok(bytes) => Some(bytes),
            Err(Error::NotFound(_)) => None,
            Err(error) => {
                // The last piece of a block may have been kept with fewer bytes, for a shorter
                // read.
                if !matches!(error, Error::RangeNotSatisfiable { .. }) {
                    tracing::warn!(%error, "a kept block is read from where it came from");
                }
                let _ = self.store.delete(group, &[block]).await;
                None
            }
        }
    }

    fn count(&self, is_hit: bool) {
        let counter = if is_hit { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl KeptBlocks {
    fn stats(&self) -> KeptStats {
        let DiskCache { hits, misses, .. } = &*self.kept;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        KeptStats { hits: get(hits), misses: get(misses), bytes: self.kept.bytes() }
    }
}

#[async_trait]
impl Blocks for KeptBlocks {
    async fn write(
        &self,
        wish: Wish,
        block: BlockId,
        owner: Owner,
        data: Bytes,
    ) -> Result<GroupId> {
        self.elsewhere.write(wish, block, owner, data).await
    }

    async fn get(&self, group: GroupId, block: BlockId, range: Range<u32>) -> Result<Bytes> {
        let Some(piece) = self.piece(block, &range) else {
            return self.elsewhere.get(group, block, range).await;
        };
        let found = self.kept.read(piece, range.len() as u32).await;
        self.kept.count(found.is_some());
        if let Some(bytes) = found {
            return Ok(bytes);
        }
        let bytes = self.elsewhere.get(group, block, range).await?;
        self.keep(piece, bytes.clone());
        Ok(bytes)
    }

    fn get_now(&self, group: GroupId, block: BlockId, range: Range<u32>) -> Result<Option<Bytes>> {
        let kept = self.piece(block, &range).and_then(|(place, block)| {
            self.kept.store.get_now(place, block, 0..range.len() as u32).ok().flatten()
        });
        if kept.is_some() {
            self.kept.count(true);
            return Ok(kept);
        }
        self.elsewhere.get_now(group, block, range)
    }

    async fn delete(&self, group: GroupId, blocks: &[BlockId]) -> Result<()> {
        self.elsewhere.delete(group, blocks).await
    }

    fn groups(&self) -> Vec<GroupId> {
        self.elsewhere.groups()
    }

    async fn inventory(
        &self,
        group: GroupId,
        after: Option<BlockId>,
        limit: usize,
    ) -> Result<Vec<BlockInfo>> {
        self.elsewhere.inventory(group, after, limit).await
    }

    async fn is_compressed(&self, group: GroupId, block: BlockId) -> Result<bool> {
        self.elsewhere.is_compressed(group, block).await
    }

    async fn usage(&self) -> Result<Usage> {
        self.elsewhere.usage().await
    }

    async fn room(&self) -> Result<Usage> {
        self.elsewhere.room().await
    }

    fn available(&self) -> Result<()> {
        self.elsewhere.available()
    }

    fn place(&self, group: GroupId, block: BlockId) -> Option<BlockPlace> {
        self.elsewhere.place(group, block)
    }

    fn manner(&self) -> Manner {
        self.elsewhere.manner()
    }

    fn counted(&self) -> BlockCounters {
        BlockCounters { kept: Some(self.stats()), ..self.elsewhere.counted() }
    }
}
