//! Rows changed by batches that are not known to be durable, and by batches that an operation with
//! fetched rows must still see.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};

use bytes::Bytes;
use cairn_base::SessionId;
use quick_cache::DefaultHashBuilder;

use super::batch::Batch;

/// Number of dead rows that is not worth a sweep.
const SWEEP_ROWS: usize = 1024;

struct Pending {
    row: Option<Bytes>,
    batch: u64,
    /// Place of the change within that batch.
    slot: usize,
    /// Session whose operation changed it last, if that operation was answered early.
    by: Option<SessionId>,
}

/// Keys in order, brought up to date only when a range is requested.
#[derive(Default)]
struct Order {
    sorted: BTreeSet<Bytes>,
    unsorted: Vec<Bytes>,
}

/// The rows that one batch added.
struct BatchTally {
    batch: u64,
    rows: usize,
    bytes: usize,
}

/// The newest change of every key. Owned by the executor.
#[derive(Default)]
pub struct Overlay {
    rows: HashMap<Bytes, Pending, DefaultHashBuilder>,
    order: RefCell<Order>,
    tallies: VecDeque<BatchTally>,
    /// Upper bound of the rows that a sweep would drop.
    dead: usize,
    bytes: usize,
}

impl Overlay {
    pub fn get(&self, key: &Bytes) -> Option<&Option<Bytes>> {
        self.rows.get(key).map(|pending| &pending.row)
    }

    /// Bytes of all rows that were not swept yet, including replaced ones.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the session that changed a row in a batch after `durable` and was answered early;
    /// `Some(None)` if it was not, `None` if the row was not changed since.
    pub fn changed_by(&self, key: &Bytes, durable: u64) -> Option<Option<SessionId>> {
        self.rows.get(key).filter(|pending| pending.batch > durable).map(|pending| pending.by)
    }

    /// Returns the same as [`Overlay::changed_by`], for all rows of a range.
    pub fn all_changed_by(
        &self,
        start: &Bytes,
        end: &Bytes,
        durable: u64,
    ) -> Vec<Option<SessionId>> {
        let rows = self.range(start, end).into_iter();
        rows.filter_map(|(key, _)| self.changed_by(&key, durable)).collect()
    }

    /// Returns the rows that batches after `durable` have changed.
    pub fn changed_since(&self, durable: u64) -> Vec<Bytes> {
        let rows = self.rows.iter().filter(|(_, pending)| pending.batch > durable);
        let mut keys: Vec<Bytes> = rows.map(|(key, _)| key.clone()).collect();
        keys.sort_unstable();
        keys
    }

    /// Changes a row, here and in the open batch.
    pub fn put(&mut self, key: Bytes, row: Option<Bytes>, by: Option<SessionId>, open: &mut Batch) {
        let bytes = key.len() + row.as_ref().map_or(0, Bytes::len);
        match self.rows.entry(key) {
            Entry::Occupied(mut entry) if entry.get().batch == open.number => {
                let pending = entry.get_mut();
                open.replace(pending.slot, row.clone(), bytes);
                (pending.row, pending.by) = (row, by);
                return;
            }
            Entry::Occupied(mut entry) => {
                let slot = open.push(entry.key().clone(), row.clone(), bytes);
                entry.insert(Pending { row, batch: open.number, slot, by });
            }
            Entry::Vacant(entry) => {
                self.order.get_mut().unsorted.push(entry.key().clone());
                let slot = open.push(entry.key().clone(), row.clone(), bytes);
                entry.insert(Pending { row, batch: open.number, slot, by });
            }
        }
        self.count(open.number, bytes);
    }

    fn count(&mut self, batch: u64, bytes: usize) {
        self.bytes += bytes;
        match self.tallies.back_mut() {
            Some(tally) if tally.batch == batch => {
                tally.rows += 1;
                tally.bytes += bytes;
            }
            _ => self.tallies.push_back(BatchTally { batch, rows: 1, bytes }),
        }
    }

    /// Returns the changes of `start <= key < end` in key order.
    pub fn range(&self, start: &Bytes, end: &Bytes) -> Vec<(Bytes, Option<Bytes>)> {
        let mut order = self.order.borrow_mut();
        let Order { sorted, unsorted } = &mut *order;
        sorted.extend(unsorted.drain(..).filter(|key| self.rows.contains_key(key)));
        let keys = sorted.range::<Bytes, _>(start..end);
        keys.filter_map(|key| Some((key.clone(), self.get(key)?.clone()))).collect()
    }

    /// Returns the number of rows of the range that were deleted.
    pub fn deleted(&self, start: &Bytes, end: &Bytes) -> usize {
        self.range(start, end).iter().filter(|(_, row)| row.is_none()).count()
    }

    /// Releases batches up to `floor`, which are published and no longer needed here. Keeping them
    /// only takes memory, so they are dropped when that is worth the effort.
    pub fn release(&mut self, floor: u64) {
        while let Some(tally) = self.tallies.pop_front_if(|tally| tally.batch <= floor) {
            self.dead += tally.rows;
            self.bytes -= tally.bytes;
        }
        if self.dead < SWEEP_ROWS.max(self.rows.len() / 2) {
            return;
        }
        self.dead = 0;
        let order = self.order.get_mut();
        self.rows.retain(|key, pending| {
            let keep = pending.batch > floor;
            if !keep && !order.sorted.is_empty() {
                order.sorted.remove(key);
            }
            keep
        });
        if order.unsorted.len() > 2 * self.rows.len() + SWEEP_ROWS {
            order.unsorted.retain(|key| self.rows.contains_key(key));
            order.unsorted.sort_unstable();
            order.unsorted.dedup();
        }
    }
}
