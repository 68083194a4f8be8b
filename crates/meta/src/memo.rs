//! Replies that can be used again while their rows are the same.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

/// A reply, and the rows that it was made of.
pub struct Memo<R> {
    pub reply: R,
    rows: Vec<(Bytes, Option<Bytes>)>,
    /// Version of all rows as of which these rows are known to be the same.
    version: AtomicU64,
}

impl<R> Memo<R> {
    pub(crate) fn new(reply: R, rows: Vec<(Bytes, Option<Bytes>)>, version: u64) -> Memo<R> {
        Memo { reply, rows, version: AtomicU64::new(version) }
    }

    pub fn map<S>(self, change: impl FnOnce(R) -> S) -> Memo<S> {
        Memo { reply: change(self.reply), rows: self.rows, version: self.version }
    }

    /// Returns the bytes of memory that the rows take.
    pub fn row_bytes(&self) -> usize {
        let bytes = |(key, row): &(Bytes, Option<Bytes>)| {
            key.len() + row.as_ref().map_or(0, Bytes::len) + 2 * size_of::<Bytes>()
        };
        self.rows.iter().map(bytes).sum()
    }

    /// Returns whether `now` still finds these rows, as of `version`. Rows are the same if they are
    /// at the same place in memory, which the memo keeps from being reused.
    pub(crate) fn is_current(
        &self,
        version: u64,
        now: impl Fn(&Bytes) -> Option<Option<Bytes>>,
    ) -> bool {
        if self.version.load(Ordering::Relaxed) == version {
            return true;
        }
        let same = |(key, row): &(Bytes, Option<Bytes>)| match (now(key), row) {
            (Some(Some(now)), Some(row)) => now.as_ptr() == row.as_ptr(),
            (Some(None), None) => true,
            _ => false,
        };
        let current = self.rows.iter().all(same);
        if current {
            self.version.store(version, Ordering::Relaxed);
        }
        current
    }
}
