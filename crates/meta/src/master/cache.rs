//! Durable rows in memory, each with the batch since which it is known.

use bytes::Bytes;
use cairn_base::checksum::crc32c;
use parking_lot::Mutex;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, Weighter};

use crate::engine::Change;

/// Rows above this are not cached, bytes.
const ROW_BYTES: usize = 256 << 10;
/// Memory of a cached row in addition to its bytes: slot, hash table, headers of two `Bytes`.
const ROW_OVERHEAD: usize = 200;
/// Locks that order publication and the caching of fetched rows, key by key.
const STRIPES: usize = 256;
/// Change counters per stripe. A key shares its counter with others, so a fetched row may be
/// refused without need: with 4,000 rows a batch, that happens to one in eight.
const COUNTERS: usize = 128;

#[derive(Clone)]
struct CacheEntry {
    /// Batch after which the row was not changed.
    batch: u64,
    /// The row; `None` if it is known not to exist.
    row: Option<Bytes>,
}

#[derive(Clone)]
struct Weigh;

impl Weighter<Bytes, CacheEntry> for Weigh {
    fn weight(&self, key: &Bytes, slot: &CacheEntry) -> u64 {
        (ROW_OVERHEAD + key.len() + slot.row.as_ref().map_or(0, Bytes::len)) as u64
    }
}

/// The result of a look into the cache.
pub enum CacheLookup {
    Row(Option<Bytes>),
    /// The row was changed by a batch after the one asked for.
    Newer,
    Missing,
}

/// The row cache. A row in it is the newest published one, whatever happens concurrently.
pub struct RowCache {
    rows: Cache<Bytes, CacheEntry, Weigh>,
    /// The last batch that changed a key, by hash.
    changed: Vec<Mutex<[u64; COUNTERS]>>,
}

impl RowCache {
    pub fn new(bytes: usize) -> RowCache {
        let rows = Cache::with(
            bytes / (2 * ROW_OVERHEAD),
            bytes as u64,
            Weigh,
            DefaultHashBuilder::default(),
            DefaultLifecycle::default(),
        );
        let changed = (0..STRIPES).map(|_| Mutex::new([0; COUNTERS])).collect();
        RowCache { rows, changed }
    }

    /// Returns the newest published row, for the executor, which knows all younger ones itself.
    pub fn newest(&self, key: &Bytes) -> Option<Option<Bytes>> {
        self.rows.get(key).map(|slot| slot.row)
    }

    /// Returns the row as of `batch`, which must be published.
    pub fn get(&self, key: &Bytes, batch: u64) -> CacheLookup {
        match self.rows.get(key) {
            Some(slot) if slot.batch <= batch => CacheLookup::Row(slot.row),
            Some(_) => CacheLookup::Newer,
            None => CacheLookup::Missing,
        }
    }

    /// Takes over the rows changed by `batch`. Called by one thread at a time, batch after batch.
    pub fn publish(&self, batch: u64, changes: Vec<Change>) {
        for (key, row) in changes {
            let (stripe, counter) = Self::place(&key);
            let mut changed = self.changed[stripe].lock();
            changed[counter] = batch;
            self.store(key, CacheEntry { batch, row });
        }
    }

    /// Caches a row read from a snapshot that shows `snapshot_batch`, unless it was changed
    /// since. `published` is the last published batch, or an older one.
    pub fn offer(&self, key: &Bytes, row: Option<&Bytes>, snapshot_batch: u64, published: u64) {
        if row.is_some_and(|row| row.len() > ROW_BYTES) {
            return;
        }
        // Copied, since a row of a snapshot may be a small part of a large buffer.
        let (key, row) = (Bytes::copy_from_slice(key), row.map(|row| Bytes::copy_from_slice(row)));
        let (stripe, counter) = Self::place(&key);
        let changed = self.changed[stripe].lock();
        let last = changed[counter];
        if last <= snapshot_batch {
            // A snapshot may show a batch before it is published: nobody else may see it yet.
            let batch = if snapshot_batch <= published { last } else { snapshot_batch };
            self.store(key, CacheEntry { batch, row });
        }
    }

    /// Returns the number of rows in the cache, and their bytes.
    pub fn usage(&self) -> (u64, u64) {
        (self.rows.len() as u64, self.rows.weight())
    }

    fn store(&self, key: Bytes, slot: CacheEntry) {
        if slot.row.as_ref().is_some_and(|row| row.len() > ROW_BYTES) {
            self.rows.remove(&key);
        } else {
            self.rows.insert(key, slot);
        }
    }

    fn place(key: &Bytes) -> (usize, usize) {
        let hash = crc32c(key) as usize;
        (hash % STRIPES, hash / STRIPES % COUNTERS)
    }
}
