//! The bytes that each chunkserver should have: in proportion to its weight, as far as groups can
//! be spread over zones.
//!
//! The replicas of a group are divided about evenly among the zones, and a node has one at most. So
//! the zones get their shares first, each within the bounds that follow from this, and the nodes of
//! a zone divide its share. A node without a zone is one by itself.

use std::collections::BTreeMap;

use cairn_base::map::Node;
use cairn_base::{ClusterMap, GroupId, NodeId};

/// A node's or zone's claim to a part of the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Claim {
    weight: u64,
    least: u64,
    most: u64,
}

#[derive(Default)]
struct Zone {
    nodes: Vec<(NodeId, u64)>,
    least: u64,
    most: u64,
}

/// Returns the bytes on each node that takes data, and those it should have. `bytes` has the size
/// of one replica of each group.
pub fn shares(map: &ClusterMap, bytes: &BTreeMap<GroupId, u64>) -> BTreeMap<NodeId, (u64, u64)> {
    let mut shares: BTreeMap<NodeId, (u64, u64)> =
        map.places().map(|(node, _)| (node, (0, 0))).collect();
    let mut zones = zones(map);
    let (mut all, mut once) = (0u64, 0u64);
    for (id, group) in &map.groups {
        let size = bytes.get(id).copied().unwrap_or(0);
        let mut replicas = 0;
        for member in &group.members {
            if let Some((has, _)) = shares.get_mut(&member.node) {
                *has = has.saturating_add(size);
                replicas += 1;
            }
        }
        all = all.saturating_add(size.saturating_mul(replicas as u64));
        once = once.saturating_add(if replicas > 0 { size } else { 0 });
        let highest = level(&zones, replicas);
        for zone in &mut zones {
            let replicas = |most: usize| zone.nodes.len().min(most) as u64;
            let (least, most) = (replicas(highest.saturating_sub(1)), replicas(highest));
            zone.least = zone.least.saturating_add(size.saturating_mul(least));
            zone.most = zone.most.saturating_add(size.saturating_mul(most));
        }
    }
    let claims: Vec<Claim> = zones.iter().map(Zone::claim).collect();
    for (zone, share) in zones.iter().zip(divide(all, &claims)) {
        let claim = |(_, weight): &(NodeId, u64)| Claim { weight: *weight, least: 0, most: once };
        let claims: Vec<Claim> = zone.nodes.iter().map(claim).collect();
        for ((node, _), share) in zone.nodes.iter().zip(divide(share, &claims)) {
            shares.entry(*node).and_modify(|(_, its)| *its = share);
        }
    }
    shares
}

impl Zone {
    fn claim(&self) -> Claim {
        let weight = self.nodes.iter().map(|(_, weight)| weight).sum();
        Claim { weight, least: self.least, most: self.most }
    }
}

fn zones(map: &ClusterMap) -> Vec<Zone> {
    let mut named: BTreeMap<&str, Zone> = BTreeMap::new();
    let mut zones = Vec::new();
    for (id, Node { zone, weight, .. }) in map.places() {
        let node = (id, u64::from(*weight));
        if zone.is_empty() {
            zones.push(Zone { nodes: vec![node], ..Zone::default() })
        } else {
            named.entry(zone.as_str()).or_default().nodes.push(node)
        }
    }
    zones.extend(named.into_values());
    zones
}

/// Returns the largest number of replicas in one zone when `replicas` are spread over the zones as
/// evenly as their numbers of nodes allow.
fn level(zones: &[Zone], replicas: usize) -> usize {
    let room = |level: usize| zones.iter().map(|zone| zone.nodes.len().min(level)).sum::<usize>();
    (0..=replicas).find(|level| room(*level) >= replicas).unwrap_or(replicas)
}

