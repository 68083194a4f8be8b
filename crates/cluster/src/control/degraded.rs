//! Which objects have damaged replicas, or fewer replicas than they should: by name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cairn_base::{BlockId, ClusterMap, GroupId, NodeId, Owner, Result};
use cairn_meta::check::damage::{self, BadBlock};
use cairn_meta::check::{Chunk, each_chunk};
use cairn_meta::engine::Snapshot;
use cairn_meta::rows::Place;
use parking_lot::Mutex;

use crate::data::FoundBlock;
use crate::limits::{DEGRADED_NAMES, DEGRADED_NAMES_BYTES};

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Wholeness {
    /// No good replica can be read now.
    Lost,
    /// There are good replicas, fewer than there should be.
    Degraded,
    /// A damaged replica was replaced.
    Repaired,
}

impl Wholeness {
    pub const ALL: [Wholeness; 3] = [Wholeness::Lost, Wholeness::Degraded, Wholeness::Repaired];

    pub fn word(self) -> &'static str {
        match self {
            Wholeness::Lost => "lost",
            Wholeness::Degraded => "degraded",
            Wholeness::Repaired => "repaired",
        }
    }
}

/// Bytes of an object, and how many replicas they have.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DegradedObject {
    pub wholeness: Wholeness,
    /// `bucket/key`.
    pub object: String,
    /// The first byte that it is about, and the one after the last.
    pub start: u64,
    pub end: u64,
}

/// The objects, the worst first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DegradedObjects {
    pub objects: Vec<DegradedObject>,
    /// There are more objects than are named.
    pub is_cut: bool,
    /// Blocks by how bad it is, in the order of [`Wholeness::ALL`].
    pub blocks: [u64; 3],
    /// Of these, blocks that no object holds any more, as far as they were looked up.
    pub garbage: u64,
    /// Chunkservers that could not be asked for what they found, and why.
    pub silent: Vec<(NodeId, String)>,
}

/// What is being named, or was: the last of it, for whoever asks again.
#[derive(Default)]
pub(super) struct Naming {
    pub(super) latest: Mutex<Option<(u64, Named)>>,
}

/// How far it has come.
#[derive(Clone)]
pub(super) enum Named {
    Working,
    Done(Arc<DegradedObjects>),
}

/// What all chunkservers have found, block by block.
pub(super) struct Findings {
    blocks: BTreeMap<(GroupId, BlockId), Finding>,
}

struct Finding {
    owner: Owner,
    damaged: BTreeSet<NodeId>,
}

impl Findings {
    pub(super) fn of(found: &[(NodeId, Vec<FoundBlock>)]) -> Findings {
        let mut blocks: BTreeMap<(GroupId, BlockId), Finding> = BTreeMap::new();
        for (node, found) in found {
            for FoundBlock { group, block, owner, is_repaired } in found {
                let finding = Finding { owner: *owner, damaged: BTreeSet::new() };
                let finding = blocks.entry((*group, *block)).or_insert(finding);
                if !is_repaired {
                    finding.damaged.insert(*node);
                }
            }
        }
        Findings { blocks }
    }
}

/// How a block stands of which replicas are damaged on these nodes.
fn wholeness(map: &ClusterMap, group: GroupId, damaged: &BTreeSet<NodeId>) -> Wholeness {
    let Some(group) = map.groups.get(&group) else { return Wholeness::Lost };
    let up = group.in_sync().filter(|node| map.is_up(*node) && !damaged.contains(node)).count();
    match up {
        0 => Wholeness::Lost,
        _ if up >= group.redundancy.members() => Wholeness::Repaired,
        _ => Wholeness::Degraded,
    }
}

/// Blocks to be named, no more of each kind than objects are.
#[derive(Default)]
struct Listed {
    counts: [u64; 3],
    bad: BTreeMap<Wholeness, Vec<BadBlock>>,
    is_cut: bool,
}

impl Listed {
    fn add(&mut self, wholeness: Wholeness, block: BlockId, owner: Owner) {
        self.counts[wholeness as usize] += 1;
        let bad = self.bad.entry(wholeness).or_default();
        if bad.len() < DEGRADED_NAMES {
            bad.push(BadBlock { block, owner, what: wholeness.word().to_owned() });
        } else {
            self.is_cut = true;
        }
    }
}

