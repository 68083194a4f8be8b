//! What the master of a cluster has heard of its nodes.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use cairn_base::{GroupId, NodeId, Result};

/// What the master that serves has heard of each node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeReport {
    /// Since its last beat.
    pub silent: Duration,
    pub version: String,
    pub blocks: u64,
    pub live_bytes: u64,
    pub free_bytes: u64,
    /// Blocks that did not check out when read since its start, and those replaced since.
    pub corrupt: u64,
    pub healed: u64,
    /// Groups of which it copies blocks, and how many blocks and bytes it has copied.
    pub copying: Vec<(GroupId, u64, u64)>,
}

/// Asks the master that serves.
pub trait Nodes: Send + Sync {
    fn reports(&self) -> Asking;
}

pub type Asking = Pin<Box<dyn Future<Output = Result<BTreeMap<NodeId, NodeReport>>> + Send>>;
