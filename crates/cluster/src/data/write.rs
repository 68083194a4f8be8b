//! Writing a block to all members of a group.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::checksum::crc32c;
use cairn_base::inflight::{WaitTarget, waiting};
use cairn_base::limits::BLOCK_BYTES;
use cairn_base::waits;
use cairn_base::{BlockId, ClusterMap, Error, GroupId, NodeId, Owner, Result};
use cairn_blocks::Wish;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::ask::{Key, late};
use super::form::{Kept, Order, Refusal};
use super::place::{self, Choice, Choosing};
use super::replicated_blocks::{ReplicatedShared, said};
use crate::limits::{HOP, REFRESH, WRITE, WRITE_ATTEMPT, WRITE_ATTEMPTS};

/// A block on its way.
struct OutgoingBlock {
    wish: Wish,
    block: BlockId,
    owner: Owner,
    data: Bytes,
    crc32c: u32,
    deadline: Instant,
}

/// Attempts to write a block.
#[derive(Default)]
struct WriteAttempts {
    /// Groups tried in this round: once all are tried, and some time has passed, they are tried
    /// again.
    groups: Vec<GroupId>,
    attempts: usize,
    full: Vec<NodeId>,
    /// Groups in which the block may be on some members.
    partial: Vec<GroupId>,
    last: Option<Error>,
}

impl ReplicatedShared {
    pub(super) async fn write(
        self: &Arc<Self>,
        wish: Wish,
        block: BlockId,
        owner: Owner,
        data: Bytes,
    ) -> Result<GroupId> {
        if data.is_empty() || data.len() > BLOCK_BYTES {
            let text = format!("a block of {} bytes: 1 to {BLOCK_BYTES} it may have", data.len());
            return Err(Error::Invalid(text));
        }
        let (crc32c, deadline) = (crc32c(&data), Instant::now() + WRITE);
        let sent = OutgoingBlock { wish, block, owner, data, crc32c, deadline };
        let mut tried = WriteAttempts::default();
        let written = match timeout_at(deadline, self.attempts(&sent, &mut tried)).await {
            Ok(written) => written,
            Err(_) => {
                let last = tried.last.take();
                let why = last.map_or_else(|| "no answer".to_owned(), |error| error.to_string());
                let text = format!("block {block} was not written within {WRITE:?}: {why}");
                Err(Error::Unavailable(text))
            }
        };
        // Deleted only now, and not in that group: a late deletion must not find what was written.
        match &written {
            Ok(group) => tried.partial.retain(|partial| partial != group),
            Err(Error::Exists(_)) => tried.partial.clear(),
            Err(_) => {}
        }
        self.clean_up(block, tried.partial);
        written
    }

    async fn attempts(&self, sent: &OutgoingBlock, tried: &mut WriteAttempts) -> Result<GroupId> {
        loop {
            let map = self.map.current();
            let choosing = Choosing {
                map: &map,
                nodes: &self.nodes,
                loads: &self.loads,
                tried: &tried.groups,
                full: &tried.full,
            };
            let random = (self.rng.next_u64(), self.rng.next_u64());
            let group = match choosing.choose(sent.wish, random) {
                Choice::Group(group) if tried.attempts < WRITE_ATTEMPTS => group,
                Choice::Full => {
                    let all = "every group that takes writes has a full chunkserver: delete \
                               objects, or let another chunkserver join";
                    return Err(Error::Full(all.into()));
                }
                Choice::None => {
                    let missing = place::missing(&map, sent.wish);
                    tried.last = Some(Error::Unavailable(missing.clone()));
                    waiting(|| WaitTarget::Text(missing), self.newer(map.epoch)).await;
                    continue;
                }
                Choice::Group(_) | Choice::Tried => {
                    (tried.attempts, tried.groups) = (0, Vec::new());
                    self.newer(map.epoch).await;
                    continue;
                }
            };
            tried.attempts += 1;
            match self.attempt(&map, group, sent).await {
                Ok(()) => return Ok(group),
                Err(refused) => self.learn(group, refused, tried).await?,
            }
        }
    }

    /// Waits for a map newer than `epoch`; returns the current one after some time.
    pub(super) async fn newer(&self, epoch: u64) -> Arc<ClusterMap> {
        if let Ok(Ok(map)) = timeout(REFRESH, self.map.at_least(epoch + 1)).await {
            return map;
        }
        sleep(waits::MAP_RETRY).await;
        self.map.current()
    }

