//! Blocks of several nodes as one store.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::map::{Group, Node};
use cairn_base::{
    BlockId, ClusterMap, Error, GroupId, NodeId, Owner, Result, Rng, Role, Stage, stage,
};
use cairn_blocks::{BlockCounters, BlockInfo, BlockPlace, Blocks, Manner, Usage, Wish};
use futures_util::future::join_all;
use tokio::sync::Semaphore;

use super::ask::Key;
use super::form::Refusal;
use super::nodes::{Loads, Nodes};
use super::{MapSource, Pool};
use crate::limits::{DELETE_BLOCKS, INVENTORY_BLOCKS, NODE_REQUESTS};

/// Deletions of the remains of failed writes that run at the same time, at most; further ones are
/// not begun.
const CLEANUPS: usize = 16;

/// The blocks of a cluster. Clones are the same client. The id of a block whose write failed must
/// not be used again: its remains are being deleted.
#[derive(Clone)]
pub struct ReplicatedBlocks {
    pub(super) shared: Arc<ReplicatedShared>,
}

pub(super) struct ReplicatedShared {
    pub map: Arc<dyn MapSource>,
    pub pool: Arc<Pool>,
    pub nodes: Nodes,
    pub loads: Loads,
    pub rng: Arc<dyn Rng>,
    pub cleanups: Arc<Semaphore>,
}

impl ReplicatedBlocks {
    pub fn new(
        map: Arc<dyn MapSource>,
        pool: Arc<Pool>,
        loads: Loads,
        rng: Arc<dyn Rng>,
    ) -> ReplicatedBlocks {
        ReplicatedBlocks::limited(map, pool, loads, rng, NODE_REQUESTS)
    }

    /// Makes a client that uses at most `connections` connections to each node.
    pub fn limited(
        map: Arc<dyn MapSource>,
        pool: Arc<Pool>,
        loads: Loads,
        rng: Arc<dyn Rng>,
        connections: usize,
    ) -> ReplicatedBlocks {
        let (nodes, cleanups) = (Nodes::new(connections), Arc::new(Semaphore::new(CLEANUPS)));
        ReplicatedBlocks {
            shared: Arc::new(ReplicatedShared { map, pool, nodes, loads, rng, cleanups }),
        }
    }

    /// Returns the nodes that failed recently, and are avoided.
    pub fn suspects(&self) -> Vec<NodeId> {
        self.shared.nodes.suspects()
    }
}

impl ReplicatedShared {
    /// Returns the nodes to ask for a block, the best first.
    pub(super) fn order(&self, map: &ClusterMap, group: GroupId) -> Vec<NodeId> {
        let members = map.groups.get(&group).map(|group| &group.members[..]).unwrap_or_default();
        let turn = self.rng.next_u64();
        let key = |at: usize, node: NodeId, in_sync: bool| {
            let shuffled = (at as u64).wrapping_add(turn) % members.len() as u64;
            let is_ready = in_sync && map.is_up(node);
            (!is_ready, self.nodes.is_avoided(node), self.nodes.in_flight(node), shuffled)
        };
        let keyed = members.iter().enumerate();
        let mut keyed: Vec<_> = keyed.map(|(at, m)| (key(at, m.node, m.in_sync), m.node)).collect();
        keyed.sort_unstable();
        keyed.into_iter().map(|(_, node)| node).collect()
    }

    fn members_up(&self, map: &ClusterMap, group: GroupId) -> Result<Vec<NodeId>> {
        let members = map.groups.get(&group).map(|group| &group.members[..]).unwrap_or_default();
        let all = members.iter().map(|member| member.node);
        let up: Vec<NodeId> = all.filter(|node| map.is_up(*node)).collect();
        if up.is_empty() {
            return Err(Error::Unavailable(format!("no member of group {group} is up")));
        }
        Ok(up)
    }

    /// Deletes the blocks on every member that is up; there must be at least one. Members in sync
    /// come first. So a member that copies from them either has copied a block before it gets the
    /// request to delete it, or finds none to copy.
    pub(super) async fn delete_all(
        &self,
        map: &ClusterMap,
        group: GroupId,
        blocks: &[BlockId],
    ) -> Result<(), Refusal> {
        let up = self.members_up(map, group)?;
        let in_sync = |node: &NodeId| {
            map.groups.get(&group).is_some_and(|group| group.in_sync().any(|id| id == *node))
        };
        let (first, then): (Vec<NodeId>, Vec<NodeId>) = up.into_iter().partition(in_sync);
        for page in blocks.chunks(DELETE_BLOCKS) {
            for nodes in [&first, &then] {
                let each = nodes.iter().map(|node| async move {
                    let in_flight = self.nodes.enter(*node);
                    let _turn = in_flight.turn().await;
                    self.pool.delete(map, *node, group, page).await
                });
                join_all(each).await.into_iter().collect::<Result<(), Refusal>>()?;
            }
        }
        Ok(())
    }

