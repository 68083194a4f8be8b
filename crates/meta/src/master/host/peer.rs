//! The owner of messages and sessions.

use std::fmt;

use cairn_auth::{Caller, Origin, RelayedCaller};
use cairn_base::{NodeId, UserId};

use crate::rows::MOUNT;

/// Origin of a node, which states the origin of each of its callers.
const NOWHERE: Origin = Origin { source: None, tls: false, credential: None };

/// The sender of a message, as established by its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sender {
    /// Owner of its sessions: no other sender may use them.
    pub(super) owner: u64,
    /// User in whose name all requests are made, if the sender verifies no callers.
    pub(super) user: Option<UserId>,
    /// Origin of the sender's connection, if it verifies no callers.
    pub(super) origin: Origin,
    pub(super) connection: u64,
}

impl Sender {
    /// Returns the sender for a node, which has verified the callers that it names.
    pub const fn node(id: u64) -> Sender {
        Sender { owner: id, user: None, origin: NOWHERE, connection: 0 }
    }

    /// Returns the sender for a mount, which is trusted only as far as it has shown the credentials
    /// of a user.
    pub const fn mount(user: UserId) -> Sender {
        // Distinct from the numbers of nodes, and never 0.
        Sender { owner: MOUNT | user.0, user: Some(user), origin: NOWHERE, connection: 0 }
    }

    /// Sets the origin of a mount: how it came to the door that admitted it.
    pub const fn from(self, origin: Origin) -> Sender {
        Sender { origin, ..self }
    }

    /// Sets the connection. A message that arrives late over an earlier connection belongs to a
    /// session that is attached elsewhere by now, and a recall that it acknowledges is not the
    /// latest recall.
    pub const fn over(self, connection: u64) -> Sender {
        Sender { connection, ..self }
    }

    /// Returns the user of a mount as a caller.
    pub(super) fn user(&self) -> Option<Caller> {
        self.user.map(|user| Caller::verified(user).with_origin(self.origin))
    }

    pub(super) fn caller(&self, claimed: RelayedCaller) -> Caller {
        let claimed = Caller::relayed(claimed);
        let Some(caller) = self.user() else { return claimed };
        match claimed.posix() {
            // A uid and groups are claimed, as with NFS.
            Some(posix) => caller.with_posix(posix.clone()),
            None => caller,
        }
    }
}

/// Shows the sender as an operator knows it.
impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Owner::of(self.owner) {
            Owner::Node(node) => write!(f, "node {}", NodeId(node)),
            Owner::Mount(_) => match self.origin.source {
                Some(source) => write!(f, "a mount at {source}"),
                None => f.write_str("a mount"),
            },
        }
    }
}

/// The owner of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    Node(u64),
    /// A mount of this user.
    Mount(UserId),
}

impl Owner {
    pub(super) fn of(owner: u64) -> Owner {
        match owner & MOUNT {
            0 => Owner::Node(owner),
            _ => Owner::Mount(UserId(owner & !MOUNT)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_auth::{CredentialId, Posix, Principal};

    #[test]
    fn of_a_mount_no_more_is_believed_than_uid_and_groups() {
        let of = |id| Origin { credential: CredentialId::new(id), ..Origin::default() };
        let posix = Posix { uid: 7, gid: 7, groups: Vec::new() };
        let claimed = Caller::system().with_posix(posix.clone()).with_origin(of("claimed"));
        let peer = Sender::mount(UserId(9)).from(of("shown"));
        let caller = peer.caller(claimed.to_relayed());
        assert_eq!(caller.principal(), Principal::User(UserId(9)));
        assert_eq!((caller.posix(), caller.origin()), (Some(&posix), &of("shown")));
        // A node has verified its statements.
        let relayed = claimed.to_relayed();
        assert_eq!(Sender::node(1).caller(relayed.clone()).to_relayed(), relayed);
    }
}
