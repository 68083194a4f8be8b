//! Where operations find their rows.

use std::cell::{Cell, RefCell};

use bytes::Bytes;
use cairn_base::Error;

use super::cache::{Cached, RowCache};
use super::overlay::Overlay;
use super::pins::Pins;
use crate::Source;
use crate::engine::Snapshot;

/// For the executor: everything executed so far, durable or not.
pub struct Uncommitted<'a> {
    pub overlay: &'a Overlay,
    pub pins: Option<&'a Pins>,
    pub cache: &'a RowCache,
}

impl Source for Uncommitted<'_> {
    fn get(&self, key: &Bytes) -> Option<Option<Bytes>> {
        if let Some(row) = self.overlay.get(key) {
            return Some(row.clone());
        }
        match self.pins.and_then(|pins| pins.get(key)) {
            Some(row) => Some(row.clone()),
            None => self.cache.newest(key),
        }
    }

    fn scan(&self, start: &Bytes, end: &Bytes, limit: usize) -> Option<Vec<(Bytes, Bytes)>> {
        self.pins?.scan(self.overlay, start, end, limit)
    }
}

/// For reads: cached rows as of one published batch.
pub struct Published<'a> {
    pub cache: &'a RowCache,
    pub batch: u64,
    /// A row was changed by a later batch: read again as of that one.
    pub newer: Cell<bool>,
}

impl Source for Published<'_> {
    fn get(&self, key: &Bytes) -> Option<Option<Bytes>> {
        match self.cache.get(key, self.batch) {
            Cached::Row(row) => Some(row),
            Cached::Newer => {
                self.newer.set(true);
                None
            }
            Cached::Missing => None,
        }
    }

    fn scan(&self, _: &Bytes, _: &Bytes, _: usize) -> Option<Vec<(Bytes, Bytes)>> {
        None
    }
}

/// For reads: all rows, as the engine shows them.
pub struct Stored<'a> {
    pub snapshot: &'a dyn Snapshot,
    /// Rows read one by one, to be offered to the cache.
    pub rows: RefCell<Vec<(Bytes, Option<Bytes>)>>,
    /// What failed where a row is missing.
    pub failed: RefCell<Option<Error>>,
}

impl<'a> Stored<'a> {
    pub fn new(snapshot: &'a dyn Snapshot) -> Stored<'a> {
        Stored { snapshot, rows: RefCell::default(), failed: RefCell::default() }
    }

    fn keep<T>(&self, result: cairn_base::Result<T>) -> Option<T> {
        result.map_err(|error| self.failed.replace(Some(error))).ok()
    }
}

impl Source for Stored<'_> {
    fn get(&self, key: &Bytes) -> Option<Option<Bytes>> {
        let row = self.keep(self.snapshot.get(std::slice::from_ref(key)))?.pop()?;
        self.rows.borrow_mut().push((key.clone(), row.clone()));
        Some(row)
    }

    fn scan(&self, start: &Bytes, end: &Bytes, limit: usize) -> Option<Vec<(Bytes, Bytes)>> {
        self.keep(self.snapshot.scan(start, end, limit))
    }
}
