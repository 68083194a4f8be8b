//! Plans moves so that every node has its share of the bytes. Nothing moves on its own: an operator
//! asks for it.

use std::collections::BTreeMap;

use cairn_base::map::{Group, Member};
use cairn_base::{ClusterMap, Error, GroupId, NodeId, Result};

use super::shares::shares;

/// Nodes whose difference from their share is less than this part of it are left alone.
const TOLERANCE: u64 = 20;
/// Moves that are planned at once, at most.
const MOVES: usize = 10_000;

/// Replacement of a member of a group by another node. The member leaves when that node has all
/// blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    pub group: GroupId,
    pub from: NodeId,
    pub to: NodeId,
}

/// Returns moves after which every node has about its share of the bytes, in the order in which
/// they help most. `bytes` has the size of one replica of each group.
pub fn moves(map: &ClusterMap, bytes: &BTreeMap<GroupId, u64>) -> Vec<Move> {
    let mut map = map.clone();
    let mut moves = Vec::new();
    while moves.len() < MOVES {
        let Some(best) = best_move(&map, bytes) else { break };
        if let Some(group) = map.groups.get_mut(&best.group) {
            let members = group.members.iter_mut();
            members.filter(|member| member.node == best.from).for_each(|one| one.node = best.to);
        }
        moves.push(best);
    }
    moves
}

/// Returns the move that brings two nodes nearest to their shares, if one of them is far from it.
fn best_move(map: &ClusterMap, bytes: &BTreeMap<GroupId, u64>) -> Option<Move> {
    let shares = shares(map, bytes);
    let is_far = |(has, share): (u64, u64)| has.abs_diff(share) > share / TOLERANCE;
    let mut best: Option<(u64, Move)> = None;
    for (from, given) in shares.iter().filter(|(_, (has, share))| has > share) {
        for (to, taken) in shares.iter().filter(|(_, (has, share))| has < share) {
            if !is_far(*given) && !is_far(*taken) {
                continue;
            }
            // Of twice that, one of both would be as far from its share as before.
            let most = (given.0 - given.1).min(taken.1 - taken.0).saturating_mul(2);
            for (id, group) in &map.groups {
                let size = bytes.get(id).copied().unwrap_or(0);
                let gain = size.min(most.saturating_sub(size));
                if gain > best.map_or(0, |(gain, _)| gain) && may_move(map, group, *from, *to) {
                    best = Some((gain, Move { group: *id, from: *from, to: *to }));
                }
            }
        }
    }
    best.map(|(_, best)| best)
}

/// Returns true if `to` may replace `from` in a group: the group is whole, and is spread over no
/// fewer zones afterwards.
fn may_move(map: &ClusterMap, group: &Group, from: NodeId, to: NodeId) -> bool {
    let zone = |node: NodeId| map.nodes.get(&node).map_or("", |node| node.zone.as_str());
    let beside = |node: NodeId| {
        let others = group.members.iter().map(|member| member.node).filter(|one| *one != from);
        others.filter(|other| !zone(node).is_empty() && zone(*other) == zone(node)).count()
    };
    group.has(from)
        && !group.has(to)
        && map.takes_writes(group)
        && group.members.iter().all(|member| !member.is_leaving)
        && beside(to) <= beside(from)
}

