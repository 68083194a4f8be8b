//! The cluster as the master that serves sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_base::fsck::FsckState;
use cairn_base::{Capability, ClusterMap, GroupId, NodeId, UserId};

use super::messages::{Copying, StoreState};
use crate::wire::NodeProgram;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    pub map: ClusterMap,
    /// Nodes of the map from which this master has heard.
    pub nodes: Vec<NodeStatus>,
    pub sessions: Vec<SessionStatus>,
    /// The master that answered.
    pub master: NodeId,
    /// The last batch that is durable.
    pub batch: u64,
    /// Programs of this master and of the nodes from which it has heard.
    pub programs: BTreeMap<NodeId, Arc<NodeProgram>>,
    /// The fsck that runs, or ended last at this master.
    pub fsck: Option<FsckState>,
}

impl Status {
    /// Lists the nodes that are up with a program that lacks a capability, and those that are away:
    /// they may come back with any program.
    pub fn nodes_without(&self, capability: Capability) -> (Vec<NodeId>, Vec<NodeId>) {
        let (mut old, mut away) = (Vec::new(), Vec::new());
        for (id, node) in &self.map.nodes {
            let is_there = node.is_up || *id == self.master;
            match self.programs.get(id).filter(|_| is_there) {
                Some(program) if program.capabilities.contains(capability) => {}
                Some(_) => old.push(*id),
                None => away.push(*id),
            }
        }
        (old, away)
    }
}

/// Last report of a node on its state.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeStatus {
    pub node: NodeId,
    /// Milliseconds since its last beat.
    pub silent_ms: u64,
    pub version: String,
    /// The id of its store of blocks; 0 for none.
    pub disk: u128,
    pub store: StoreState,
    /// Error because of which its disk takes no writes.
    pub failure: Option<String>,
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
    /// Milliseconds since its last renewal.
    pub silent_ms: u64,
}
