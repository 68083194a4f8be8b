//! The answers of a master over connections, whether it serves or stands by.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use bytes::Bytes;
use cairn_auth::Origin;
use cairn_base::{Applicant, Error, JoinGrant, NodeId, Result, Role, Timestamp, TokenId, UserId};
use cairn_meta::engine::raft::Member;
use cairn_meta::master::host::{self, Answer};
use cairn_meta::session::{self, Reply};
use cairn_meta::wire;

use super::callers::Callers;
use super::controller::Controller;
use super::framing::split;
use super::messages::{ControlMethod, Vouched, VouchedFrom};
use super::recalls::forward;
use super::report::{DamageReport, MemberReport, StallReport};
use crate::identity::Tokens;
use crate::wire::{Peer, PeerInfo, Service};

const STANDS_BY: &str = "this master stands by";
const FORMER: &str = "this master was given up when another one recovered, or loaded a dump: it is \
                      none any more";

/// Answers for a master. Clones share its state.
#[derive(Clone, Default)]
pub struct ControlService {
    /// Set while this master serves.
    active: Arc<ArcSwapOption<Controller>>,
    /// Member of this master, if several masters keep the metadata together.
    member: Arc<ArcSwapOption<Member>>,
    /// Nodes that look for a master while this one stands by.
    callers: Arc<Callers>,
    /// Reason why this master has no member for now.
    absence: Arc<ArcSwapOption<String>>,
}

impl ControlService {
    /// Lets this master serve from now on, or stand by if there is no controller. Nodes that did
    /// not look for a master while there was none count as silent until they beat.
    pub fn serve(&self, controller: Option<Arc<Controller>>) {
        if let (Some(controller), Some(heard)) = (&controller, self.callers.take()) {
            controller.presume_silent(&heard);
        }
        self.active.store(controller);
    }

    /// Lets messages to this member be answered from now on, whether its master serves or not.
    pub fn keep(&self, member: Arc<Member>) {
        self.member.store(Some(member));
    }

    /// Notes that this master has no member from now on, and the reason, which others receive.
    pub fn lack(&self, reason: String) {
        self.absence.store(Some(Arc::new(reason)));
        self.member.store(None);
    }

    /// Returns the member of this master, if several masters keep the metadata together.
    pub fn member(&self) -> Option<Arc<Member>> {
        self.member.load_full()
    }

    /// Returns true if a node is only known as a master that was given up.
    pub fn is_former(&self, node: NodeId) -> bool {
        self.member.load().as_ref().is_some_and(|member| member.is_former(node.0))
    }

    /// Returns the controller while this master serves.
    ///
    /// # Errors
    /// `Unavailable` while it stands by.
    pub fn serving(&self) -> Result<Arc<Controller>> {
        let active = self.active.load_full();
        active.ok_or_else(|| Error::Unavailable(STANDS_BY.into()))
    }
}

/// Admits nodes through the master that serves.
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
        let (member, absence) = (self.member.load_full(), self.absence.load_full());
        let info = peer.info();
        if active.is_none() && method == ControlMethod::Beat as u16 {
            self.callers.add(info.authenticated.node);
        }
        let is_former = info.role == Role::Master && self.is_former(info.authenticated.node);
        Box::pin(async move {
            match (NodeRequest::from(method, &payload)?, active) {
                (NodeRequest::Node(ControlMethod::Member), _) => {
                    receive(member, peer.info(), payload).await
                }
                (NodeRequest::Node(ControlMethod::MemberReport), active) => {
                    match absence.filter(|_| member.is_none()) {
                        Some(why) => Err(Error::Unavailable(why.to_string())),
                        None => report(member, active.is_some()).await,
                    }
                }
                (NodeRequest::Node(ControlMethod::MemberStalls), _) => stalls(member).await,
                (NodeRequest::Node(ControlMethod::MemberDamage), _) => damage(member).await,
                _ if is_former => Err(Error::Denied(FORMER.into())),
                (NodeRequest::Session { method, message, mount }, Some(active)) => {
                    converse(&active, &peer, mount, method, &message).await
                }
                (NodeRequest::Session { .. }, None) => {
                    wire::encode(&Reply::<()>::NotServing(STANDS_BY.into()))
                }
                (NodeRequest::Node(method), Some(active)) => {
                    active.handle(peer.info(), method, &payload).await
                }
                (NodeRequest::Node(_), None) => Err(Error::Unavailable(STANDS_BY.into())),
            }
        })
    }
}

