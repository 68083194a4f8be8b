//! Mounts: clients of the store that are not nodes. They connect through the door of a server, as a
//! user, and speak the protocol of nodes over that connection.
//!
//! ```text
//!   mount                                     server
//!   Agent ── session ────────────────────►  MountHost ── as this user ──► Sessions ──► Master
//!   MountBlocks ── disclosed blocks ─────►  MountHost ──────────────────► Blocks
//!       └─ on the same machine, reads them from the server's files ────────────┘
//!
//!                                             gateway                       master
//!   Agent ── session ────────────────────►  MountHost ══ of this user ══► Sessions ──► Master
//!   MountBlocks ── disclosed blocks ─────►  MountHost ──────────────────► Blocks
//! ```
//!
//! It is not: a door (that is the crate `fuse`). It does not decide how a connection is made and
//! who the user is (that is `doors` on one side, the binary on the other).

mod agent;
mod attached_sessions;
mod blocks;
mod disclosed_blocks;
mod guarded_blocks;
mod host;
pub mod messages;
mod near;
mod rights;
mod turns;
mod unpublished_blocks;
mod way;

use std::sync::Arc;

use cairn_base::{ClusterId, NodeId, Role, Roles};

pub use agent::Agent;
pub use blocks::MountBlocks;
pub use host::{MountHost, MountService};
pub use messages::{GET, Get, PUT, Put};

use crate::wire::{Link, PeerIdentity, Required, Standing, Stream, Terms};

/// Returns the fixed terms of both sides: the mount was authenticated before the upgrade.
pub fn terms() -> Terms {
    Terms::new(ClusterId(0), NodeId(0), Role::Gateway)
}

/// Makes a link of a stream whose other end was authenticated by other means than a certificate.
/// The program there must have the `required` capabilities.
pub fn link(
    stream: Box<dyn Stream>,
    address: String,
    required: Required,
    standing: Standing,
) -> Link {
    let (node, roles) = (NodeId(0), Roles::NONE.with(Role::Gateway));
    let peer = PeerIdentity { node, roles, address, certificate: None, required, standing };
    Link { stream, peer }
}

/// Returns a standing that always holds: a process that dialed an address itself knows its peer.
pub fn always() -> Standing {
    Arc::new(|| Ok(()))
}
