//! Whose messages and sessions they are.

use cairn_auth::{Caller, RelayedCaller};
use cairn_base::UserId;

/// In the number of an owner: it is a mount, and the rest the number of its user.
const MOUNT: u64 = 1 << 63;

/// Who sends a message, as established by the connection it comes over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Of its sessions: nobody else may speak for them.
    pub(super) owner: u64,
    /// Set if it verifies no callers: all it asks is asked by this user.
    pub(super) user: Option<UserId>,
    pub(super) connection: u64,
}

impl Peer {
    /// A node, which has verified the callers that it names.
    pub const fn node(id: u64) -> Peer {
        Peer { owner: id, user: None, connection: 0 }
    }

    /// A mount, of which no more is believed than that it knows the credentials of a user.
    pub const fn mount(user: UserId) -> Peer {
        // Apart from the numbers of nodes, and never 0.
        Peer { owner: MOUNT | user.0, user: Some(user), connection: 0 }
    }

    /// Over this connection. What comes late over another one is of a session that is attached
    /// elsewhere by now: a recall that it acknowledges is not the one that was sent last.
    pub const fn over(self, connection: u64) -> Peer {
        Peer { connection, ..self }
    }

    pub(super) fn caller(&self, claimed: RelayedCaller) -> Caller {
        let claimed = Caller::relayed(claimed);
        let Some(user) = self.user else { return claimed };
        let caller = Caller::verified(user);
        match claimed.posix() {
            // A uid and groups are claimed as with NFS.
            Some(posix) => caller.with_posix(posix.clone()),
            None => caller,
        }
    }
}

/// Whose session it is.
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
