//! The cluster as the master that serves sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_base::fsck::FsckState;
use cairn_base::{ClusterMap, GroupId, NodeId, UserId};

use super::messages::{Copying, StoreState};
use crate::wire::NodeProgram;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    pub map: ClusterMap,
    /// Nodes of the map that this master has heard of.
    pub nodes: Vec<NodeStatus>,
    pub sessions: Vec<SessionStatus>,
    /// The master that answered.
    pub master: NodeId,
    /// The last batch that is durable.
    pub batch: u64,
    /// Of nodes that this master has heard of, and its own.
    pub programs: BTreeMap<NodeId, Arc<NodeProgram>>,
    /// The fsck that runs, or ended last at this master.
    pub fsck: Option<FsckState>,
}

/// The last report of a node on how it fares.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeStatus {
    pub node: NodeId,
    /// Milliseconds since its last beat.
    pub silent_ms: u64,
    pub version: String,
    /// The id of its store of blocks; 0 for none.
    pub disk: u128,
    pub store: StoreState,
    pub copying: Vec<Copying>,
    /// Bytes of blocks by group.
    pub groups: Vec<(GroupId, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SessionStatus {
    pub session: u64,
    /// The node of the session; 0 for a mount at a gateway.
    pub node: NodeId,
    /// The user, if it is a mount.
    pub user: Option<UserId>,
    /// Milliseconds since it renewed.
    pub silent_ms: u64,
}
