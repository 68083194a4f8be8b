//! Forecasts of the bytes that a change of the cluster will move, by the plan that the master would
//! make.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cairn_base::map::Node;
use cairn_base::{Error, GroupId, KeyHash, NodeId, Pin, Result, Role};

use super::balance::{self, Move};
use super::plan::{Patience, plan};
use super::status::Status;

/// Most bytes of its disk that a store leaves free: for the metadata beside it, for its reserve and
/// for the segment that is being filled. On a small disk it is about a tenth.
const LEFT_FREE_BYTES: u64 = 576 << 20;
/// Assumed rate at which a node copies, bytes per second, if none was measured: what one disk takes
/// easily while it serves.
pub const RATE: u64 = 64 << 20;

/// The groups and bytes that a change moves.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Forecast {
    pub groups: usize,
    pub bytes: u64,
    /// Bytes that each other node gets.
    pub targets: BTreeMap<NodeId, u64>,
}

impl Forecast {
    /// Estimates the duration if each node copies this many bytes per second; all nodes copy at
    /// once.
    pub fn takes(&self, bytes_per_second: u64) -> Duration {
        let most = self.targets.values().copied().max().unwrap_or_default();
        Duration::from_secs(most.div_ceil(bytes_per_second.max(1)))
    }
}

/// Returns the size of a replica of each group: the largest one.
pub fn bytes_by_group(status: &Status) -> BTreeMap<GroupId, u64> {
    let mut bytes = BTreeMap::new();
    for (group, size) in status.nodes.iter().flat_map(|node| &node.groups) {
        let known = bytes.entry(*group).or_insert(0);
        *known = (*known).max(*size);
    }
    bytes
}

/// Makes the error for a node that the cluster does not have.
pub fn unknown(node: NodeId) -> Error {
    Error::NotFound(format!("node {node}: `cairn cluster status` lists the nodes"))
}

/// Returns the moves when `node` is drained. There are none if it is in no group.
///
/// # Errors
/// `NotFound` if there is no such node. `Conflict` if too few other nodes are up, or no node that
/// is up has all blocks; `Full` if a node has no room: then `node` would never be empty.
pub fn emptying(status: &Status, node: NodeId) -> Result<Forecast> {
    let map = &status.map;
    let mut next = map.clone();
    next.nodes.get_mut(&node).ok_or_else(|| unknown(node))?.is_draining = true;
    let full = status.nodes.iter().filter(|said| said.store.is_full).map(|said| said.node);
    let full: BTreeSet<NodeId> = full.collect();
    let others = next.places().filter(|(id, _)| !full.contains(id)).count();
    // A node that is down gives no blocks, and another node takes its place.
    let down = next.nodes.iter().filter(|(_, node)| !node.is_up);
    let down = down.map(|(id, _)| (*id, Duration::MAX)).collect();
    let planned = plan(&next, &down, &full, Patience(Duration::MAX));
    let planned = planned.unwrap_or_else(|| next.clone());
    let sizes = bytes_by_group(status);
    let (mut forecast, mut stuck, mut wanted, mut lost) = (Forecast::default(), 0, 0, 0);
    for (id, group) in map.groups.iter().filter(|(_, group)| group.has(node)) {
        let after = planned.groups.get(id).map(|group| &group.members[..]).unwrap_or_default();
        let stays =
            |id: NodeId| next.nodes.get(&id).is_some_and(|node| node.is_up && !node.is_draining);
        let staying = after.iter().filter(|member| !member.is_leaving && stays(member.node));
        if staying.count() < group.redundancy.members() {
            stuck += 1;
            wanted = wanted.max(group.redundancy.members());
        }
        lost += usize::from(!group.in_sync().any(|member| map.is_up(member)));
        let size = sizes.get(id).copied().unwrap_or_default();
        forecast.groups += 1;
        forecast.bytes += size;
        for member in after.iter().filter(|member| !group.has(member.node)) {
            *forecast.targets.entry(member.node).or_default() += size;
        }
    }
    if lost > 0 {
        return Err(Error::Conflict(format!(
            "no node that is up has all blocks of {lost} groups: start the nodes that are down first"
        )));
    }
    if stuck > 0 {
        return Err(Error::Conflict(format!(
            "{stuck} groups want {wanted} replicas, and without node {node} there are only \
             {others} chunkservers that can take them: let another one join first"
        )));
    }
    check_room(status, &forecast)?;
    Ok(forecast)
}

