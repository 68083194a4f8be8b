//! The work of an fsck: rows are compared with each other, and the blocks that they name with those
//! that chunkservers list. docs/decisions/0052-fsck-of-a-cluster.md says why what it finds is true.

#![expect(clippy::disallowed_methods, reason = "rows are read on a thread that may block")]

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_base::fsck::{FsckFound, FsckPhase};
use cairn_base::map::Group;
use cairn_base::scrub::{DegradedObjects, Wholeness};
use cairn_base::{BodyId, ClusterMap, Error, GroupId, NodeId, Owner, Result};
use cairn_meta::check::damage::is_named;
use cairn_meta::check::{Bound, Estimate, SiftedRows, check_within, chunks_after, name_findings};
use tokio::time::sleep;

use super::controller::Controller;
use super::degraded_names::{BadBlockList, name_listed};
use super::fsck::Fsck;
use super::paced_snapshot::{Going, PacedSnapshot};
use crate::data::{MemberSays, NamedBlock};
use crate::limits::{
    DEGRADED_HITS, FSCK_AGAIN, FSCK_BLOCKS, FSCK_CHUNKS, FSCK_FINDINGS_BYTES, FSCK_KEPT, FSCK_LOOKS,
};

/// Blocks by group, in the order of their ids.
type ByGroup = BTreeMap<GroupId, Vec<NamedBlock>>;

/// Blocks that rows name.
struct NamedBlocks {
    blocks: ByGroup,
    chunks: u64,
    /// Start of the next batch; `None` after the last batch.
    last: Option<(BodyId, u32)>,
}

/// Blocks that were found not to be whole, and members that could not say.
#[derive(Default)]
struct ComparisonResult {
    listed: BadBlockList,
    unknown: u64,
    /// Members that did not answer, and why.
    silent: BTreeMap<NodeId, String>,
}

/// Result of counting the good replicas of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Replicas {
    Whole,
    Bad(Wholeness),
    /// Depends on members that did not answer.
    Unknown,
}

/// A block after a comparison with the lists of its group.
struct BlockVerdict {
    named: NamedBlock,
    replicas: Replicas,
}

impl Controller {
    pub(super) async fn carry_out(self: Arc<Self>, fsck: Arc<Fsck>) {
        let _over = fsck.going.guard();
        let found = self.find(&fsck).await;
        let ended = self.clock.now();
        let (phase, failure) = match &found {
            Ok(_) => (FsckPhase::Ended, String::new()),
            Err(_) if fsck.going.is_over() => (FsckPhase::Stopped, String::new()),
            Err(error) if fsck.going.is_replaced() => (FsckPhase::Replaced, error.to_string()),
            Err(error) => (FsckPhase::Failed, error.to_string()),
        };
        if let Ok(found) = found {
            // Nobody else sets it.
            let _ = fsck.found.set(Arc::new(found));
        }
        let state = fsck.note(|state| {
            (state.phase, state.failure, state.ended) = (phase, failure, ended);
            state.clone()
        });
        if state.is_clean() {
            tracing::info!(?state, "fsck of the cluster found nothing")
        } else {
            tracing::warn!(?state, "fsck of the cluster is over")
        }
    }

    async fn find(&self, fsck: &Arc<Fsck>) -> Result<FsckFound> {
        let findings = blocking(fsck, check_rows).await?;
        fsck.note(|state| state.phase = FsckPhase::Blocks);
        let ComparisonResult { listed, unknown, silent } = self.compare_all(fsck).await?;
        fsck.note(|state| state.phase = FsckPhase::Names);
        let degraded = blocking(fsck, move |fsck| {
            let snapshot = fsck.going.snapshot()?;
            name_listed(&PacedSnapshot::new(&*snapshot, &fsck.going), listed)
        });
        let degraded = DegradedObjects { silent: silent.into_iter().collect(), ..degraded.await? };
        fsck.note(|state| {
            let [lost, degraded, _] = degraded.blocks;
            (state.lost_blocks, state.degraded_blocks) = (lost, degraded);
            state.unknown_blocks = unknown;
        });
        Ok(FsckFound { findings, degraded })
    }

