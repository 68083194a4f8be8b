//! Who is asking.

use cairn_base::UserId;
use serde::{Deserialize, Serialize};

/// Who a caller is to the store.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Principal {
    /// Came without credentials.
    Anonymous,
    User(UserId),
    /// The store's own background duties.
    System,
}

/// A POSIX identity, where the caller came through a mount: mode bits are then checked too.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Posix {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// Who is asking, as established by this crate. Every operation of the store takes one. There is
/// no way to make one but the functions below, each named after what was verified before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    principal: Principal,
    posix: Option<Posix>,
}

/// A caller on its way from one node to another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RelayedCaller {
    principal: Principal,
    posix: Option<Posix>,
}

impl Caller {
    /// As it is sent to another node of the cluster.
    pub fn to_relayed(&self) -> RelayedCaller {
        RelayedCaller { principal: self.principal, posix: self.posix.clone() }
    }

    /// A node whose key the cluster map pins, and whose role is to verify callers, verified it.
    pub fn relayed(caller: RelayedCaller) -> Caller {
        Caller { principal: caller.principal, posix: caller.posix }
    }

    /// No credentials were sent.
    pub fn anonymous() -> Caller {
        Caller { principal: Principal::Anonymous, posix: None }
    }

    /// A background duty of the store itself; never made for anything that came over a network.
    pub fn system() -> Caller {
        Caller { principal: Principal::System, posix: None }
    }

    /// The request's signature, secret or token was verified to be `user`'s.
    pub fn verified(user: UserId) -> Caller {
        Caller { principal: Principal::User(user), posix: None }
    }

    /// The same caller acting under a POSIX identity.
    pub fn with_posix(self, posix: Posix) -> Caller {
        Caller { posix: Some(posix), ..self }
    }

    pub fn principal(&self) -> Principal {
        self.principal
    }

    pub fn posix(&self) -> Option<&Posix> {
        self.posix.as_ref()
    }

    /// The user, or nobody for a caller without one.
    pub fn user(&self) -> UserId {
        match self.principal {
            Principal::User(user) => user,
            Principal::Anonymous | Principal::System => UserId::NOBODY,
        }
    }

    /// Root and the store itself may do everything.
    pub fn is_root(&self) -> bool {
        matches!(self.principal, Principal::System | Principal::User(UserId::ROOT))
    }
}
