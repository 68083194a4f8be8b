//! An engine in memory, for tests and as the model the others are checked against. It can be
//! made to fail in every way that a commit can fail.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Error, Result};
use parking_lot::Mutex;

use super::{Change, CommitError, Engine, Fence, Snapshot};

/// The way in which a commit fails.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitFault {
    /// `Failed`: nothing is durable.
    Failed,
    /// `Unknown`, and the batch is durable.
    UnknownCommitted,
    /// `Unknown`, and the batch is not durable.
    UnknownLost,
    /// Another master took over just before: the epoch is one higher, the commit is refused.
    Fenced,
    /// `Poisoned`, as are all later commits.
    Poisoned,
}

type Rows = Arc<BTreeMap<Bytes, Bytes>>;

#[derive(Default)]
struct MemoryState {
    rows: Rows,
    fence: Fence,
    commits: u64,
    faults: HashMap<u64, CommitFault>,
    poisoned: bool,
}

/// Rows in memory. A commit while a snapshot lives copies them all.
#[derive(Default)]
pub struct Memory {
    state: Mutex<MemoryState>,
}

impl Memory {
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Makes the commit fail that comes after `after` others, counted from now.
    pub fn fail_commit(&self, after: u64, fault: CommitFault) {
        let mut state = self.state.lock();
        let number = state.commits + after;
        state.faults.insert(number, fault);
    }

    /// Number of calls of `commit` so far, including refused ones.
    pub fn commits(&self) -> u64 {
        self.state.lock().commits
    }
}

impl MemoryState {
    fn apply(&mut self, expected: Fence, changes: Vec<Change>) {
        let rows = Arc::make_mut(&mut self.rows);
        for (key, value) in changes {
            match value {
                Some(value) => rows.insert(key, value),
                None => rows.remove(&key),
            };
        }
        self.fence.batch = expected.batch + 1;
    }
}

impl Engine for Memory {
    fn fence(&self) -> Result<Fence> {
        Ok(self.state.lock().fence)
    }

    fn take_over_at(&self, batch: u64) -> Result<Fence> {
        let mut state = self.state.lock();
        state.fence.epoch += 1;
        state.fence.batch = state.fence.batch.max(batch);
        Ok(state.fence)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        let state = self.state.lock();
        Ok(Box::new(MemorySnapshot { rows: Arc::clone(&state.rows), batch: state.fence.batch }))
    }

    fn commit(&self, expected: Fence, changes: Vec<Change>) -> Result<(), CommitError> {
        let mut state = self.state.lock();
        let number = state.commits;
        state.commits += 1;
        let fault = state.faults.remove(&number);
        if fault == Some(CommitFault::Fenced) {
            state.fence.epoch += 1;
        }
        let planned = || Error::Unavailable("planned fault".into());
        if state.poisoned || fault == Some(CommitFault::Poisoned) {
            state.poisoned = true;
            return Err(CommitError::Poisoned(planned()));
        }
        if state.fence != expected && !is_planted(Bug::ForgottenFence) {
            return Err(CommitError::Fenced { found: state.fence });
        }
        match fault {
            Some(CommitFault::Failed) => return Err(CommitError::Failed(planned())),
            Some(CommitFault::UnknownLost) => return Err(CommitError::Unknown(planned())),
            _ => state.apply(expected, changes),
        }
        match fault {
            Some(CommitFault::UnknownCommitted) => Err(CommitError::Unknown(planned())),
            _ => Ok(()),
        }
    }
}

struct MemorySnapshot {
    rows: Rows,
    batch: u64,
}

impl Snapshot for MemorySnapshot {
    fn batch(&self) -> u64 {
        self.batch
    }

    fn get(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        Ok(keys.iter().map(|key| self.rows.get(key).cloned()).collect())
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        if start >= end {
            return Ok(Vec::new());
        }
        let range = (Bound::Included(start), Bound::Excluded(end));
        let rows = self.rows.range::<[u8], _>(range);
        Ok(rows.take(limit).map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}