    /// Compares all blocks that rows name, batch by batch.
    async fn compare_all(&self, fsck: &Arc<Fsck>) -> Result<ComparisonResult> {
        let (mut compared, mut after) = (ComparisonResult::default(), None);
        loop {
            let batch = blocking(fsck, move |fsck| read_batch(&fsck.going, after)).await?;
            fsck.note(|state| {
                state.rows += batch.chunks;
                state.total_rows = state.total_rows.max(state.rows);
            });
            self.compare_batch(fsck, batch.blocks, &mut compared).await?;
            after = batch.last;
            if after.is_none() {
                fsck.note(|state| state.total_rows = state.rows);
                return Ok(compared);
            }
        }
    }

    /// Compares with the lists of all groups, and again where something is missing: only what is
    /// still missing then counts.
    async fn compare_batch(
        &self,
        fsck: &Arc<Fsck>,
        mut wanted: ByGroup,
        compared: &mut ComparisonResult,
    ) -> Result<()> {
        for look in 0..FSCK_LOOKS {
            fsck.note(|state| (state.groups, state.total_groups) = (0, wanted.len() as u64));
            let (mut again, mut bad) = (ByGroup::new(), Vec::new());
            for (group, named) in std::mem::take(&mut wanted) {
                fsck.going.look()?;
                let (judged, silent) = self.look_at(group, &named).await?;
                let is_last = look + 1 == FSCK_LOOKS;
                if is_last && !judged.is_empty() {
                    compared.silent.extend(silent);
                }
                for one in judged {
                    let is_known = look > 0 && one.replicas != Replicas::Unknown;
                    if is_known || is_last {
                        bad.push(one)
                    } else {
                        again.entry(group).or_default().push(one.named)
                    }
                }
                fsck.note(|state| {
                    state.blocks += if look == 0 { named.len() as u64 } else { 0 };
                    state.groups += 1;
                });
            }
            self.list(fsck, bad, compared).await?;
            if again.is_empty() {
                return Ok(());
            }
            wanted = again;
            sleep(FSCK_AGAIN).await;
        }
        Ok(())
    }

    /// Judges these blocks by what the members of their group list now. Returns the blocks that are
    /// not whole, and the members that did not answer. If the group changed meanwhile, its blocks
    /// are unknown.
    async fn look_at(
        &self,
        group: GroupId,
        named: &[NamedBlock],
    ) -> Result<(Vec<BlockVerdict>, Vec<(NodeId, String)>)> {
        let map = self.keeper.current();
        let said = self.chunkserver_pool()?.compare(&map, group, named).await;
        let is_settled = is_same(&map, &self.keeper.current(), group);
        let of_group = map.groups.get(&group);
        let judged = named.iter().enumerate().filter_map(|(at, named)| {
            let replicas = match judge(of_group, &said, at) {
                Replicas::Whole => return None,
                Replicas::Bad(wholeness) if is_settled => Replicas::Bad(wholeness),
                _ => Replicas::Unknown,
            };
            Some(BlockVerdict { named: *named, replicas })
        });
        let judged = judged.collect();
        let silent = said.into_iter().filter_map(|one| {
            let refused = one.has.err()?;
            Some((one.node, refused.error.to_string()))
        });
        Ok((judged, silent.collect()))
    }

    /// Notes those of the blocks that rows still name.
    async fn list(
        &self,
        fsck: &Arc<Fsck>,
        bad: Vec<BlockVerdict>,
        compared: &mut ComparisonResult,
    ) -> Result<()> {
        if bad.is_empty() {
            return Ok(());
        }
        for one in blocking(fsck, move |fsck| still_named(&fsck.going, bad)).await? {
            let BlockVerdict { named: NamedBlock { block, owner, .. }, replicas } = one;
            match replicas {
                Replicas::Whole => {}
                Replicas::Bad(wholeness) => compared.listed.add(wholeness, block, owner),
                Replicas::Unknown => compared.unknown += 1,
            }
        }
        let ([lost, degraded, _], unknown) = (compared.listed.counts(), compared.unknown);
        fsck.note(|state| {
            (state.lost_blocks, state.degraded_blocks) = (lost, degraded);
            state.unknown_blocks = unknown;
        });
        Ok(())
    }
}

/// Runs work that reads rows on a thread that may block.
async fn blocking<R: Send + 'static>(
    fsck: &Arc<Fsck>,
    work: impl FnOnce(&Fsck) -> Result<R> + Send + 'static,
) -> Result<R> {
    let fsck = Arc::clone(fsck);
    let done = tokio::task::spawn_blocking(move || work(&fsck)).await;
    done.map_err(|error| Error::Unavailable(error.to_string()))?
}

