//! Leased rows.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use cairn_base::checksum::crc32c;
use cairn_base::planted::{Bug, is_planted};
use parking_lot::Mutex;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, Weighter};

use crate::Source;

/// Memory of a row in addition to its bytes.
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
    stripes: Vec<Mutex<Stripe>>,
    recalls: AtomicU64,
    /// Keeps recalls in order.
    recalling: Mutex<()>,
    /// Number of the session, counted here.
    generation: AtomicU64,
}

/// Keys with the same hash.
#[derive(Default)]
struct Stripe {
    /// Number of the last recall of one of them.
    last: u64,
    /// Rows that operations on their way change, once for each such operation: meanwhile they are
    /// not kept.
    changing: Vec<Bytes>,
}

/// Rows that an operation on its way changes. If it is dropped, because it is unknown whether the
/// operation will run, the rows are not kept again in this session.
#[must_use]
pub struct Changing<'a> {
    rows: &'a LeasedRows,
    keys: &'a [Bytes],
    generation: u64,
    mark: Mark,
}

/// Number of recalls before a call to the master.
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
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            recalls: AtomicU64::new(0),
            recalling: Mutex::new(()),
            generation: AtomicU64::new(0),
        }
    }

    /// Returns the number of recalls so far. Two reads between which it did not change saw one
    /// state.
    pub fn mark(&self) -> Mark {
        Mark(self.recalls.load(Ordering::SeqCst))
    }

    /// Forgets rows. No read that begins after this returns sees them.
    pub fn recall(&self, keys: &[Bytes]) {
        let _recalling = self.recalling.lock();
        self.forget(keys, |_, _| {});
    }

    fn forget(&self, keys: &[Bytes], and: impl Fn(&mut Stripe, &Bytes)) -> Mark {
        let number = self.recalls.load(Ordering::SeqCst) + 1;
        for key in keys {
            let mut stripe = self.stripe(key).lock();
            stripe.last = number;
            and(&mut stripe, key);
            self.rows.remove(key);
        }
        // After the rows: a reader of one of them before this finds that the mark has changed.
        self.recalls.store(number, Ordering::SeqCst);
        Mark(number)
    }

    /// Forgets rows that an operation changes which is sent after this. Rows that the master leases
    /// before the operation ran are not kept, so they need not be recalled.
    pub fn change<'a>(&'a self, keys: &'a [Bytes]) -> Changing<'a> {
        let _recalling = self.recalling.lock();
        let generation = self.generation.load(Ordering::SeqCst);
        let mark = self.forget(keys, |stripe, key| stripe.changing.push(key.clone()));
        Changing { rows: self, keys, generation, mark }
    }

    /// Forgets all rows.
    pub fn clear(&self) {
        let _recalling = self.recalling.lock();
        self.forget_all(|_| {});
    }

    /// Forgets all rows, and the operations of a session that has ended.
    pub fn start_over(&self) {
        let _recalling = self.recalling.lock();
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.forget_all(|stripe| stripe.changing.clear());
    }

    fn forget_all(&self, and: impl Fn(&mut Stripe)) {
        let number = self.recalls.load(Ordering::SeqCst) + 1;
        for stripe in &self.stripes {
            let mut stripe = stripe.lock();
            stripe.last = number;
            and(&mut stripe);
        }
        self.rows.clear();
        self.recalls.store(number, Ordering::SeqCst);
    }

    /// Keeps a row that the master sent in answer to a call made after `mark`, unless it was
    /// recalled meanwhile.
    pub fn offer(&self, mark: Mark, key: Bytes, row: Option<Bytes>) {
        let stripe = self.stripe(&key).lock();
        let is_kept = stripe.last <= mark.0 && !stripe.changing.contains(&key);
        if is_kept || is_planted(Bug::CacheFillRace) {
            self.rows.insert(key, row);
        }
    }

    /// Drops these rows, of which newer versions are kept elsewhere.
    pub fn overlaid(&self, keys: &[Bytes]) {
        let _recalling = self.recalling.lock();
        for key in keys {
            self.rows.remove(key);
        }
        self.recalls.fetch_add(1, Ordering::SeqCst);
    }

    /// Refuses these rows in answers to calls made before this: they may be older than the rows
    /// here.
    pub fn settled(&self, keys: &[Bytes]) {
        let _recalling = self.recalling.lock();
        let number = self.recalls.load(Ordering::SeqCst) + 1;
        for key in keys {
            self.stripe(key).lock().last = number;
        }
        self.recalls.store(number, Ordering::SeqCst);
    }

    /// Returns the number of rows, and their bytes.
    pub fn usage(&self) -> (u64, u64) {
        (self.rows.len() as u64, self.rows.weight())
    }

    fn stripe(&self, key: &Bytes) -> &Mutex<Stripe> {
        &self.stripes[crc32c(key) as usize % STRIPES]
    }
}

