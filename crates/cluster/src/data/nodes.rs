//! What a client knows of the nodes it asks: how much it has asked of each, and which failed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use cairn_base::NodeId;
use parking_lot::RwLock;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::limits::{NODE_REQUESTS, SUSPECT};

/// What is known of a chunkserver beside the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeLoad {
    pub free_bytes: u64,
}

/// Filled by whoever hears from the nodes; a node that is not there is taken to have room.
pub type Loads = Arc<RwLock<BTreeMap<NodeId, NodeLoad>>>;

pub(super) struct Nodes {
    start: Instant,
    all: RwLock<BTreeMap<NodeId, Arc<State>>>,
}

struct State {
    in_flight: AtomicUsize,
    /// Suspected until so long after the start, milliseconds.
    suspect_ms: AtomicU64,
    turns: Semaphore,
}

/// Counts as a request in flight until it is dropped.
pub(super) struct InFlight(Arc<State>);

impl InFlight {
    /// Waits until not too many requests of this process are unanswered there.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.0.turns.acquire().await.ok()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Nodes {
    pub(super) fn new() -> Nodes {
        Nodes { start: Instant::now(), all: RwLock::default() }
    }

    fn state(&self, node: NodeId) -> Arc<State> {
        if let Some(state) = self.all.read().get(&node) {
            return Arc::clone(state);
        }
        let fresh = || {
            let (in_flight, suspect_ms) = (AtomicUsize::new(0), AtomicU64::new(0));
            Arc::new(State { in_flight, suspect_ms, turns: Semaphore::new(NODE_REQUESTS) })
        };
        Arc::clone(self.all.write().entry(node).or_insert_with(fresh))
    }

    fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    pub(super) fn enter(&self, node: NodeId) -> InFlight {
        let state = self.state(node);
        state.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(state)
    }

    pub(super) fn in_flight(&self, node: NodeId) -> usize {
        let all = self.all.read();
        all.get(&node).map_or(0, |state| state.in_flight.load(Ordering::Relaxed))
    }

    pub(super) fn suspect(&self, node: NodeId) {
        let until = self.now_ms() + SUSPECT.as_millis() as u64;
        self.state(node).suspect_ms.store(until, Ordering::Relaxed);
    }

    pub(super) fn is_suspect(&self, node: NodeId) -> bool {
        let all = self.all.read();
        let until = all.get(&node).map_or(0, |state| state.suspect_ms.load(Ordering::Relaxed));
        until > self.now_ms()
    }

    pub(super) fn suspects(&self) -> Vec<NodeId> {
        let known: Vec<NodeId> = self.all.read().keys().copied().collect();
        known.into_iter().filter(|node| self.is_suspect(*node)).collect()
    }
}