/// The request of a node.
enum NodeRequest {
    /// A message of a session: the node's own, or that of a mount.
    Session {
        method: session::SessionMethod,
        message: Bytes,
        mount: Option<(UserId, Origin)>,
    },
    Node(ControlMethod),
}

impl NodeRequest {
    fn from(method: u16, payload: &Bytes) -> Result<NodeRequest> {
        if let Ok(method) = session::SessionMethod::from_number(method) {
            return Ok(NodeRequest::Session { method, message: payload.clone(), mount: None });
        }
        match ControlMethod::from_number(method)? {
            ControlMethod::Vouched => {
                let (vouched, message) = split(payload)?;
                NodeRequest::vouched(vouched, Origin::default(), message)
            }
            ControlMethod::VouchedFrom => {
                let (VouchedFrom { vouched, origin }, message) = split(payload)?;
                NodeRequest::vouched(vouched, origin, message)
            }
            method => Ok(NodeRequest::Node(method)),
        }
    }

    fn vouched(vouched: Vouched, origin: Origin, message: Bytes) -> Result<NodeRequest> {
        let Vouched { user, method } = vouched;
        let method = session::SessionMethod::from_number(method)?;
        Ok(NodeRequest::Session { method, message, mount: Some((user, origin)) })
    }
}

const NO_MEMBER: &str = "this master has no member of a log that several masters keep";

/// Answers a message of another master's member.
async fn receive(member: Option<Arc<Member>>, from: &PeerInfo, message: Bytes) -> Result<Bytes> {
    if from.role != Role::Master {
        return Err(Error::Denied(format!("{from} is no master, and has no member")));
    }
    let member = member.ok_or_else(|| Error::Unavailable(NO_MEMBER.into()))?;
    Ok(member.receive(from.authenticated.node.0, message).await)
}

async fn report(member: Option<Arc<Member>>, serves: bool) -> Result<Bytes> {
    let member = member.ok_or_else(|| Error::NotImplemented(NO_MEMBER.into()))?;
    wire::encode(&MemberReport::of(&member.status().await?, serves))
}

async fn stalls(member: Option<Arc<Member>>) -> Result<Bytes> {
    let member = member.ok_or_else(|| Error::NotImplemented(NO_MEMBER.into()))?;
    wire::encode(&StallReport::of(&member.stalls()))
}

async fn damage(member: Option<Arc<Member>>) -> Result<Bytes> {
    let member = member.ok_or_else(|| Error::NotImplemented(NO_MEMBER.into()))?;
    wire::encode(&DamageReport::of(member.damage(), member.undecided()))
}

/// Answers a message of a session.
async fn converse(
    active: &Controller,
    peer: &Peer,
    mount: Option<(UserId, Origin)>,
    method: session::SessionMethod,
    payload: &[u8],
) -> Result<Bytes> {
    let info = peer.info();
    if info.role != Role::Gateway {
        return Err(Error::Denied(format!("a {} has no session; only gateways have", info.role)));
    }
    let from = match mount {
        Some((user, origin)) => host::Sender::mount(user).from(origin),
        None => host::Sender::node(info.authenticated.node.0),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::framing::join;
    use cairn_auth::CredentialId;

    #[test]
    fn a_mount_is_vouched_for_with_its_origin_or_without() {
        let vouched = Vouched { user: UserId(9), method: session::SessionMethod::Read as u16 };
        let origin = Origin { credential: CredentialId::new("CK9"), ..Origin::default() };
        let message = Bytes::from_static(b"message");
        let table = [
            (ControlMethod::Vouched, join(&vouched, message.clone()), Origin::default()),
            (
                ControlMethod::VouchedFrom,
                join(&VouchedFrom { vouched, origin }, message.clone()),
                origin,
            ),
        ];
        for (method, payload, origin) in table {
            let payload = payload.unwrap();
            let payload = Bytes::from([payload.head, payload.rest].concat());
            match NodeRequest::from(method as u16, &payload).unwrap() {
                NodeRequest::Session { method, message: sent, mount } => {
                    assert_eq!(mount, Some((UserId(9), origin)));
                    assert_eq!((method, sent), (session::SessionMethod::Read, message.clone()));
                }
                NodeRequest::Node(method) => panic!("{method:?}"),
            }
        }
    }
}
