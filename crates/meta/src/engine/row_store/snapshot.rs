//! Reads: memtables over the table of rows.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{Error, Result};

use super::super::{Change, Snapshot};
use super::core::Core;
use super::memtable::Page;
use super::table::Cold;
use super::tables::Tables;

/// Rows taken from a memtable under one hold of its lock.
const PAGE_ROWS: usize = 1024;

/// All rows as of one batch.
pub struct RowSnapshot {
    pub core: Arc<Core>,
    pub tables: Arc<Tables>,
    pub batch: u64,
}

impl RowSnapshot {
    /// Reads the table of rows; repeats the read if the table was stopped by a failure that
    /// reopening cures.
    fn cold<T>(&self, mut read: impl FnMut(&Cold) -> Result<T>) -> Result<T> {
        let found = read(&self.tables.cold);
        if let Err(error) = &found {
            self.core.note_damage(error);
        }
        match found {
            Err(error) if self.tables.cold.curable() => {
                match self.core.revive(&self.tables.cold.mark) {
                    Some(cold) => read(&cold),
                    None => Err(error),
                }
            }
            other => other,
        }
    }

    /// Scans a range of rows. `damaged` decides what happens to damaged ones.
    fn scan_with(
        &self,
        start: &[u8],
        end: &[u8],
        limit: usize,
        mut damaged: impl FnMut(&[u8], Error) -> Result<()>,
    ) -> Result<Vec<(Bytes, Bytes)>> {
        let mut out = Vec::new();
        let mut from = start.to_vec();
        while out.len() < limit && from[..] < *end {
            let wanted = limit - out.len();
            let (overlay, horizon) = self.overlay(&from, end, wanted.min(PAGE_ROWS));
            let page =
                self.cold(|cold| over(&overlay, cold, &from, &horizon, wanted, &mut damaged))?;
            out.extend(page);
            from = horizon;
        }
        Ok(out)
    }

    /// Returns the rows of the memtables from `start` on up to the end of the page, and that end.
    fn overlay(&self, start: &[u8], end: &[u8], limit: usize) -> (Vec<Change>, Vec<u8>) {
        let active = self.tables.active.page(self.batch, start, end, limit);
        let frozen = self.tables.frozen.as_ref().map_or_else(
            || Page { rows: Vec::new(), more: false },
            |frozen| frozen.page(self.batch, start, end, limit),
        );
        let horizon = match (after_last(&active), after_last(&frozen)) {
            (Some(one), Some(other)) => one.min(other),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => end.to_vec(),
        };
        (merge(active.rows, frozen.rows, &horizon), horizon)
    }
}

impl Snapshot for RowSnapshot {
    fn batch(&self) -> u64 {
        self.batch
    }

    fn get(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        let mut found = vec![None; keys.len()];
        self.tables.active.get(self.batch, keys, &mut found);
        if let Some(frozen) = &self.tables.frozen {
            frozen.get(self.batch, keys, &mut found);
        }
        let lookup = |(key, found): (&Bytes, Option<Option<Bytes>>)| match found {
            Some(value) => Ok(value),
            None => self.cold(|cold| cold.get(key)),
        };
        keys.iter().zip(found).map(lookup).collect()
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        self.scan_with(start, end, limit, |_, error| Err(error))
    }

    fn scan_sound(
        &self,
        start: &[u8],
        end: &[u8],
        limit: usize,
        damaged: &mut dyn FnMut(&[u8], Error),
    ) -> Result<Vec<(Bytes, Bytes)>> {
        self.scan_with(start, end, limit, |key, error| {
            self.core.note_damage(&error);
            damaged(key, error);
            Ok(())
        })
    }
}

/// Returns the first key after a page that was cut short.
fn after_last(page: &Page) -> Option<Vec<u8>> {
    let (last, _) = page.rows.last().filter(|_| page.more)?;
    let mut next = last.to_vec();
    next.push(0);
    Some(next)
}

/// Merges the rows of both below `horizon` in key order; `newer` wins if both have a row.
fn merge(newer: Vec<Change>, older: Vec<Change>, horizon: &[u8]) -> Vec<Change> {
    let mut out = Vec::with_capacity(newer.len() + older.len());
    let mut older = older.into_iter().peekable();
    for (key, value) in newer {
        while let Some(before) = older.next_if(|(old, _)| *old < key) {
            out.push(before);
        }
        older.next_if(|(old, _)| *old == key);
        out.push((key, value));
    }
    out.extend(older);
    out.truncate(out.partition_point(|(key, _)| key[..] < *horizon));
    out
}

/// Returns up to `limit` live rows of `cold` in the range, with those of `overlay` over them.
fn over(
    overlay: &[Change],
    cold: &Cold,
    start: &[u8],
    end: &[u8],
    limit: usize,
    damaged: &mut impl FnMut(&[u8], Error) -> Result<()>,
) -> Result<Vec<(Bytes, Bytes)>> {
    let mut out: Vec<(Bytes, Bytes)> = Vec::new();
    let mut next = overlay.iter().peekable();
    let each = |key: &[u8], value: &[u8]| {
        while let Some((over, value)) = next.next_if(|(over, _)| over[..] < *key) {
            out.extend(value.as_ref().map(|value| (over.clone(), value.clone())));
        }
        match next.next_if(|(over, _)| over[..] == *key) {
            Some((over, value)) => {
                out.extend(value.as_ref().map(|value| (over.clone(), value.clone())));
            }
            None => out.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value))),
        }
        out.len() < limit
    };
    // A newer row replaces a damaged one.
    let is_newer = |key: &[u8]| overlay.binary_search_by(|(over, _)| over[..].cmp(key)).is_ok();
    cold.scan(
        start,
        end,
        each,
        |key, error| if is_newer(key) { Ok(()) } else { damaged(key, error) },
    )?;
    let rest = next.filter_map(|(key, value)| Some((key.clone(), value.clone()?)));
    let missing = limit.saturating_sub(out.len());
    out.extend(rest.take(missing));
    out.truncate(limit);
    Ok(out)
}
