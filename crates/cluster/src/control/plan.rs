//! Plans which groups there should be, and which nodes should be in them: one map in, the next one
//! out. Pure: what is known of the nodes comes in with the map, time as an argument.
//!
//! ```text
//!   member lost or draining ──► another node is added, catching up ──► in sync ──► member dropped
//!   node back in time       ──► the node that was added for it is dropped
//!   member to leave         ──► like a draining member, in one group
//!   too few groups          ──► new ones, over nodes that share few groups so far
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cairn_base::map::{Group, Member};
use cairn_base::{ClusterMap, GroupId, NodeId, Redundancy};

/// Approximate number of other nodes with which a node shares groups: that many nodes help to
/// repair it, and that many combinations of failures lose a group.
const SCATTER: usize = 8;

/// Least number of groups of a node, even if it shares them with the same nodes: a group is the
/// unit that is moved to balance nodes.
const GROUPS_PER_NODE: usize = 8;

/// Absence of a node after which its blocks are copied elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Patience(pub Duration);

/// Returns the map that should follow `map`, or `None` if nothing changes. `away` has for each node
/// that is not up how long it has been away; `full` has the nodes without room, whose groups count
/// as closed.
pub fn plan(
    map: &ClusterMap,
    away: &BTreeMap<NodeId, Duration>,
    full: &BTreeSet<NodeId>,
    Patience(patience): Patience,
) -> Option<ClusterMap> {
    let mut next = map.clone();
    let is_lost = |node: NodeId| away.get(&node).is_some_and(|away| *away >= patience);
    for id in map.groups.keys().copied().collect::<Vec<_>>() {
        heal(&mut next, id, full, &is_lost);
    }
    for redundancy in map.redundancies() {
        form(&mut next, full, redundancy);
    }
    if next == *map {
        return None;
    }
    next.follow(map);
    Some(next)
}

/// Brings one group nearer to having as many members as it should.
fn heal(
    map: &mut ClusterMap,
    id: GroupId,
    full: &BTreeSet<NodeId>,
    is_lost: &dyn Fn(NodeId) -> bool,
) {
    let Some(group) = map.groups.get(&id).cloned() else { return };
    let wanted = group.redundancy.members();
    let stays = |member: &Member| {
        let node = map.nodes.get(&member.node);
        let drains = node.is_none_or(|node| node.is_draining);
        !member.is_leaving && !drains && !is_lost(member.node)
    };
    let in_sync = group.members.iter().filter(|member| member.in_sync && stays(member)).count();
    let mut members = group.members.clone();
    // Members that stay and have all blocks are enough: no other need catch up, and others may go.
    if in_sync >= wanted {
        members.retain(|member| member.in_sync && stays(member));
        if members.len() > wanted {
            members.sort_by_key(|member| !map.is_up(member.node));
            members.truncate(wanted);
        }
    } else {
        // A member that does not come back, or is to leave, need not catch up.
        members.retain(|member| member.in_sync || stays(member));
    }
    let staying = members.iter().filter(|member| stays(member)).count();
    // A member without blocks can help no other.
    let has_source = members.iter().any(|member| member.in_sync);
    if staying < wanted && has_source {
        let others: Vec<NodeId> = members.iter().map(|member| member.node).collect();
        let added = candidates(map, full, &others).into_iter().take(wanted - staying);
        members.extend(added.map(|node| Member::new(node, false)));
    }
    // If no node takes its place, a member that was to leave has to stay.
    if members.iter().all(|member| member.in_sync) {
        members.iter_mut().for_each(|member| member.is_leaving = false);
    }
    if let Some(group) = map.groups.get_mut(&id) {
        group.members = members;
    }
}

