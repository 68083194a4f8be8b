//! Rows without those that are damaged at rest, so that a check can go on to its end.

use std::collections::BTreeMap;

use bytes::Bytes;
use cairn_base::{Error, Result};
use parking_lot::Mutex;

use super::report::{About, Finding};
use crate::engine::Snapshot;

/// A view of all rows that leaves out damaged ones, and remembers them.
pub struct SiftedRows<'a> {
    rows: &'a dyn Snapshot,
    damaged: Mutex<BTreeMap<Bytes, String>>,
}

impl<'a> SiftedRows<'a> {
    pub fn new(rows: &'a dyn Snapshot) -> SiftedRows<'a> {
        SiftedRows { rows, damaged: Mutex::default() }
    }

    /// Returns findings about the rows that were left out so far.
    pub fn findings(&self) -> Vec<Finding> {
        let damaged = self.damaged.lock();
        let finding = |(key, what): (&Bytes, &String)| Finding {
            about: About::Row(key.clone()),
            what: what.clone(),
        };
        damaged.iter().map(finding).collect()
    }

    fn note(&self, key: &[u8], error: &Error) {
        self.damaged.lock().insert(Bytes::copy_from_slice(key), error.to_string());
    }
}

impl Snapshot for SiftedRows<'_> {
    fn batch(&self) -> u64 {
        self.rows.batch()
    }

    fn get(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        match self.rows.get(keys) {
            Err(Error::Corrupt { .. }) => {}
            other => return other,
        }
        let one = |key: &Bytes| match self.rows.get(std::slice::from_ref(key)) {
            Err(error @ Error::Corrupt { .. }) => {
                self.note(key, &error);
                Ok(None)
            }
            other => Ok(other?.pop().flatten()),
        };
        keys.iter().map(one).collect()
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        self.rows.scan_sound(start, end, limit, &mut |key, error| self.note(key, &error))
    }
}
