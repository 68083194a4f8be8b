//! The view of an operation on the metadata, and its changes.

use std::collections::BTreeMap;

use bytes::Bytes;
use cairn_auth::{Action, ActionSet};
use cairn_base::{Error, Ino, SessionId, limits};

/// The reason why an operation stopped before its end.
#[derive(Debug)]
pub enum Stop {
    /// A row that it needs is not in memory. The view knows which; the operation runs again with
    /// it.
    Miss,
    /// It fails with this error and changes nothing.
    Fail(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Fail(error)
    }
}

/// A row or range of rows that was needed and is not in memory.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Want {
    Row(Bytes),
    /// Up to `limit` rows with `start <= key < end`.
    Range {
        start: Bytes,
        end: Bytes,
        limit: usize,
    },
}

/// Returns the keys of the rows among `wants`.
pub fn wanted_rows(wants: &[Want]) -> impl Iterator<Item = Bytes> {
    wants.iter().filter_map(|want| match want {
        Want::Row(key) => Some(key.clone()),
        Want::Range { .. } => None,
    })
}

/// A source of rows for a view.
pub trait Source {
    /// Returns a row: `Some(None)` if it is known not to exist, `None` if it is not in memory.
    fn get(&self, key: &Bytes) -> Option<Option<Bytes>>;

    /// Returns up to `limit` rows with `start <= key < end` in key order, or `None` if they are not
    /// in memory.
    fn scan(&self, start: &Bytes, end: &Bytes, limit: usize) -> Option<Vec<(Bytes, Bytes)>>;
}

/// The rows as one operation sees them: its own changes over a [`Source`].
pub struct View<'a> {
    source: &'a dyn Source,
    changes: BTreeMap<Bytes, Option<Bytes>>,
    wants: Vec<Want>,
    bytes: usize,
    reads: usize,
    /// Rows read one by one, if they are recorded.
    trace: Option<Vec<(Bytes, Option<Bytes>)>>,
    /// Set if rows read in ranges are recorded as well.
    traces_ranges: bool,
    /// Number of the inode that the operation made before, if it did, and its session.
    given: Option<(Ino, SessionId)>,
    taken: Option<Ino>,
    /// Actions that the caller was allowed.
    allowed: ActionSet,
}

/// The changes of an operation: changed rows by key, `None` for deleted ones.
pub type Changes = BTreeMap<Bytes, Option<Bytes>>;

