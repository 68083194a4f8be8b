//! The master's side.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use cairn_audit::{Actor, AuditRecord, LineLog, Noting};
use cairn_base::fsck::Orderer;
use cairn_base::scrub::RunOrder;
use cairn_base::{Error, GroupId, JoinGrant, NodeId, Result, Role, Timestamp, TokenHash, TokenId};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, interval, sleep_until, timeout};
use tonic::codegen::Service;
use tonic::{Request, Response, Status};

use super::code::to_status;
use super::form;
use super::proto::{self, admin_server};
use crate::control::{ControlService, Controller, Edit, Move};
use crate::limits::{
    ADMIN_AGE, ADMIN_ANSWER_BYTES, ADMIN_CALL, ADMIN_CALLS, ADMIN_CONNECTIONS, ADMIN_HEADER_BYTES,
    ADMIN_KEEP_ALIVE, ADMIN_NODE_CONNECTIONS, ADMIN_REQUEST_BYTES,
};
use crate::wire::{Link, PeerIdentity, Taker};

/// Interval of the checks that a peer is still admitted.
const TICK: Duration = Duration::from_millis(250);

/// Serves the administration of a master, whether it serves or stands by.
pub struct AdminServer {
    control: ControlService,
    slots: Arc<Semaphore>,
    open: Arc<Mutex<BTreeMap<NodeId, usize>>>,
    stop: watch::Sender<bool>,
    audit: Option<LineLog>,
}

/// A connection of a node, counted among all and among its own: no node keeps the others out.
struct ConnectionSlot {
    node: NodeId,
    open: Arc<Mutex<BTreeMap<NodeId, usize>>>,
    _slot: OwnedSemaphorePermit,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut open = self.open.lock();
        let left = open.remove(&self.node).unwrap_or_default().saturating_sub(1);
        if left > 0 {
            open.insert(self.node, left);
        }
    }
}

impl AdminServer {
    /// Makes a server; `audit` receives the records of requests.
    pub fn new(control: ControlService, audit: Option<LineLog>) -> Arc<AdminServer> {
        let slots = Arc::new(Semaphore::new(ADMIN_CONNECTIONS));
        let (open, stop) = (Arc::default(), watch::Sender::new(false));
        Arc::new(AdminServer { control, slots, open, stop, audit })
    }

    /// Returns the taker for [`crate::wire::tls::Takers`].
    pub fn taker(self: &Arc<Self>) -> Taker {
        let server = Arc::clone(self);
        Arc::new(move |link| server.take(link))
    }

    /// Serves a connection of a node that was authenticated, in a task of its own.
    fn take(&self, link: Link) {
        let address = link.peer.address.clone();
        if self.control.is_former(link.peer.node) && link.peer.roles.contains(Role::Master) {
            tracing::warn!(%address, node = %link.peer.node, "a master that was given up");
            return;
        }
        let Some(slot) = self.slot(link.peer.node) else {
            tracing::warn!(%address, node = %link.peer.node, "too many connections to administer");
            return;
        };
        let (control, stop) = (self.control.clone(), self.stop.subscribe());
        let audit = self.audit.clone();
        tokio::spawn(async move {
            let _slot = slot;
            if let Err(error) = converse(link, control, audit, stop).await {
                tracing::debug!(%address, %error, "connection of an administrator ended");
            }
        });
    }

    fn slot(&self, node: NodeId) -> Option<ConnectionSlot> {
        let mut open = self.open.lock();
        let own = open.get(&node).copied().unwrap_or_default();
        if own >= ADMIN_NODE_CONNECTIONS {
            return None;
        }
        let slot = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        open.insert(node, own + 1);
        Some(ConnectionSlot { node, open: Arc::clone(&self.open), _slot: slot })
    }

    /// Takes no more requests, and answers those that have begun, for at most `drain`.
    pub async fn stop(&self, drain: Duration) {
        self.stop.send_replace(true);
        if timeout(drain, self.slots.acquire_many(ADMIN_CONNECTIONS as u32)).await.is_err() {
            tracing::warn!("requests of administrators unanswered at the stop");
        }
    }
}