/// Names the objects of all these blocks, and of all blocks in groups that lack members. The number
/// of passes over the metadata does not depend on how many there are. Blocks.
pub(super) fn name_all(
    snapshot: &dyn Snapshot,
    map: &ClusterMap,
    findings: &Findings,
) -> Result<DegradedObjects> {
    let mut listed = Listed::default();
    for ((group, block), Finding { owner, damaged }) in &findings.blocks {
        listed.add(wholeness(map, *group, damaged), *block, *owner);
    }
    let none = BTreeSet::new();
    let poor = map.groups.keys().map(|group| (*group, wholeness(map, *group, &none)));
    let poor: BTreeMap<GroupId, Wholeness> =
        poor.filter(|(_, wholeness)| *wholeness != Wholeness::Repaired).collect();
    if !poor.is_empty() {
        each_chunk(snapshot, &mut |chunk| {
            list_poor(&chunk, &poor, findings, &mut listed);
            Ok(())
        })?;
    }
    let Listed { counts, bad, mut is_cut } = listed;
    let bad: Vec<BadBlock> = bad.into_values().flatten().collect();
    let (damaged, garbage) = damage::name(snapshot, &bad)?;
    let of_word = |word: &str| Wholeness::ALL.into_iter().find(|one| one.word() == word);
    let mut objects: Vec<DegradedObject> = damaged
        .into_iter()
        .map(|one| DegradedObject {
            wholeness: of_word(&one.what).unwrap_or(Wholeness::Degraded),
            object: one.object,
            start: one.start,
            end: one.end,
        })
        .collect();
    objects.sort();
    let mut bytes = 0;
    let fits = objects.iter().take(DEGRADED_NAMES).take_while(|one| {
        bytes += one.object.len();
        bytes <= DEGRADED_NAMES_BYTES
    });
    let fits = fits.count();
    is_cut |= fits < objects.len();
    objects.truncate(fits);
    Ok(DegradedObjects { objects, is_cut, blocks: counts, garbage, silent: Vec::new() })
}

/// The blocks of one row of extents that are in groups which lack members.
fn list_poor(
    chunk: &Chunk,
    poor: &BTreeMap<GroupId, Wholeness>,
    findings: &Findings,
    listed: &mut Listed,
) {
    let owner = Owner { body: chunk.body, chunk: chunk.chunk };
    let mut seen = BTreeSet::new();
    for extent in &chunk.extents.extents {
        let Place::Block { group, block, .. } = extent.place else { continue };
        let Some(wholeness) = poor.get(&group) else { continue };
        if seen.insert((group, block)) && !findings.blocks.contains_key(&(group, block)) {
            listed.add(*wholeness, block, owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use cairn_base::map::{Group, Member, Node};
    use cairn_base::{BodyId, KeyHash, Pin, Redundancy, Role, SessionId};

    use super::*;

    fn map(up: &[u64]) -> ClusterMap {
        let mut map = ClusterMap { replicas: 3, minimum: 2, ..ClusterMap::default() };
        for id in 1..=3 {
            let pin = Pin { key: KeyHash([id as u8; 32]), roles: Role::Chunkserver.into() };
            let node = Node { is_up: up.contains(&id), ..Node::new(pin) };
            map.nodes.insert(NodeId(id), node);
        }
        let members = (1..=3).map(|id| Member::new(NodeId(id), true)).collect();
        let group = Group { redundancy: Redundancy::Copies(3), members, ..Group::default() };
        map.groups.insert(GroupId(1), group);
        map
    }

    #[test]
    fn a_block_is_lost_only_when_no_good_replica_is_left() {
        let damaged = |nodes: &[u64]| nodes.iter().map(|id| NodeId(*id)).collect::<BTreeSet<_>>();
        let of = |up: &[u64], bad: &[u64]| wholeness(&map(up), GroupId(1), &damaged(bad));
        assert_eq!(of(&[1, 2, 3], &[]), Wholeness::Repaired);
        assert_eq!(of(&[1, 2, 3], &[1]), Wholeness::Degraded);
        assert_eq!(of(&[1, 2], &[]), Wholeness::Degraded);
        assert_eq!(of(&[1, 2, 3], &[1, 2, 3]), Wholeness::Lost);
        assert_eq!(of(&[1], &[1]), Wholeness::Lost, "the others are down");
        assert_eq!(wholeness(&map(&[1]), GroupId(9), &damaged(&[])), Wholeness::Lost);
    }

    #[test]
    fn what_several_nodes_found_of_one_block_is_put_together() {
        let block = BlockId { session: SessionId(1), counter: 1 };
        let body = BodyId { session: SessionId(1), counter: 1 };
        let owner = Owner { body, chunk: 0 };
        let one = |is_repaired| FoundBlock { group: GroupId(1), block, owner, is_repaired };
        let found = [(NodeId(1), vec![one(false)]), (NodeId(2), vec![one(true)])];
        let findings = Findings::of(&found);
        let damaged = &findings.blocks[&(GroupId(1), block)].damaged;
        assert_eq!(damaged.iter().copied().collect::<Vec<_>>(), [NodeId(1)]);
    }
}