/// Begins a move: the new member catches up, then the other leaves.
///
/// # Errors
/// `Conflict` if the map has changed so that the move is no longer possible.
pub fn begin(map: &mut ClusterMap, Move { group: id, from, to }: Move) -> Result<()> {
    let missing = || Error::NotFound(format!("group {id}"));
    let group = map.groups.get(&id).ok_or_else(missing)?;
    if !map.places().any(|(node, _)| node == to) || !may_move(map, group, from, to) {
        let text = format!("group {id} cannot move from node {from} to node {to}");
        return Err(Error::Conflict(text));
    }
    if let Some(group) = map.groups.get_mut(&id) {
        let members = group.members.iter_mut();
        members.filter(|member| member.node == from).for_each(|member| member.is_leaving = true);
        group.members.push(Member::new(to, false));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use cairn_base::map::Node;
    use cairn_base::{KeyHash, Pin, Redundancy, Role};
    use proptest::prelude::*;

    use super::*;

    /// Groups of `size` bytes each over the first nodes, and further nodes with none.
    fn cluster(first: u64, further: u64, sizes: &[u64]) -> (ClusterMap, BTreeMap<GroupId, u64>) {
        let mut map = ClusterMap { replicas: 3, minimum: 2, ..ClusterMap::default() };
        map.next_node = first + further + 1;
        for id in 1..map.next_node {
            let pin = Pin { key: KeyHash([id as u8; 32]), roles: Role::Chunkserver.into() };
            map.nodes.insert(NodeId(id), Node { is_up: true, ..Node::new(pin) });
        }
        let mut bytes = BTreeMap::new();
        for (at, size) in sizes.iter().enumerate() {
            let id = GroupId(at as u32 + 1);
            let node = |next: u64| NodeId(1 + (at as u64 + next) % first);
            let members = (0..first.min(3)).map(|next| Member::new(node(next), true)).collect();
            map.groups.insert(
                id,
                Group {
                    redundancy: Redundancy::Copies(3),
                    changed: 0,
                    members,
                    ..Group::default()
                },
            );
            bytes.insert(id, *size);
            map.next_group = id.0 + 1;
        }
        (map, bytes)
    }

    /// Moves as `begin` does, and the members that it adds have caught up at once.
    fn carry_out(map: &mut ClusterMap, moves: &[Move]) {
        for wanted in moves {
            begin(map, *wanted).unwrap();
            let group = map.groups.get_mut(&wanted.group).unwrap();
            group.members.retain(|member| !member.is_leaving);
            group.members.iter_mut().for_each(|member| member.in_sync = true);
            map.check().unwrap();
        }
    }

    #[test]
    fn a_new_node_gets_its_share() {
        let (mut map, bytes) = cluster(3, 1, &[100; 8]);
        let moves = moves(&map, &bytes);
        assert_eq!(moves.len(), 6);
        carry_out(&mut map, &moves);
        assert!(shares(&map, &bytes).values().all(|(has, share)| has == share));
    }

    #[test]
    fn weights_count() {
        let (mut map, bytes) = cluster(3, 1, &[10; 70]);
        map.nodes.get_mut(&NodeId(4)).unwrap().weight = 4;
        let moves = moves(&map, &bytes);
        carry_out(&mut map, &moves);
        // No node can have more than one replica of all.
        let (has, share) = shares(&map, &bytes)[&NodeId(4)];
        assert_eq!(share, 700);
        assert!((700 - 700 / TOLERANCE..=700).contains(&has), "{has}");
    }

    #[test]
    fn zones_stay_apart() {
        let (mut map, bytes) = cluster(3, 1, &[100; 8]);
        for (id, zone) in [(1, "a"), (2, "b"), (3, "c"), (4, "a")] {
            map.nodes.get_mut(&NodeId(id)).unwrap().zone = zone.to_owned();
        }
        let moves = moves(&map, &bytes);
        assert!(moves.iter().all(|wanted| wanted.from == NodeId(1)));
        // Two disks of one machine get half of its replicas each.
        carry_out(&mut map, &moves);
        let has = shares(&map, &bytes).into_values().map(|(has, _)| has);
        assert_eq!(has.collect::<Vec<u64>>(), [400, 800, 800, 400]);
    }

    /// Weights are sizes of disks: an added disk that is three times as large gets three quarters
    /// of the bytes of its machine, and the machines beside it give nothing.
    #[test]
    fn a_larger_disk_of_a_machine_gets_more_of_its_replicas() {
        let (mut map, bytes) = cluster(3, 1, &[100; 8]);
        for (id, zone, weight) in [(1, "a", 1), (2, "b", 4), (3, "c", 4), (4, "a", 3)] {
            let node = map.nodes.get_mut(&NodeId(id)).unwrap();
            (node.zone, node.weight) = (zone.to_owned(), weight);
        }
        let moves = moves(&map, &bytes);
        carry_out(&mut map, &moves);
        let has = shares(&map, &bytes).into_values().map(|(has, _)| has);
        assert_eq!(has.collect::<Vec<u64>>(), [200, 800, 800, 600]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let (map, _) = cluster(3, 2, &[100; 8]);
        let refused = |change: fn(&mut ClusterMap), from: u64, to: u64| {
            let mut map = map.clone();
            change(&mut map);
            let before = map.clone();
            let wanted = Move { group: GroupId(1), from: NodeId(from), to: NodeId(to) };
            let is_refused = begin(&mut map, wanted).is_err();
            assert!(!is_refused || map == before);
            is_refused
        };
        assert!(!refused(|_| {}, 1, 4));
        assert!(refused(|_| {}, 1, 2), "a member already");
        assert!(refused(|_| {}, 4, 5), "not a member");
        assert!(refused(|_| {}, 1, 6), "no node");
        assert!(refused(|map| map.groups.clear(), 1, 4), "no group");
        let down = |map: &mut ClusterMap| map.nodes.get_mut(&NodeId(4)).unwrap().is_up = false;
        assert!(refused(down, 1, 4), "a node that is down");
        let moving = |map: &mut ClusterMap| {
            let moved = Move { group: GroupId(1), from: NodeId(2), to: NodeId(5) };
            begin(map, moved).unwrap();
        };
        assert!(refused(moving, 1, 4), "it moves already");
    }

    proptest! {
        #[test]
        fn every_move_brings_nodes_nearer_to_their_shares(
            first in 3u64..8,
            further in 0u64..4,
            sizes in prop::collection::vec(0u64..1000, 1..40),
        ) {
            let (mut map, bytes) = cluster(first, further, &sizes);
            let distance = |map: &ClusterMap| -> u64 {
                shares(map, &bytes).values().map(|(has, share)| has.abs_diff(*share)).sum()
            };
            for wanted in moves(&map, &bytes) {
                let before = distance(&map);
                carry_out(&mut map, &[wanted]);
                prop_assert!(distance(&map) < before);
            }
        }
    }
}
