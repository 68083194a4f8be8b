//! Requests about blocks, on the side that asks.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::inflight::{WaitTarget, waiting};
use cairn_base::limits::BLOCK_BYTES;
use cairn_base::scrub::{NodeScrub, RunOrder};
use cairn_base::{BlockId, ClusterMap, Error, GroupId, NodeId, stage};
use cairn_blocks::{BlockInfo, Usage};
use http::header::{HOST, RANGE};
use http::request::Builder;
use http::{HeaderMap, Method, Request};
use tokio::time::timeout;

use super::body::{self, Outgoing};
use super::form::{
    self, CHAIN, COMPRESSED, CRC32C, EPOCH, Kept, OWNER, Order, Refusal, TIMEOUT, TRACEPARENT,
};
use super::pool::{Answered, Pool};
use super::scrubs::{self, FoundBlock};
use crate::limits::{DATA_CALL, ERROR_BYTES, GET, SCRUB_CALL};

/// A block of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key {
    pub group: GroupId,
    pub block: BlockId,
}

impl Key {
    fn path(self) -> String {
        form::path(self.group, &format!("/{}", self.block))
    }
}

fn request(method: Method, path: &str, epoch: u64) -> Builder {
    let builder = Request::builder().method(method).uri(path);
    let builder = builder.header(HOST, "cairn").header(EPOCH, epoch);
    match stage::trace() {
        Some(trace) => builder.header(TRACEPARENT, &trace.traceparent()[..]),
        None => builder,
    }
}

fn whole(builder: Builder, body: Bytes) -> Request<Outgoing> {
    builder.body(Outgoing::Whole(body)).expect("paths and headers are made of ids")
}

fn put_request(epoch: u64, key: Key, order: &Order, body: Outgoing) -> Request<Outgoing> {
    let builder = request(Method::PUT, &key.path(), epoch);
    let builder = if order.compress { builder.header(COMPRESSED, 1) } else { builder };
    builder
        .header(OWNER, form::owner(order.owner))
        .header(CRC32C, format!("{:08x}", order.crc32c))
        .header(CHAIN, form::chain(&order.chain))
        .header(TIMEOUT, order.timeout.as_millis().min(u128::from(u32::MAX)) as u64)
        .body(body)
        .expect("paths and headers are made of ids")
}

impl Pool {
    /// Writes a block by the chain of `order`, which begins at `node`. Returns how long each node
    /// took.
    pub(super) async fn put(
        &self,
        map: &ClusterMap,
        node: NodeId,
        key: Key,
        order: &Order,
        data: &Bytes,
    ) -> Result<Kept, Refusal> {
        let make = || put_request(map.epoch, key, order, Outgoing::Whole(data.clone()));
        let putting = async { self.finish(node, self.send(map, node, make).await, 0).await };
        let (headers, _) = waiting(|| chunkserver(map, node), putting).await?;
        Ok(form::kept(&headers))
    }

    /// Writes a block that comes in pieces by the rest of the chain of `order`.
    pub(super) async fn relay(
        &self,
        map: &ClusterMap,
        node: NodeId,
        key: Key,
        order: &Order,
        body: Outgoing,
    ) -> Result<Kept, Refusal> {
        let request = put_request(map.epoch, key, order, body);
        let putting =
            async { self.finish(node, self.send_once(map, node, request).await, 0).await };
        let (headers, _) = waiting(|| chunkserver(map, node), putting).await?;
        Ok(form::kept(&headers))
    }

    /// Reads bytes of a block: `range`, which is not empty, or all.
    pub(super) async fn get(
        &self,
        map: &ClusterMap,
        node: NodeId,
        key: Key,
        range: Option<Range<u32>>,
    ) -> Result<Bytes, Refusal> {
        self.get_as(map, node, key, range).await.map(|(bytes, _)| bytes)
    }

    /// Reads like [`Pool::get`]; also returns whether the block is compressed there.
    pub(super) async fn get_as(
        &self,
        map: &ClusterMap,
        node: NodeId,
        key: Key,
        range: Option<Range<u32>>,
    ) -> Result<(Bytes, bool), Refusal> {
        let path = key.path();
        let bounds = range.as_ref().map(|range| format!("bytes={}-{}", range.start, range.end - 1));
        let make = || {
            let builder = request(Method::GET, &path, map.epoch);
            let builder = match &bounds {
                Some(bounds) => builder.header(RANGE, bounds),
                None => builder,
            };
            whole(builder, Bytes::new())
        };
        let limit = range.as_ref().map_or(BLOCK_BYTES, ExactSizeIterator::len);
        let (headers, bytes) = self.ask_headers(map, node, make, limit, GET).await?;
        match range {
            Some(range) if bytes.len() != range.len() => {
                let text = format!("{} bytes of block {} for {range:?}", bytes.len(), key.block);
                Err(Refusal::by(node, Error::Unavailable(text)))
            }
            _ => Ok((bytes, form::is_compressed(&headers))),
        }
    }

    pub(super) async fn delete(
        &self,
        map: &ClusterMap,
        node: NodeId,
        group: GroupId,
        blocks: &[BlockId],
    ) -> Result<(), Refusal> {
        let (path, ids) = (form::path(group, ""), form::encode_ids(blocks));
        let make = || whole(request(Method::DELETE, &path, map.epoch), ids.clone());
        self.ask(map, node, make, 0, DATA_CALL).await.map(drop)
    }