/// Divides `all` by weight, within the bounds of each claim.
fn divide(all: u64, claims: &[Claim]) -> Vec<u64> {
    let mut parts: Vec<Option<u64>> = vec![None; claims.len()];
    loop {
        let is_open = |(at, _): &(usize, &Claim)| parts[*at].is_none();
        let open: Vec<(usize, &Claim)> = claims.iter().enumerate().filter(is_open).collect();
        let taken = parts.iter().flatten().map(|part| u128::from(*part)).sum();
        let left = u128::from(all).saturating_sub(taken);
        let weights = open.iter().map(|(_, claim)| u128::from(claim.weight)).sum::<u128>().max(1);
        let wished = |claim: &Claim| {
            u64::try_from(left * u128::from(claim.weight) / weights).unwrap_or(u64::MAX)
        };
        let bounded = |claim: &Claim| wished(claim).max(claim.least).min(claim.most);
        let sum = |of: &dyn Fn(&Claim) -> u64| {
            open.iter().map(|(_, claim)| u128::from(of(claim))).sum::<u128>()
        };
        // If the bounds give more than there is, the claims that get more than they wish keep their
        // bounds, otherwise those that get less. The others divide the rest.
        let gives_more = sum(&bounded).cmp(&sum(&wished));
        let stays = |claim: &Claim| match gives_more {
            std::cmp::Ordering::Equal => true,
            _ => bounded(claim).cmp(&wished(claim)) == gives_more,
        };
        let fixed: Vec<(usize, u64)> = open
            .iter()
            .filter(|(_, claim)| stays(claim))
            .map(|(at, claim)| (*at, bounded(claim)))
            .collect();
        fixed.into_iter().for_each(|(at, part)| parts[at] = Some(part));
        if parts.iter().all(Option::is_some) {
            return parts.into_iter().flatten().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use cairn_base::map::{Group, Member};
    use cairn_base::{KeyHash, Pin, Redundancy, Role};
    use proptest::prelude::*;

    use super::*;

    /// Nodes with their zones and weights, and a group over each of `groups`.
    fn cluster(nodes: &[(&str, u32)], groups: &[&[u64]]) -> ClusterMap {
        let mut map = ClusterMap { replicas: 3, minimum: 2, ..ClusterMap::default() };
        for (at, (zone, weight)) in nodes.iter().enumerate() {
            let id = at as u64 + 1;
            let pin = Pin { key: KeyHash([id as u8; 32]), roles: Role::Chunkserver.into() };
            let (zone, weight) = ((*zone).to_owned(), *weight);
            let node = Node { is_up: true, zone, weight, ..Node::new(pin) };
            map.nodes.insert(NodeId(id), node);
        }
        for (at, members) in groups.iter().enumerate() {
            let members = members.iter().map(|id| Member::new(NodeId(*id), true)).collect();
            let group = Group { redundancy: Redundancy::Copies(3), members, ..Group::default() };
            map.groups.insert(GroupId(at as u32 + 1), group);
        }
        map
    }

    /// The shares of nodes in their order, where each group has 600 bytes.
    fn of(nodes: &[(&str, u32)], groups: &[&[u64]]) -> Vec<u64> {
        let map = cluster(nodes, groups);
        let bytes = map.groups.keys().map(|id| (*id, 600)).collect();
        shares(&map, &bytes).into_values().map(|(_, share)| share).collect()
    }

    #[test]
    fn the_disks_of_a_machine_divide_its_replicas() {
        let groups: [&[u64]; 2] = [&[1, 2, 3]; 2];
        let three = [("a", 1), ("b", 1), ("c", 1), ("a", 1)];
        assert_eq!(of(&three, &groups), [600, 1200, 1200, 600]);
        let sizes = [("a", 1), ("b", 1), ("c", 1), ("a", 3)];
        assert_eq!(of(&sizes, &groups), [300, 1200, 1200, 900]);
        // With a fourth machine: two of five disks would have more than one replica of all.
        let four = [("a", 1), ("b", 1), ("c", 1), ("a", 1), ("d", 1)];
        assert_eq!(of(&four, &groups), [600, 800, 800, 600, 800]);
        let five = [("a", 1), ("b", 1), ("c", 1), ("a", 1), ("d", 1), ("e", 1)];
        assert_eq!(of(&five, &groups), [600, 600, 600, 600, 600, 600]);
    }

    #[test]
    fn nodes_without_zones_get_what_their_weights_say() {
        let groups: [&[u64]; 2] = [&[1, 2, 3]; 2];
        assert_eq!(of(&[("", 1); 4], &groups), [900; 4]);
        assert_eq!(of(&[("", 1), ("", 1), ("", 2), ("", 2)], &groups), [600, 600, 1200, 1200]);
        // None has two replicas of a group.
        assert_eq!(of(&[("", 1), ("", 1), ("", 1), ("", 9)], &groups), [800, 800, 800, 1200]);
    }

    #[test]
    fn of_two_zones_either_has_two_replicas() {
        let groups: [&[u64]; 2] = [&[1, 2, 3]; 2];
        let even = [("a", 1), ("a", 1), ("b", 1), ("b", 1)];
        assert_eq!(of(&even, &groups), [900; 4]);
        let heavy = [("a", 9), ("a", 9), ("b", 1), ("b", 1)];
        assert_eq!(of(&heavy, &groups), [1200, 1200, 600, 600]);
        let small = [("a", 1), ("b", 1), ("b", 1), ("b", 1)];
        assert_eq!(of(&small, &groups), [1200, 800, 800, 800]);
    }

    #[test]
    fn what_cannot_be_divided_is_left() {
        assert_eq!(of(&[], &[]), [0; 0]);
        assert_eq!(of(&[("a", 1), ("", 0)], &[&[1]]), [600]);
        assert_eq!(of(&[("a", 1), ("a", 1)], &[&[1, 2, 7]]), [600, 600]);
        assert_eq!(of(&[("a", 1)], &[&[7]]), [0]);
    }

    proptest! {
        #[test]
        fn all_is_divided_within_the_bounds(
            claims in prop::collection::vec((1u64..100, 0u64..500, 0u64..500), 1..12),
            part in 0u64..=100,
        ) {
            let claim = |(weight, least, more)| Claim { weight, least, most: least + more };
            let claims: Vec<Claim> = claims.into_iter().map(claim).collect();
            let least: u64 = claims.iter().map(|claim| claim.least).sum();
            let most: u64 = claims.iter().map(|claim| claim.most).sum();
            let all = least + (most - least) * part / 100;
            let parts = divide(all, &claims);
            for (claim, part) in claims.iter().zip(&parts) {
                prop_assert!((claim.least..=claim.most).contains(part));
            }
            let sum = parts.iter().sum::<u64>();
            prop_assert!(sum.abs_diff(all) <= claims.len() as u64, "{sum} of {all}");
        }
    }
}