    /// Sends a block down a chain of all members that begins at the member with the least to do.
    async fn attempt(
        &self,
        map: &ClusterMap,
        group: GroupId,
        sent: &OutgoingBlock,
    ) -> Result<(), Refusal> {
        let chain = self.order(map, group);
        let gone = || Error::Conflict(format!("group {group} has no members any more"));
        let head = *chain.first().ok_or_else(gone)?;
        let in_flight: Vec<_> = chain.iter().map(|node| self.nodes.enter(*node)).collect();
        let left = sent.deadline.saturating_duration_since(Instant::now());
        let within = left.min(WRITE_ATTEMPT);
        let order = Order {
            owner: sent.owner,
            crc32c: sent.crc32c,
            chain,
            timeout: within.saturating_sub(HOP),
            length: sent.data.len(),
            compress: sent.wish.compress,
        };
        let key = Key { group, block: sent.block };
        let putting = async {
            let _turn = match in_flight.first() {
                Some(first) => first.turn().await,
                None => None,
            };
            let began = Instant::now();
            let put = self.pool.put(map, head, key, &order, &sent.data).await;
            self.note_times(&order.chain, began, &put);
            put.map(drop)
        };
        timeout(within, putting).await.unwrap_or_else(|_| Err(late(head, within)))
    }

    /// Notes the times that nodes report; for a failed attempt, how long it took.
    fn note_times(&self, chain: &[NodeId], began: Instant, put: &Result<Kept, Refusal>) {
        match put {
            Ok(kept) => {
                for (node, took) in kept.iter().filter(|(node, _)| chain.contains(node)) {
                    self.nodes.wrote(*node, *took);
                }
            }
            Err(Refusal { node: Some(node), error: Error::Unavailable(_), .. })
                if chain.contains(node) =>
            {
                self.nodes.wrote(*node, began.elapsed());
            }
            Err(_) => {}
        }
    }

    /// Decides on the next step after a failure.
    ///
    /// # Errors
    /// The failure, if no other group will help.
    async fn learn(
        &self,
        group: GroupId,
        refused: Refusal,
        tried: &mut WriteAttempts,
    ) -> Result<()> {
        tracing::debug!(%group, %refused, "a block was not written");
        if !tried.partial.contains(&group) {
            tried.partial.push(group);
        }
        match (&refused.error, refused.node) {
            _ if refused.stale => {
                // By the newer map the same group may be the right one.
                if timeout(REFRESH, self.map.at_least(refused.epoch)).await.is_err() {
                    tried.groups.push(group);
                }
            }
            (Error::Exists(_) | Error::Invalid(_) | Error::TooLarge(_), _) => {
                return Err(said(refused));
            }
            (Error::Full(_), Some(node)) => tried.full.push(node),
            (Error::Conflict(_) | Error::BadDigest(_), _) => tried.groups.push(group),
            (_, node) => {
                tried.groups.push(group);
                if let Some(node) = node {
                    self.nodes.suspect(node);
                }
            }
        }
        tried.last = Some(said(refused));
        Ok(())
    }

    /// Deletes the possible remains of a block in groups in which it was not written. A block that
    /// is missed is found when the writer's session has ended.
    fn clean_up(self: &Arc<Self>, block: BlockId, groups: Vec<GroupId>) {
        if groups.is_empty() {
            return;
        }
        let Ok(turn) = Arc::clone(&self.cleanups).try_acquire_owned() else { return };
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            let _turn = turn;
            for group in groups {
                if shared.forget(group, block).await.is_err() {
                    // By then an attempt that hangs has been given up by all nodes that it went
                    // through.
                    sleep(WRITE_ATTEMPT).await;
                    let _ = shared.forget(group, block).await;
                }
            }
        });
    }

    async fn forget(&self, group: GroupId, block: BlockId) -> Result<(), Refusal> {
        let map = self.map.current();
        match self.delete_all(&map, group, &[block]).await {
            Err(refused) if refused.stale => {
                let map = self.map.at_least(refused.epoch).await?;
                self.delete_all(&map, group, &[block]).await
            }
            done => done,
        }
    }
}
