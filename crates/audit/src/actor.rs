//! The caller of a request.

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
    /// As which user of its machine it acts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// A node of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
}

impl Actor {
    /// The party among which room for records is divided.
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
