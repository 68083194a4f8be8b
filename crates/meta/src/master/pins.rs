//! The rows that were fetched for one operation.

use std::collections::HashMap;

use bytes::Bytes;
use cairn_base::{Error, Result};

use super::overlay::Overlay;
use crate::Want;
use crate::engine::Snapshot;

/// Rows of a range as of one snapshot.
pub struct Range {
    start: Bytes,
    end: Bytes,
    rows: Vec<(Bytes, Bytes)>,
    /// Set if there are no more rows before `end`.
    complete: bool,
}

/// Fetched rows and ranges. They may be as old as batch `hold`: their users must look at all
/// changes of later batches first.
pub struct Pins {
    pub hold: u64,
    /// Number of times that the executor had dropped all uncommitted state when the operation was
    /// parked.
    pub generation: u64,
    /// Number of runs that missed rows.
    pub misses: u32,
    /// Error of the last fetch, if it failed.
    pub failed: Option<Error>,
    rows: HashMap<Bytes, Option<Bytes>>,
    ranges: Vec<Range>,
}

impl Pins {
    pub fn new(hold: u64, generation: u64) -> Pins {
        Pins { hold, generation, misses: 0, failed: None, rows: HashMap::new(), ranges: Vec::new() }
    }

    pub fn get(&self, key: &Bytes) -> Option<&Option<Bytes>> {
        self.rows.get(key)
    }

    /// Adds rows that were fetched.
    pub fn keep(&mut self, keys: Vec<Bytes>, rows: Vec<Option<Bytes>>) {
        self.rows.extend(keys.into_iter().zip(rows));
    }

    /// Fetches and adds the ranges in `wants`.
    pub fn fetch_ranges(&mut self, wants: &[Want], snapshot: &dyn Snapshot) -> Result<()> {
        for want in wants {
            if let Want::Range { start, end, limit } = want {
                self.ranges.push(Range::fetch(start, end, *limit, snapshot)?);
            }
        }
        Ok(())
    }

    /// Returns up to `limit` rows with `start <= key < end` under the changes in `overlay`, or
    /// `None` if not enough rows were fetched.
    pub fn scan(
        &self,
        overlay: &Overlay,
        start: &Bytes,
        end: &Bytes,
        limit: usize,
    ) -> Option<Vec<(Bytes, Bytes)>> {
        // The last range first: it was fetched with the largest limit.
        let covers = |range: &&Range| range.start <= *start && *end <= range.end;
        let mut candidates = self.ranges.iter().rev().filter(covers).peekable();
        candidates.peek()?;
        let changes = overlay.range(start, end);
        candidates.find_map(|range| range.merge(&changes, start, end, limit))
    }
}

impl Range {
    pub fn fetch(
        start: &Bytes,
        end: &Bytes,
        limit: usize,
        snapshot: &dyn Snapshot,
    ) -> Result<Range> {
        let rows = snapshot.scan(start, end, limit)?;
        let complete = rows.len() < limit;
        Ok(Range { start: start.clone(), end: end.clone(), rows, complete })
    }

    /// Returns up to `limit` rows with `start <= key < end` under `changes`, or `None` if there may
    /// be more of them than were fetched.
    pub fn merge(
        &self,
        changes: &[(Bytes, Option<Bytes>)],
        start: &Bytes,
        end: &Bytes,
        limit: usize,
    ) -> Option<Vec<(Bytes, Bytes)>> {
        let first = self.rows.partition_point(|(key, _)| key < start);
        let mut fetched = self.rows[first..].iter().take_while(|(key, _)| key < end).peekable();
        let mut changes = changes.iter().peekable();
        let mut merged = Vec::with_capacity(limit.min(self.rows.len() + changes.len()));
        // Rows that were not fetched may follow the last fetched one.
        let horizon = if self.complete { None } else { self.rows.last().map(|(key, _)| key) };
        while merged.len() < limit {
            let (key, row) = match (fetched.peek().copied(), changes.peek().copied()) {
                (None, None) => break,
                (Some((key, row)), None) => (key, Some(row)),
                (Some((key, row)), Some((changed, _))) if key < changed => (key, Some(row)),
                (_, Some((changed, row))) => (changed, row.as_ref()),
            };
            if horizon.is_some_and(|horizon| key > horizon) {
                return None;
            }
            fetched.next_if(|(fetched, _)| fetched == key);
            changes.next_if(|(changed, _)| changed == key);
            merged.extend(row.map(|row| (key.clone(), row.clone())));
        }
        let all = self.complete || horizon.is_some_and(|horizon| horizon >= end);
        (merged.len() == limit || all).then_some(merged)
    }
}