/// Compares all rows of one state with each other. Returns a name and a text for each fault.
fn check_rows(fsck: &Fsck) -> Result<Vec<(String, String)>> {
    let snapshot = fsck.going.snapshot()?;
    let sifted = SiftedRows::new(&*snapshot);
    let paced = PacedSnapshot::new(&sifted, &fsck.going);
    let estimate = Estimate::of(&paced)?;
    let portions = estimate.portions(FSCK_KEPT * 3 / 4);
    let total = estimate.rows.saturating_mul(portions).saturating_add(estimate.chunks);
    fsck.note(|state| state.total_rows = total);
    let mut report = check_within(&paced, portions, FSCK_KEPT, &mut |rows| {
        fsck.note(|state| {
            state.rows = rows;
            state.total_rows = state.total_rows.max(rows);
        });
    })?;
    // What could not be read on this master comes first.
    let damaged = sifted.findings();
    report.finding_count += damaged.len() as u64;
    report.findings.splice(..0, damaged);
    fsck.note(|state| {
        (state.buckets, state.directories, state.files) =
            (report.buckets, report.directories, report.files);
        state.findings = report.finding_count;
        // All rows were counted, and those of extents are read once more.
        state.total_rows = state.rows.saturating_add(estimate.chunks);
    });
    let mut bound = Bound::new(DEGRADED_HITS);
    let mut findings = name_findings(&paced, report.findings, &mut bound)?;
    findings.truncate(fitting(&findings));
    Ok(findings)
}

/// Returns the number of findings that fit in an answer.
fn fitting(findings: &[(String, String)]) -> usize {
    let mut bytes = 0;
    let fits = findings.iter().take_while(|(about, what)| {
        bytes += about.len() + what.len();
        bytes <= FSCK_FINDINGS_BYTES
    });
    fits.count()
}

/// Reads the next blocks that rows name now.
fn read_batch(going: &Going, after: Option<(BodyId, u32)>) -> Result<NamedBlocks> {
    let snapshot = going.snapshot()?;
    let sifted = SiftedRows::new(&*snapshot);
    let paced = PacedSnapshot::new(&sifted, going);
    let mut batch = NamedBlocks { blocks: ByGroup::new(), chunks: 0, last: None };
    let mut count = 0;
    for chunk in chunks_after(&paced, after) {
        let chunk = chunk?;
        let owner = Owner { body: chunk.body, chunk: chunk.chunk };
        for ((group, block), reach) in chunk.blocks() {
            count += 1;
            batch.blocks.entry(group).or_default().push(NamedBlock { block, owner, reach });
        }
        batch.chunks += 1;
        if count >= FSCK_BLOCKS || batch.chunks >= FSCK_CHUNKS {
            batch.last = Some((chunk.body, chunk.chunk));
            break;
        }
    }
    batch.blocks.values_mut().for_each(|named| named.sort_by_key(|one| one.block));
    Ok(batch)
}

/// Returns the blocks that rows name now.
fn still_named(going: &Going, bad: Vec<BlockVerdict>) -> Result<Vec<BlockVerdict>> {
    let snapshot = going.snapshot()?;
    let paced = PacedSnapshot::new(&*snapshot, going);
    let mut named = Vec::new();
    for one in bad {
        if is_named(&paced, one.named.block, one.named.owner)? {
            named.push(one);
        }
    }
    Ok(named)
}

/// Returns true if two maps agree on a group and on which of its members are up.
fn is_same(before: &ClusterMap, after: &ClusterMap, group: GroupId) -> bool {
    let of = |map: &ClusterMap| {
        let members = map.groups.get(&group).map(|group| group.members.clone());
        let up = members.iter().flatten().map(|member| map.is_up(member.node));
        let up: Vec<bool> = up.collect();
        (members, up)
    };
    of(before) == of(after)
}

