//! Waits until nobody holds a lease on rows that an operation changed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Sends a reply.
pub type Answered = Box<dyn FnOnce() + Send>;

/// Conditions, other than the disk, that an operation `J` waits for: the acknowledgements of its
/// own recalls, and of those of operations whose changes it saw.
pub struct Settle<J> {
    batch: u64,
    state: Mutex<SettleState<J>>,
    unsettled: Arc<UnsettledOperations>,
}

/// Tracks whether there are unsettled operations, for reads that do not go through the executor.
#[derive(Default)]
pub struct UnsettledOperations {
    begun: AtomicU64,
    done: AtomicU64,
    /// Number of unsettled operations of each batch.
    batches: Mutex<BTreeMap<u64, usize>>,
}

/// Proof that nothing was unsettled when this was made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Stamp(u64);

impl UnsettledOperations {
    /// Returns a stamp, or `None` if a read might see unsettled changes: then it has to go through
    /// the executor.
    pub fn stamp(&self) -> Option<Stamp> {
        let done = self.done.load(Ordering::SeqCst);
        (self.begun.load(Ordering::SeqCst) == done).then_some(Stamp(done))
    }

    /// Returns the last batch that has settled, if `durable` is durable.
    pub fn settled(&self, durable: u64) -> u64 {
        // Operations of durable batches were counted here before.
        let first = self.batches.lock().first_key_value().map(|(batch, _)| *batch);
        first.map_or(durable, |first| durable.min(first.saturating_sub(1)))
    }

    pub fn begin(&self, batch: u64) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        *self.batches.lock().entry(batch).or_default() += 1;
    }

    pub fn end(&self, batch: u64) {
        let mut batches = self.batches.lock();
        if let Some(left) = batches.get_mut(&batch) {
            *left -= 1;
            if *left == 0 {
                batches.remove(&batch);
            }
        }
        drop(batches);
        self.done.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes that a session makes changes of its own that are unknown here until
    /// [`UnsettledOperations::let_go`].
    pub fn hold(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    pub fn let_go(&self) {
        self.done.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns whether everything that was read since `stamp` was made has settled.
    pub fn holds(&self, stamp: Stamp) -> bool {
        self.begun.load(Ordering::SeqCst) == stamp.0
    }
}

struct SettleState<J> {
    /// Number of recalls and operations that are not done.
    left: usize,
    /// Operations that saw the changes of this one.
    followers: Vec<Arc<Settle<J>>>,
    /// Answer that is sent without waiting for the disk, if the operation has one.
    early: Option<Answered>,
    /// The operation, once it is durable and waits to be answered.
    held: Option<J>,
}

impl<J> Settle<J> {
    /// Creates conditions that only wait for the caller's own call of [`Settle::done`].
    pub fn new(unsettled: Arc<UnsettledOperations>, batch: u64) -> Arc<Settle<J>> {
        unsettled.begin(batch);
        let state = SettleState { left: 1, followers: Vec::new(), early: None, held: None };
        Arc::new(Settle { batch, state: Mutex::new(state), unsettled })
    }

    /// Adds one more [`Settle::done`] to wait for.
    pub fn expect(&self) {
        self.state.lock().left += 1;
    }

    /// Makes `follower` wait for this one.
    pub fn precede(&self, follower: &Arc<Settle<J>>) {
        let mut state = self.state.lock();
        if state.left > 0 {
            follower.expect();
            state.followers.push(Arc::clone(follower));
        }
    }

    pub fn is_done(&self) -> bool {
        self.state.lock().left == 0
    }

    /// Notes that one of the conditions is met. Operations that can be answered now go to `ready`.
    pub fn done(&self, ready: &mut Vec<J>) {
        let mut state = self.state.lock();
        state.left -= 1;
        if state.left > 0 {
            return;
        }
        self.unsettled.end(self.batch);
        if let Some(early) = state.early.take() {
            early();
        }
        ready.extend(state.held.take());
        let followers = std::mem::take(&mut state.followers);
        drop(state);
        for follower in followers {
            follower.done(ready);
        }
    }

    /// Has the operation answered once all conditions are met, durable or not.
    pub fn answer_early(&self, answer: Answered) {
        let mut state = self.state.lock();
        if state.left > 0 {
            state.early = Some(answer);
        } else {
            answer();
        }
    }

    /// Notes that the operation is durable. Gives it back if it can be answered, or keeps it until
    /// then.
    pub fn hold(&self, job: J) -> Option<J> {
        let mut state = self.state.lock();
        if state.left == 0 {
            return Some(job);
        }
        state.held = Some(job);
        None
    }
}