/// Makes groups until each node that takes blocks is in enough of them.
fn form(map: &mut ClusterMap, full: &BTreeSet<NodeId>, redundancy: Redundancy) {
    let places = map.places().map(|(node, _)| node).filter(|node| !full.contains(node));
    let places: Vec<NodeId> = places.collect();
    let size = redundancy.members().min(places.len());
    if size < redundancy.least(map.minimum) {
        return;
    }
    let others = (places.len() - 1).min(SCATTER);
    let enough = others.div_ceil(size.saturating_sub(1).max(1)).max(GROUPS_PER_NODE);
    for &node in &places {
        loop {
            let groups = map.groups.values().filter(|group| {
                group.redundancy == redundancy && group.has(node) && group.members.len() >= size
            });
            let (all, open) = groups.fold((0, 0), |(all, open), group| {
                let has_room = !group.members.iter().any(|member| full.contains(&member.node));
                (all + 1, open + usize::from(has_room && map.takes_writes(group)))
            });
            if all >= enough && open > 0 {
                break;
            }
            let mut members = vec![node];
            members.extend(candidates(map, full, &[node]).into_iter().take(size - 1));
            if members.len() < size {
                break;
            }
            let members = members.into_iter().map(|node| Member::new(node, true)).collect();
            let id = GroupId(map.next_group);
            map.next_group += 1;
            map.groups.insert(id, Group { redundancy, changed: 0, members, ..Group::default() });
        }
    }
}

/// Returns nodes that may be put beside `others`, the best first; each is chosen with regard to
/// those before it.
fn candidates(map: &ClusterMap, full: &BTreeSet<NodeId>, others: &[NodeId]) -> Vec<NodeId> {
    let mut chosen = others.to_vec();
    let left = map.places().map(|(node, _)| node);
    let mut left: Vec<NodeId> =
        left.filter(|node| !others.contains(node) && !full.contains(node)).collect();
    let mut found = Vec::new();
    while let Some(best) = left.iter().copied().min_by_key(|node| cost(map, *node, &chosen)) {
        left.retain(|node| *node != best);
        chosen.push(best);
        found.push(best);
    }
    found
}

/// Returns the cost of putting a node beside others: zones that they share, groups that they share,
/// groups that it has for its weight.
fn cost(map: &ClusterMap, node: NodeId, beside: &[NodeId]) -> (usize, usize, u64, NodeId) {
    let zone = |node: NodeId| map.nodes.get(&node).map_or("", |node| node.zone.as_str());
    let own = zone(node);
    let same_zone = beside.iter().filter(|other| !own.is_empty() && zone(**other) == own).count();
    let (mut shared, mut groups) = (0, 0u64);
    for group in map.groups.values().filter(|group| group.has(node)) {
        groups += 1;
        shared += beside.iter().filter(|other| group.has(**other)).count();
    }
    let weight = map.nodes.get(&node).map_or(1, |node| u64::from(node.weight.max(1)));
    (same_zone, shared, groups * 1000 / weight, node)
}

#[cfg(test)]
mod tests {
    use cairn_base::map::Node;
    use cairn_base::{KeyHash, Pin, Role};
    use proptest::prelude::*;

    use super::super::balance;
    use super::super::balance::Move;
    use super::*;

    fn cluster(nodes: u64, replicas: u8, minimum: u8) -> ClusterMap {
        let mut map = ClusterMap { replicas, minimum, next_node: 1, ..ClusterMap::default() };
        map.next_group = 1;
        for _ in 0..nodes {
            add(&mut map);
        }
        map
    }

    fn add(map: &mut ClusterMap) -> NodeId {
        let id = NodeId(map.next_node);
        map.next_node += 1;
        let pin = Pin { key: KeyHash([id.0 as u8; 32]), roles: Role::Chunkserver.into() };
        map.nodes.insert(id, Node { is_up: true, ..Node::new(pin) });
        id
    }

    const PATIENCE: Patience = Patience(Duration::from_secs(10));

    fn settle(map: ClusterMap, away: &BTreeMap<NodeId, Duration>) -> ClusterMap {
        let mut map = map;
        for _ in 0..20 {
            match plan(&map, away, &BTreeSet::new(), PATIENCE) {
                None => return map,
                Some(next) => {
                    next.check().unwrap();
                    map = next;
                }
            }
        }
        panic!("it never comes to an end: {map:?}");
    }

    fn caught_up(mut map: ClusterMap) -> ClusterMap {
        let former = map.clone();
        for group in map.groups.values_mut() {
            let up = group.members.iter_mut().filter(|member| former.is_up(member.node));
            up.for_each(|member| member.in_sync = true);
        }
        map.follow(&former);
        map
    }

    fn move_some_group(map: &mut ClusterMap, to: NodeId) {
        let without = |(_, group): &(&GroupId, &Group)| !group.has(to);
        let found = map.groups.iter().find(without);
        let Some((id, from)) = found.map(|(id, group)| (*id, group.members[0].node)) else {
            return;
        };
        let former = map.clone();
        if balance::begin(map, Move { group: id, from, to }).is_ok() {
            map.follow(&former);
        }
    }

