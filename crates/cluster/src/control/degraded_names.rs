//! Names of the objects that have damaged replicas, or fewer replicas than they should.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cairn_base::scrub::{DegradedObject, DegradedObjects, Wholeness};
use cairn_base::{BlockId, ClusterMap, GroupId, NodeId, Owner, Result};
use cairn_meta::check::damage::{self, BadBlock};
use cairn_meta::check::{Bound, Chunk, each_chunk};
use cairn_meta::engine::Snapshot;
use cairn_meta::rows::Place;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::data::FoundBlock;
use crate::limits::{
    DEGRADED_BLOCKS, DEGRADED_HITS, DEGRADED_KEPT, DEGRADED_NAMES, DEGRADED_NAMES_BYTES,
};

/// Bytes of a range in an answer, without the name of its object.
const RANGE_BYTES: usize = 40;

/// The objects that are being named, or were named last.
#[derive(Default)]
pub(super) struct Naming {
    latest: Mutex<Option<Latest>>,
}

struct Latest {
    run: (u64, u64),
    begun: Instant,
    done: Option<CompletedListing>,
}

struct CompletedListing {
    named: Arc<DegradedObjects>,
    ended: Instant,
    is_taken: bool,
}

/// Answer to a request for the names of a scrub.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// Ask again later.
    Wait,
    /// The caller looks them up, and ends that with [`Naming::end`].
    Begin,
    Done(Arc<DegradedObjects>),
}

impl Naming {
    /// Begins one look-up at a time, and with a rest after each that is as long as it took. All
    /// callers that ask for the same scrub, by the same epoch of the map, share one. Names are kept
    /// for a while only: a later caller gets them as they are then.
    pub(super) fn turn(&self, run: (u64, u64), now: Instant) -> Turn {
        let mut latest = self.latest.lock();
        if let Some(Latest { run: of, begun, done }) = &mut *latest {
            let Some(done) = done else { return Turn::Wait };
            let age = now.saturating_duration_since(done.ended);
            if *of == run && age < DEGRADED_KEPT {
                done.is_taken = true;
                return Turn::Done(Arc::clone(&done.named));
            }
            let took = done.ended.saturating_duration_since(*begun);
            let kept = if done.is_taken { Duration::ZERO } else { DEGRADED_KEPT };
            if age < took.max(kept) {
                return Turn::Wait;
            }
        }
        *latest = Some(Latest { run, begun: now, done: None });
        Turn::Begin
    }

    pub(super) fn end(&self, named: DegradedObjects, now: Instant) {
        if let Some(latest) = &mut *self.latest.lock() {
            latest.done =
                Some(CompletedListing { named: Arc::new(named), ended: now, is_taken: false });
        }
    }
}

/// Findings of all chunkservers, block by block.
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

/// Judges a block of `group` whose replicas on the nodes `damaged` are damaged.
fn wholeness(map: &ClusterMap, group: GroupId, damaged: &BTreeSet<NodeId>) -> Wholeness {
    let Some(group) = map.groups.get(&group) else { return Wholeness::Lost };
    let up = group.in_sync().filter(|node| map.is_up(*node) && !damaged.contains(node)).count();
    match up {
        0 => Wholeness::Lost,
        _ if up >= group.redundancy.members() => Wholeness::Repaired,
        _ => Wholeness::Degraded,
    }
}

/// Blocks to be named.
#[derive(Default)]
pub(super) struct BadBlockList {
    counts: [u64; 3],
    bad: BTreeMap<Wholeness, Vec<BadBlock>>,
    is_cut: bool,
}

impl BadBlockList {
    pub(super) fn counts(&self) -> [u64; 3] {
        self.counts
    }

    pub(super) fn add(&mut self, wholeness: Wholeness, block: BlockId, owner: Owner) {
        self.counts[wholeness as usize] += 1;
        let bad = self.bad.entry(wholeness).or_default();
        if bad.len() < DEGRADED_BLOCKS {
            bad.push(BadBlock { block, owner, what: wholeness.word().to_owned() });
        } else {
            self.is_cut = true;
        }
    }
}

/// Names the objects of all these blocks, and of all blocks in groups that lack members. The number
/// of passes over the metadata does not depend on the number of blocks. Blocks.
pub(super) fn name_all(
    snapshot: &dyn Snapshot,
    map: &ClusterMap,
    findings: &Findings,
) -> Result<DegradedObjects> {
    let mut listed = BadBlockList::default();
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
    name_listed(snapshot, listed)
}

/// Names the objects of blocks, in a number of passes over the metadata that does not depend on the
/// number of blocks. Blocks.
pub(super) fn name_listed(
    snapshot: &dyn Snapshot,
    listed: BadBlockList,
) -> Result<DegradedObjects> {
    let BadBlockList { mut counts, bad, mut is_cut } = listed;
    let bad: Vec<BadBlock> = bad.into_values().flatten().collect();
    let named = damage::name(snapshot, &bad, Bound::new(DEGRADED_HITS))?;
    let of_word = |word: &str| Wholeness::ALL.into_iter().find(|one| one.word() == word);
    let garbage: BTreeSet<BlockId> = named.garbage.into_iter().collect();
    // They belong to no object, and no other node replaces them.
    for one in bad.iter().filter(|one| garbage.contains(&one.block)) {
        if let Some(wholeness) = of_word(&one.what) {
            counts[wholeness as usize] -= 1;
        }
    }
    let objects = named.damaged.into_iter().map(|one| DegradedObject {
        wholeness: of_word(&one.what).unwrap_or(Wholeness::Degraded),
        object: one.object,
        start: one.start,
        end: one.end,
    });
    let mut objects = merged(objects.collect());
    let fits = fitting(&objects);
    is_cut |= named.is_cut || fits < objects.len();
    let all = count(&objects);
    objects.truncate(fits);
    let (garbage, unnamed) = (garbage.len() as u64, all - count(&objects));
    Ok(DegradedObjects { objects, is_cut, blocks: counts, garbage, silent: Vec::new(), unnamed })
}

