//! The side that asks.

use std::error::Error as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use cairn_base::fsck::{FsckFound, FsckState};
use cairn_base::scrub::{DegradedObjects, NodeScrub, RunOrder};
use cairn_base::waits;
use cairn_base::{Error, JoinGrant, NodeId, Result, Role, TokenId};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http_body_util::BodyExt;
use http_body_util::combinators::MapErr;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::codegen::Service;
use tonic::{Response, Status, body};

use super::code::from_status;
use super::form;
use super::proto::{self, admin_client};
use crate::control::{self, Edit, Move};
use crate::limits::{ADMIN_ANSWER_BYTES, ADMIN_KEEP_ALIVE, ADMIN_REQUEST_BYTES, HELD_UP};
use crate::wire::Dial;
use crate::wire::tls::{TlsDialer, Trust};

/// The name by which a master is called; it is known by its certificate.
const ORIGIN: &str = "https://master.cairn";

type Stub = admin_client::AdminClient<Channel>;

/// Asks the master that serves, of several masters. A call whose connection ends is made again:
/// every call may be carried out twice.
pub struct AdminClient {
    dialer: TlsDialer,
    addresses: Vec<String>,
    /// Index of the address that answered last, which is asked first.
    answered: AtomicUsize,
    within: Duration,
}

impl AdminClient {
    /// Makes a client for the masters at `addresses`; a call fails if none answers `within` a time.
    pub fn new(trust: Trust, addresses: Vec<String>, within: Duration) -> Result<AdminClient> {
        let (dialer, answered) = (TlsDialer::for_admin(trust)?, AtomicUsize::new(0));
        Ok(AdminClient { dialer, addresses, answered, within })
    }

    pub async fn status(&self) -> Result<control::Status> {
        let ask = async |mut stub: Stub| stub.get_status(proto::GetStatusRequest {}).await;
        form::read(self.ask(ask).await?)
    }

    pub async fn issue(&self, id: TokenId, grant: &JoinGrant) -> Result<()> {
        let request = proto::IssueTokenRequest {
            id: id.0,
            secret_sha256: grant.hash.to_bytes().to_vec(),
            roles: form::write_roles(grant.roles),
            expires_unix_ns: grant.expires.0,
        };
        self.ask(async |mut stub| stub.issue_token(request.clone()).await).await.map(drop)
    }

    pub async fn edit(&self, edit: Edit) -> Result<()> {
        self.ask(async |stub| send(stub, edit).await).await
    }

    /// Orders a scrub of all chunkservers, or returns its state.
    pub async fn scrub(&self, run: u64, order: RunOrder) -> Result<Vec<(NodeId, NodeScrub)>> {
        let request = proto::OrderScrubRequest { run, order: form::write_order(order) };
        // A future that borrowed `request` could not be sent to another thread.
        let ask = move |mut stub: Stub| async move { stub.order_scrub(request).await };
        self.ask(ask).await.map(form::read_scrub)
    }

    /// Returns the objects that a scrub found damaged, or that lack replicas; nothing while they
    /// are being looked up.
    pub async fn degraded(&self, run: u64) -> Result<Option<DegradedObjects>> {
        let request = proto::ListDegradedRequest { run };
        let ask = move |mut stub: Stub| async move { stub.list_degraded(request).await };
        self.ask(ask).await.map(form::read_degraded)
    }

    /// Begins an fsck, stops it, or returns its state; `user` is the user that ordered it, empty
    /// for none.
    pub async fn fsck(&self, run: u64, order: RunOrder, user: String) -> Result<FsckState> {
        let request = proto::OrderFsckRequest { run, order: form::write_order(order), user };
        let ask = move |mut stub: Stub| {
            let request = request.clone();
            async move { stub.order_fsck(request).await }
        };
        self.ask(ask).await.map(form::read_fsck)
    }

    /// Returns the results of an fsck; `None` while it runs, or if it did not reach its end.
    pub async fn fsck_found(&self, run: u64) -> Result<Option<FsckFound>> {
        let request = proto::ListFsckRequest { run };
        let ask = move |mut stub: Stub| async move { stub.list_fsck(request).await };
        self.ask(ask).await.map(form::read_found)
    }

    async fn ask<R>(&self, call: impl AsyncFn(Stub) -> Result<Response<R>, Status>) -> Result<R> {
        let deadline = Instant::now() + self.within;
        // The reasons of the last round in which masters said why they do not serve.
        let mut heard = Vec::new();
        loop {
            let mut said = Vec::new();
            let asked = timeout_at(deadline, self.ask_all(&call, &mut said)).await;
            if let Ok(Some(answer)) = asked {
                return answer;
            }
            // If the deadline cuts a round short, the reasons of the last round stay.
            if !said.is_empty() {
                heard = said;
            }
            if asked.is_err() {
                heard.push(format!("no answer within {:?}", self.within));
                break;
            }
            if Instant::now() + waits::ADMIN_RETRY >= deadline {
                break;
            }
            sleep(waits::ADMIN_RETRY).await;
        }
        Err(Error::Unavailable(format!("no master serves: {}", heard.join("; "))))
    }