impl<'a> View<'a> {
    pub fn new(source: &'a dyn Source) -> View<'a> {
        let (changes, wants) = (BTreeMap::new(), Vec::new());
        View {
            source,
            changes,
            wants,
            bytes: 0,
            reads: 0,
            trace: None,
            traces_ranges: false,
            given: None,
            taken: None,
            allowed: ActionSet::NONE,
        }
    }

    /// Gives a number to the first inode that is made; the session may have reserved it.
    pub fn give_ino(&mut self, ino: Ino, session: SessionId) {
        self.given = Some((ino, session));
    }

    /// Takes the given number, once.
    pub fn given_ino(&mut self) -> Option<(Ino, SessionId)> {
        self.given.take()
    }

    /// Returns the number of the first inode that was made.
    pub fn taken_ino(&self) -> Option<Ino> {
        self.taken
    }

    pub fn note_ino(&mut self, ino: Ino) {
        self.taken.get_or_insert(ino);
    }

    /// Notes that the caller was allowed to do this.
    pub fn note_allowed(&mut self, action: Action) {
        self.allowed = self.allowed.with(action);
    }

    pub fn allowed(&self) -> ActionSet {
        self.allowed
    }

    /// Records from here on which rows are read.
    pub fn trace(&mut self) {
        self.trace = Some(Vec::new());
    }

    /// Records rows read in ranges, too.
    pub fn trace_ranges(&mut self) {
        self.traces_ranges = true;
    }

    /// Returns the rows read since [`View::trace`]; rows of ranges only since
    /// [`View::trace_ranges`].
    pub fn take_trace(&mut self) -> Vec<(Bytes, Option<Bytes>)> {
        self.trace.take().unwrap_or_default()
    }

    /// Returns the row of `key`, or `None` if there is none.
    pub fn get(&mut self, key: &Bytes) -> Result<Option<Bytes>, Stop> {
        if let Some(change) = self.changes.get(key) {
            return Ok(change.clone());
        }
        self.count_reads(1)?;
        match self.source.get(key) {
            Some(row) => {
                if let Some(trace) = &mut self.trace {
                    trace.push((key.clone(), row.clone()));
                }
                Ok(row)
            }
            None => {
                self.wants.push(Want::Row(key.clone()));
                Err(Stop::Miss)
            }
        }
    }

    /// Returns several rows at once: if some are missing, all of them are fetched together.
    pub fn get_all(&mut self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>, Stop> {
        let mut rows = Vec::with_capacity(keys.len());
        let mut missed = false;
        for key in keys {
            match self.get(key) {
                Ok(row) => rows.push(row),
                Err(Stop::Miss) => missed = true,
                Err(stop) => return Err(stop),
            }
        }
        if missed { Err(Stop::Miss) } else { Ok(rows) }
    }

    /// Returns up to `limit` rows with `start <= key < end` in key order.
    pub fn scan(
        &mut self,
        start: &Bytes,
        end: &Bytes,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, Stop> {
        if start >= end || limit == 0 {
            return Ok(Vec::new());
        }
        let range = start.clone()..end.clone();
        let deleted = self.changes.range(range.clone()).filter(|(_, row)| row.is_none()).count();
        let wanted = limit + deleted;
        let Some(found) = self.source.scan(start, end, wanted) else {
            self.wants.push(Want::Range { start: start.clone(), end: end.clone(), limit: wanted });
            return Err(Stop::Miss);
        };
        self.count_reads(found.len())?;
        if self.traces_ranges
            && let Some(trace) = &mut self.trace
        {
            trace.extend(found.iter().map(|(key, row)| (key.clone(), Some(row.clone()))));
        }
        if self.changes.range(range.clone()).next().is_none() {
            return Ok(found);
        }
        // A source that stopped at its limit tells nothing about the rows after its last one.
        let horizon = (found.len() == wanted).then(|| found[found.len() - 1].0.clone());
        let mut merged: BTreeMap<Bytes, Bytes> = found.into_iter().collect();
        for (key, change) in self.changes.range(range) {
            match change {
                Some(row) if horizon.as_ref().is_none_or(|horizon| key <= horizon) => {
                    merged.insert(key.clone(), row.clone());
                }
                Some(_) => {}
                None => {
                    merged.remove(key);
                }
            }
        }
        Ok(merged.into_iter().take(limit).collect())
    }

    pub fn put(&mut self, key: Bytes, row: Bytes) {
        self.bytes += key.len() + row.len();
        self.changes.insert(key, Some(row));
    }

    pub fn delete(&mut self, key: Bytes) {
        self.bytes += key.len();
        self.changes.insert(key, None);
    }

    /// Number of rows read so far.
    pub fn reads(&self) -> usize {
        self.reads
    }

    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Returns the rows that were missing, in the order of the requests.
    pub fn into_wants(self) -> Vec<Want> {
        self.wants
    }

    /// Returns the changes of an operation that ended well; refuses too many changes.
    pub fn into_changes(self) -> Result<Changes, Error> {
        if self.changes.len() > limits::OP_ROWS || self.bytes > limits::OP_BYTES {
            let what =
                format!("{} rows, {} bytes in one operation", self.changes.len(), self.bytes);
            return Err(Error::TooLarge(what));
        }
        Ok(self.changes)
    }

    fn count_reads(&mut self, rows: usize) -> Result<(), Stop> {
        self.reads += rows;
        if self.reads > 4 * limits::OP_ROWS {
            return Err(Stop::Fail(Error::TooLarge(format!(
                "the operation read {} rows, more than one may",
                self.reads
            ))));
        }
        Ok(())
    }
}
