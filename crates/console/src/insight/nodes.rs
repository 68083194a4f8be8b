//! What the masters of a cluster know of its nodes, and scrubs and an fsck of all of them.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::{GroupId, NodeId, Result, Timestamp};

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

/// What moves when a chunkserver is emptied.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Emptying {
    pub groups: u64,
    pub bytes: u64,
    /// The bytes that each other node gets.
    pub targets: BTreeMap<NodeId, u64>,
    /// How long it takes where each of these nodes takes `rate` bytes a second.
    pub takes: Duration,
    pub rate: u64,
}

/// Who has the metadata: all names, and objects that are too small for blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetadataKeepers {
    /// So many masters that vote.
    Voters(usize),
    /// A database, which several masters use.
    Database,
    /// One master, which may use a database.
    OneMaster,
}

/// What is ordered of scrubs, or of an fsck.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunOrder {
    /// Changes nothing: how does it stand?
    Look,
    Begin,
    Stop,
}

/// How a scrub stands at one chunkserver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ScrubAtNode {
    /// It made none since it was started.
    #[default]
    None,
    Waits,
    Runs,
    Ended,
    Stopped,
    Failed,
    /// It cannot be asked.
    Silent,
}

/// What a chunkserver says of its last scrub, or of the one that runs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScrubbedNode {
    pub scrub: ScrubAtNode,
    pub blocks: u64,
    /// Of the blocks that there were at the start.
    pub total_blocks: u64,
    pub bytes: u64,
    pub damaged: u64,
    /// Of these, replaced by what another node has, or deleted since.
    pub repaired: u64,
    /// Of these, those whose repair has not been tried yet.
    pub pending: u64,
    /// Why it failed, or cannot be asked.
    pub failure: String,
}

/// What is wrong with bytes of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Harm {
    /// No good replica can be read now.
    Lost,
    /// There are good replicas, fewer than there should be.
    Degraded,
    /// A damaged replica was replaced.
    Repaired,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HarmedObject {
    pub harm: Harm,
    /// `bucket/key`.
    pub object: String,
    /// The first byte that it is about, and the one after the last.
    pub start: u64,
    pub end: u64,
}

/// Objects of which a scrub found damaged blocks, and those with blocks in groups that lack
/// members.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HarmedObjects {
    /// The worst first.
    pub objects: Vec<HarmedObject>,
    /// There are more objects than are named.
    pub is_cut: bool,
    /// Of these, those that are known.
    pub unnamed: u64,
    pub lost_blocks: u64,
    pub degraded_blocks: u64,
    pub repaired_blocks: u64,
    /// Chunkservers that could not be asked for what they found, and why.
    pub silent: Vec<(NodeId, String)>,
}

/// How an fsck of the cluster stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FsckStage {
    /// The master that serves has made none.
    #[default]
    None,
    Rows,
    Blocks,
    Names,
    Ended,
    Stopped,
    Failed,
    /// Another master serves than the one that made it.
    Replaced,
}

/// The fsck that runs, or ended last.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClusterFsck {
    pub stage: FsckStage,
    pub begun: Timestamp,
    /// 0 while it runs.
    pub ended: Timestamp,
    /// The node that ordered it, and for which user; empty for none.
    pub node: NodeId,
    pub user: String,
    pub rows: u64,
    /// About.
    pub total_rows: u64,
    pub blocks: u64,
    /// Of the blocks that are compared now.
    pub groups: u64,
    pub total_groups: u64,
    /// What does not fit in the metadata.
    pub finding_count: u64,
    /// Blocks of which not enough chunkservers said whether they have them.
    pub unknown_blocks: u64,
    /// Why it failed.
    pub failure: String,
    /// Once it has ended.
    pub found: Option<Arc<FsckFindings>>,
}

/// What an fsck found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FsckFindings {
    /// What each is about, and what does not fit; the first of them.
    pub findings: Vec<(String, String)>,
    /// Objects that lack replicas. Silent are chunkservers that did not list their blocks.
    pub harmed: HarmedObjects,
}

/// Asks the masters, as `cairn cluster` does.
pub trait Nodes: Send + Sync {
    /// The node that asks.
    fn own(&self) -> NodeId;
    fn reports(&self) -> Asking<BTreeMap<NodeId, NodeReport>>;
    /// `NotFound` if there is no such node; `Conflict` or `Full` if it would never be empty.
    fn emptying(&self, node: NodeId) -> Asking<Emptying>;
    fn keepers(&self) -> Asking<MetadataKeepers>;
    /// Of all chunkservers: the scrub that runs, or the one that ended last.
    fn scrub(&self, order: RunOrder) -> Asking<Vec<(NodeId, ScrubbedNode)>>;
    /// What the last scrub found, and groups lack. Nothing while that is looked up, which reads all
    /// metadata: to be asked again.
    fn harmed(&self) -> Asking<Option<HarmedObjects>>;
    /// Of the master that serves: the fsck that runs, or the one that ended last. One that begins
    /// is for this user.
    fn fsck(&self, order: RunOrder, user: &str) -> Asking<ClusterFsck>;
}

pub type Asking<R> = Pin<Box<dyn Future<Output = Result<R>> + Send>>;
