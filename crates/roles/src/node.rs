//! A running node of a cluster.

use std::sync::Arc;

use cairn_base::{Clock, Error, NodeId, Result, Rng};
use cairn_cluster::control::messages::{Beat, ControlMethod, Secrets};
use cairn_cluster::control::{Agent, NodeView};
use cairn_cluster::data::{MapSource, Pool, ReplicatedBlocks};
use cairn_cluster::members::EnterReply;
use cairn_cluster::wire::{Dial, Terms};

/// The identity of a node, its view of the others, and its seams to the outside.
#[derive(Clone)]
pub struct Node {
    pub terms: Terms,
    pub view: Arc<NodeView>,
    pub agent: Arc<Agent>,
    pub clock: Arc<dyn Clock>,
    pub rng: Arc<dyn Rng>,
    /// Dials chunkservers, to move blocks.
    pub blocks: Arc<dyn Dial>,
}

impl Node {
    pub fn id(&self) -> NodeId {
        self.agent.node()
    }

    /// Keeps the masters informed, indefinitely. Must be called within a runtime.
    pub fn beat(&self, beat: impl Fn() -> Beat + Send + Sync + 'static) {
        let agent = Arc::clone(&self.agent);
        tokio::spawn(async move { agent.beat(beat).await });
    }

    /// Returns a pool of connections to chunkservers.
    pub fn pool(&self) -> Arc<Pool> {
        Pool::new(Arc::clone(&self.blocks))
    }

    /// Returns the blocks of the cluster, by the map of the masters or another one. It uses at most
    /// `connections` connections to each chunkserver.
    pub fn replicated(
        &self,
        map: Arc<dyn MapSource>,
        pool: Arc<Pool>,
        connections: usize,
    ) -> ReplicatedBlocks {
        ReplicatedBlocks::limited(map, pool, self.agent.loads(), Arc::clone(&self.rng), connections)
    }
}

/// Returns the secrets that the master has for `agent`'s node. Retries until a master serves.
///
/// # Errors
/// Those of the master, except `Unavailable`.
pub async fn secrets(agent: &Agent) -> Result<Secrets> {
    loop {
        match agent.call(ControlMethod::Secrets, &()).await {
            Err(error @ Error::Unavailable(_)) => {
                tracing::warn!(%error, "no master serves yet: `cairn cluster status` says why")
            }
            told => return told,
        }
    }
}

/// Returns everything that a new master needs to know. Retries until a master serves.
///
/// # Errors
/// `Invalid` if the masters of this cluster have their metadata in a database, or one is alone.
pub async fn enter(agent: &Agent) -> Result<EnterReply> {
    loop {
        match agent.call(ControlMethod::Enter, &()).await {
            Err(error @ Error::Unavailable(_)) => {
                tracing::warn!(%error, "no master serves yet: `cairn cluster status` says why")
            }
            told => return told,
        }
    }
}

/// Returns the beat of a node that others reach at `address`, or of a node without an address.
pub fn beat_of(address: String) -> Beat {
    Beat { address, weight: 1, version: env!("CARGO_PKG_VERSION").into(), ..Beat::default() }
}