    /// Returns one page of what a node has of a group, once all PUTs are over there that began
    /// under an older map.
    pub(super) async fn inventory(
        &self,
        map: &ClusterMap,
        node: NodeId,
        group: GroupId,
        after: Option<BlockId>,
        limit: usize,
    ) -> Result<Vec<BlockInfo>, Refusal> {
        let after_text = after.map_or_else(String::new, |block| format!("after={block}&"));
        let path = form::path(group, &format!("?{after_text}limit={limit}"));
        let make = || whole(request(Method::GET, &path, map.epoch), Bytes::new());
        let bytes = self.ask(map, node, make, form::PAGE_BYTES, DATA_CALL).await?;
        let page = form::decode_page(&bytes).map_err(|error| Refusal::by(node, error))?;
        let is_after = page.first().is_none_or(|first| Some(first.block) > after);
        if page.len() > limit || !is_after {
            let text = format!("another page of group {group} than the one asked for");
            return Err(Refusal::by(node, Error::Unavailable(text)));
        }
        Ok(page)
    }

    pub(super) async fn usage(&self, map: &ClusterMap, node: NodeId) -> Result<Usage, Refusal> {
        let make = || whole(request(Method::GET, "/usage", map.epoch), Bytes::new());
        let bytes = self.ask(map, node, make, form::USAGE_BYTES, DATA_CALL).await?;
        form::decode_usage(&bytes).map_err(|error| Refusal::by(node, error))
    }

    /// Orders a scrub of all blocks of a node, or returns its state.
    ///
    /// # Errors
    /// The reason why there was no answer, or the error with which the node refuses.
    pub async fn scrub(
        &self,
        map: &ClusterMap,
        node: NodeId,
        run: u64,
        order: RunOrder,
    ) -> Result<NodeScrub, Refusal> {
        let method = match order {
            RunOrder::Look => Method::GET,
            RunOrder::Begin => Method::PUT,
            RunOrder::Stop => Method::DELETE,
        };
        let path = format!("/scrub?run={run:x}");
        let make = || whole(request(method.clone(), &path, map.epoch), Bytes::new());
        let bytes = self.ask(map, node, make, scrubs::SCRUB_BYTES, SCRUB_CALL).await?;
        scrubs::decode_scrub(&bytes).map_err(|error| Refusal::by(node, error))
    }

    /// Returns the blocks that failed verification in a scrub of a node.
    ///
    /// # Errors
    /// Those of [`Pool::scrub`].
    pub async fn found(
        &self,
        map: &ClusterMap,
        node: NodeId,
        run: u64,
    ) -> Result<Vec<FoundBlock>, Refusal> {
        let path = format!("/scrub/found?run={run:x}");
        let make = || whole(request(Method::GET, &path, map.epoch), Bytes::new());
        let bytes = self.ask(map, node, make, scrubs::FOUND_BYTES, DATA_CALL).await?;
        scrubs::decode_found(&bytes).map_err(|error| Refusal::by(node, error))
    }

    async fn ask(
        &self,
        map: &ClusterMap,
        node: NodeId,
        make: impl Fn() -> Request<Outgoing>,
        limit: usize,
        within: Duration,
    ) -> Result<Bytes, Refusal> {
        self.ask_headers(map, node, make, limit, within).await.map(|(_, bytes)| bytes)
    }

    async fn ask_headers(
        &self,
        map: &ClusterMap,
        node: NodeId,
        make: impl Fn() -> Request<Outgoing>,
        limit: usize,
        within: Duration,
    ) -> Result<(HeaderMap, Bytes), Refusal> {
        let asking = async { self.finish(node, self.send(map, node, make).await, limit).await };
        let asking = waiting(|| chunkserver(map, node), timeout(within, asking));
        asking.await.unwrap_or_else(|_| Err(late(node, within)))
    }

    /// Reads the headers and the body of an answer, at most `limit` bytes; or its error.
    async fn finish(
        &self,
        node: NodeId,
        answered: cairn_base::Result<Answered>,
        limit: usize,
    ) -> Result<(HeaderMap, Bytes), Refusal> {
        let failed = |error| Refusal::by(node, error);
        let (response, connection) = answered.map_err(failed)?;
        let (head, mut incoming) = response.into_parts();
        let limit = if head.status.is_success() { limit } else { ERROR_BYTES };
        let length = form::length(&head.headers).map_err(failed)? as usize;
        if length > limit {
            let text = format!("it answers with {length} bytes: {limit} at most");
            return Err(failed(Error::Unavailable(text)));
        }
        let bytes = body::read(&mut incoming, length, None).await.map_err(failed)?;
        self.keep(connection);
        if head.status.is_success() {
            return Ok((head.headers, bytes));
        }
        let unclear = |_| Error::Unavailable(format!("it answers with status {}", head.status));
        let stale = form::stale(&head.headers);
        Err(Refusal {
            error: Error::from_bytes(&bytes).unwrap_or_else(unclear),
            node: form::failed(&head.headers).or(Some(node)),
            stale: stale.is_some(),
            epoch: stale.or(form::epoch(&head.headers).ok()).unwrap_or(0),
        })
    }
}

/// Names the node in the table of requests in flight.
fn chunkserver(map: &ClusterMap, node: NodeId) -> WaitTarget {
    let address = map.nodes.get(&node).map_or_else(String::new, |node| node.address.clone());
    WaitTarget::Node("chunkserver", node, address)
}

pub(super) fn late(node: NodeId, within: Duration) -> Refusal {
    let text = format!("no answer within {within:?}");
    Refusal::by(node, Error::Unavailable(text))
}
