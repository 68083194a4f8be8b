//! What a master answers over connections, whether it serves or stands by.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::{Applicant, Error, JoinGrant, NodeId, Result, Role, Timestamp, TokenId};
use cairn_meta::session::host::{self, Answer};
use cairn_meta::session::{self, Reply};
use cairn_meta::wire;

use super::controller::Controller;
use super::messages::Method;
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
        self.serving()?.keeper.issue(id, grant).await
    }

    async fn redeem(&self, id: TokenId, applicant: Applicant, now: Timestamp) -> Result<NodeId> {
        self.serving()?.keeper.redeem(id, applicant, now).await
    }
}

impl Service for ControlService {
    type Reply = Pin<Box<dyn Future<Output = Result<Bytes>> + Send>>;

    fn ended(&self, peer: &Peer) {
        if let Some(active) = self.active.load_full() {
            active.lost(peer.info().authenticated.node);
        }
    }

    fn call(&self, peer: &Peer, method: u16, payload: Bytes) -> Self::Reply {
        let (active, peer) = (self.active.load_full(), peer.clone());
        Box::pin(async move {
            match (active, session::Method::from_number(method)) {
                (Some(active), Ok(method)) => converse(&active, &peer, method, &payload).await,
                (Some(active), Err(_)) => {
                    let method = Method::from_number(method)?;
                    active.handle(peer.info(), method, &payload).await
                }
                (None, Ok(_)) => wire::encode(&Reply::<()>::NotServing(STANDS_BY.into())),
                (None, Err(_)) => Err(Error::Unavailable(STANDS_BY.into())),
            }
        })
    }
}

/// A message of a session.
async fn converse(
    active: &Controller,
    peer: &Peer,
    method: session::Method,
    payload: &[u8],
) -> Result<Bytes> {
    if peer.info().role != Role::Gateway {
        let role = peer.info().role;
        return Err(Error::Denied(format!("a {role} has no session")));
    }
    let from = host::Peer { id: peer.info().authenticated.node.0 };
    match active.sessions.handle(&from, method, payload).await? {
        Answer::Bytes(bytes) => Ok(bytes),
        Answer::Attached(bytes, recalls) => {
            tokio::spawn(forward(peer.clone(), recalls));
            Ok(bytes)
        }
    }
}
