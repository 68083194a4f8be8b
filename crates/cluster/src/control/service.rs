//! What a master answers over connections, whether it serves or stands by.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::{Applicant, Error, JoinGrant, NodeId, Result, Role, Timestamp, TokenId, UserId};
use cairn_meta::master::host::{self, Answer};
use cairn_meta::session::{self, Reply};
use cairn_meta::wire;

use super::controller::Controller;
use super::joined::split;
use super::messages::{Method, Vouched};
use super::recalls::forward;
use crate::identity::Tokens;
use crate::wire::{Peer, Service};

const STANDS_BY: &str = "this master stands by";

/// Answers for a master. Clones are the same.
#[derive(Clone, Default)]
pub struct ControlService {
    /// Set while this master serves.
    active: Arc<ArcSwapOption<Controller>>,
}

impl ControlService {
    /// From now on this master serves, or, without a controller, stands by.
    pub fn serve(&self, controller: Option<Arc<Controller>>) {
        self.active.store(controller);
    }

    /// # Errors
    /// `Unavailable` while it stands by.
    pub fn serving(&self) -> Result<Arc<Controller>> {
        let active = self.active.load_full();
        active.ok_or_else(|| Error::Unavailable(STANDS_BY.into()))
    }
}

/// Where nodes are admitted: by the master that serves.
#[async_trait]
impl Tokens for ControlService {
    async fn issue(&self, id: TokenId, grant: JoinGrant) -> Result<()> {
        self.serving()?.issue(id, grant).await
    }

    async fn redeem(&self, id: TokenId, applicant: Applicant, now: Timestamp) -> Result<NodeId> {
        self.serving()?.redeem(id, applicant, now).await
    }
}

impl Service for ControlService {
    type Reply = Pin<Box<dyn Future<Output = Result<Bytes>> + Send>>;

    fn ended(&self, peer: &Peer) {
        if let Some(active) = self.active.load_full() {
            active.lost(peer.info());
        }
    }

    fn call(&self, peer: &Peer, method: u16, payload: Bytes) -> Self::Reply {
        let (active, peer) = (self.active.load_full(), peer.clone());
        Box::pin(async move {
            match (Asked::from(method, &payload)?, active) {
                (Asked::Session { method, message, user }, Some(active)) => {
                    converse(&active, &peer, user, method, &message).await
                }
                (Asked::Session { .. }, None) => {
                    wire::encode(&Reply::<()>::NotServing(STANDS_BY.into()))
                }
                (Asked::Node(method), Some(active)) => {
                    active.handle(peer.info(), method, &payload).await
                }
                (Asked::Node(_), None) => Err(Error::Unavailable(STANDS_BY.into())),
            }
        })
    }
}

/// What a node wants.
enum Asked {
    /// Something of a session: its own, or that of a mount of `user`.
    Session {
        method: session::Method,
        message: Bytes,
        user: Option<UserId>,
    },
    Node(Method),
}

impl Asked {
    fn from(method: u16, payload: &Bytes) -> Result<Asked> {
        if let Ok(method) = session::Method::from_number(method) {
            return Ok(Asked::Session { method, message: payload.clone(), user: None });
        }
        match Method::from_number(method)? {
            Method::Vouched => {
                let (Vouched { user, method }, message) = split(payload)?;
                let method = session::Method::from_number(method)?;
                Ok(Asked::Session { method, message, user: Some(user) })
            }
            method => Ok(Asked::Node(method)),
        }
    }
}

/// A message of a session.
async fn converse(
    active: &Controller,
    peer: &Peer,
    user: Option<UserId>,
    method: session::Method,
    payload: &[u8],
) -> Result<Bytes> {
    let info = peer.info();
    if info.role != Role::Gateway {
        return Err(Error::Denied(format!("a {} has no session", info.role)));
    }
    let from = match user {
        Some(user) => host::Peer::mount(user),
        None => host::Peer::node(info.authenticated.node.0),
    };
    let from = from.over(info.connection);
    match active.sessions.handle(&from, method, payload).await? {
        Answer::Bytes(bytes) => Ok(bytes),
        Answer::Attached(bytes, recalls) => {
            tokio::spawn(forward(peer.clone(), recalls));
            Ok(bytes)
        }
    }
}
