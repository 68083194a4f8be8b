//! A chunkserver: keeps blocks on a disk, and heals them.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::GroupId;
use cairn_blocks::Store;
use cairn_cluster::control::messages::{Beat, StoreState};
use cairn_cluster::data::{Chunkserver, MapSource, Pool, Sick};
use cairn_cluster::wire::{Listen, NoService, Taker, serve};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::copies::Copies;
use crate::duties::{self, Pace, until};
use crate::node::Node;

/// Time that requests in progress get to finish when the chunkserver stops.
pub const DRAIN: Duration = Duration::from_secs(10);
/// Number of corrupt blocks that may wait to be healed.
const SICK: usize = 1000;

/// A node with a block store, before it accepts any connection.
pub struct ChunkserverNode {
    node: Node,
    pub store: Store,
    pub served: Arc<Chunkserver>,
    /// Its connections to other chunkservers.
    pub pool: Arc<Pool>,
    /// Takes blocks that fail their checksum, to heal them.
    pub sick: mpsc::Sender<Sick>,
    to_heal: mpsc::Receiver<Sick>,
    copies: Arc<Copies>,
}

impl ChunkserverNode {
    pub fn new(node: Node, store: Store) -> ChunkserverNode {
        let pool = node.pool();
        let (sick, to_heal) = mpsc::channel(SICK);
        let map = Arc::clone(&node.agent) as Arc<dyn MapSource>;
        let sender = Some(sick.clone());
        let served = Chunkserver::new(node.id(), store.clone(), map, Arc::clone(&pool), sender);
        let agent = Arc::clone(&node.agent);
        let copies = Arc::new(Copies::new(agent, Arc::clone(&served), store.clone()));
        ChunkserverNode { node, store, served, pool, sick, to_heal, copies }
    }

    /// Sends a beat twice a second: the state of the store, on the disk with the number `disk`, and
    /// the other fields as `own` returns them.
    pub fn beat(&self, disk: u128, own: impl Fn() -> Beat + Send + Sync + 'static) {
        let (store, served) = (self.store.clone(), Arc::clone(&self.served));
        let copies = Arc::clone(&self.copies);
        self.node.beat(move || {
            let usage = store.usage_now().unwrap_or_default();
            let state = StoreState {
                blocks: usage.blocks,
                live_bytes: usage.live_bytes,
                free_bytes: usage.free_bytes,
                corrupt: served.damaged(),
                healed: served.healed(),
                is_full: store.is_short_of_space() || store.disk_failure().is_some(),
            };
            let (copying, groups) = (copies.progress(), store.bytes_by_group());
            Beat { disk, store: state, copying, groups, ..own() }
        });
    }

    /// Keeps the blocks of groups for which `stays` returns true, also when others hold them.
    pub fn keep(&self, stays: impl Fn(GroupId) -> bool + Send + Sync + 'static) {
        self.copies.keep(Box::new(stays));
    }

    /// Returns the taker of connections that move blocks, for the listener.
    pub fn taker(&self) -> Taker {
        self.served.taker()
    }

    /// Answers other nodes and does the duties of a chunkserver, until `stopped` is true or its
    /// sender is dropped.
    pub fn start(
        self,
        listener: Arc<dyn Listen>,
        pace: Pace,
        stopped: &watch::Receiver<bool>,
    ) -> Running {
        let ChunkserverNode { node, store, served, to_heal, copies, .. } = self;
        let serving = serve(listener, node.terms, NoService, DRAIN, stopped.clone());
        let listening = tokio::spawn(serving);
        let mut work = JoinSet::new();
        work.spawn(until(stopped.clone(), duties::compact(store, pace)));
        work.spawn(until(stopped.clone(), Arc::clone(&copies).watch_disk()));
        work.spawn(until(stopped.clone(), Arc::clone(&copies).keep_up()));
        work.spawn(until(stopped.clone(), copies.heal(to_heal)));
        Running { served, listening, work }
    }
}

/// A running chunkserver.
pub struct Running {
    served: Arc<Chunkserver>,
    listening: JoinHandle<()>,
    /// Tasks that run until `stopped`; callers may add more.
    pub work: JoinSet<()>,
}

impl Running {
    /// Waits, once `stopped` is true, until requests in progress have ended, for [`DRAIN`] at most.
    pub async fn drain(mut self) {
        self.served.stop(DRAIN).await;
        let _ = self.listening.await;
        while self.work.join_next().await.is_some() {}
    }
}
