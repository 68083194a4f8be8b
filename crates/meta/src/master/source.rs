//! Sources of the rows that operations read.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;

use bytes::Bytes;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Error, SessionId};

use super::cache::{CacheLookup, RowCache};
use super::delegations::Delegations;
use super::leases::Leases;
use super::op::Haste;
use super::overlay::Overlay;
use super::pins::{Pins, Range};
use super::shared::MasterShared;
use crate::engine::Snapshot;
use crate::{Source, keys};

/// Everything executed so far, durable or not.
#[derive(Clone, Copy)]
pub struct Newest<'a> {
    pub overlay: &'a Overlay,
    pub pins: Option<&'a Pins>,
    pub cache: &'a RowCache,
    /// Reader for rows in none of these; without it, such rows are missing.
    pub inline: Option<&'a Inline<'a>>,
}

impl Newest<'_> {
    pub fn get(&self, key: &Bytes) -> Option<Option<Bytes>> {
        if let Some(row) = self.overlay.get(key) {
            return Some(row.clone());
        }
        match self.pins.and_then(|pins| pins.get(key)) {
            Some(row) => Some(row.clone()),
            None => self.cache.newest(key).or_else(|| self.inline?.get(key, self.cache)),
        }
    }
}

/// The rows for the executor.
pub struct UncommittedRows<'a> {
    pub newest: Newest<'a>,
    /// Leases, which note the rows that are seen.
    pub leases: &'a Leases,
    /// Delegations, with the session that may see its own.
    pub delegations: Option<(&'a Delegations, Option<SessionId>)>,
    pub sight: &'a Sight,
    /// Shows rows as they were before unsettled changes. Set if such a row is not known.
    pub settled: Option<&'a Cell<bool>>,
}

impl UncommittedRows<'_> {
    fn is_delegated(&self, key: &Bytes) -> bool {
        self.delegations.is_some_and(|(delegations, by)| delegations.see(key, by))
    }
}

impl Source for UncommittedRows<'_> {
    fn get(&self, key: &Bytes) -> Option<Option<Bytes>> {
        if self.is_delegated(key) {
            return None;
        }
        self.sight.see(key, self.newest.overlay);
        let Some(unknown) = self.settled else {
            self.leases.see(key);
            return self.newest.get(key);
        };
        match self.leases.before(key) {
            None => self.newest.get(key),
            Some(_) if is_planted(Bug::UnsettledShown) => self.newest.get(key),
            Some(Some(row)) => Some(row.clone()),
            Some(None) => {
                unknown.set(true);
                None
            }
        }
    }

    fn scan(&self, start: &Bytes, end: &Bytes, limit: usize) -> Option<Vec<(Bytes, Bytes)>> {
        if self.is_delegated(start) {
            return None;
        }
        match self.settled {
            Some(unknown) if self.leases.is_settling(start, end) => {
                unknown.set(true);
                return None;
            }
            Some(_) => {}
            None => self.leases.see_range(start, end),
        }
        let Newest { overlay, pins, inline, .. } = self.newest;
        self.sight.see_range(start, end, overlay);
        let pinned = pins.and_then(|pins| pins.scan(overlay, start, end, limit));
        pinned.or_else(|| inline?.scan(start, end, limit, overlay))
    }
}

/// The rows that an operation saw that are not durable.
pub struct Sight {
    haste: Haste,
    durable: u64,
    own: Cell<bool>,
    others: Cell<bool>,
}

impl Sight {
    /// Creates a record of the rows that are seen of batches after `durable`.
    pub fn new(haste: Haste, durable: u64) -> Sight {
        Sight { haste, durable, own: Cell::new(false), others: Cell::new(false) }
    }

    /// Returns whether the operation saw a change of its session that was answered early.
    pub fn own(&self) -> bool {
        self.own.get()
    }

    /// Returns whether the operation saw changes that may be lost, as far as its session knows.
    pub fn others(&self) -> bool {
        self.others.get()
    }

    fn see(&self, key: &Bytes, overlay: &Overlay) {
        if self.haste == Haste::Never || keys::is_counter(key) {
            return;
        }
        if let Some(by) = overlay.changed_by(key, self.durable) {
            self.note(by);
        }
    }

    fn see_range(&self, start: &Bytes, end: &Bytes, overlay: &Overlay) {
        if self.haste != Haste::Never {
            overlay
                .all_changed_by(start, end, self.durable)
                .into_iter()
                .for_each(|by| self.note(by));
        }
    }

    fn note(&self, by: Option<SessionId>) {
        let own = match self.haste {
            Haste::Never | Haste::Reader(None) => false,
            Haste::Reader(Some(session)) | Haste::Keeper(session) => by == Some(session),
        };
        if own { self.own.set(true) } else { self.others.set(true) }
    }
}

/// A snapshot that is at least as recent as the changes that the overlay has dropped, and its
/// error.
pub struct Inline<'a> {
    shared: &'a MasterShared,
    snapshot: OnceCell<Box<dyn Snapshot>>,
    reads: RefCell<Option<Reads>>,
}

