//! Rows as this session sees them: leased rows, and over them the rows that it changed on its own.

use bytes::Bytes;
use cairn_base::{Ino, SessionId};

use super::state::PostedState;
use crate::rows::{ReservedInos, Row, Session, encode_number};
use crate::session::rows::LeasedRows;
use crate::{Source, keys};

/// Rows for an operation that is run here.
pub struct Local<'a> {
    pub state: &'a PostedState,
    pub rows: &'a LeasedRows,
    pub session: SessionId,
    /// Number for a new inode.
    pub ino: Option<Ino>,
}

impl Source for Local<'_> {
    fn get(&self, key: &Bytes) -> Option<Option<Bytes>> {
        if let Some(changed) = self.state.rows.get(key) {
            return Some(changed.row.clone());
        }
        match key.first() {
            // Counters do not matter here.
            Some(b'n') => return Some(None),
            Some(b'c') if keys::is_owned(key) => return Some(None),
            Some(b'c') if *key == keys::read_only() => return self.rows.get(key),
            // The given number was the next one before.
            Some(b'c') => return self.ino.map(|_| Some(encode_number(u64::MAX))),
            _ => {}
        }
        if *key == keys::session(self.session) {
            return Some(Some(Session::default().encode()));
        }
        if *key == keys::reserved(self.session) {
            let ranges = self.state.reserved.iter().copied().collect();
            return Some(Some(ReservedInos { ranges, ..ReservedInos::default() }.encode()));
        }
        let is_new = self.ino.is_some_and(|ino| *key == keys::inode(ino));
        if is_new || self.state.lacks(key) { Some(None) } else { self.rows.get(key) }
    }

    fn scan(&self, _: &Bytes, _: &Bytes, _: usize) -> Option<Vec<(Bytes, Bytes)>> {
        None
    }
}

/// Rows for readers in this process.
pub struct Over<'a> {
    pub state: &'a PostedState,
    pub rows: &'a LeasedRows,
}

impl Source for Over<'_> {
    fn get(&self, key: &Bytes) -> Option<Option<Bytes>> {
        match self.state.rows.get(key) {
            Some(changed) => Some(changed.row.clone()),
            None if self.state.lacks(key) => Some(None),
            None => self.rows.get(key),
        }
    }

    fn scan(&self, _: &Bytes, _: &Bytes, _: usize) -> Option<Vec<(Bytes, Bytes)>> {
        None
    }
}