impl Changing<'_> {
    /// Ends the change: the operation has run, or never will, and left these rows. They are leased,
    /// unless they were recalled since or another operation changes them.
    pub fn done(self, rows: Vec<(Bytes, Option<Bytes>)>) {
        let Changing { rows: leased, keys, generation, mark } = self;
        let _recalling = leased.recalling.lock();
        if leased.generation.load(Ordering::SeqCst) != generation {
            return;
        }
        for key in keys {
            let mut stripe = leased.stripe(key).lock();
            if let Some(at) = stripe.changing.iter().position(|one| one == key) {
                stripe.changing.swap_remove(at);
            }
        }
        for (key, row) in rows {
            leased.offer(mark, key, row);
        }
        // Reads that began before may have got leases on rows that were given up when it ran.
        let number = leased.recalls.load(Ordering::SeqCst) + 1;
        for key in keys {
            leased.stripe(key).lock().last = number;
        }
        leased.recalls.store(number, Ordering::SeqCst);
    }
}

impl Source for LeasedRows {
    fn get(&self, key: &Bytes) -> Option<Option<Bytes>> {
        self.rows.get(key)
    }

    /// Finds nothing: ranges are not leased.
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

    #[test]
    fn rows_beside_one_that_is_being_changed_are_kept() {
        let rows = LeasedRows::new(1 << 20);
        let all: Vec<Bytes> = (0..4 * STRIPES).map(|at| Bytes::from(at.to_string())).collect();
        let _ = rows.change(&all[..1]);
        let mark = rows.mark();
        all.iter().for_each(|key| rows.offer(mark, key.clone(), None));
        assert_eq!(rows.get(&all[0]), None, "nobody knows what becomes of it");
        assert!(all[1..].iter().all(|key| rows.get(key) == Some(None)));
    }

    #[test]
    fn what_is_being_changed_is_not_kept() {
        let rows = LeasedRows::new(1 << 20);
        let (a, old, new) =
            ([Bytes::from_static(b"a")], Some(Bytes::new()), Some(Bytes::from("n")));
        let get = || rows.get(&a[0]);
        let offer = |mark, row: &Option<Bytes>| rows.offer(mark, a[0].clone(), row.clone());
        let left = || vec![(a[0].clone(), new.clone())];
        let before = rows.mark();
        offer(before, &old);
        let changing = rows.change(&a);
        let during = rows.mark();
        assert_eq!(get(), None);
        offer(before, &old);
        offer(during, &old);
        assert_eq!(get(), None);
        changing.done(left());
        assert_eq!(get(), Some(new.clone()));
        offer(during, &old);
        assert_eq!(get(), Some(new.clone()), "what was read meanwhile may be old");

        let changing = rows.change(&a);
        rows.recall(&a);
        changing.done(left());
        assert_eq!(get(), None, "recalled since");

        let (first, second) = (rows.change(&a), rows.change(&a));
        second.done(left());
        assert_eq!(get(), None, "the other one may come after it");
        first.done(left());
        assert_eq!(get(), None, "or it came before the other one");

        let _ = rows.change(&a);
        offer(rows.mark(), &new);
        assert_eq!(get(), None, "nobody knows when it runs");
        let changing = rows.change(&a);
        rows.start_over();
        changing.done(left());
        assert_eq!(get(), None, "of another session");
        offer(rows.mark(), &new);
        assert_eq!(get(), Some(new.clone()));
    }
}