/// Judges a block by the answers of the members of its group.
fn judge(group: Option<&Group>, said: &[MemberSays], at: usize) -> Replicas {
    let wanted = group.map_or(1, |group| group.redundancy.members());
    let (mut good, mut spare, mut silent) = (0, 0, 0);
    for MemberSays { in_sync, has, .. } in said {
        match has {
            Err(_) => silent += usize::from(*in_sync),
            Ok(has) if has.get(at) != Some(&true) => {}
            Ok(_) if *in_sync => good += 1,
            // A member that catches up; others read from it if they must.
            Ok(_) => spare += 1,
        }
    }
    match good + spare {
        _ if good >= wanted => Replicas::Whole,
        _ if good + silent >= wanted => Replicas::Unknown,
        0 if silent > 0 => Replicas::Unknown,
        0 => Replicas::Bad(Wholeness::Lost),
        _ => Replicas::Bad(Wholeness::Degraded),
    }
}

#[cfg(test)]
mod tests {
    use cairn_base::Redundancy;
    use cairn_base::map::Member;

    use super::*;
    use crate::data::Refusal;

    /// Members that are up: whether each is in sync, and whether it has the block.
    fn judged(members: &[(bool, Option<bool>)]) -> Replicas {
        let group = Group { redundancy: Redundancy::Copies(3), ..Group::default() };
        let one = |(at, (in_sync, has)): (usize, &(bool, Option<bool>))| MemberSays {
            node: NodeId(at as u64),
            in_sync: *in_sync,
            has: has
                .map(|has| vec![false, has])
                .ok_or_else(|| Refusal::from(Error::Unavailable("silent".into()))),
        };
        let said: Vec<MemberSays> = members.iter().enumerate().map(one).collect();
        judge(Some(&group), &said, 1)
    }

    #[test]
    fn a_block_is_lost_only_if_all_say_that_they_lack_it() {
        let (has, lacks, silent) = ((true, Some(true)), (true, Some(false)), (true, None));
        let (spare, behind) = ((false, Some(true)), (false, Some(false)));
        let (lost, degraded) = (Replicas::Bad(Wholeness::Lost), Replicas::Bad(Wholeness::Degraded));
        assert_eq!(judged(&[has, has, has]), Replicas::Whole);
        assert_eq!(judged(&[has, has, has, lacks]), Replicas::Whole, "one of them leaves");
        assert_eq!(judged(&[has, has, lacks]), degraded);
        assert_eq!(judged(&[has, has]), degraded, "the third is down");
        assert_eq!(judged(&[has, has, silent]), Replicas::Unknown);
        assert_eq!(judged(&[has, lacks, silent]), degraded, "whatever the third says");
        assert_eq!(judged(&[lacks, lacks, silent]), Replicas::Unknown);
        assert_eq!(judged(&[lacks, lacks, spare]), degraded, "it can be read still");
        assert_eq!(judged(&[has, has, behind]), degraded);
        assert_eq!(judged(&[lacks, lacks, lacks]), lost);
        assert_eq!(judged(&[]), lost, "all are down");
        assert_eq!(judge(None, &[], 0), lost, "there is no such group");
    }

    #[test]
    fn a_group_is_another_one_when_its_members_change_or_go_down() {
        use cairn_base::map::Node;
        use cairn_base::{KeyHash, Pin, Role};
        let mut map = ClusterMap::default();
        let pin = Pin { key: KeyHash([1; 32]), roles: Role::Chunkserver.into() };
        map.nodes.insert(NodeId(1), Node { is_up: true, ..Node::new(pin) });
        let members = vec![Member::new(NodeId(1), true)];
        map.groups.insert(GroupId(1), Group { members, ..Group::default() });
        let mut down = map.clone();
        down.nodes.get_mut(&NodeId(1)).unwrap().is_up = false;
        let mut behind = map.clone();
        behind.groups.get_mut(&GroupId(1)).unwrap().members[0].in_sync = false;
        let later = ClusterMap { epoch: 9, ..map.clone() };
        assert!(is_same(&map, &later, GroupId(1)) && is_same(&map, &down, GroupId(2)));
        assert!(!is_same(&map, &down, GroupId(1)) && !is_same(&map, &behind, GroupId(1)));
    }

    #[test]
    fn findings_are_named_as_far_as_they_fit_in_an_answer() {
        let long = ("x".repeat(1000), "y".repeat(24));
        let findings = vec![long; FSCK_FINDINGS_BYTES / 1024 + 5];
        assert_eq!(fitting(&findings), FSCK_FINDINGS_BYTES / 1024);
        assert_eq!(fitting(&findings[..3]), 3);
    }
}