/// Returns the groups and bytes that move to `new` when it replaces `old`: all except groups that
/// have both already. Also returns the moves that begin this; the rest moves when `old` is drained.
///
/// # Errors
/// Those of [`emptying`]; `Conflict` if `new` takes no blocks.
pub fn replacing(status: &Status, old: NodeId, new: NodeId) -> Result<(Forecast, Vec<Move>)> {
    let map = &status.map;
    if old == new || !map.places().any(|(place, _)| place == new) {
        return Err(Error::Conflict(format!(
            "node {new} takes no blocks of node {old}: name another chunkserver that is up, does \
             not drain and has a weight"
        )));
    }
    let sizes = bytes_by_group(status);
    let (mut moved, mut moves) = (status.clone(), Vec::new());
    let mut forecast = Forecast::default();
    let ids: Vec<GroupId> = map.groups.keys().copied().collect();
    for group in ids {
        let wanted = Move { group, from: old, to: new };
        if balance::begin(&mut moved.map, wanted).is_err() {
            continue;
        }
        if let Some(group) = moved.map.groups.get_mut(&group) {
            group.members.retain(|member| member.node != old);
            group.members.iter_mut().for_each(|member| member.in_sync = true);
        }
        let size = sizes.get(&group).copied().unwrap_or_default();
        forecast.groups += 1;
        forecast.bytes += size;
        *forecast.targets.entry(new).or_default() += size;
        moves.push(wanted);
    }
    let rest = emptying(&moved, old)?;
    forecast.groups += rest.groups;
    forecast.bytes += rest.bytes;
    for (target, bytes) in rest.targets {
        *forecast.targets.entry(target).or_default() += bytes;
    }
    check_room(status, &forecast)?;
    Ok((forecast, moves))
}

/// Forecasts what moves to a disk that joins in a zone, when every node gets its share.
/// Chunkservers of the same machine are in the same zone from then on.
pub fn adding(status: &Status, beside: &[NodeId], zone: &str) -> Forecast {
    let mut map = status.map.clone();
    for id in beside {
        map.nodes.entry(*id).and_modify(|node| node.zone = zone.into());
    }
    let new = NodeId(map.next_node);
    let pin = Pin { key: KeyHash([0; 32]), roles: Role::Chunkserver.into() };
    map.nodes.insert(new, Node { is_up: true, zone: zone.into(), ..Node::new(pin) });
    let bytes = bytes_by_group(status);
    let mut forecast = Forecast::default();
    for wanted in balance::moves(&map, &bytes).into_iter().filter(|wanted| wanted.to == new) {
        let size = bytes.get(&wanted.group).copied().unwrap_or_default();
        forecast.groups += 1;
        forecast.bytes += size;
        *forecast.targets.entry(new).or_default() += size;
    }
    forecast
}

fn check_room(status: &Status, forecast: &Forecast) -> Result<()> {
    for (target, bytes) in &forecast.targets {
        let room = room(status, *target);
        if *bytes > room {
            return Err(Error::Full(format!(
                "node {target} would get {} MiB, and has room for {} MiB: let another chunkserver \
                 join first, or delete something",
                bytes >> 20,
                room >> 20
            )));
        }
    }
    Ok(())
}