    #[test]
    fn a_moved_group_is_whole_all_the_time() {
        let mut map = settle(cluster(4, 3, 2), &BTreeMap::new());
        let id = *map.groups.iter().find(|(_, group)| !group.has(NodeId(4))).unwrap().0;
        balance::begin(&mut map, Move { group: id, from: NodeId(1), to: NodeId(4) }).unwrap();
        let moving = settle(map, &BTreeMap::new());
        assert_eq!(moving.groups[&id].in_sync().count(), 3);
        let moved = settle(caught_up(moving.clone()), &BTreeMap::new());
        assert!(moved.takes_writes(&moved.groups[&id]) && !moved.groups[&id].has(NodeId(1)));
        // Its new place is lost: it stays where it was.
        let mut lost = moving;
        lost.nodes.get_mut(&NodeId(4)).unwrap().is_up = false;
        let away = BTreeMap::from([(NodeId(4), Duration::from_secs(60))]);
        let stayed = settle(lost, &away);
        assert!(stayed.takes_writes(&stayed.groups[&id]) && stayed.groups[&id].has(NodeId(1)));
        assert!(stayed.groups[&id].members.iter().all(|member| !member.is_leaving));
    }

    fn open(map: &ClusterMap) -> usize {
        map.groups.values().filter(|group| map.takes_writes(group)).count()
    }

    #[test]
    fn every_node_gets_groups() {
        for nodes in 1..12 {
            for replicas in 1..=5 {
                let map = settle(cluster(nodes, replicas, 1), &BTreeMap::new());
                let size = nodes.min(replicas.into()) as usize;
                assert!(map.groups.values().all(|group| group.members.len() == size));
                for node in map.nodes.keys() {
                    assert!(map.groups.values().any(|group| group.has(*node)));
                }
                assert!(map.groups.len() <= 96, "{nodes} {replicas}: {}", map.groups.len());
            }
        }
    }

    #[test]
    fn fewer_than_the_minimum_form_no_group() {
        assert_eq!(open(&settle(cluster(1, 3, 2), &BTreeMap::new())), 0);
        assert_eq!(open(&settle(cluster(2, 3, 2), &BTreeMap::new())), GROUPS_PER_NODE);
    }

    #[test]
    fn a_node_that_is_added_moves_nothing() {
        let mut map = settle(cluster(4, 3, 2), &BTreeMap::new());
        let before = map.clone();
        add(&mut map);
        let after = settle(map, &BTreeMap::new());
        for (id, group) in &before.groups {
            assert_eq!(after.groups[id].members, group.members);
        }
        assert!(after.groups.len() > before.groups.len());
    }

    #[test]
    fn two_of_three_take_writes_and_grow_to_three_again() {
        let mut map = settle(cluster(3, 3, 2), &BTreeMap::new());
        map.nodes.get_mut(&NodeId(2)).unwrap().is_up = false;
        let away = BTreeMap::from([(NodeId(2), Duration::from_secs(60))]);
        let mut small = settle(map, &away);
        let two: Vec<_> = small.groups.values().filter(|group| small.takes_writes(group)).collect();
        assert!(two.iter().all(|group| group.members.len() == 2) && !two.is_empty());
        small.nodes.get_mut(&NodeId(2)).unwrap().is_up = true;
        let whole = settle(caught_up(settle(small, &BTreeMap::new())), &BTreeMap::new());
        assert!(whole.groups.values().all(|group| group.members.len() == 3));
        assert_eq!(open(&whole), whole.groups.len());
    }

    #[test]
    fn a_lost_node_is_replaced_and_dropped_when_the_other_has_caught_up() {
        let mut map = settle(cluster(5, 3, 2), &BTreeMap::new());
        map.nodes.get_mut(&NodeId(1)).unwrap().is_up = false;
        let soon = BTreeMap::from([(NodeId(1), Duration::from_secs(1))]);
        let waiting = settle(map.clone(), &soon);
        let had: Vec<GroupId> = map
            .groups
            .iter()
            .filter(|(_, group)| group.has(NodeId(1)))
            .map(|(id, _)| *id)
            .collect();
        assert!(had.iter().all(|id| waiting.groups[id].members.len() == 3));
        let away = BTreeMap::from([(NodeId(1), Duration::from_secs(60))]);
        let healing = settle(waiting, &away);
        assert!(had.iter().all(|id| healing.groups[id].members.len() == 4));
        let healed = settle(caught_up(healing.clone()), &away);
        assert!(had.iter().all(|id| !healed.groups[id].has(NodeId(1))));
        // It comes back before that: nobody else is needed.
        let mut back = healing;
        back.nodes.get_mut(&NodeId(1)).unwrap().is_up = true;
        let back = settle(back, &BTreeMap::new());
        assert!(had.iter().all(|id| back.groups[id].members.len() == 3));
        assert!(had.iter().all(|id| back.takes_writes(&back.groups[id])));
    }

