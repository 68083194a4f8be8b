//! The open batch, which the executor fills and the committer takes.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use cairn_base::limits;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::op::Job;
use crate::engine::Change;

/// Operations that become durable together, in the order of their execution.
pub struct Batch {
    pub number: u64,
    /// Each key once, with its last change.
    pub changes: Vec<Change>,
    pub jobs: Vec<Job>,
    bytes: usize,
}

impl Batch {
    pub fn new(number: u64) -> Batch {
        Batch { number, changes: Vec::new(), jobs: Vec::new(), bytes: 0 }
    }

    /// Adds a change of a key that has none yet, and returns its place.
    pub fn push(&mut self, key: Bytes, row: Option<Bytes>, bytes: usize) -> usize {
        self.bytes += bytes;
        self.changes.push((key, row));
        self.changes.len() - 1
    }

    /// Replaces the change at `slot`.
    pub fn replace(&mut self, slot: usize, row: Option<Bytes>, bytes: usize) {
        self.bytes += bytes;
        self.changes[slot].1 = row;
    }

    /// Returns whether the batch takes no further operation.
    pub fn is_full(&self) -> bool {
        self.jobs.len() >= limits::BATCH_OPS || self.bytes >= limits::BATCH_BYTES
    }
}

/// The executor's orders about a batch that did not become durable. It forgets all that is not
/// durable, then executes `redo`, and after it again all that was executed since.
pub struct Verdict {
    pub redo: Vec<Job>,
}

/// The state that executor and committer share.
pub struct Pipe {
    state: Mutex<PipeState>,
    /// Notified for the executor, which waits for the committer to take the open batch.
    room: Notify,
    /// Set while the committer waits for the lock: the executor gives it up after the current
    /// operation.
    wanted: AtomicBool,
    /// Batch that is handed over; apart from the state, which the executor keeps locked while it
    /// runs operations.
    handed: Mutex<BatchSlot>,
    due: Notify,
}

pub struct PipeState {
    pub open: Batch,
    /// Set from the time a batch is taken until it is answered.
    pub committing: bool,
    pub verdict: Option<Verdict>,
    /// Set while the committer waits to be handed a batch.
    idle: bool,
    stop: bool,
}

#[derive(Default)]
struct BatchSlot {
    batch: Option<Batch>,
    stop: bool,
}

/// The next step of the committer when it is done with a batch.
pub enum Next {
    Batch(Batch),
    Idle,
    Stop,
}

impl Pipe {
    /// Creates a pipe whose first batch is `number`.
    pub fn new(number: u64) -> Pipe {
        let open = Batch::new(number);
        let state = PipeState { open, committing: false, verdict: None, idle: false, stop: false };
        Pipe {
            state: Mutex::new(state),
            room: Notify::new(),
            wanted: AtomicBool::new(false),
            handed: Mutex::default(),
            due: Notify::new(),
        }
    }

    /// Locks the state for the executor. If the committer wants the lock, it gets it first.
    pub fn lock(&self) -> MutexGuard<'_, PipeState> {
        for _ in 0..200 {
            if !self.wanted() {
                break;
            }
            std::hint::spin_loop();
        }
        self.state.lock()
    }

    pub fn wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Locks the state for the executor once the open batch takes operations, or once waiting is
    /// pointless.
    pub async fn lock_with_room(&self) -> MutexGuard<'_, PipeState> {
        loop {
            {
                let mut state = self.lock();
                let full = state.open.is_full() && state.verdict.is_none() && !state.stop;
                if !full || self.offer(&mut state) {
                    return state;
                }
            }
            self.room.notified().await;
        }
    }

    /// Hands the open batch to the committer if the committer waits for one. Returns whether it
    /// did. For the executor.
    pub fn offer(&self, state: &mut PipeState) -> bool {
        if !state.idle || state.open.jobs.is_empty() || state.verdict.is_some() {
            return false;
        }
        state.idle = false;
        self.handed.lock().batch = Some(state.take());
        self.due.notify_one();
        true
    }

    /// Returns what to do next, after the committer answered the last batch.
    pub fn next(&self) -> Next {
        self.wanted.store(true, Ordering::Relaxed);
        let mut state = self.state.lock();
        self.wanted.store(false, Ordering::Relaxed);
        state.committing = false;
        if state.stop {
            return Next::Stop;
        }
        if state.open.jobs.is_empty() || state.verdict.is_some() {
            state.idle = true;
            return Next::Idle;
        }
        let batch = state.take();
        drop(state);
        self.room.notify_one();
        Next::Batch(batch)
    }

    /// Waits for the next batch when the committer is idle; `None` when the master ends.
    pub async fn wait(&self) -> Option<Batch> {
        loop {
            {
                let mut handed = self.handed.lock();
                if handed.batch.is_some() || handed.stop {
                    return handed.batch.take();
                }
            }
            self.due.notified().await;
        }
    }

    /// Reports to the executor that a batch was not committed.
    pub fn post(&self, verdict: Verdict) {
        let mut state = self.state.lock();
        if !state.stop {
            state.verdict = Some(verdict);
            drop(state);
            self.room.notify_one();
        }
    }

    /// Ends the committer and drops the batches that it has not taken. Their operations are
    /// answered accordingly.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.stop = true;
        let jobs = std::mem::take(&mut state.open.jobs);
        let verdict = state.verdict.take();
        drop(state);
        let mut handed = self.handed.lock();
        handed.stop = true;
        let batch = handed.batch.take();
        drop(handed);
        self.due.notify_one();
        self.room.notify_one();
        drop((jobs, verdict, batch));
    }
}

impl PipeState {
    /// Takes the open batch. The number of a batch that changes nothing is used again.
    fn take(&mut self) -> Batch {
        let number = self.open.number + u64::from(!self.open.changes.is_empty());
        self.committing = true;
        std::mem::replace(&mut self.open, Batch::new(number))
    }
}