/// Returns the bytes that a node can take, less those that are on their way to it already.
fn room(status: &Status, target: NodeId) -> u64 {
    let Some(said) = status.nodes.iter().find(|said| said.node == target) else { return 0 };
    let free = said.store.free_bytes;
    let left_free = LEFT_FREE_BYTES.min(free.saturating_add(said.store.live_bytes) / 10);
    let sizes = bytes_by_group(status);
    let coming = status.map.groups.iter().filter(|(_, group)| {
        group.members.iter().any(|member| member.node == target && !member.in_sync)
    });
    let coming = coming.map(|(id, _)| {
        let here = said.groups.iter().find(|(of, _)| of == id).map_or(0, |(_, bytes)| *bytes);
        sizes.get(id).copied().unwrap_or_default().saturating_sub(here)
    });
    free.saturating_sub(left_free).saturating_sub(coming.sum())
}

#[cfg(test)]
mod tests {
    use cairn_base::map::{Group, Member};
    use cairn_base::{ClusterMap, Redundancy};

    use super::super::messages::StoreState;
    use super::super::status::NodeStatus;
    use super::*;

    const GIB: u64 = 1 << 30;

    /// Makes a cluster whose first three nodes have `groups` groups of 1 GiB each.
    fn cluster(nodes: u64, groups: u32, free_bytes: u64) -> Status {
        let mut map = ClusterMap { replicas: 3, minimum: 2, ..ClusterMap::default() };
        (map.next_node, map.next_group) = (nodes + 1, groups + 1);
        let mut said = Vec::new();
        for id in 1..=nodes {
            let pin = Pin { key: KeyHash([id as u8; 32]), roles: Role::Chunkserver.into() };
            map.nodes.insert(NodeId(id), Node { is_up: true, ..Node::new(pin) });
            let store = StoreState { free_bytes, ..StoreState::default() };
            let all = (1..=groups).map(|group| (GroupId(group), GIB));
            let groups = all.filter(|_| id <= 3).collect();
            said.push(NodeStatus { node: NodeId(id), store, groups, ..NodeStatus::default() });
        }
        for id in 1..=groups {
            let members = (1..=3).map(|node| Member::new(NodeId(node), true)).collect();
            let group = Group { redundancy: Redundancy::Copies(3), members, ..Group::default() };
            map.groups.insert(GroupId(id), group);
        }
        Status { map, nodes: said, ..Status::default() }
    }

    #[test]
    fn what_moves_is_divided_among_the_others() {
        let status = cluster(5, 8, 100 * GIB);
        let forecast = emptying(&status, NodeId(1)).unwrap();
        assert_eq!((forecast.groups, forecast.bytes), (8, 8 * GIB));
        let expected = [(NodeId(4), 4 * GIB), (NodeId(5), 4 * GIB)];
        assert_eq!(forecast.targets, BTreeMap::from(expected));
        assert_eq!(forecast.takes(64 << 20), Duration::from_secs(64));
        assert_eq!(emptying(&status, NodeId(4)).unwrap(), Forecast::default());
    }

    #[test]
    fn a_disk_that_joins_gets_its_share() {
        let status = cluster(3, 8, 100 * GIB);
        let forecast = adding(&status, &[NodeId(1)], "one");
        // Half of what the disk beside it has. Groups of other machines have a replica on this one
        // already.
        assert_eq!(forecast.bytes, 4 * GIB);
        assert_eq!(forecast.targets, BTreeMap::from([(NodeId(4), 4 * GIB)]));
        assert_eq!(adding(&status, &[], "").bytes, 6 * GIB, "a machine of its own");
        assert_eq!(adding(&cluster(3, 0, GIB), &[], "one"), Forecast::default());
    }

