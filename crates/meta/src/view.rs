//! The view of an operation on the metadata, and its changes.

use std::collections::BTreeMap;

use bytes::Bytes;
use cairn_auth::{Action, ActionSet};
use cairn_base::{Error, Ino, SessionId, limits};

/// Why an operation stopped before its end.
#[derive(Debug)]
pub enum Stop {
    /// A row it needs is not in memory. The view knows which; the operation runs again with them.
    Miss,
    /// It fails with this error and changes nothing.
    Fail(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Fail(error)
    }
}

/// A row or range of rows that was needed and not in memory.
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

/// The keys of the rows among `wants`.
pub fn wanted_rows(wants: &[Want]) -> impl Iterator<Item = Bytes> {
    wants.iter().filter_map(|want| match want {
        Want::Row(key) => Some(key.clone()),
        Want::Range { .. } => None,
    })
}

/// Where a view finds rows.
pub trait Source {
    /// `Some(None)` is a row known not to exist; `None` is a row not in memory.
    fn get(&self, key: &Bytes) -> Option<Option<Bytes>>;

    /// Up to `limit` rows with `start <= key < end` in key order, or `None` if not in memory.
    fn scan(&self, start: &Bytes, end: &Bytes, limit: usize) -> Option<Vec<(Bytes, Bytes)>>;
}

/// The rows as one operation sees them: its own changes over a [`Source`].
pub struct View<'a> {
    source: &'a dyn Source,
    changes: BTreeMap<Bytes, Option<Bytes>>,
    wants: Vec<Want>,
    bytes: usize,
    reads: usize,
    /// Rows read one by one, where they are to be told.
    trace: Option<Vec<(Bytes, Option<Bytes>)>>,
    /// Those read in ranges are to be told as well.
    traces_ranges: bool,
    /// The number of the inode that the operation makes, if it made it before, and for whom.
    given: Option<(Ino, SessionId)>,
    taken: Option<Ino>,
    /// The actions that the caller was allowed.
    allowed: ActionSet,
}

/// The changes of an operation: changed rows by key, `None` where deleted.
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

    /// The first inode that is made gets this number, which a session may have reserved.
    pub fn give_ino(&mut self, ino: Ino, session: SessionId) {
        self.given = Some((ino, session));
    }

    /// The number given, once.
    pub fn given_ino(&mut self) -> Option<(Ino, SessionId)> {
        self.given.take()
    }

    /// The number of the first inode that was made.
    pub fn taken_ino(&self) -> Option<Ino> {
        self.taken
    }

    pub fn note_ino(&mut self, ino: Ino) {
        self.taken.get_or_insert(ino);
    }

    /// It was decided that the caller may do this.
    pub fn note_allowed(&mut self, action: Action) {
        self.allowed = self.allowed.with(action);
    }

    pub fn allowed(&self) -> ActionSet {
        self.allowed
    }

    /// From here on, takes down which rows are read.
    pub fn trace(&mut self) {
        self.trace = Some(Vec::new());
    }

    /// Takes down those read in ranges, too.
    pub fn trace_ranges(&mut self) {
        self.traces_ranges = true;
    }

    /// The rows read since [`View::trace`]; of ranges only after [`View::trace_ranges`].
    pub fn take_trace(&mut self) -> Vec<(Bytes, Option<Bytes>)> {
        self.trace.take().unwrap_or_default()
    }

    /// The row of `key`, or `None` if there is none.
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

    /// Asks for several rows at once: if some are missing, all of them are fetched together.
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

    /// Up to `limit` rows with `start <= key < end` in key order.
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
        // A source that stopped at its limit says nothing of what follows its last row.
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

    /// Rows read so far.
    pub fn reads(&self) -> usize {
        self.reads
    }

    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// The rows that were missed, in the order they were asked for.
    pub fn into_wants(self) -> Vec<Want> {
        self.wants
    }

    /// The changes of an operation that ended well; refused when it wrote more than it may.
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
