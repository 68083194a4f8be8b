//! Waiting until nobody holds a lease on what an operation changed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Sends a reply.
pub type Answered = Box<dyn FnOnce() + Send>;

/// The conditions, besides the disk, that an operation, a `J`, waits for: that recalls are
/// acknowledged, those of its own and those of operations whose changes it saw.
pub struct Settle<J> {
    batch: u64,
    state: Mutex<SettleState<J>>,
    unsettled: Arc<Unsettled>,
}

/// Whether there is any, for reads that do not go through the executor.
#[derive(Default)]
pub struct Unsettled {
    begun: AtomicU64,
    done: AtomicU64,
    /// How many operations of which batches are not settled.
    batches: Mutex<BTreeMap<u64, usize>>,
}

/// Nothing was unsettled when this was made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Stamp(u64);

impl Unsettled {
    /// `None`: a read may see what is not settled, and has to go through the executor.
    pub fn stamp(&self) -> Option<Stamp> {
        let done = self.done.load(Ordering::SeqCst);
        (self.begun.load(Ordering::SeqCst) == done).then_some(Stamp(done))
    }

    /// The last batch that has settled, where `durable` is durable.
    pub fn settled(&self, durable: u64) -> u64 {
        // Durable batches were counted here before.
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

    /// Changes of a session on its own are not known here until [`Unsettled::let_go`].
    pub fn hold(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    pub fn let_go(&self) {
        self.done.fetch_add(1, Ordering::SeqCst);
    }

    /// All that was read since `stamp` was made has settled.
    pub fn holds(&self, stamp: Stamp) -> bool {
        self.begun.load(Ordering::SeqCst) == stamp.0
    }
}

struct SettleState<J> {
    /// Recalls and operations that are not done.
    left: usize,
    /// Operations that saw the changes of this one.
    followers: Vec<Arc<Settle<J>>>,
    /// Its answer, where that is not to wait until it is durable.
    early: Option<Answered>,
    /// It is durable and waits to be answered.
    held: Option<J>,
}

impl<J> Settle<J> {
    /// Waits for nothing but the caller, who must call [`Settle::done`] once.
    pub fn new(unsettled: Arc<Unsettled>, batch: u64) -> Arc<Settle<J>> {
        unsettled.begin(batch);
        let state = SettleState { left: 1, followers: Vec::new(), early: None, held: None };
        Arc::new(Settle { batch, state: Mutex::new(state), unsettled })
    }

    /// Waits for one more [`Settle::done`].
    pub fn expect(&self) {
        self.state.lock().left += 1;
    }

    /// `follower` is not done before this one is.
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

    /// One of those it waits for is done. Operations that can be answered now go to `ready`.
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

    /// Its operation is answered once it is done, durable or not.
    pub fn answer_early(&self, answer: Answered) {
        let mut state = self.state.lock();
        if state.left > 0 {
            state.early = Some(answer);
        } else {
            answer();
        }
    }

    /// Its operation is durable: gives it back if it can be answered, or keeps it until then.
    pub fn hold(&self, job: J) -> Option<J> {
        let mut state = self.state.lock();
        if state.left == 0 {
            return Some(job);
        }
        state.held = Some(job);
        None
    }
}