async fn converse(
    link: Link,
    control: ControlService,
    audit: Option<LineLog>,
    mut stop: watch::Receiver<bool>,
) -> Result<()> {
    let peer = Arc::new(link.peer);
    let asked = PeerService { control, audit, peer: Arc::clone(&peer) };
    let grpc = admin_server::AdminServer::new(asked)
        .max_decoding_message_size(ADMIN_REQUEST_BYTES)
        .max_encoding_message_size(ADMIN_ANSWER_BYTES);
    let service = service_fn(move |request| {
        let mut grpc = grpc.clone();
        async move {
            let late = |_| Status::deadline_exceeded(format!("no answer within {ADMIN_CALL:?}"));
            let answered = timeout(ADMIN_CALL, grpc.call(request)).await;
            answered.unwrap_or_else(|elapsed| Ok(late(elapsed).into_http()))
        }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(ADMIN_CALLS)
        .max_header_list_size(ADMIN_HEADER_BYTES)
        .initial_stream_window_size(ADMIN_REQUEST_BYTES as u32)
        .initial_connection_window_size(ADMIN_REQUEST_BYTES as u32)
        .keep_alive_interval(ADMIN_KEEP_ALIVE)
        .keep_alive_timeout(ADMIN_KEEP_ALIVE)
        .serve_connection(TokioIo::new(link.stream), service);
    let mut connection = pin!(connection);
    let mut ticks = interval(TICK);
    let (mut end, mut is_ending) = (Instant::now() + ADMIN_AGE, false);
    let broken = |error| Error::Unavailable(format!("{error}"));
    loop {
        tokio::select! {
            ended = connection.as_mut() => return ended.map_err(broken),
            _ = ticks.tick() => (peer.standing)()?,
            () = sleep_until(end), if is_ending => return Ok(()),
            () = due(end, &mut stop), if !is_ending => {
                (end, is_ending) = (Instant::now() + ADMIN_CALL, true);
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Returns when a connection should end: it is old, or this node stops.
async fn due(end: Instant, stop: &mut watch::Receiver<bool>) {
    tokio::select! {
        () = sleep_until(end) => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

type Answer<R> = Result<Response<R>, Status>;

/// The requests of one peer.
#[derive(Clone)]
struct PeerService {
    control: ControlService,
    audit: Option<LineLog>,
    peer: Arc<PeerIdentity>,
}

impl PeerService {
    /// Returns the master that serves, for nodes that have one of these roles in its map.
    fn admit(&self, roles: &[Role], to: &str) -> Result<Arc<Controller>> {
        (self.peer.standing)()?;
        let controller = self.control.serving()?;
        let node = self.peer.node;
        let pin = controller.keeper.current().pin(node);
        if pin.is_some_and(|pin| roles.iter().any(|role| pin.roles.contains(*role))) {
            Ok(controller)
        } else {
            Err(Error::Denied(format!(
                "node {node} may not {to}: its roles in the cluster map do not allow it"
            )))
        }
    }

    fn reading(&self) -> Result<Arc<Controller>, Status> {
        let admitted = self.admit(&Role::ALL, "ask: it has no role");
        if let Some(noting) = self.noting("get_status", None, false) {
            noting.end(&admitted);
        }
        admitted.map_err(|error| to_status(&error))
    }

    fn changing(&self) -> Result<Arc<Controller>> {
        self.audit.as_ref().map_or(Ok(()), LineLog::check_room)?;
        self.admit(&[Role::Master], "change the cluster: only masters may")
    }

    async fn edit<R: Default>(&self, edit: Result<Edit>) -> Answer<R> {
        let noting = self.noting("edit", edit.as_ref().ok().map(|edit| format!("{edit:?}")), true);
        let edited = async { self.changing()?.edit(&edit?).await }.await;
        answered(edited, noting)
    }

    fn noting(
        &self,
        operation: &'static str,
        resource: Option<String>,
        is_change: bool,
    ) -> Option<Noting> {
        let log = self.audit.clone()?;
        let peer = &self.peer;
        let source = peer.address.parse::<SocketAddr>().ok().map(|address| address.ip());
        let actor = Actor { node: Some(peer.node.to_string()), source, ..Actor::default() };
        let operation = operation.into();
        let record =
            AuditRecord { door: "admin", operation, actor, resource, ..Default::default() };
        Some(Noting::new(log, record, is_change))
    }

    /// Returns the master for orders of scrubs and of an fsck, which change no metadata and delete
    /// nothing.
    fn scrubbing(&self) -> Result<Arc<Controller>> {
        let to = "order scrubs and fscks: only masters and gateways may";
        self.admit(&[Role::Master, Role::Gateway], to)
    }

    async fn scrub(&self, asked: &proto::OrderScrubRequest) -> Answer<proto::OrderScrubResponse> {
        let proto::OrderScrubRequest { run, order } = asked;
        let is_change = *order != form::write_order(RunOrder::Look);
        let noting = self.noting("scrub", Some(format!("scrub {run:x} order {order}")), is_change);
        let ordered = async { self.scrubbing()?.scrub(*run, form::order(*order)?).await }.await;
        if let Some(noting) = noting {
            noting.end(&ordered);
        }
        let ordered = ordered.map_err(|error| to_status(&error))?;
        Ok(Response::new(form::write_scrub(ordered)))
    }

    fn fsck(&self, asked: proto::OrderFsckRequest) -> Answer<proto::Fsck> {
        let proto::OrderFsckRequest { run, order, user } = asked;
        let is_change = order != form::write_order(RunOrder::Look);
        let noting = self.noting("fsck", Some(format!("fsck {run:x} order {order}")), is_change);
        let by = Orderer { node: self.peer.node, user };
        let ordered = self.scrubbing().and_then(|controller| {
            let order = form::order(order)?;
            controller.fsck(run, order, by)
        });
        if let Some(noting) = noting {
            noting.end(&ordered);
        }
        let state = ordered.map_err(|error| to_status(&error))?;
        Ok(Response::new(form::write_fsck(&state)))
    }

    async fn issue(&self, asked: &proto::IssueTokenRequest) -> Answer<proto::IssueTokenResponse> {
        let noting = self.noting("issue_token", Some(format!("token {}", asked.id)), true);
        let issued = async {
            let controller = self.changing()?;
            let hash = TokenHash::from_bytes(form::hash(&asked.secret_sha256)?);
            let (roles, expires) = (form::roles(&asked.roles)?, Timestamp(asked.expires_unix_ns));
            let grant = JoinGrant { hash, roles, expires, used: None };
            controller.issue(TokenId(asked.id), grant).await
        };
        answered(issued.await, noting)
    }
}

/// Makes an answer without content.
fn answered<R: Default>(done: Result<()>, noting: Option<Noting>) -> Answer<R> {
    if let Some(noting) = noting {
        noting.end(&done);
    }
    done.map(|()| Response::new(R::default())).map_err(|error| to_status(&error))
}

#[tonic::async_trait]
impl admin_server::Admin for PeerService {
    async fn get_status(&self, _: Request<proto::GetStatusRequest>) -> Answer<proto::Status> {
        Ok(Response::new(form::write(&self.reading()?.status())))
    }

    async fn drain_node(
        &self,
        asked: Request<proto::DrainNodeRequest>,
    ) -> Answer<proto::DrainNodeResponse> {
        self.edit(Ok(Edit::Drain(NodeId(asked.get_ref().node)))).await
    }

    async fn undrain_node(
        &self,
        asked: Request<proto::UndrainNodeRequest>,
    ) -> Answer<proto::UndrainNodeResponse> {
        self.edit(Ok(Edit::Undrain(NodeId(asked.get_ref().node)))).await
    }

    async fn remove_node(
        &self,
        asked: Request<proto::RemoveNodeRequest>,
    ) -> Answer<proto::RemoveNodeResponse> {
        self.edit(Ok(Edit::Remove(NodeId(asked.get_ref().node)))).await
    }

    async fn set_replicas(
        &self,
        asked: Request<proto::SetReplicasRequest>,
    ) -> Answer<proto::SetReplicasResponse> {
        let proto::SetReplicasRequest { replicas, minimum } = asked.into_inner();
        let both = form::narrow(replicas).and_then(|one| Ok((one, form::narrow(minimum)?)));
        self.edit(both.map(|(replicas, minimum)| Edit::Replicas { replicas, minimum })).await
    }

    async fn add_replica_count(
        &self,
        asked: Request<proto::AddReplicaCountRequest>,
    ) -> Answer<proto::AddReplicaCountResponse> {
        self.edit(form::narrow(asked.get_ref().replicas).map(Edit::Count)).await
    }

    async fn enable_capability(
        &self,
        asked: Request<proto::EnableCapabilityRequest>,
    ) -> Answer<proto::EnableCapabilityResponse> {
        self.edit(asked.get_ref().capability.parse().map(Edit::Enable)).await
    }

    async fn move_member(
        &self,
        asked: Request<proto::MoveMemberRequest>,
    ) -> Answer<proto::MoveMemberResponse> {
        let proto::MoveMemberRequest { group, source_node, target_node } = asked.into_inner();
        let (from, to) = (NodeId(source_node), NodeId(target_node));
        self.edit(Ok(Edit::Move(Move { group: GroupId(group), from, to }))).await
    }

    async fn issue_token(
        &self,
        asked: Request<proto::IssueTokenRequest>,
    ) -> Answer<proto::IssueTokenResponse> {
        self.issue(asked.get_ref()).await
    }

    async fn order_scrub(
        &self,
        asked: Request<proto::OrderScrubRequest>,
    ) -> Answer<proto::OrderScrubResponse> {
        self.scrub(asked.get_ref()).await
    }

    async fn list_degraded(
        &self,
        asked: Request<proto::ListDegradedRequest>,
    ) -> Answer<proto::ListDegradedResponse> {
        let run = asked.get_ref().run;
        let named = self.scrubbing().and_then(|controller| controller.degraded(run));
        if let Some(noting) = self.noting("list_degraded", Some(format!("scrub {run:x}")), false) {
            noting.end(&named);
        }
        let named = named.map_err(|error| to_status(&error))?;
        Ok(Response::new(form::write_degraded(named.as_deref())))
    }

    async fn order_fsck(&self, asked: Request<proto::OrderFsckRequest>) -> Answer<proto::Fsck> {
        self.fsck(asked.into_inner())
    }

    async fn list_fsck(
        &self,
        asked: Request<proto::ListFsckRequest>,
    ) -> Answer<proto::ListFsckResponse> {
        let run = asked.get_ref().run;
        let found = self.scrubbing().and_then(|controller| controller.fsck_found(run));
        if let Some(noting) = self.noting("list_fsck", Some(format!("fsck {run:x}")), false) {
            noting.end(&found);
        }
        let found = found.map_err(|error| to_status(&error))?;
        Ok(Response::new(form::write_found(found.as_deref())))
    }
}