/// Returns the ranges in order; adjacent ranges of an object become one.
fn merged(mut ranges: Vec<DegradedObject>) -> Vec<DegradedObject> {
    ranges.sort();
    ranges.dedup_by(|next, last| {
        let meets = (next.wholeness, &next.object) == (last.wholeness, &last.object)
            && next.start <= last.end;
        if meets {
            last.end = last.end.max(next.end);
        }
        meets
    });
    ranges
}

/// Returns the number of objects to which these ranges, which are in order, belong.
fn count(ranges: &[DegradedObject]) -> u64 {
    let objects =
        ranges.chunk_by(|one, next| (one.wholeness, &one.object) == (next.wholeness, &next.object));
    objects.count() as u64
}

/// Returns the number of ranges that fit in an answer.
fn fitting(ranges: &[DegradedObject]) -> usize {
    let (mut bytes, mut objects, mut last) = (0, 0, None);
    let fits = ranges.iter().take_while(|one| {
        let object = (one.wholeness, &one.object);
        objects += usize::from(last.replace(object) != Some(object));
        bytes += one.object.len() + RANGE_BYTES;
        bytes <= DEGRADED_NAMES_BYTES && objects <= DEGRADED_NAMES
    });
    fits.count()
}

/// Lists the blocks of one row of extents that are in groups which lack members.
fn list_poor(
    chunk: &Chunk,
    poor: &BTreeMap<GroupId, Wholeness>,
    findings: &Findings,
    listed: &mut BadBlockList,
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

    fn range(object: &str, start: u64, end: u64) -> DegradedObject {
        DegradedObject { wholeness: Wholeness::Degraded, object: object.into(), start, end }
    }

    #[test]
    fn ranges_that_meet_are_one() {
        let lost = DegradedObject { wholeness: Wholeness::Lost, ..range("b/large", 8, 12) };
        let ranges = vec![
            range("b/large", 4, 8),
            range("b/other", 8, 12),
            range("b/large", 0, 4),
            range("b/large", 12, 16),
            lost.clone(),
        ];
        let expected =
            [lost, range("b/large", 0, 8), range("b/large", 12, 16), range("b/other", 8, 12)];
        assert_eq!(merged(ranges), expected);
    }

    #[test]
    fn objects_are_counted_and_not_their_ranges() {
        let of_large = (0..DEGRADED_NAMES as u64 * 2).map(|at| range("a", at * 8, at * 8 + 4));
        let others = (0..DEGRADED_NAMES).map(|at| range(&format!("b{at:06}"), 0, 4));
        let ranges = merged(of_large.chain(others).collect());
        assert_eq!(fitting(&ranges), DEGRADED_NAMES * 3 - 1, "one object too many");
        let objects = DEGRADED_NAMES as u64 + 1;
        assert_eq!((count(&ranges), count(&ranges[..fitting(&ranges)])), (objects, objects - 1));
        let long = "x".repeat(1 << 10);
        let ranges: Vec<_> = (0..9_000).map(|at| range(&long, at * 8, at * 8 + 4)).collect();
        assert_eq!(fitting(&ranges), DEGRADED_NAMES_BYTES / ((1 << 10) + RANGE_BYTES));
    }

    #[test]
    fn names_are_shared_and_those_of_other_scrubs_wait_for_their_turn() {
        let (naming, start) = (Naming::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let named = || DegradedObjects { garbage: 7, ..DegradedObjects::default() };
        let done = Turn::Done(Arc::new(named()));
        assert_eq!(naming.turn((5, 1), start), Turn::Begin);
        for run in [5, 6, 0] {
            assert_eq!(naming.turn((run, 1), after(1)), Turn::Wait);
        }
        naming.end(named(), after(2));
        assert_eq!(naming.turn((6, 1), after(3)), Turn::Wait, "nobody has taken the names");
        for _ in 0..2 {
            assert_eq!(naming.turn((5, 1), after(3)), done);
        }
        assert_eq!(naming.turn((5, 2), after(3)), Turn::Wait, "the map is another one");
        assert_eq!(naming.turn((6, 1), after(3)), Turn::Wait, "it rests as long as it took");
        assert_eq!(naming.turn((6, 1), after(4)), Turn::Begin);
        naming.end(named(), after(5));
        assert_eq!(naming.turn((5, 1), after(6)), Turn::Wait);
        // Old names are not what this caller wants, and no others wait for them.
        assert_eq!(naming.turn((6, 1), after(10)), Turn::Begin);
        naming.end(named(), after(11));
        assert_eq!(naming.turn((5, 1), after(16)), Turn::Begin);
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
