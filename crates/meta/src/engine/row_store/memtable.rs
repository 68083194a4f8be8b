//! Rows committed since the last checkpoint, in key order, each with all its versions.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::RwLock;

use super::super::Change;

/// Rows inserted under one hold of the lock: readers wait no longer than these take (~50 us).
const ROWS_PER_LOCK: usize = 64;
/// Memory of a row in addition to its bytes: tree node, versions, two `Bytes` with their headers.
const ROW_OVERHEAD: usize = 160;

/// The value that a batch gave a row; `None` if it was deleted.
struct Version {
    batch: u64,
    value: Option<Bytes>,
}

/// All versions of a row. The newest is kept apart, since most rows have only one.
struct Versions {
    newest: Version,
    older: Vec<Version>,
}

impl Versions {
    /// Returns the value as of `batch`, or `None` if the row is younger.
    fn at(&self, batch: u64) -> Option<&Option<Bytes>> {
        if self.newest.batch <= batch {
            return Some(&self.newest.value);
        }
        self.older.iter().rev().find(|version| version.batch <= batch).map(|old| &old.value)
    }
}

/// Rows in memory, written by one thread at a time and read by any number.
#[derive(Default)]
pub struct Memtable {
    rows: RwLock<BTreeMap<Bytes, Versions>>,
    bytes: AtomicUsize,
}

/// A part of a memtable: rows in key order, and whether the range has more.
pub struct Page {
    pub rows: Vec<Change>,
    pub more: bool,
}

impl Memtable {
    /// Inserts the changes of one batch; only readers of that batch or a later one see them.
    /// Returns the bytes of memory that they take.
    pub fn insert(&self, batch: u64, mut changes: Vec<Change>) -> usize {
        let mut bytes = 0;
        while !changes.is_empty() {
            let rest = changes.split_off(changes.len().min(ROWS_PER_LOCK));
            let mut rows = self.rows.write();
            for (key, value) in changes {
                bytes += key.len() + value.as_ref().map_or(0, Bytes::len) + ROW_OVERHEAD;
                let version = Version { batch, value };
                match rows.entry(key) {
                    Entry::Vacant(entry) => {
                        entry.insert(Versions { newest: version, older: Vec::new() });
                    }
                    Entry::Occupied(mut entry) => {
                        let versions = entry.get_mut();
                        let old = std::mem::replace(&mut versions.newest, version);
                        versions.older.push(old);
                    }
                }
            }
            changes = rest;
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        bytes
    }

    /// Returns the bytes of memory that all rows take.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Looks up those of `keys` that have no answer yet, as of `batch`.
    pub fn get(&self, batch: u64, keys: &[Bytes], found: &mut [Option<Option<Bytes>>]) {
        let rows = self.rows.read();
        if rows.is_empty() {
            return;
        }
        for (key, slot) in keys.iter().zip(found).filter(|(_, slot)| slot.is_none()) {
            *slot = rows.get(key).and_then(|versions| versions.at(batch)).cloned();
        }
    }

    /// Returns up to `limit` rows (including deleted ones) with `start <= key < end`, as of
    /// `batch`.
    pub fn page(&self, batch: u64, start: &[u8], end: &[u8], limit: usize) -> Page {
        let rows = self.rows.read();
        let mut page = Page { rows: Vec::new(), more: false };
        let range = rows.range::<[u8], _>((Bound::Included(start), Bound::Excluded(end)));
        for (key, versions) in range {
            let Some(value) = versions.at(batch) else { continue };
            if page.rows.len() == limit {
                page.more = true;
                break;
            }
            page.rows.push((key.clone(), value.clone()));
        }
        page
    }

    /// Calls `each` with the newest value of every row, in key order.
    pub fn for_each<E>(
        &self,
        mut each: impl FnMut(&[u8], Option<&[u8]>) -> Result<(), E>,
    ) -> Result<(), E> {
        let rows = self.rows.read();
        rows.iter().try_for_each(|(key, versions)| each(key, versions.newest.value.as_deref()))
    }
}
