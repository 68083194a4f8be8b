//! Changes of the cluster map that an operator wants.

use cairn_base::{ClusterMap, Error, NodeId, Result};

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
    /// Groups with so many replicas are wanted too.
    Count(u8),
    Move(Move),
}

impl Edit {
    pub(super) fn apply(&self, map: &mut ClusterMap) -> Result<()> {
        let missing = |node: NodeId| Error::NotFound(format!("node {node}"));
        match *self {
            Edit::Drain(node) | Edit::Undrain(node) => {
                let known = map.nodes.get_mut(&node).ok_or_else(|| missing(node))?;
                known.is_draining = matches!(self, Edit::Drain(_));
            }
            Edit::Remove(node) => {
                let groups = map.groups.values().filter(|group| group.has(node)).count();
                if groups > 0 {
                    return Err(Error::Conflict(format!(
                        "node {node} is in {groups} groups: drain it, and wait until it is in none"
                    )));
                }
                // A removal that is asked for again, since its answer was lost, has nothing to do.
                let was_one = (1..map.next_node).contains(&node.0);
                if map.nodes.remove(&node).is_none() && !was_one {
                    return Err(missing(node));
                }
            }
            Edit::Replicas { replicas, minimum } => {
                (map.replicas, map.minimum) = (replicas, minimum);
                map.check()?;
            }
            Edit::Move(wanted) => balance::begin(map, wanted)?,
            Edit::Count(count) => {
                map.replica_counts.insert(count);
                map.check()?;
            }
        }
        Ok(())
    }
}
