//! Choice of the group to which a block is written.

use std::cmp::Reverse;

use cairn_base::map::{Group, REPLICAS_MAX};
use cairn_base::{ClusterMap, GroupId, NodeId, Redundancy, Role};
use cairn_blocks::Wish;

use super::nodes::{Loads, Nodes};
use crate::limits::ROOM_BYTES;

/// The criteria of a choice.
pub(super) struct Choosing<'a> {
    pub map: &'a ClusterMap,
    pub nodes: &'a Nodes,
    pub loads: &'a Loads,
    /// Groups that were tried for this block, and nodes that were full.
    pub tried: &'a [GroupId],
    pub full: &'a [NodeId],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    Group(GroupId),
    /// All groups that take writes were tried.
    Tried,
    /// All groups that take writes have a full node.
    Full,
    /// No group that takes writes has as many replicas as there must be.
    None,
}

/// Grade of a group, the lower the better: a suspect among its members; the distance from the
/// wanted redundancy; a member that is short of space or is to be emptied.
type Grade = (bool, (u8, usize, usize), bool);

/// Returns the number of replicas that a block should have, and that it must have.
pub(super) fn replicas(map: &ClusterMap, wish: Wish) -> (usize, usize) {
    let Redundancy::Copies(copies) = wish.redundancy.unwrap_or(map.usual());
    let wanted = Redundancy::Copies(copies.clamp(1, REPLICAS_MAX));
    (wanted.members(), wanted.least(map.minimum))
}

impl Choosing<'_> {
    /// Chooses a group. `random`: two different numbers for each call.
    pub(super) fn choose(&self, wish: Wish, random: (u64, u64)) -> Choice {
        let (wanted, least) = replicas(self.map, wish);
        let takes = |group: &Group| group.members.len() >= least && self.map.takes_writes(group);
        let mut open = self.map.groups.iter().filter(|(_, group)| takes(group)).peekable();
        if open.peek().is_none() {
            return Choice::None;
        }
        let has_full = |group: &Group| self.full.iter().any(|node| group.has(*node));
        let mut open = open.filter(|(_, group)| !has_full(group)).peekable();
        if open.peek().is_none() {
            return Choice::Full;
        }
        let mut best: Option<Grade> = None;
        let mut equals: Vec<(GroupId, &Group)> = Vec::new();
        for (id, group) in open.filter(|(id, _)| !self.tried.contains(id)) {
            let grade = self.grade(group, wanted);
            if best.is_none_or(|best| grade < best) {
                best = Some(grade);
                equals.clear();
            }
            if best == Some(grade) {
                equals.push((*id, group));
            }
        }
        if let Some(group) = wish.group
            && equals.iter().any(|(id, _)| *id == group)
        {
            return Choice::Group(group);
        }
        self.lighter_of_two(&equals, random).map_or(Choice::Tried, Choice::Group)
    }

    fn grade(&self, group: &Group, wanted: usize) -> Grade {
        let members = || group.members.iter().map(|member| member.node);
        let has = group.members.len();
        let kind = match (group.redundancy.members() == wanted, has == wanted) {
            (true, true) => 0,
            (true, false) => 1,
            (false, _) => 2,
        };
        let is_tight = |node: NodeId| {
            self.free_bytes(node) < ROOM_BYTES
                || self.map.nodes.get(&node).is_none_or(|node| node.is_draining)
        };
        let far = (kind, wanted.saturating_sub(has), has.saturating_sub(wanted));
        (members().any(|node| self.nodes.is_suspect(node)), far, members().any(is_tight))
    }

    fn free_bytes(&self, node: NodeId) -> u64 {
        self.loads.read().get(&node).map_or(u64::MAX, |load| load.free_bytes)
    }

    fn lighter_of_two(&self, all: &[(GroupId, &Group)], random: (u64, u64)) -> Option<GroupId> {
        let count = all.len() as u64;
        let first = random.0.checked_rem(count)?;
        let second = match count {
            1 => first,
            _ => (first + 1 + random.1 % (count - 1)) % count,
        };
        let load = |group: &Group| {
            let members = || group.members.iter().map(|member| member.node);
            let busiest = members().map(|node| self.nodes.in_flight(node)).max();
            (busiest, Reverse(members().map(|node| self.free_bytes(node)).min()))
        };
        let two = [all.get(first as usize)?, all.get(second as usize)?];
        two.into_iter().min_by_key(|(_, group)| load(group)).map(|(id, _)| *id)
    }
}

/// Returns the reason why there is no group to write to.
pub(super) fn missing(map: &ClusterMap, wish: Wish) -> String {
    let (_, least) = replicas(map, wish);
    let chunkservers =
        || map.nodes.values().filter(|node| node.pin.roles.contains(Role::Chunkserver));
    let (up, all) = (chunkservers().filter(|node| node.is_up).count(), chunkservers().count());
    format!(
        "no group of at least {least} in-sync replicas takes writes: {up} of {all} chunkservers {} \
         up (cluster map {})",
        if up == 1 { "is" } else { "are" },
        map.epoch
    )
}

#[cfg(test)]
mod tests {
    use cairn_base::map::{Member, Node};
    use cairn_base::{KeyHash, Pin};

    use super::super::nodes::NodeLoad;
    use super::*;
    use crate::limits::NODE_REQUESTS;

