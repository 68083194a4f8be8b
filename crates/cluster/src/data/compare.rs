//! Comparison of the blocks that rows name with the lists of the members of their group. No block
//! is read.

use std::time::Duration;

use cairn_base::{BlockId, ClusterMap, GroupId, NodeId, Owner, SessionId};
use cairn_blocks::BlockInfo;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::Pool;
use super::form::Refusal;
use super::replicated_blocks::find;
use crate::limits::{COMPARE_PAGE_LEAST, INVENTORY_BLOCKS};

/// Blocks that are listed for each wanted block: there are others between the wanted ones.
const SPREAD: usize = 4;

/// A block that a row names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamedBlock {
    pub block: BlockId,
    pub owner: Owner,
    /// Number of named bytes, counted from the first byte of the block.
    pub reach: u64,
}

impl NamedBlock {
    /// Returns true if a member that lists `info` has what is named.
    fn is_in(&self, info: &BlockInfo) -> bool {
        info.owner == self.owner && u64::from(info.length) >= self.reach
    }
}

/// Answer of a member of a group that is up.
#[derive(Debug)]
pub struct MemberSays {
    pub node: NodeId,
    pub in_sync: bool,
    /// For each wanted block, true if the member has it; or the reason why it did not answer.
    pub has: Result<Vec<bool>, Refusal>,
}

impl Pool {
    /// Asks all members of a group that are up which of these blocks they have. The blocks are in
    /// the order of their ids.
    pub async fn compare(
        &self,
        map: &ClusterMap,
        group: GroupId,
        named: &[NamedBlock],
    ) -> Vec<MemberSays> {
        let members = map.groups.get(&group).map(|group| &group.members[..]).unwrap_or_default();
        let up = members.iter().filter(|member| map.is_up(member.node));
        let each = up.map(|member| async move {
            let has = self.has(map, member.node, group, named).await;
            MemberSays { node: member.node, in_sync: member.in_sync, has }
        });
        join_all(each).await
    }

    /// Goes through the list of a member, except ranges without wanted blocks, and rests after each
    /// page as long as the page took.
    async fn has(
        &self,
        map: &ClusterMap,
        node: NodeId,
        group: GroupId,
        named: &[NamedBlock],
    ) -> Result<Vec<bool>, Refusal> {
        let (mut has, mut took) = (Vec::with_capacity(named.len()), Duration::ZERO);
        while let Some((next, _)) = named.get(has.len()..).and_then(<[NamedBlock]>::split_first) {
            sleep(took).await;
            let begun = Instant::now();
            let limit = (named.len() - has.len()).saturating_mul(SPREAD);
            let limit = limit.clamp(COMPARE_PAGE_LEAST, INVENTORY_BLOCKS);
            let page = self.inventory(map, node, group, before(next.block), limit).await?;
            let end = page.last().filter(|_| page.len() >= limit).map(|info| info.block);
            // A full page ends at the wanted block at the earliest.
            let is_listed = |one: &&NamedBlock| end.is_none_or(|end| one.block <= end);
            let listed = named.get(has.len()..).unwrap_or_default().iter().take_while(is_listed);
            let found =
                |one: &NamedBlock| find(&page, one.block).is_some_and(|info| one.is_in(info));
            has.extend(listed.map(found));
            took = begun.elapsed();
        }
        Ok(has)
    }
}

/// Returns the last id before another.
fn before(block: BlockId) -> Option<BlockId> {
    let BlockId { session, counter } = block;
    match (counter.checked_sub(1), session.0.checked_sub(1)) {
        (Some(counter), _) => Some(BlockId { session, counter }),
        (None, Some(session)) => Some(BlockId { session: SessionId(session), counter: u64::MAX }),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_begins_before_a_block_begins_with_it() {
        let id = |session, counter| BlockId { session: SessionId(session), counter };
        assert_eq!(before(id(3, 7)), Some(id(3, 6)));
        assert_eq!(before(id(3, 0)), Some(id(2, u64::MAX)));
        assert_eq!(before(id(0, 0)), None);
        assert!(id(2, u64::MAX) < id(3, 0));
    }
}
