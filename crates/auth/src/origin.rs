//! Origin of a request, as far as decisions may depend on it.

use std::fmt;
use std::net::IpAddr;

use cairn_base::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest id of a credential, bytes.
const ID_BYTES: usize = 64;

/// Way by which a request came to its door. Nodes that relay the request pass it on. Empty for what
/// the store does on its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Origin {
    /// The other end of the client's connection.
    pub source: Option<IpAddr>,
    /// Set if the connection was encrypted.
    pub tls: bool,
    /// The access key or token that was verified.
    pub credential: Option<CredentialId>,
}

/// Id of an access key or token: not its secret. It is copied with each caller, so it is kept
/// without an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CredentialId {
    len: u8,
    bytes: [u8; ID_BYTES],
}

impl CredentialId {
    /// Makes an id; `None` if the text is too long.
    pub fn new(id: &str) -> Option<CredentialId> {
        let mut bytes = [0; ID_BYTES];
        bytes.get_mut(..id.len())?.copy_from_slice(id.as_bytes());
        Some(CredentialId { len: id.len() as u8, bytes })
    }

    pub fn as_str(&self) -> &str {
        let id = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        std::str::from_utf8(id).unwrap_or_default()
    }
}

impl fmt::Debug for CredentialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for CredentialId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for CredentialId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CredentialId, D::Error> {
        let id = <&str>::deserialize(deserializer)?;
        CredentialId::new(id)
            .ok_or_else(|| serde::de::Error::custom("not the id of an access key or token"))
    }
}

/// Facts that may decide in addition to caller, action and resource.
#[derive(Clone, Copy, Debug)]
pub struct AccessContext<'a> {
    pub origin: &'a Origin,
    /// Time of the decision.
    pub now: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_kept_whole_or_not_at_all() {
        let longest = "k".repeat(ID_BYTES);
        for id in ["", "CK7", &longest] {
            assert_eq!(CredentialId::new(id).unwrap().as_str(), id);
        }
        assert_eq!(CredentialId::new(&format!("{longest}k")), None);
    }
}
