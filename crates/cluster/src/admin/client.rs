//! The side that asks.

use std::error::Error as _;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use cairn_base::{Error, JoinGrant, Result, Role, TokenId};
use http_body_util::BodyExt;
use http_body_util::combinators::MapErr;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::codegen::Service;
use tonic::{Response, Status, body};

use super::code::from_status;
use super::form;
use super::proto::{self, admin_client};
use crate::control::{self, Edit, Move};
use crate::limits::{ADMIN_ANSWER_BYTES, ADMIN_KEEP_ALIVE, ADMIN_REQUEST_BYTES, DIAL};
use crate::wire::Dial;
use crate::wire::tls::{TlsDialer, Trust};

/// Between two rounds in which no master served.
const PAUSE: Duration = Duration::from_millis(100);
/// The name by which a master is called; it is known by its certificate.
const ORIGIN: &str = "https://master.cairn";

type Stub = admin_client::AdminClient<Channel>;

/// Asks the one of several masters that serves. A call whose connection ends is made again: all of
/// them may be carried out twice.
pub struct AdminClient {
    dialer: TlsDialer,
    addresses: Vec<String>,
    within: Duration,
}

impl AdminClient {
    /// For masters at `addresses`, of which one is to answer `within` a time.
    pub fn new(trust: Trust, addresses: Vec<String>, within: Duration) -> Result<AdminClient> {
        Ok(AdminClient { dialer: TlsDialer::for_admin(trust)?, addresses, within })
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

    async fn ask<R>(&self, call: impl AsyncFn(Stub) -> Result<Response<R>, Status>) -> Result<R> {
        let deadline = Instant::now() + self.within;
        loop {
            let mut said = Vec::new();
            for address in &self.addresses {
                match timeout_at(deadline, self.ask_one(address, &call)).await {
                    Ok(Err(Error::Unavailable(why))) => said.push(format!("{address}: {why}")),
                    Ok(answer) => return answer,
                    Err(_) => said.push(format!("{address}: no answer within {:?}", self.within)),
                }
            }
            if Instant::now() + PAUSE >= deadline {
                return Err(Error::Unavailable(format!("nobody serves: {}", said.join("; "))));
            }
            sleep(PAUSE).await;
        }
    }

    /// # Errors
    /// `Unavailable` if another master is to be asked; what the master says.
    async fn ask_one<R>(
        &self,
        address: &str,
        call: &impl AsyncFn(Stub) -> Result<Response<R>, Status>,
    ) -> Result<R> {
        let elsewhere = |error| match error {
            Error::Unavailable(why) => Error::Unavailable(why),
            error => Error::Unavailable(error.to_string()),
        };
        let channel = self.connect(address).await.map_err(elsewhere)?;
        let origin = http::Uri::from_static(ORIGIN);
        let stub = Stub::with_origin(channel, origin)
            .max_decoding_message_size(ADMIN_ANSWER_BYTES)
            .max_encoding_message_size(ADMIN_REQUEST_BYTES);
        let answer = call(stub).await.map_err(|status| from_status(&status));
        answer.map(Response::into_inner)
    }

    async fn connect(&self, address: &str) -> Result<Channel> {
        let late = |_| Error::Unavailable(format!("no answer within {DIAL:?}"));
        let link = timeout(DIAL, self.dialer.dial(address)).await.map_err(late)??;
        let (node, roles) = (link.peer.node, link.peer.roles);
        if !roles.contains(Role::Master) {
            return Err(Error::Denied(format!("node {node} is a {roles}, not a master")));
        }
        let shaken = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(ADMIN_KEEP_ALIVE)
            .keep_alive_timeout(ADMIN_KEEP_ALIVE)
            .handshake(TokioIo::new(link.stream));
        let broken = |error| Error::Unavailable(format!("{error}"));
        let (sender, connection) = shaken.await.map_err(broken)?;
        // Ends with the last of its senders.
        tokio::spawn(connection);
        Ok(Channel(sender))
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

/// One connection, as the library of gRPC asks over it.
#[derive(Clone)]
struct Channel(http2::SendRequest<body::Body>);

type Answered = http::Response<MapErr<Incoming, fn(hyper::Error) -> Status>>;

/// What was asked may have been done; a master is asked again. What the other side has against this
/// one is below the library's own words.
fn lost(error: hyper::Error) -> Status {
    let mut text = format!("the connection ended: {error}");
    let mut below = error.source();
    while let Some(cause) = below {
        text = format!("{text}: {cause}");
        below = cause.source();
    }
    Status::unavailable(text)
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