/// The rows that were read inline.
pub struct Reads {
    pub begun_us: u64,
    /// Number of rows and ranges.
    pub rows: u64,
    /// Error of the last read, if it failed.
    pub failed: Option<Error>,
}

impl<'a> Inline<'a> {
    /// Creates a reader that takes its snapshot when it is first needed.
    pub fn new(shared: &'a MasterShared) -> Inline<'a> {
        Inline { shared, snapshot: OnceCell::new(), reads: RefCell::new(None) }
    }

    /// Returns the rows read since the last call.
    pub fn take(&self) -> Option<Reads> {
        self.reads.take()
    }

    fn get(&self, key: &Bytes, cache: &RowCache) -> Option<Option<Bytes>> {
        let snapshot = self.snapshot()?;
        let row = self.keep(snapshot.get(std::slice::from_ref(key)))?.pop()?;
        // A row that is not found is mostly about to be made, and cached then.
        if row.is_some() {
            cache.offer(key, row.as_ref(), snapshot.batch(), self.shared.durable.batch());
        }
        Some(row)
    }

    fn scan(
        &self,
        start: &Bytes,
        end: &Bytes,
        limit: usize,
        overlay: &Overlay,
    ) -> Option<Vec<(Bytes, Bytes)>> {
        let changes = overlay.range(start, end);
        let deleted = changes.iter().filter(|(_, row)| row.is_none()).count();
        let range = Range::fetch(start, end, limit + deleted, self.snapshot()?);
        self.keep(range)?.merge(&changes, start, end, limit)
    }

    fn snapshot(&self) -> Option<&dyn Snapshot> {
        self.reads.borrow_mut().get_or_insert_with(|| self.begin()).rows += 1;
        if self.snapshot.get().is_none() {
            let snapshot = self.keep(self.shared.engine.snapshot())?;
            let _ = self.snapshot.set(snapshot);
        }
        self.snapshot.get().map(|snapshot| &**snapshot)
    }

    fn begin(&self) -> Reads {
        Reads { begun_us: self.shared.monotonic_us(), rows: 0, failed: None }
    }

    fn keep<T>(&self, result: cairn_base::Result<T>) -> Option<T> {
        let fail = |error| {
            self.reads.borrow_mut().get_or_insert_with(|| self.begin()).failed = Some(error);
        };
        result.map_err(fail).ok()
    }
}

/// For reads: cached rows as of one published batch.
pub struct PublishedRows<'a> {
    pub cache: &'a RowCache,
    pub batch: u64,
    /// Set if a row was changed by a later batch: the read must be repeated as of that batch.
    pub newer: Cell<bool>,
}

impl Source for PublishedRows<'_> {
    fn get(&self, key: &Bytes) -> Option<Option<Bytes>> {
        match self.cache.get(key, self.batch) {
            CacheLookup::Row(row) => Some(row),
            CacheLookup::Newer => {
                self.newer.set(true);
                None
            }
            CacheLookup::Missing => None,
        }
    }

    fn scan(&self, _: &Bytes, _: &Bytes, _: usize) -> Option<Vec<(Bytes, Bytes)>> {
        None
    }
}

/// For reads: rows read from the engine, and cached ones, as of one published batch.
pub struct FetchedRows<'a> {
    pub cache: &'a RowCache,
    pub batch: u64,
    pub rows: &'a HashMap<Bytes, Option<Bytes>>,
}

impl Source for FetchedRows<'_> {
    fn get(&self, key: &Bytes) -> Option<Option<Bytes>> {
        match self.rows.get(key) {
            Some(row) => Some(row.clone()),
            None => match self.cache.get(key, self.batch) {
                CacheLookup::Row(row) => Some(row),
                CacheLookup::Newer | CacheLookup::Missing => None,
            },
        }
    }

    fn scan(&self, _: &Bytes, _: &Bytes, _: usize) -> Option<Vec<(Bytes, Bytes)>> {
        None
    }
}

/// For reads: all rows, as the engine shows them.
pub struct EngineRows<'a> {
    pub snapshot: &'a dyn Snapshot,
    /// Rows read one by one, to be offered to the cache.
    pub rows: RefCell<Vec<(Bytes, Option<Bytes>)>>,
    /// Error that made a row missing.
    pub failed: RefCell<Option<Error>>,
}

impl<'a> EngineRows<'a> {
    pub fn new(snapshot: &'a dyn Snapshot) -> EngineRows<'a> {
        EngineRows { snapshot, rows: RefCell::default(), failed: RefCell::default() }
    }

    fn keep<T>(&self, result: cairn_base::Result<T>) -> Option<T> {
        result.map_err(|error| self.failed.replace(Some(error))).ok()
    }
}

impl Source for EngineRows<'_> {
    fn get(&self, key: &Bytes) -> Option<Option<Bytes>> {
        let row = self.keep(self.snapshot.get(std::slice::from_ref(key)))?.pop()?;
        self.rows.borrow_mut().push((key.clone(), row.clone()));
        Some(row)
    }

    fn scan(&self, start: &Bytes, end: &Bytes, limit: usize) -> Option<Vec<(Bytes, Bytes)>> {
        self.keep(self.snapshot.scan(start, end, limit))
    }
}
