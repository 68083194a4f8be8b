//! The caller of a request, for records.

use std::net::IpAddr;
use std::sync::Arc;

use cairn_auth::{Caller, CredentialId, Principal};
use cairn_base::{Party, UserId};
use serde::{Serialize, Serializer};

/// The caller of a request, and its address.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Actor {
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "number")]
    pub user: Option<UserId>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text")]
    pub name: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialId>,
    /// Uid as which it acts on its machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Node of the cluster, if the caller is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
}

impl Actor {
    /// Returns the party with which it shares the room for records.
    pub fn party(&self) -> Party {
        match (self.user, &self.node, self.source) {
            (Some(user), ..) => Party::User(user),
            (None, None, Some(source)) => Party::at(source),
            _ => Party::Other,
        }
    }

    pub fn of(caller: &Caller) -> Actor {
        let user = match caller.principal() {
            Principal::User(user) => Some(user),
            _ => None,
        };
        let origin = caller.origin();
        let uid = caller.posix().map(|posix| posix.uid);
        Actor {
            user,
            credential: origin.credential,
            uid,
            source: origin.source,
            ..Actor::default()
        }
    }
}

fn number<S: Serializer>(user: &Option<UserId>, serializer: S) -> Result<S::Ok, S::Error> {
    user.map(|user| user.0).serialize(serializer)
}

fn text<S: Serializer>(name: &Option<Arc<str>>, serializer: S) -> Result<S::Ok, S::Error> {
    name.as_deref().serialize(serializer)
}