    /// Groups of `wanted` and members; nodes 1 to 9 are up.
    fn map(groups: &[(u8, &[u64])]) -> ClusterMap {
        let mut map = ClusterMap { replicas: 3, minimum: 2, next_node: 10, ..Default::default() };
        for id in 1..10 {
            let pin = Pin { key: KeyHash([id; 32]), roles: Role::Chunkserver.into() };
            map.nodes.insert(NodeId(id.into()), Node { is_up: true, ..Node::new(pin) });
        }
        for (at, (wanted, members)) in (1..).zip(groups) {
            let member = |node: &u64| Member::new(NodeId(*node), true);
            let members = members.iter().map(member).collect();
            map.groups.insert(
                GroupId(at),
                Group {
                    redundancy: Redundancy::Copies(*wanted),
                    changed: 1,
                    members,
                    ..Group::default()
                },
            );
        }
        map
    }

    struct World {
        map: ClusterMap,
        nodes: Nodes,
        loads: Loads,
    }

    impl World {
        fn new(groups: &[(u8, &[u64])]) -> World {
            let (nodes, loads) = (Nodes::new(NODE_REQUESTS), Loads::default());
            World { map: map(groups), nodes, loads }
        }

        fn choose(&self, wish: Wish, tried: &[u32], full: &[u64]) -> Vec<Choice> {
            let tried: Vec<GroupId> = tried.iter().map(|id| GroupId(*id)).collect();
            let full: Vec<NodeId> = full.iter().map(|id| NodeId(*id)).collect();
            let (map, nodes, loads) = (&self.map, &self.nodes, &self.loads);
            let choosing = Choosing { map, nodes, loads, tried: &tried, full: &full };
            let mut all: Vec<Choice> =
                (0..100).map(|seed: u64| choosing.choose(wish, (seed % 10, seed / 10))).collect();
            all.sort_by_key(|choice| format!("{choice:?}"));
            all.dedup();
            all
        }

        fn groups(&self, wish: Wish, tried: &[u32], full: &[u64]) -> Vec<u32> {
            let number = |choice| match choice {
                Choice::Group(id) => id.0,
                other => panic!("{other:?}"),
            };
            self.choose(wish, tried, full).into_iter().map(number).collect()
        }
    }

    fn wish(replicas: u8) -> Wish {
        Wish { redundancy: Redundancy::from_number(replicas), ..Wish::default() }
    }

    #[tokio::test]
    async fn whole_groups_come_first_then_smaller_ones_then_others() {
        let world = World::new(&[
            (3, &[1, 2, 3]),
            (3, &[4, 5, 6]),
            (3, &[7, 8]),
            (2, &[7, 9]),
            (5, &[1, 2, 3, 4, 5]),
            (1, &[9]),
        ]);
        assert_eq!(world.groups(wish(0), &[], &[]), [1, 2]);
        assert_eq!(world.groups(wish(0), &[1, 2], &[]), [3]);
        assert_eq!(world.groups(wish(0), &[1, 2, 3], &[]), [5]);
        assert_eq!(world.groups(wish(0), &[1, 2, 3, 5], &[]), [4]);
        assert_eq!(world.choose(wish(0), &[1, 2, 3, 4, 5], &[]), [Choice::Tried]);
        assert_eq!(world.groups(wish(2), &[], &[]), [4]);
        assert_eq!(world.groups(wish(1), &[], &[]), [6]);
        assert_eq!(world.groups(wish(5), &[], &[]), [5]);
        // As many as possible.
        assert_eq!(world.groups(wish(4), &[], &[]), [5]);
        assert_eq!(world.groups(wish(4), &[5], &[]), [1, 2]);
    }

    #[tokio::test]
    async fn the_wished_group_is_taken_while_it_is_as_good_as_any() {
        let world = World::new(&[(3, &[1, 2, 3]), (3, &[4, 5, 6]), (3, &[7, 8])]);
        let in_group = |id| Wish { group: Some(GroupId(id)), ..Wish::default() };
        assert_eq!(world.groups(in_group(2), &[], &[]), [2]);
        assert_eq!(world.groups(in_group(3), &[], &[]), [1, 2]);
        world.nodes.suspect(NodeId(5));
        assert_eq!(world.groups(in_group(2), &[], &[]), [1]);
        // Suspects, when there is nobody else.
        assert_eq!(world.groups(in_group(2), &[1, 3], &[]), [2]);
    }

    #[tokio::test]
    async fn load_and_space_decide() {
        let world = World::new(&[(2, &[1, 2]), (2, &[3, 4])]);
        let _busy = world.nodes.enter(NodeId(1));
        assert_eq!(world.groups(wish(2), &[], &[]), [2]);
        drop(_busy);
        let free = |node, free_bytes| {
            world.loads.write().insert(NodeId(node), NodeLoad { free_bytes });
        };
        (1..5).for_each(|node| free(node, ROOM_BYTES * 10));
        free(4, ROOM_BYTES * 9);
        assert_eq!(world.groups(wish(2), &[], &[]), [1]);
        free(1, ROOM_BYTES - 1);
        assert_eq!(world.groups(wish(2), &[], &[]), [2]);
    }

    #[tokio::test]
    async fn it_is_said_why_there_is_none() {
        let mut world = World::new(&[(3, &[1, 2, 3]), (3, &[1])]);
        assert_eq!(world.choose(wish(0), &[], &[2]), [Choice::Full]);
        for id in 2..10 {
            world.map.nodes.get_mut(&NodeId(id)).unwrap().is_up = false;
        }
        assert_eq!(world.choose(wish(0), &[], &[]), [Choice::None]);
        let text = missing(&world.map, wish(0));
        let expected = "at least 2 in-sync replicas takes writes: 1 of 9 chunkservers is up";
        assert!(text.contains(expected), "{text}");
        assert_eq!(world.groups(wish(1), &[], &[]), [2]);
    }
}
