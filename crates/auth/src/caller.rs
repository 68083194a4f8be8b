//! The caller of a request.

use cairn_base::{Timestamp, UserId};
use serde::{Deserialize, Serialize};

use crate::{AccessContext, Origin};

/// The identity of a caller.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Principal {
    /// A caller without credentials.
    Anonymous,
    User(UserId),
    /// Background duties of the store itself.
    System,
}

/// A POSIX identity, if the caller came through a mount: mode bits are then checked too.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Posix {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// The caller of a request, as established by this crate. Every operation of the store takes one.
/// Only the functions below make a caller. Each has the name of the proof that was verified before.
///
/// Callers are compared by [`Caller::acts_as`]: the same user may come from elsewhere.
#[derive(Clone, Debug)]
pub struct Caller {
    principal: Principal,
    posix: Option<Posix>,
    origin: Origin,
}

/// A caller on its way from one node to another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RelayedCaller(Relayed);

/// The first three variants have the form in which earlier versions, which knew no origin, sent
/// them: these are read too.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Relayed {
    Anonymous(Option<Posix>),
    User(UserId, Option<Posix>),
    System(Option<Posix>),
    From(Origin, Principal, Option<Posix>),
}

impl Caller {
    /// Returns the caller in the form in which it is sent to another node of the cluster.
    pub fn to_relayed(&self) -> RelayedCaller {
        let Caller { principal, posix, origin } = self.clone();
        RelayedCaller(match principal {
            _ if origin != Origin::default() => Relayed::From(origin, principal, posix),
            Principal::Anonymous => Relayed::Anonymous(posix),
            Principal::User(user) => Relayed::User(user, posix),
            Principal::System => Relayed::System(posix),
        })
    }

    /// Returns the caller that a node has verified. The cluster map pins the node's key, and the
    /// node's role is to verify callers.
    pub fn relayed(caller: RelayedCaller) -> Caller {
        let (origin, principal, posix) = match caller.0 {
            Relayed::Anonymous(posix) => (Origin::default(), Principal::Anonymous, posix),
            Relayed::User(user, posix) => (Origin::default(), Principal::User(user), posix),
            Relayed::System(posix) => (Origin::default(), Principal::System, posix),
            Relayed::From(origin, principal, posix) => (origin, principal, posix),
        };
        Caller { principal, posix, origin }
    }

    /// Returns the caller of a request without credentials.
    pub fn anonymous() -> Caller {
        Caller::of(Principal::Anonymous)
    }

    /// Returns the caller of a background duty of the store; never made for anything that came over
    /// a network.
    pub fn system() -> Caller {
        Caller::of(Principal::System)
    }

    /// Returns the caller `user`, whose signature, secret or token was verified.
    pub fn verified(user: UserId) -> Caller {
        Caller::of(Principal::User(user))
    }

    fn of(principal: Principal) -> Caller {
        Caller { principal, posix: None, origin: Origin::default() }
    }

    /// Sets the origin of the caller's request.
    pub fn with_origin(self, origin: Origin) -> Caller {
        Caller { origin, ..self }
    }

    /// Sets the POSIX identity under which the caller acts.
    pub fn with_posix(self, posix: Posix) -> Caller {
        Caller { posix: Some(posix), ..self }
    }

    pub fn principal(&self) -> Principal {
        self.principal
    }

    pub fn posix(&self) -> Option<&Posix> {
        self.posix.as_ref()
    }

    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns the facts that may decide, together with the caller, on an action that is requested
    /// now.
    pub fn context(&self, now: Timestamp) -> AccessContext<'_> {
        AccessContext { origin: &self.origin, now }
    }

    /// Returns true if the two are the same user under the same POSIX identity, from whatever
    /// origin.
    pub fn acts_as(&self, other: &Caller) -> bool {
        (self.principal, &self.posix) == (other.principal, &other.posix)
    }

    pub fn is_anonymous(&self) -> bool {
        self.principal == Principal::Anonymous
    }

    /// Returns the user; for a caller without one, nobody.
    pub fn user(&self) -> UserId {
        match self.principal {
            Principal::User(user) => user,
            Principal::Anonymous | Principal::System => UserId::NOBODY,
        }
    }

    /// Returns true for root and the store itself, which may do everything.
    pub fn is_root(&self) -> bool {
        matches!(self.principal, Principal::System | Principal::User(UserId::ROOT))
    }
}
