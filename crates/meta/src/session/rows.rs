//! Leased rows.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use cairn_base::checksum::crc32c;
use cairn_base::planted::{Bug, is_planted};
use parking_lot::Mutex;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, Weighter};

use crate::Source;

/// Memory of a row beside its bytes.
const ROW_OVERHEAD: usize = 200;
/// Counters of recalls, shared by keys with the same hash.
const STRIPES: usize = 1024;

#[derive(Clone)]
struct Weigh;

impl Weighter<Bytes, Option<Bytes>> for Weigh {
    fn weight(&self, key: &Bytes, row: &Option<Bytes>) -> u64 {
        (ROW_OVERHEAD + key.len() + row.as_ref().map_or(0, Bytes::len)) as u64
    }
}

/// Rows that the master will recall before it changes them.
pub struct LeasedRows {
    rows: Cache<Bytes, Option<Bytes>, Weigh>,
    /// How many recalls there were of keys of a stripe.
    stripes: Vec<Mutex<u64>>,
    recalls: AtomicU64,
}

/// Recalls there were before a call to the master.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark(u64);

impl Mark {
    pub fn number(self) -> u64 {
        self.0
    }
}

impl LeasedRows {
    pub fn new(bytes: usize) -> LeasedRows {
        let items = bytes / (2 * ROW_OVERHEAD);
        let lifecycle = DefaultLifecycle::default();
        LeasedRows {
            rows: Cache::with(items, bytes as u64, Weigh, DefaultHashBuilder::default(), lifecycle),
            stripes: (0..STRIPES).map(|_| Mutex::new(0)).collect(),
            recalls: AtomicU64::new(0),
        }
    }

    /// Where the recalls are. Two reads between which it did not change saw one state.
    pub fn mark(&self) -> Mark {
        Mark(self.recalls.load(Ordering::SeqCst))
    }

    /// Forgets rows. When this returns no read that begins later sees them.
    pub fn recall(&self, keys: &[Bytes]) {
        let number = self.recalls.load(Ordering::SeqCst) + 1;
        for key in keys {
            let mut last = self.stripe(key).lock();
            *last = number;
            self.rows.remove(key);
        }
        // After the rows: who read one of them before finds that the mark moved.
        self.recalls.store(number, Ordering::SeqCst);
    }

    /// Forgets all rows.
    pub fn clear(&self) {
        let number = self.recalls.load(Ordering::SeqCst) + 1;
        for stripe in &self.stripes {
            *stripe.lock() = number;
        }
        self.rows.clear();
        self.recalls.store(number, Ordering::SeqCst);
    }

    /// Keeps a row that the master sent in answer to a call made after `mark`, unless it was
    /// recalled meanwhile.
    pub fn offer(&self, mark: Mark, key: Bytes, row: Option<Bytes>) {
        let last = self.stripe(&key).lock();
        if *last <= mark.0 || is_planted(Bug::CacheFillRace) {
            self.rows.insert(key, row);
        }
    }

    /// Rows and their bytes.
    pub fn usage(&self) -> (u64, u64) {
        (self.rows.len() as u64, self.rows.weight())
    }

    fn stripe(&self, key: &Bytes) -> &Mutex<u64> {
        &self.stripes[crc32c(key) as usize % STRIPES]
    }
}

impl Source for LeasedRows {
    fn get(&self, key: &Bytes) -> Option<Option<Bytes>> {
        self.rows.get(key)
    }

    /// Ranges are not leased.
    fn scan(&self, _: &Bytes, _: &Bytes, _: usize) -> Option<Vec<(Bytes, Bytes)>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recalled_meanwhile_is_not_kept() {
        let rows = LeasedRows::new(1 << 20);
        let (a, b) = (Bytes::from_static(b"a"), Bytes::from_static(b"b"));
        let mark = rows.mark();
        rows.offer(mark, a.clone(), Some(b.clone()));
        assert_eq!(rows.get(&a), Some(Some(b.clone())));
        rows.recall(std::slice::from_ref(&a));
        assert_ne!(rows.mark(), mark);
        assert_eq!(rows.get(&a), None);
        rows.offer(mark, a.clone(), None);
        assert_eq!(rows.get(&a), None);
        rows.offer(rows.mark(), a.clone(), None);
        assert_eq!(rows.get(&a), Some(None));
        let mark = rows.mark();
        rows.clear();
        rows.offer(mark, b.clone(), None);
        assert_eq!((rows.get(&a), rows.get(&b)), (None, None));
    }
}