    /// Returns a map that has this group, or the newest map if none has it.
    pub(super) async fn map_of(&self, group: GroupId) -> Arc<ClusterMap> {
        let map = self.map.current();
        if map.groups.contains_key(&group) {
            return map;
        }
        self.newer(map.epoch).await
    }

    async fn page(
        &self,
        map: &ClusterMap,
        group: GroupId,
        after: Option<BlockId>,
        limit: usize,
    ) -> Result<Vec<BlockInfo>, Refusal> {
        let each = self.members_up(map, group)?;
        let each = each.into_iter().map(|node| async move {
            let in_flight = self.nodes.enter(node);
            let _turn = in_flight.turn().await;
            self.pool.inventory(map, node, group, after, limit).await
        });
        let pages: Vec<_> = join_all(each).await.into_iter().collect::<Result<_, Refusal>>()?;
        Ok(merge(&pages, limit))
    }
}

/// Returns the blocks that any of these pages has, as far as all of them reach, at most `limit`.
pub(super) fn merge(pages: &[Vec<BlockInfo>], limit: usize) -> Vec<BlockInfo> {
    let all = pages.iter().flatten().map(|info| (info.block, *info));
    let union: BTreeMap<BlockId, BlockInfo> = all.collect();
    let end = end_of(pages, limit);
    let within = |info: &BlockInfo| end.is_none_or(|end| info.block <= end);
    union.into_values().filter(within).take(limit).collect()
}

/// Returns the entry of a block in a page, which is in the order of ids.
pub(super) fn find(page: &[BlockInfo], block: BlockId) -> Option<&BlockInfo> {
    page.binary_search_by_key(&block, |info| info.block).ok().and_then(|at| page.get(at))
}

/// Returns the last block of the shortest full page: after that block, a page may lack blocks that
/// its member has.
pub(super) fn end_of(pages: &[Vec<BlockInfo>], limit: usize) -> Option<BlockId> {
    let full = pages.iter().filter(|page| page.len() >= limit);
    full.filter_map(|page| page.last()).map(|last| last.block).min()
}

#[async_trait]
impl Blocks for ReplicatedBlocks {
    async fn write(
        &self,
        wish: Wish,
        block: BlockId,
        owner: Owner,
        data: Bytes,
    ) -> Result<GroupId> {
        stage::time(Stage::Peer, self.shared.write(wish, block, owner, data)).await
    }

    async fn get(&self, group: GroupId, block: BlockId, range: Range<u32>) -> Result<Bytes> {
        stage::time(Stage::Peer, self.shared.get(group, block, range)).await
    }

    fn get_now(&self, _: GroupId, _: BlockId, _: Range<u32>) -> Result<Option<Bytes>> {
        Ok(None)
    }

    /// Deletes on all members that are up; the others learn of it when they catch up.
    async fn delete(&self, group: GroupId, blocks: &[BlockId]) -> Result<()> {
        let shared = &self.shared;
        let map = shared.map_of(group).await;
        match shared.delete_all(&map, group, blocks).await {
            Err(refused) if refused.stale => {
                let map = shared.map.at_least(refused.epoch).await?;
                Ok(shared.delete_all(&map, group, blocks).await.map_err(said)?)
            }
            done => done.map_err(said),
        }
    }

    fn groups(&self) -> Vec<GroupId> {
        self.shared.map.current().groups.keys().copied().collect()
    }

    async fn inventory(
        &self,
        group: GroupId,
        mut after: Option<BlockId>,
        limit: usize,
    ) -> Result<Vec<BlockInfo>> {
        let map = self.shared.map_of(group).await;
        let mut all: Vec<BlockInfo> = Vec::new();
        while all.len() < limit {
            let most = (limit - all.len()).min(INVENTORY_BLOCKS);
            let page = self.shared.page(&map, group, after, most).await.map_err(said)?;
            let is_last = page.len() < most;
            after = page.last().map(|info| info.block).or(after);
            all.extend(page);
            if is_last {
                break;
            }
        }
        Ok(all)
    }