    #[test]
    fn a_draining_node_ends_with_no_group() {
        let mut map = settle(cluster(5, 3, 2), &BTreeMap::new());
        map.nodes.get_mut(&NodeId(3)).unwrap().is_draining = true;
        let moving = settle(map, &BTreeMap::new());
        // Until the others have all of it, it stays.
        assert!(moving.groups.values().any(|group| group.has(NodeId(3))));
        let moved = settle(caught_up(moving), &BTreeMap::new());
        assert!(moved.groups.values().all(|group| !group.has(NodeId(3))));
    }

    #[test]
    fn with_a_full_disk_others_form_groups() {
        let map = settle(cluster(4, 3, 2), &BTreeMap::new());
        let full = BTreeSet::from([NodeId(1), NodeId(2)]);
        let next = plan(&map, &BTreeMap::new(), &full, PATIENCE).unwrap();
        let has_room = |group: &Group| full.iter().all(|node| !group.has(*node));
        let open: Vec<_> = next.groups.values().filter(|group| has_room(group)).collect();
        assert_eq!(open.len(), 1);
        assert!(next.takes_writes(open[0]) && open[0].members.len() == 2);
        assert_eq!(plan(&next, &BTreeMap::new(), &full, PATIENCE), None);
    }

    #[test]
    fn zones_are_kept_apart() {
        let mut map = cluster(9, 3, 2);
        for (id, node) in &mut map.nodes {
            node.zone = format!("rack{}", id.0 % 3);
        }
        let map = settle(map, &BTreeMap::new());
        for group in map.groups.values() {
            let zones: BTreeSet<_> =
                group.members.iter().map(|member| &map.nodes[&member.node].zone).collect();
            assert_eq!(zones.len(), 3);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        /// Nodes fail in any way: no group ever loses its last member with all blocks, and when all
        /// are up again everything is whole.
        #[test]
        fn no_group_is_ever_given_up(
            nodes in 3u64..8,
            replicas in 1u8..=4,
            events in prop::collection::vec((any::<u8>(), 0..7u8), 0..40),
        ) {
            let mut map = settle(cluster(nodes, replicas, 1), &BTreeMap::new());
            let mut away: BTreeMap<NodeId, Duration> = BTreeMap::new();
            for (which, what) in events {
                let node = NodeId(1 + u64::from(which) % nodes);
                let former = map.clone();
                match what {
                    0 => drop(away.insert(node, Duration::ZERO)),
                    1 => drop(away.remove(&node)),
                    2 => away.values_mut().for_each(|time| *time += Duration::from_secs(7)),
                    3 => map = caught_up(map),
                    4 => map.nodes.get_mut(&node).unwrap().is_draining = true,
                    5 => move_some_group(&mut map, node),
                    _ => map.nodes.get_mut(&node).unwrap().is_draining = false,
                }
                for (id, node) in &mut map.nodes {
                    node.is_up = !away.contains_key(id);
                }
                map = settle(map, &away);
                for (id, group) in &former.groups {
                    let has = |node: NodeId| former.groups[id].in_sync().any(|one| one == node);
                    prop_assert!(map.groups[id].members.iter().any(|member| member.in_sync));
                    // A member that has all of it had it before, or caught up.
                    if what != 3 {
                        prop_assert!(map.groups[id].in_sync().all(has));
                    }
                    prop_assert!(group.in_sync().count() > 0);
                }
            }
            map.nodes.values_mut().for_each(|node| (node.is_up, node.is_draining) = (true, false));
            away.clear();
            for _ in 0..3 {
                map = caught_up(settle(map, &away));
            }
            let map = settle(map, &away);
            let size = usize::from(replicas).min(nodes as usize);
            prop_assert!(map.groups.values().all(|group| group.members.len() == size));
            prop_assert_eq!(open(&map), map.groups.len());
        }
    }
}