    #[test]
    fn a_replaced_node_gives_all_to_the_other() {
        let status = cluster(5, 8, 100 * GIB);
        let (forecast, moves) = replacing(&status, NodeId(1), NodeId(5)).unwrap();
        assert_eq!((forecast.groups, moves.len()), (8, 8));
        assert_eq!(forecast.targets, BTreeMap::from([(NodeId(5), 8 * GIB)]));
        let (forecast, moves) = replacing(&status, NodeId(1), NodeId(2)).unwrap();
        assert_eq!((forecast.groups, moves.len()), (8, 0), "node 2 has all of that already");
        assert!(!forecast.targets.contains_key(&NodeId(2)));
        let mut down = cluster(5, 8, 100 * GIB);
        down.map.nodes.get_mut(&NodeId(1)).unwrap().is_up = false;
        let (forecast, moves) = replacing(&down, NodeId(1), NodeId(5)).unwrap();
        assert_eq!((forecast.groups, moves.len()), (8, 0), "the master divides them");
        let kind = |status: &Status, old, new| {
            replacing(status, NodeId(old), NodeId(new)).unwrap_err().kind()
        };
        assert_eq!(kind(&status, 1, 1), "conflict");
        assert_eq!(kind(&status, 1, 9), "conflict");
        assert_eq!(kind(&cluster(5, 8, 7 * GIB), 1, 5), "full");
    }

    #[test]
    fn what_would_never_end_is_refused() {
        let kind = |status: &Status, node| emptying(status, NodeId(node)).unwrap_err().kind();
        assert_eq!(kind(&cluster(3, 8, 100 * GIB), 1), "conflict", "too few nodes");
        assert_eq!(kind(&cluster(4, 8, 7 * GIB), 1), "full", "no room");
        assert_eq!(kind(&cluster(4, 8, 8 * GIB), 1), "full", "a store leaves a part free");
        assert!(emptying(&cluster(4, 8, 9 * GIB), NodeId(1)).is_ok());
        assert_eq!(kind(&cluster(4, 8, GIB), 9), "not_found");
        let mut down = cluster(4, 8, 100 * GIB);
        down.map.nodes.get_mut(&NodeId(4)).unwrap().is_up = false;
        assert_eq!(kind(&down, 1), "conflict", "the other one is down");
        let mut full = cluster(4, 8, 100 * GIB);
        full.nodes[3].store.is_full = true;
        assert_eq!(kind(&full, 1), "conflict", "the other one takes nothing");
    }

    #[test]
    fn nodes_that_are_down_keep_no_place_and_give_nothing() {
        let mut status = cluster(4, 8, 100 * GIB);
        for group in status.map.groups.values_mut() {
            group.members[2].node = NodeId(4);
            group.members.push(Member::new(NodeId(3), false));
        }
        status.map.nodes.get_mut(&NodeId(4)).unwrap().is_up = false;
        // Node 3 is to take the place of node 4, and nobody could take that of node 3.
        let text = emptying(&status, NodeId(3)).unwrap_err().to_string();
        assert!(text.contains("8 groups want 3 replicas"), "{text}");
        assert!(emptying(&status, NodeId(4)).is_ok(), "node 3 has its place already");
        let mut alone = cluster(5, 8, 100 * GIB);
        alone.map.nodes.get_mut(&NodeId(1)).unwrap().is_up = false;
        assert!(emptying(&alone, NodeId(1)).is_ok());
        for group in alone.map.groups.values_mut() {
            group.members[1].in_sync = false;
            group.members[2].in_sync = false;
        }
        let text = emptying(&alone, NodeId(1)).unwrap_err().to_string();
        assert!(text.contains("no node that is up has all blocks of 8 groups"), "{text}");
    }

    #[test]
    fn what_is_on_its_way_to_a_node_takes_its_room() {
        let mut status = cluster(4, 8, 10 * GIB);
        assert_eq!(room(&status, NodeId(4)), 10 * GIB - LEFT_FREE_BYTES);
        let group = status.map.groups.get_mut(&GroupId(1)).unwrap();
        group.members.push(Member::new(NodeId(4), false));
        status.nodes[3].groups.push((GroupId(1), GIB / 4));
        assert_eq!(room(&status, NodeId(4)), 10 * GIB - LEFT_FREE_BYTES - GIB / 4 * 3);
        assert_eq!(room(&status, NodeId(9)), 0);
        let small = cluster(4, 8, GIB);
        assert_eq!(room(&small, NodeId(4)), GIB - GIB / 10);
    }
}