    /// Asks the members in turn; the first that has the block answers.
    async fn is_compressed(&self, group: GroupId, block: BlockId) -> Result<bool> {
        let shared = &self.shared;
        let (map, key) = (shared.map_of(group).await, Key { group, block });
        let mut last = None;
        for node in shared.order(&map, group) {
            let in_flight = shared.nodes.enter(node);
            let _turn = in_flight.turn().await;
            match shared.pool.get_as(&map, node, key, Some(0..1)).await {
                Ok((_, is_compressed)) => return Ok(is_compressed),
                Err(refused) => last = Some(said(refused)),
            }
        }
        Err(last.unwrap_or_else(|| Error::NotFound(format!("block {block}"))))
    }

    /// Returns the sum over all chunkservers; a chunkserver that does not answer counts as nothing.
    async fn usage(&self) -> Result<Usage> {
        let map = self.shared.map.current();
        let is_asked = |node: &&NodeId| {
            let found = map.nodes.get(node);
            found.is_some_and(|node| node.is_up && node.pin.roles.contains(Role::Chunkserver))
        };
        let each = map.nodes.keys().filter(is_asked);
        let each = each.map(|node| self.shared.pool.usage(&map, *node));
        let mut sum = Usage::default();
        for usage in join_all(each).await.into_iter().flatten() {
            sum.blocks += usage.blocks;
            sum.live_bytes += usage.live_bytes;
            sum.dead_bytes += usage.dead_bytes;
            sum.free_bytes += usage.free_bytes;
            sum.segments += usage.segments;
            sum.poisoned_segments += usage.poisoned_segments;
            sum.damaged_segments += usage.damaged_segments;
            sum.corrupt_reads += usage.corrupt_reads;
        }
        Ok(sum)
    }

    /// Every byte is on as many chunkservers as there are replicas.
    async fn room(&self) -> Result<Usage> {
        let map = self.shared.map.current();
        let is_one = |node: &Node| node.is_up && node.pin.roles.contains(Role::Chunkserver);
        if !map.nodes.values().any(is_one) {
            return Err(Error::Unavailable("no chunkserver is up".into()));
        }
        let replicas = u64::from(map.replicas.max(1));
        let mut usage = self.usage().await?;
        usage.live_bytes /= replicas;
        usage.dead_bytes /= replicas;
        usage.free_bytes /= replicas;
        Ok(usage)
    }

    fn available(&self) -> Result<()> {
        let map = self.shared.map.current();
        let unreadable = |group: &&Group| !group.in_sync().any(|node| map.is_up(node));
        let lost = map.groups.values().filter(unreadable).count();
        if lost > 0 {
            let all = map.groups.len();
            let text = format!("blocks: {lost} of {all} groups have no member that is up");
            return Err(Error::Unavailable(text));
        }
        // While groups are formed anew, none may take writes for some seconds: that passes. A new
        // cluster may still have too few chunkservers.
        let is_one = |node: &&Node| node.pin.roles.contains(Role::Chunkserver);
        let all = map.nodes.values().filter(is_one).count();
        let up = map.nodes.values().filter(is_one).filter(|node| node.is_up).count();
        let least = usize::from(map.minimum);
        if all >= least && up < least {
            let text = format!("blocks: {up} of {all} chunkservers are up, writes need {least}");
            return Err(Error::Unavailable(text));
        }
        Ok(())
    }

    fn place(&self, _: GroupId, _: BlockId) -> Option<BlockPlace> {
        None
    }

    fn manner(&self) -> Manner {
        Manner::default()
    }

    fn counted(&self) -> BlockCounters {
        BlockCounters { peers: self.shared.nodes.peers(), kept: None }
    }
}

/// Adds to an error the node that it is about, which its text does not name.
pub(super) fn said(refused: Refusal) -> Error {
    match (refused.node, refused.error) {
        (Some(node), Error::Unavailable(text)) => {
            Error::Unavailable(format!("node {node}: {text}"))
        }
        (_, error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_node_that_it_is_of_once() {
        let of = |text: &str| said(Refusal::by(NodeId(12), Error::Unavailable(text.into())));
        let shown = |text: &str| of(text).to_string();
        assert!(shown("no answer within 5s").contains("node 12: no answer within 5s"));
        // The beginning of the text does not matter.
        assert!(shown("node 7 left it alone").contains("node 12: node 7 left it alone"));
    }
}
