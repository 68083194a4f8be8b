//! Reports of the masters of a cluster on its nodes, and scrubs and fscks of all of them.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::fsck::{FsckFound, FsckState};
use cairn_base::scrub::{DegradedObjects, NodeScrub, RunOrder};
use cairn_base::{GroupId, NodeId, Result};

/// A node, as the master that serves last heard of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeReport {
    /// Time since its last beat.
    pub silent: Duration,
    pub version: String,
    pub blocks: u64,
    pub live_bytes: u64,
    pub free_bytes: u64,
    /// Blocks that failed verification when read since its start, and those of them that were
    /// replaced.
    pub corrupt: u64,
    pub healed: u64,
    /// Set if its disk takes no writes.
    pub disk_fails: bool,
    /// Groups of which it copies blocks, and how many blocks and bytes it has copied.
    pub copying: Vec<(GroupId, u64, u64)>,
}

/// The groups and bytes that move when a chunkserver is emptied.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Emptying {
    pub groups: u64,
    pub bytes: u64,
    /// Bytes that each other node gets.
    pub targets: BTreeMap<NodeId, u64>,
    /// Duration if each of these nodes takes `rate` bytes per second.
    pub takes: Duration,
    pub rate: u64,
}

/// Keepers of the metadata: all names, and objects that are too small for blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetadataKeepers {
    /// Number of masters that vote, answer, and have caught up.
    Voters(usize),
    /// A database, which several masters use.
    Database,
    /// One master, which may use a database.
    OneMaster,
}

/// The fsck that runs, or ended last.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClusterFsck {
    pub state: FsckState,
    /// Results, once it has ended.
    pub found: Option<Arc<FsckFound>>,
}

/// Asks the masters, as `cairn cluster` does.
pub trait Nodes: Send + Sync {
    /// Returns the node that asks.
    fn own(&self) -> NodeId;
    fn reports(&self) -> Asking<BTreeMap<NodeId, NodeReport>>;
    /// Forecasts a drain.
    ///
    /// # Errors
    /// `NotFound` if there is no such node; `Conflict` or `Full` if it would never be empty.
    fn emptying(&self, node: NodeId) -> Asking<Emptying>;
    fn keepers(&self) -> Asking<MetadataKeepers>;
    /// Returns sentences about masters that answer and make no progress, each with a remedy.
    fn stalls(&self) -> Asking<Vec<String>>;
    /// Returns sentences about masters whose metadata are damaged, each with a remedy.
    fn damage(&self) -> Asking<Vec<String>>;
    /// Returns, from all chunkservers, the scrub that runs or ended last.
    fn scrub(&self, order: RunOrder) -> Asking<Vec<(NodeId, NodeScrub)>>;
    /// Returns the objects that the last scrub found damaged, and those that lack replicas. `None`
    /// while they are looked up, which reads all metadata: ask again later.
    fn degraded(&self) -> Asking<Option<DegradedObjects>>;
    /// Returns, from the master that serves, the fsck that runs or ended last. `user` is the user
    /// for whom an fsck begins.
    fn fsck(&self, order: RunOrder, user: &str) -> Asking<ClusterFsck>;
}

pub type Asking<R> = Pin<Box<dyn Future<Output = Result<R>> + Send>>;
