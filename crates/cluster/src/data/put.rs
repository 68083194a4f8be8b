//! PUT at a chunkserver: receiving a block, keeping it, and sending it on meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cairn_base::checksum::crc32c;
use cairn_base::limits::BLOCK_BYTES;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::waits;
use cairn_base::{ClusterMap, Error, NodeId, Owner, Result, Stage, stage};
use cairn_blocks::{Blocks, How};
use http::HeaderMap;
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Chunkserver;
use super::answer::stale;
use super::ask::{Key, late};
use super::body::{self, Outgoing};
use super::form::{CHAIN_NODES, Kept, Order, Refusal};
use crate::limits::{HOP, PUT, PUT_BYTES_MIN};

/// Longest time for which the rest of a refused block is received and dropped.
const DRAIN: Duration = Duration::from_secs(2);

impl Chunkserver {
    /// Answers a PUT. Returns how long this node and those after it took to make the block durable.
    pub(super) async fn put(
        &self,
        key: Key,
        epoch: u64,
        headers: &HeaderMap,
        incoming: &mut Incoming,
    ) -> Result<Kept, Refusal> {
        let order = Order::parse(headers)?;
        let within = order.timeout.min(PUT);
        let deadline = Instant::now() + within;
        let put = timeout_at(deadline, self.receive(key, epoch, order, deadline, incoming)).await;
        let put = put.unwrap_or_else(|_| Err(late(self.own, within)));
        if put.is_err() {
            // Otherwise the writer may find its connection broken before it has read the reason.
            let _ = timeout(DRAIN, body::drain(incoming, BLOCK_BYTES)).await;
        }
        put
    }

    async fn receive(
        &self,
        key: Key,
        epoch: u64,
        order: Order,
        deadline: Instant,
        incoming: &mut Incoming,
    ) -> Result<Kept, Refusal> {
        let failed = |error| Refusal::by(self.own, error);
        self.adopt(epoch).await.map_err(failed)?;
        let (map, _ticket) = self.running.begin(key.group, &*self.map);
        let at = self.admit(&map, key, epoch, &order)?;
        let too_long = || {
            failed(Error::Invalid(format!(
                "the chain of a write has more than {CHAIN_NODES} nodes"
            )))
        };
        let room = self.puts.get(at).ok_or_else(too_long)?;
        let bytes = order.length.max(PUT_BYTES_MIN) as u32;
        let _room = room
            .acquire_many(bytes)
            .await
            .map_err(|_| failed(Error::Unavailable("the chunkserver is stopping".into())))?;
        let Some(next) = order.chain.get(at + 1).copied() else {
            let data = received(incoming, &order, None).await?;
            let took = self.keep_timed(key, &order, data).await.map_err(failed)?;
            return Ok(vec![(self.own, took)]);
        };
        let (sender, relay) = Outgoing::relay(order.length);
        let next_failed = AtomicBool::new(false);
        let local = async {
            let data = received(incoming, &order, Some(sender)).await?;
            if next_failed.load(Ordering::Relaxed) {
                return Ok(Duration::ZERO);
            }
            self.keep_timed(key, &order, data).await.map_err(failed)
        };
        let onward = async {
            let sent = self.send_on(&map, next, key, &order, deadline, relay).await;
            next_failed.store(sent.is_err(), Ordering::Relaxed);
            if is_planted(Bug::AckBeforeAll) { Ok(Kept::new()) } else { sent }
        };
        let (took, mut kept) = both(local, onward).await?;
        kept.insert(0, (self.own, took));
        Ok(kept)
    }

    /// Returns the position of this node in the chain, if by its map the block may be written by
    /// this chain.
    fn admit(
        &self,
        map: &ClusterMap,
        key: Key,
        epoch: u64,
        order: &Order,
    ) -> Result<usize, Refusal> {
        let refused = |why: &str| Err(stale(map, epoch, format!("group {} {why}", key.group)));
        if epoch < map.generation {
            return refused("is one of metadata that have begun anew since");
        }
        let Some(group) = map.groups.get(&key.group) else {
            return refused("is not known");
        };
        if !map.takes_writes(group) && !is_planted(Bug::StaleEpochAccepted) {
            return refused("takes no writes");
        }
        // The chain must have all members: a member that was added since would lack an acknowledged
        // block.
        let chain = &order.chain;
        let is_whole = chain.len() == group.members.len() && chain.iter().all(|id| group.has(*id));
        match chain.iter().position(|node| *node == self.own) {
            Some(at) if is_whole || is_planted(Bug::StaleEpochAccepted) => Ok(at),
            _ => refused("has other members"),
        }
    }

    async fn send_on(
        &self,
        map: &ClusterMap,
        next: NodeId,
        key: Key,
        order: &Order,
        deadline: Instant,
        relay: Outgoing,
    ) -> Result<Kept, Refusal> {
        let left = deadline.saturating_duration_since(Instant::now());
        let within = left.saturating_sub(HOP);
        let order = Order { timeout: within.saturating_sub(HOP), ..order.clone() };
        let sending = self.pool.relay(map, next, key, &order, relay);
        let sent = stage::time(Stage::Peer, timeout(within, sending)).await;
        sent.unwrap_or_else(|_| Err(late(next, within)))
    }

    async fn keep_timed(&self, key: Key, order: &Order, data: Bytes) -> Result<Duration> {
        let began = Instant::now();
        self.keep(key, order.owner, data, order.compress).await?;
        Ok(began.elapsed())
    }

    /// Writes a block here. The same block again is no error: a writer that did not receive the
    /// answer writes it again.
    pub(super) async fn keep(
        &self,
        key: Key,
        owner: Owner,
        data: Bytes,
        compress: bool,
    ) -> Result<()> {
        let Key { group, block } = key;
        let how = How { over: false, compress };
        loop {
            match self.store.put_as(group, block, owner, data.clone(), how).await {
                Err(Error::Conflict(_)) => sleep(waits::BUSY_BLOCK_RETRY).await,
                Err(Error::Exists(text)) => {
                    let length = data.len() as u32;
                    let known = self.store.stat(group, block)?;
                    let is_same = (known.owner, known.length) == (owner, length)
                        && self.store.get(group, block, 0..length).await? == data;
                    return if is_same { Ok(()) } else { Err(Error::Exists(text)) };
                }
                done => return done,
            }
        }
    }
}

/// Receives the whole block, and checks that it is what its writer sent.
async fn received(
    incoming: &mut Incoming,
    order: &Order,
    relay: Option<mpsc::UnboundedSender<Bytes>>,
) -> Result<Bytes> {
    let data = body::read(incoming, order.length, relay).await?;
    let (got, expected) = (crc32c(&data), order.crc32c);
    if got != expected {
        let text = format!("a block with crc32c {got:08x}, sent as {expected:08x}");
        return Err(Error::BadDigest(text));
    }
    Ok(data)
}

/// Runs both to their end, so that a deletion after a failed attempt finds all that the attempt
/// left. But if the first fails, the second has little time left.
async fn both<One, Other>(
    first: impl Future<Output = Result<One, Refusal>>,
    second: impl Future<Output = Result<Other, Refusal>>,
) -> Result<(One, Other), Refusal> {
    let (mut first, mut second) = (std::pin::pin!(first), std::pin::pin!(second));
    tokio::select! {
        biased;
        done = first.as_mut() => {
            match done {
                Ok(one) => Ok((one, second.await?)),
                Err(refused) => {
                    let _ = timeout(DRAIN, second).await;
                    Err(refused)
                }
            }
        }
        done = second.as_mut() => Ok((first.await?, done?)),
    }
}
