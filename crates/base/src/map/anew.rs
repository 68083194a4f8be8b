//! The first map after masters were given up, or older metadata were loaded.

use super::{ClusterMap, Group, Node};
use crate::{Error, NodeId, Result, Role, Roles, Timestamp};

/// Distance of the next epoch: nodes may have later maps than these metadata, and it must exceed
/// theirs.
const EPOCHS: u64 = 1 << 20;
/// Distance of the next numbers: nodes and groups may have been made that these metadata do not
/// know.
const NODES: u64 = 1 << 10;
const GROUPS: u32 = 1 << 16;

impl ClusterMap {
    /// Returns the generation of metadata with this map when they begin anew after `former`. Nobody
    /// else has it, since it is the time in microseconds, and it is greater than all epochs before
    /// it.
    pub fn next_generation(&self, former: u64, now: Timestamp) -> u64 {
        let micros = u64::try_from(now.0 / 1000).unwrap_or(0);
        let epoch = self.epoch.saturating_add(EPOCHS);
        let other = self.generation.max(former).saturating_add(1);
        micros.max(epoch).max(other)
    }

    /// Returns the map with which metadata begin anew in `generation`. Nothing that used other maps
    /// is valid any more, and no number is reused that they may have given. If `own` is named, that
    /// node is the only master: the others become former ones, and keep their other roles.
    ///
    /// # Errors
    /// `Invalid` if there are no numbers of groups left.
    pub fn anew(&self, own: Option<NodeId>, generation: u64) -> Result<ClusterMap> {
        let mut next = self.clone();
        next.epoch = generation;
        next.generation = generation;
        let full = || Error::Invalid("cluster map: there are no numbers of groups left".into());
        next.next_group = next.next_group.checked_add(GROUPS).ok_or_else(full)?;
        next.next_node += NODES;
        next.groups.values_mut().for_each(|group: &mut Group| group.changed = generation);
        if let Some(own) = own {
            next.leave_only(own);
        }
        Ok(next)
    }

    fn leave_only(&mut self, own: NodeId) {
        let is_other = |(id, node): &(&NodeId, &mut Node)| **id != own && node.is_master();
        for (id, node) in self.nodes.iter_mut().filter(is_other) {
            let former = Node { is_up: false, ..node.clone() };
            self.former.insert(*id, former);
            let left: Roles = node.pin.roles.iter().filter(|role| *role != Role::Master).collect();
            node.pin.roles = left;
        }
        self.former.remove(&own);
        self.nodes.retain(|_, node| !node.pin.roles.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Member;
    use crate::{GroupId, KeyHash, Pin, Redundancy};

    fn map() -> ClusterMap {
        let node = |roles: Roles| Node {
            is_up: true,
            address: "host:1".into(),
            ..Node::new(Pin { key: KeyHash([1; 32]), roles })
        };
        let both = Roles::from(Role::Master).with(Role::Gateway);
        let nodes = [
            (NodeId(1), node(Role::Master.into())),
            (NodeId(2), node(Role::Master.into())),
            (NodeId(3), node(both)),
            (NodeId(4), node(Role::Chunkserver.into())),
        ];
        let members = vec![Member::new(NodeId(4), true)];
        let redundancy = Redundancy::Copies(1);
        let group = Group { redundancy, changed: 5, members, ..Group::default() };
        ClusterMap {
            epoch: 7,
            replicas: 1,
            minimum: 1,
            nodes: nodes.into(),
            groups: [(GroupId(3), group)].into(),
            next_node: 5,
            next_group: 4,
            ..ClusterMap::default()
        }
    }

    fn roles(nodes: &std::collections::BTreeMap<NodeId, Node>) -> Vec<(u64, Roles)> {
        nodes.iter().map(|(id, node)| (id.0, node.pin.roles)).collect()
    }

    #[test]
    fn the_map_of_a_survivor_has_the_other_masters_as_former_ones() {
        let generation = map().next_generation(1, Timestamp::from_secs(1_800_000_000));
        let next = map().anew(Some(NodeId(2)), generation).unwrap();
        next.check().unwrap();
        assert_eq!((next.epoch, next.generation), (generation, 1_800_000_000_000_000));
        let both = Roles::from(Role::Master).with(Role::Gateway);
        let left =
            [(2, Role::Master.into()), (3, Role::Gateway.into()), (4, Role::Chunkserver.into())];
        assert_eq!(roles(&next.nodes), left);
        assert_eq!(roles(&next.former), [(1, Role::Master.into()), (3, both)]);
        assert_eq!(next.former[&NodeId(1)].address, "host:1");
        assert_eq!(next.groups[&GroupId(3)].changed, generation);
        // Another survivor of the same masters begins another generation, and knows the first one
        // as a former master.
        let later = Timestamp(Timestamp::from_secs(1_800_000_000).0 + 1000);
        let other = map().anew(Some(NodeId(1)), map().next_generation(1, later)).unwrap();
        assert!(other.epoch > next.epoch);
        assert!(other.former.contains_key(&NodeId(2)));
        // A second time: those that were given up before stay so.
        let again = next.anew(Some(NodeId(2)), next.next_generation(1, Timestamp(0))).unwrap();
        assert_eq!(again.former, next.former);
        assert_eq!(again.generation, next.epoch + EPOCHS);
        assert_eq!(map().next_generation(1 << 60, Timestamp(0)), (1 << 60) + 1);
    }

    #[test]
    fn numbers_that_others_may_have_given_are_not_given_again() {
        let next = map().anew(None, 1 << 50).unwrap();
        next.check().unwrap();
        assert_eq!((next.next_node, next.next_group), (5 + NODES, 4 + GROUPS));
        assert_eq!(roles(&next.nodes), roles(&map().nodes), "nobody is given up");
        assert!(next.former.is_empty());
        let full = ClusterMap { next_group: u32::MAX, ..map() };
        assert!(full.anew(None, 1 << 50).is_err());
    }
}
