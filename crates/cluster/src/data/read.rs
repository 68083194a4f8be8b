//! Reading a block from whichever member has it.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{BlockId, ClusterMap, Error, GroupId, NodeId, Result};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::sleep;

use super::ask::Key;
use super::form::Refusal;
use super::replicated_blocks::{ReplicatedShared, said};
use crate::limits::HEDGE;

impl ReplicatedShared {
    pub(super) async fn get(
        &self,
        group: GroupId,
        block: BlockId,
        range: Range<u32>,
    ) -> Result<Bytes> {
        if range.start > range.end {
            return Err(Error::Invalid(format!("range {range:?} of block {block}")));
        }
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let key = Key { group, block };
        let map = self.map_of(group).await;
        let first = match self.get_by(&map, key, &range).await {
            Err(refused) if refused.epoch > map.epoch => refused,
            done => return done.map_err(said),
        };
        // Other members may have the block by now.
        let newer = self.map.at_least(first.epoch).await;
        match newer {
            Ok(map) => self.get_by(&map, key, &range).await.map_err(said),
            Err(_) => Err(said(first)),
        }
    }

    /// Asks one member after the other, and also the next one if a member is slow. A slow member is
    /// not asked first for a while: otherwise the next block would wait for it again.
    async fn get_by(
        &self,
        map: &Arc<ClusterMap>,
        key: Key,
        range: &Range<u32>,
    ) -> Result<Bytes, Refusal> {
        let mut members = self.order(map, key.group).into_iter();
        let mut asking = FuturesUnordered::new();
        let text = format!("group {} is not in cluster map {}", key.group, map.epoch);
        let mut worst = Refusal::from(Error::Unavailable(text));
        let mut asked = members.next();
        asking.extend(asked.map(|node| self.get_of(map, node, key, range)));
        while !asking.is_empty() {
            tokio::select! {
                biased;
                Some((node, got)) = asking.next() => match got {
                    Ok(bytes) => return Ok(bytes),
                    Err(refused) => {
                        if is_final(&refused.error) {
                            return Err(refused);
                        }
                        self.note(node, &refused);
                        let epoch = worst.epoch.max(refused.epoch);
                        if weight(&refused.error) >= weight(&worst.error) {
                            worst = refused;
                        }
                        worst.epoch = epoch;
                    }
                },
                () = sleep(HEDGE), if members.len() > 0 => {
                    asked.inspect(|node| self.nodes.slow(*node));
                }
            }
            asked = members.next();
            asking.extend(asked.map(|node| self.get_of(map, node, key, range)));
        }
        Err(worst)
    }

    async fn get_of(
        &self,
        map: &ClusterMap,
        node: NodeId,
        key: Key,
        range: &Range<u32>,
    ) -> (NodeId, Result<Bytes, Refusal>) {
        let in_flight = self.nodes.enter(node);
        let _turn = in_flight.turn().await;
        let _reading = in_flight.reading();
        (node, self.pool.get(map, node, key, Some(range.clone())).await)
    }

    fn note(&self, node: NodeId, refused: &Refusal) {
        if matches!(refused.error, Error::Unavailable(_) | Error::Denied(_) | Error::Io(_)) {
            self.nodes.suspect(node);
        }
    }
}

/// Returns true for errors that every other member would answer too.
fn is_final(error: &Error) -> bool {
    matches!(error, Error::RangeNotSatisfiable { .. } | Error::Invalid(_))
}

/// Ranks errors by how much they reveal: a broken block above an absent block, and that above a
/// node that is not there.
fn weight(error: &Error) -> u8 {
    match error {
        Error::Corrupt { .. } => 3,
        Error::NotFound(_) => 2,
        Error::Unavailable(_) => 0,
        _ => 1,
    }
}
