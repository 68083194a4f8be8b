//! The answers of a chunkserver, except to PUT.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::inflight::{self, About};
use cairn_base::limits::BLOCK_BYTES;
use cairn_base::scrub::{NodeScrub, RunOrder};
use cairn_base::trace::Trace;
use cairn_base::{BlockId, ClusterMap, Error, GroupId, Result, Role, Scope, Stages};
use cairn_blocks::Blocks;
use http::header::{CONNECTION, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::time::timeout;

use super::Chunkserver;
use super::ask::Key;
use super::body::{self, Outgoing};
use super::form::{self, COMPRESSED, EPOCH, FAILED, KEPT, PageQuery, Path, Refusal, STALE};
use super::held_bytes;
use super::scrubs;
use crate::limits::{DATA_CALL, GET_INLINE_BYTES, SLOW};
use crate::wire::PeerIdentity;

type Answer = Response<Outgoing>;

impl Chunkserver {
    pub(super) async fn answer(&self, peer: &PeerIdentity, request: Request<Incoming>) -> Answer {
        let trace = form::trace(request.headers());
        let in_flight = trace.map(|trace| in_flight(trace, peer, &request));
        let work = Box::pin(self.answer_in_time(peer, request));
        let mut timed = match (trace, in_flight) {
            (Some(trace), Some(in_flight)) => Scope::of(Stages::start(trace), in_flight, work),
            _ => Scope::new(None, work),
        };
        let answer = (&mut timed).await;
        if let Some(mut stages) = timed.stages {
            stages.settle();
            note(&stages, answer.status());
        }
        answer
    }

    async fn answer_in_time(&self, peer: &PeerIdentity, request: Request<Incoming>) -> Answer {
        let standing = (peer.standing)();
        let is_gone = standing.is_err();
        let answered = match standing {
            Ok(()) => self.route(peer, request).await,
            Err(error) => Err(error.into()),
        };
        let mut answer = answered.unwrap_or_else(refusal);
        let headers = answer.headers_mut();
        headers.insert(EPOCH, HeaderValue::from(self.map.current().epoch));
        if is_gone {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }

    async fn route(
        &self,
        peer: &PeerIdentity,
        request: Request<Incoming>,
    ) -> Result<Answer, Refusal> {
        let (head, mut body) = request.into_parts();
        let uri = &head.uri;
        let (path, epoch) = (Path::parse(uri.path())?, form::epoch(&head.headers)?);
        match (head.method, path) {
            (Method::GET, Path::Block(group, block)) => {
                self.get(Key { group, block }, &head.headers).await
            }
            (Method::PUT, Path::Block(group, block)) => {
                let kept = self.put(Key { group, block }, epoch, &head.headers, &mut body).await?;
                let mut answer = done(StatusCode::OK, Bytes::new());
                if let Ok(text) = HeaderValue::try_from(form::show_kept(&kept)) {
                    answer.headers_mut().insert(KEPT, text);
                }
                Ok(answer)
            }
            (Method::GET, Path::Group(group)) => {
                let query = PageQuery::parse(uri.query())?;
                self.inventory(group, epoch, query).await
            }
            (Method::DELETE, Path::Group(group)) => {
                self.delete(peer, group, epoch, &head.headers, &mut body).await
            }
            (Method::GET, Path::Usage) => {
                let usage = self.store.usage().await?;
                Ok(done(StatusCode::OK, form::encode_usage(&usage)))
            }
            (method, Path::Scrub) => self.scrub(peer, &method, form::scrub_run(uri.query())?).await,
            (Method::GET, Path::ScrubFound) => {
                let found = self.scrubs()?.found(form::scrub_run(uri.query())?)?;
                Ok(done(StatusCode::OK, scrubs::encode_found(&found)))
            }
            (method, _) => {
                let text = format!("{method} of {}", uri.path());
                Err(Error::NotImplemented(text).into())
            }
        }
    }

    /// Returns the current map, which has at least this epoch.
    pub(super) async fn adopt(&self, epoch: u64) -> Result<Arc<ClusterMap>> {
        let map = self.map.current();
        if map.epoch >= epoch {
            return Ok(map);
        }
        let late = || {
            Error::Unavailable(format!(
                "this chunkserver has not received the cluster map of epoch {epoch}"
            ))
        };
        timeout(DATA_CALL, self.map.at_least(epoch)).await.unwrap_or_else(|_| Err(late()))
    }

    /// Any epoch is accepted: a node that has a block can send it.
    async fn get(&self, key: Key, headers: &HeaderMap) -> Result<Answer, Refusal> {
        let Key { group, block } = key;
        let asked = form::range(headers)?;
        let status = if asked.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
        let stat = || self.store.stat(group, block).map_err(|error| self.absent(error));
        let range = match asked {
            Some(range) => range,
            None => 0..stat()?.length,
        };
        if range.len() > BLOCK_BYTES {
            let size = u64::from(stat()?.length);
            return Err(Error::RangeNotSatisfiable { size }.into());
        }
        let room = Arc::clone(&self.gets).acquire_many_owned(range.len() as u32).await;
        let room = room.map_err(|_| Error::Unavailable("the chunkserver is stopping".into()))?;
        let bytes = self.read(group, block, range).await?;
        let mut answer = done(status, held_bytes::held(bytes, room));
        if self.store.is_compressed_now(group, block).unwrap_or(false) {
            answer.headers_mut().insert(COMPRESSED, HeaderValue::from_static("1"));
        }
        Ok(answer)
    }

    /// Replaces `NotFound` by an error of the disk while the map names another disk: that the block
    /// is absent here says nothing then.
    fn absent(&self, error: Error) -> Error {
        match error {
            Error::NotFound(_) => self.check_disk(&self.map.current()).err().unwrap_or(error),
            error => error,
        }
    }

    /// Checks that the map names the disk that is here, and not a former one.
    fn check_disk(&self, map: &ClusterMap) -> Result<()> {
        if map.nodes.get(&self.own).is_some_and(|node| node.disk == self.store.disk()) {
            return Ok(());
        }
        let text = "its disk is new, and the map tells of the former";
        Err(Error::Unavailable(text.into()))
    }

    /// Reads bytes of a block that is here. The caller limits the number of such reads.
    pub async fn read(&self, group: GroupId, block: BlockId, range: Range<u32>) -> Result<Bytes> {
        let now = if range.len() <= GET_INLINE_BYTES {
            self.store.get_now(group, block, range.clone())
        } else {
            Ok(None)
        };
        let read = match now {
            Ok(None) => self.store.get(group, block, range).await,
            Ok(Some(bytes)) => Ok(bytes),
            Err(error) => Err(error),
        };
        if let Err(Error::Corrupt { .. }) = &read {
            self.found_corrupt(group, block);
        }
        read.map_err(|error| self.absent(error))
    }

    async fn inventory(
        &self,
        group: GroupId,
        epoch: u64,
        query: PageQuery,
    ) -> Result<Answer, Refusal> {
        self.check_disk(&*self.adopt(epoch).await?)?;
        self.running.settled(group, epoch).await;
        let page = self.store.inventory_now(group, query.after, query.limit);
        Ok(done(StatusCode::OK, form::encode_page(&page)))
    }

    async fn scrub(
        &self,
        peer: &PeerIdentity,
        method: &Method,
        run: u64,
    ) -> Result<Answer, Refusal> {
        let order = match *method {
            Method::GET => RunOrder::Look,
            Method::PUT => RunOrder::Begin,
            Method::DELETE => RunOrder::Stop,
            _ => return Err(Error::NotImplemented(format!("{method} of /scrub")).into()),
        };
        if order != RunOrder::Look && !peer.roles.contains(Role::Master) {
            let (node, roles) = (peer.node, peer.roles);
            let text = format!("node {node} is {roles}: masters order scrubs");
            return Err(Error::Denied(text).into());
        }
        let scrub = self.scrubs()?.order(run, order);
        let damaged_segments = self.store.usage().await?.damaged_segments;
        let scrub = NodeScrub { damaged_segments, ..scrub };
        Ok(done(StatusCode::OK, scrubs::encode_scrub(&scrub)))
    }

    async fn delete(
        &self,
        peer: &PeerIdentity,
        group: GroupId,
        epoch: u64,
        headers: &HeaderMap,
        body: &mut Incoming,
    ) -> Result<Answer, Refusal> {
        if !peer.roles.contains(Role::Master) && !peer.roles.contains(Role::Gateway) {
            let (node, roles) = (peer.node, peer.roles);
            let text = format!("node {node} is {roles}: masters and gateways delete blocks");
            return Err(Error::Denied(text).into());
        }
        let length = form::length(headers)?;
        if length > form::IDS_BYTES as u64 {
            let text = format!("{length} bytes to delete: {} at most", form::IDS_BYTES);
            return Err(Error::TooLarge(text).into());
        }
        let reading = timeout(DATA_CALL, body::read(body, length as usize, None));
        let late = |_| Error::Unavailable("the body of the request did not arrive in time".into());
        let blocks = form::decode_ids(&reading.await.map_err(late)??)?;
        let map = self.adopt(epoch).await?;
        if epoch < map.epoch {
            return Err(stale(&map, epoch, "deleting blocks".into()));
        }
        self.copying.delete(group, &blocks);
        self.store.delete(group, &blocks).await?;
        Ok(done(StatusCode::OK, Bytes::new()))
    }
}

/// Refuses a request that goes by an older map than the one here.
pub(super) fn stale(map: &ClusterMap, epoch: u64, what: String) -> Refusal {
    let text = format!(
        "{what}: the request goes by the cluster map of epoch {epoch}, and the chunkserver \
            has epoch {}",
        map.epoch
    );
    Refusal { error: Error::Conflict(text), node: None, stale: epoch < map.epoch, epoch: map.epoch }
}

/// Describes the request for the table of requests in flight.
fn in_flight(trace: Trace, peer: &PeerIdentity, request: &Request<Incoming>) -> inflight::Request {
    let (method, uri, node) = (request.method().clone(), request.uri().clone(), peer.node);
    let about = move || About {
        door: "blocks",
        operation: method.to_string().into(),
        object: uri.path().to_owned(),
        client: format!("node {node}"),
        ..About::default()
    };
    inflight::Request::new(Some(trace), about)
}

/// Logs requests that were slow or failed, so that they can be found by their traces.
fn note(stages: &Stages, status: StatusCode) {
    if stages.total() >= SLOW || status.is_server_error() {
        tracing::warn!(
            trace = %stages.trace,
            status = status.as_u16(),
            elapsed_us = stages.total().as_micros() as u64,
            stages_ms = %stages,
            "slow or failed request for blocks"
        );
    }
}

fn done(status: StatusCode, bytes: Bytes) -> Answer {
    let mut answer = Response::new(Outgoing::Whole(bytes));
    *answer.status_mut() = status;
    answer
}

fn refusal(refused: Refusal) -> Answer {
    let mut answer = done(form::status(&refused.error), refused.error.to_bytes());
    let headers = answer.headers_mut();
    if let Some(node) = refused.node
        && let Ok(text) = HeaderValue::try_from(format!("{:x}", node.0))
    {
        headers.insert(FAILED, text);
    }
    if refused.stale {
        headers.insert(STALE, HeaderValue::from(refused.epoch));
    }
    answer
}
