//! A client's record of the nodes that it asks: how much it has asked of each, how long they took,
//! and which failed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use cairn_base::NodeId;
use cairn_base::inflight::{WaitTarget, waiting};
use cairn_blocks::{NodeCounts, Peers, TimedCount};
use parking_lot::RwLock;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::limits::SUSPECT;

/// The load of a chunkserver, which the map does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeLoad {
    pub free_bytes: u64,
}

/// Loads by node, filled by the part of a process that gets reports of nodes; a node that is
/// missing is assumed to have room.
pub type Loads = Arc<RwLock<BTreeMap<NodeId, NodeLoad>>>;

pub(super) struct Nodes {
    start: Instant,
    all: RwLock<BTreeMap<NodeId, Arc<NodesState>>>,
    /// Requests to a node at the same time, at most.
    connections: usize,
}

struct NodesState {
    in_flight: AtomicUsize,
    /// End of the suspicion, in milliseconds since the start.
    suspect_ms: AtomicU64,
    /// End of the time in which it counts as slow, in milliseconds since the start.
    slow_ms: AtomicU64,
    turns: Semaphore,
    read: Sum,
    write: Sum,
    wait: Sum,
    failed: AtomicU64,
}

/// A sum of times.
#[derive(Default)]
struct Sum {
    count: AtomicU64,
    us: AtomicU64,
}

impl Sum {
    fn add(&self, time: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.us.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    fn spent(&self) -> TimedCount {
        let time = Duration::from_micros(self.us.load(Ordering::Relaxed));
        TimedCount { count: self.count.load(Ordering::Relaxed), time }
    }
}

/// Counts as a request in flight until it is dropped.
pub(super) struct InFlight(Arc<NodesState>);

impl InFlight {
    /// Waits until this process has fewer unanswered requests to the node than it may.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        if let Ok(turn) = self.0.turns.try_acquire() {
            return Some(turn);
        }
        let _waiting = Timing::start(&self.0.wait);
        let full = || WaitTarget::Text("a connection to a chunkserver: all are in use".into());
        waiting(full, self.0.turns.acquire()).await.ok()
    }

    /// Counts a read from the node until it is dropped.
    pub(super) fn reading(&self) -> Timing<'_> {
        Timing::start(&self.0.read)
    }
}

/// Adds the time until it is dropped, so that abandoned requests count too.
pub(super) struct Timing<'a> {
    sum: &'a Sum,
    since: Instant,
}

impl Timing<'_> {
    fn start(sum: &Sum) -> Timing<'_> {
        Timing { sum, since: Instant::now() }
    }
}

impl Drop for Timing<'_> {
    fn drop(&mut self) {
        self.sum.add(self.since.elapsed());
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Nodes {
    pub(super) fn new(connections: usize) -> Nodes {
        Nodes { start: Instant::now(), all: RwLock::default(), connections }
    }

    fn state(&self, node: NodeId) -> Arc<NodesState> {
        if let Some(state) = self.all.read().get(&node) {
            return Arc::clone(state);
        }
        let fresh = || {
            Arc::new(NodesState {
                in_flight: AtomicUsize::new(0),
                suspect_ms: AtomicU64::new(0),
                slow_ms: AtomicU64::new(0),
                turns: Semaphore::new(self.connections),
                read: Sum::default(),
                write: Sum::default(),
                wait: Sum::default(),
                failed: AtomicU64::new(0),
            })
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
        let state = self.state(node);
        state.suspect_ms.store(self.until_ms(), Ordering::Relaxed);
        state.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a reader has waited for the node long enough to ask another node.
    pub(super) fn slow(&self, node: NodeId) {
        self.state(node).slow_ms.store(self.until_ms(), Ordering::Relaxed);
    }

    /// Returns the time until which a node that fails now is avoided.
    fn until_ms(&self) -> u64 {
        self.now_ms() + SUSPECT.as_millis() as u64
    }

    /// Notes that a write of a block to this node ended or was given up, and how long it took.
    pub(super) fn wrote(&self, node: NodeId, took: Duration) {
        self.state(node).write.add(took);
    }

    pub(super) fn peers(&self) -> Peers {
        let all = self.all.read();
        let peer = |(node, state): (&NodeId, &Arc<NodesState>)| NodeCounts {
            node: *node,
            read: state.read.spent(),
            write: state.write.spent(),
            wait: state.wait.spent(),
            failed: state.failed.load(Ordering::Relaxed),
        };
        Peers { connections: self.connections as u64, nodes: all.iter().map(peer).collect() }
    }

    pub(super) fn is_suspect(&self, node: NodeId) -> bool {
        let all = self.all.read();
        let until = all.get(&node).map_or(0, |state| state.suspect_ms.load(Ordering::Relaxed));
        until > self.now_ms()
    }

    /// Returns true if readers should prefer other nodes. A node that is only slow may still take
    /// writes.
    pub(super) fn is_avoided(&self, node: NodeId) -> bool {
        let all = self.all.read();
        let until = |state: &Arc<NodesState>| {
            let suspect = state.suspect_ms.load(Ordering::Relaxed);
            suspect.max(state.slow_ms.load(Ordering::Relaxed))
        };
        all.get(&node).map_or(0, until) > self.now_ms()
    }

    pub(super) fn suspects(&self) -> Vec<NodeId> {
        let known: Vec<NodeId> = self.all.read().keys().copied().collect();
        known.into_iter().filter(|node| self.is_suspect(*node)).collect()
    }
}
