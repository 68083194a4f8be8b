//! Threads that read rows from the engine for operations that lack them.

use std::collections::VecDeque;
use std::sync::Arc;

use cairn_base::{Error, Result};
use parking_lot::{Condvar, Mutex};

use super::inbox::Fetched;
use super::op::Job;
use super::pins::Pins;
use super::shared::Shared;
use crate::Want;
use crate::engine::Snapshot;

/// Operations that share a snapshot.
const FETCHES: usize = 16;

/// An operation and what it lacks.
pub struct Lacking {
    pub job: Job,
    pub pins: Box<Pins>,
    pub wants: Vec<Want>,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Lacking>,
    closed: bool,
}

/// Operations that wait for a fetch thread. Bounded by the executor.
#[derive(Default)]
pub struct FetchQueue {
    state: Mutex<QueueState>,
    ready: Condvar,
}

impl FetchQueue {
    pub fn push(&self, lacking: Lacking) {
        let mut state = self.state.lock();
        if !state.closed {
            state.waiting.push_back(lacking);
            drop(state);
            self.ready.notify_one();
        }
    }

    /// The threads end; what waits is dropped.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let dropped = std::mem::take(&mut state.waiting);
        drop(state);
        self.ready.notify_all();
        drop(dropped);
    }

    /// The next operations, or `None` when the master ends.
    fn take(&self, threads: usize) -> Option<Vec<Lacking>> {
        let mut state = self.state.lock();
        while state.waiting.is_empty() && !state.closed {
            self.ready.wait(&mut state);
        }
        let share = state.waiting.len().div_ceil(threads).min(FETCHES);
        let taken: Vec<Lacking> = state.waiting.drain(..share).collect();
        (!taken.is_empty()).then_some(taken)
    }
}

/// A fetch thread.
pub fn run(shared: &Arc<Shared>) {
    while let Some(lacking) = shared.fetches.take(shared.config.fetch_threads.max(1)) {
        shared.inbox.push_fetched(fetch(shared, lacking));
    }
}

/// Fetches for all of them; `pins.failed` tells of those for which that failed.
fn fetch(shared: &Shared, lacking: Vec<Lacking>) -> Vec<Fetched> {
    let mut fetched = Vec::with_capacity(lacking.len());
    let snapshot = shared.engine.snapshot();
    for Lacking { job, mut pins, wants } in lacking {
        let result = match &snapshot {
            Ok(snapshot) => fill(shared, &mut pins, &wants, &**snapshot),
            Err(error) => Err(Error::Unavailable(format!("reading metadata: {error}"))),
        };
        pins.failed = result.err();
        fetched.push(Fetched { job, pins });
    }
    fetched
}

/// Fetches `wants` into `pins` and offers the rows to the cache.
fn fill(shared: &Shared, pins: &mut Pins, wants: &[Want], snapshot: &dyn Snapshot) -> Result<()> {
    pins.fetch(wants, snapshot)?;
    let published = shared.durable.batch();
    for want in wants {
        if let Want::Row(key) = want
            && let Some(row) = pins.get(key)
        {
            shared.cache.offer(key, row.as_ref(), snapshot.batch(), published);
        }
    }
    Ok(())
}
