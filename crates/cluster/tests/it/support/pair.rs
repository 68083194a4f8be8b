//! Two sides in this process, over pipes in memory.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{NodeId, Result, Role, Roles};
use cairn_cluster::wire::{
    Link, Peer, PeerIdentity, Service, Terms, accept, connect, require_none,
};
use tokio::io::{DuplexStream, duplex};

use super::{GATEWAY, MASTER, terms};

/// Answers with what it was asked.
pub fn echo(_: &Peer, _: u16, payload: Bytes) -> std::future::Ready<Result<Bytes>> {
    std::future::ready(Ok(payload))
}

pub type End = DuplexStream;

/// The end of the gateway (dials) and of the master (accepts).
pub struct Ends {
    pub near: End,
    pub far: End,
}

pub fn ends() -> Ends {
    let (near, far) = duplex(64 << 10);
    Ends { near, far }
}

/// A stream of one who says to be `node`, as the network would give it.
pub fn link(stream: End, node: NodeId, role: Role) -> Link {
    let standing = Arc::new(|| Ok(()));
    let (roles, address) = (Roles::from(role), "memory".to_owned());
    let required = require_none();
    let peer = PeerIdentity { node, roles, address, certificate: None, required, standing };
    Link { stream: Box::new(stream), peer }
}

/// A gateway connected to a master that answers by `service`.
pub async fn pair(service: impl Service) -> (Peer, Peer) {
    let (near, far) = (terms(GATEWAY, Role::Gateway), terms(MASTER, Role::Master));
    pair_with(near, far, echo, service).await
}

/// The peer that the gateway has, and that the master has.
pub async fn pair_with(
    near: Terms,
    far: Terms,
    near_service: impl Service,
    far_service: impl Service,
) -> (Peer, Peer) {
    let ends = ends();
    let (to_master, to_gateway) =
        (link(ends.near, MASTER, Role::Master), link(ends.far, GATEWAY, Role::Gateway));
    let (gateway, master) = tokio::join!(
        connect(to_master, &near, near_service),
        accept(to_gateway, &far, far_service)
    );
    (gateway.unwrap(), master.unwrap())
}
