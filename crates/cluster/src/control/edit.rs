//! Changes of the cluster map that an operator wants.

use cairn_base::{Capability, ClusterMap, Error, NodeId, Result};

use super::balance::{self, Move};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Edit {
    Drain(NodeId),
    Undrain(NodeId),
    /// Forgets a node that no group needs any more.
    Remove(NodeId),
    Replicas {
        replicas: u8,
        minimum: u8,
    },
    /// Adds a number of replicas for which groups are wanted too.
    Count(u8),
    Move(Move),
    /// Turns a capability on. It is never turned off.
    Enable(Capability),
}

impl Edit {
    pub(super) fn apply(&self, map: &mut ClusterMap) -> Result<()> {
        let missing = |node: NodeId| Error::NotFound(format!("node {node}"));
        match *self {
            Edit::Drain(node) | Edit::Undrain(node) => {
                let known = map.nodes.get_mut(&node).ok_or_else(|| missing(node))?;
                known.is_draining = matches!(self, Edit::Drain(_));
            }
            Edit::Remove(node) => map.forget(node)?,
            Edit::Replicas { replicas, minimum } => {
                (map.replicas, map.minimum) = (replicas, minimum);
                map.check()?;
            }
            Edit::Enable(capability) => map.capabilities = map.capabilities.with(capability),
            Edit::Move(wanted) => balance::begin(map, wanted)?,
            Edit::Count(count) => {
                map.replica_counts.insert(count);
                map.check()?;
            }
        }
        Ok(())
    }
}
