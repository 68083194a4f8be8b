//! Threads that read rows from the engine for operations that lack them.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{Error, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Config;
use super::inbox::Fetched;
use super::op::Job;
use super::pins::Pins;
use super::shared::Shared;
use crate::Want;
use crate::view::wanted_rows;

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
    ready: Notify,
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
        self.ready.notify_one();
        drop(dropped);
    }

    /// The next operations, or `None` when the master ends.
    async fn take(&self, config: &Config) -> Option<Vec<Lacking>> {
        loop {
            if let Some(taken) = self.take_now(config) {
                return Some(taken);
            }
            if self.state.lock().closed {
                // So that the next thread hears of it.
                self.ready.notify_one();
                return None;
            }
            self.ready.notified().await;
        }
    }

    fn take_now(&self, config: &Config) -> Option<Vec<Lacking>> {
        let mut state = self.state.lock();
        let share = state.waiting.len().div_ceil(config.fetch_threads.max(1));
        let share = share.min(config.fetch_ops.max(1));
        let taken: Vec<Lacking> = state.waiting.drain(..share).collect();
        (!taken.is_empty()).then_some(taken)
    }
}

/// A fetch thread.
pub async fn run(shared: Arc<Shared>) {
    while let Some(lacking) = shared.fetches.take(&shared.config).await {
        let fetched = shared.working.fetch(|| fetch(&shared, lacking));
        shared.inbox.push_fetched(fetched);
    }
}

/// Fetches for all of them; `pins.failed` tells of those for which that failed.
fn fetch(shared: &Shared, lacking: Vec<Lacking>) -> Vec<Fetched> {
    // The rows of all at once. If that fails, those get theirs that can.
    let keys: Vec<Bytes> = lacking.iter().flat_map(|one| wanted_rows(&one.wants)).collect();
    let mut all = shared.engine.read(&keys).ok().map(|(batch, rows)| (batch, rows.into_iter()));
    let mut fetched = Vec::with_capacity(lacking.len());
    for Lacking { job, mut pins, wants } in lacking {
        let keys: Vec<Bytes> = wanted_rows(&wants).collect();
        let rows = match &mut all {
            Some((batch, rows)) => Ok((*batch, rows.take(keys.len()).collect())),
            None => shared.engine.read(&keys),
        };
        let filled = rows.and_then(|(batch, rows)| {
            offer(shared, &keys, &rows, batch);
            pins.keep(keys, rows);
            fetch_ranges(shared, &mut pins, &wants)
        });
        let failed = |error| Error::Unavailable(format!("reading metadata: {error}"));
        pins.failed = filled.err().map(failed);
        fetched.push(Fetched { job, pins });
    }
    fetched
}

/// Offers rows to the cache.
fn offer(shared: &Shared, keys: &[Bytes], rows: &[Option<Bytes>], batch: u64) {
    let published = shared.durable.batch();
    for (key, row) in keys.iter().zip(rows) {
        shared.cache.offer(key, row.as_ref(), batch, published);
    }
}

fn fetch_ranges(shared: &Shared, pins: &mut Pins, wants: &[Want]) -> Result<()> {
    if wants.iter().all(|want| matches!(want, Want::Row(_))) {
        return Ok(());
    }
    pins.fetch_ranges(wants, &*shared.engine.snapshot()?)
}