    /// Asks each master once, and notes in `said` why the masters that answered do not serve. A
    /// silent master delays nothing: the next is asked meanwhile.
    async fn ask_all<R>(
        &self,
        call: &impl AsyncFn(Stub) -> Result<Response<R>, Status>,
        said: &mut Vec<String>,
    ) -> Option<Result<R>> {
        let count = self.addresses.len();
        let places = self.addresses.iter().enumerate().cycle();
        let mut left = places
            .skip(self.answered.load(Ordering::Relaxed))
            .take(count)
            .map(|(at, address)| async move { (at, self.ask_one(address, call).await) });
        let mut asking: FuturesUnordered<_> = left.next().into_iter().collect();
        while !asking.is_empty() {
            tokio::select! {
                biased;
                Some((at, answer)) = asking.next() => match answer {
                    Err(Error::Unavailable(why)) => said.push(why),
                    answer => {
                        self.answered.store(at, Ordering::Relaxed);
                        return Some(answer);
                    }
                },
                () = sleep(HELD_UP) => {}
            }
            asking.extend(left.next());
        }
        None
    }

    /// # Errors
    /// `Unavailable` if another master is to be asked; what the master says.
    async fn ask_one<R>(
        &self,
        address: &str,
        call: &impl AsyncFn(Stub) -> Result<Response<R>, Status>,
    ) -> Result<R> {
        let elsewhere = |why| Error::Unavailable(format!("{address}: {why}"));
        let connected = self.connect(address).await;
        let (channel, connection) = connected.map_err(|error| elsewhere(error.to_string()))?;
        let origin = http::Uri::from_static(ORIGIN);
        let stub = Stub::with_origin(channel, origin)
            .max_decoding_message_size(ADMIN_ANSWER_BYTES)
            .max_encoding_message_size(ADMIN_REQUEST_BYTES);
        match call(stub).await.map_err(|status| from_status(&status)) {
            Err(Error::Unavailable(why)) => {
                Err(elsewhere(match timeout(HELD_UP, connection).await {
                    Ok(Ok(Err(error))) => format!("{why}: {}", cause(&error)),
                    _ => why,
                }))
            }
            answer => answer.map(Response::into_inner),
        }
    }

    /// Opens a connection, which ends with the last of its senders.
    async fn connect(&self, address: &str) -> Result<(Channel, JoinHandle<hyper::Result<()>>)> {
        let link = self.dialer.dial(address).await?;
        let (node, roles) = (link.peer.node, link.peer.roles);
        if !roles.contains(Role::Master) {
            return Err(Error::Denied(format!("node {node} is a {roles}, not a master")));
        }
        let shaken = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(ADMIN_KEEP_ALIVE)
            .keep_alive_timeout(ADMIN_KEEP_ALIVE)
            .handshake(TokioIo::new(link.stream));
        let broken = |error| Error::Unavailable(cause(&error));
        let (sender, connection) = shaken.await.map_err(broken)?;
        Ok((Channel(sender), tokio::spawn(connection)))
    }
}

async fn send(mut stub: Stub, edit: Edit) -> Result<Response<()>, Status> {
    match edit {
        Edit::Drain(node) => {
            stub.drain_node(proto::DrainNodeRequest { node: node.0 }).await.map(nothing)
        }
        Edit::Undrain(node) => {
            stub.undrain_node(proto::UndrainNodeRequest { node: node.0 }).await.map(nothing)
        }
        Edit::Remove(node) => {
            stub.remove_node(proto::RemoveNodeRequest { node: node.0 }).await.map(nothing)
        }
        Edit::Replicas { replicas, minimum } => {
            let (replicas, minimum) = (replicas.into(), minimum.into());
            let request = proto::SetReplicasRequest { replicas, minimum };
            stub.set_replicas(request).await.map(nothing)
        }
        Edit::Count(count) => {
            let request = proto::AddReplicaCountRequest { replicas: count.into() };
            stub.add_replica_count(request).await.map(nothing)
        }
        Edit::Enable(capability) => {
            let request = proto::EnableCapabilityRequest { capability: capability.name().into() };
            stub.enable_capability(request).await.map(nothing)
        }
        Edit::Move(Move { group, from, to }) => {
            let (source_node, target_node) = (from.0, to.0);
            let request = proto::MoveMemberRequest { group: group.0, source_node, target_node };
            stub.move_member(request).await.map(nothing)
        }
    }
}

fn nothing<R>(_: Response<R>) -> Response<()> {
    Response::new(())
}

/// One connection, in the form that the library of gRPC uses.
#[derive(Clone)]
struct Channel(http2::SendRequest<body::Body>);

type Answered = http::Response<MapErr<Incoming, fn(hyper::Error) -> Status>>;

/// Makes the error for a request that may have been carried out, so that a master is asked again.
/// The task of the connection knows why it ended.
fn lost(_: hyper::Error) -> Status {
    Status::unavailable("the connection ended")
}

/// Returns the reason, which is below the library's own words.
fn cause(error: &hyper::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

impl Service<http::Request<body::Body>> for Channel {
    type Response = Answered;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Answered, Status>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.0.poll_ready(cx).map_err(lost)
    }

    fn call(&mut self, request: http::Request<body::Body>) -> Self::Future {
        let answer = self.0.send_request(request);
        Box::pin(async move {
            let answer = answer.await.map_err(lost)?;
            Ok(answer.map(|body| body.map_err(lost as fn(hyper::Error) -> Status)))
        })
    }
}
