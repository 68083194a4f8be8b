//! Join tokens.

use bytes::Bytes;
use cairn_base::codec::{Fields, Writer};
use cairn_base::{JoinGrant, KeyHash, NodeId, Result, Roles, Timestamp, TokenHash};

use super::{FORMAT, Row, array, narrow, unzigzag, zigzag};

/// A join token that was issued: the row `c join/<id>`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IssuedToken {
    pub grant: JoinGrant,
    /// Fields of a newer version.
    pub unknown: Vec<u8>,
}

impl Row for IssuedToken {
    fn encode(&self) -> Bytes {
        let JoinGrant { hash, roles, expires, used } = &self.grant;
        let mut writer = Writer::new(FORMAT);
        writer
            .bytes(1, &hash.to_bytes())
            .number(2, roles.bits().into())
            .number(3, zigzag(expires.0));
        if let Some((key, node)) = used {
            writer.bytes(4, &key.0).number(5, node.0);
        }
        writer.raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<IssuedToken> {
        let (mut hash, mut roles, mut expires) = ([0; 32], Roles::NONE, Timestamp(0));
        let (mut key, mut node) = (None, NodeId(0));
        let mut unknown = Vec::new();
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => hash = array("join token", &field.value)?,
                2 => roles = Roles::from_bits(narrow("roles", field.number()?)?),
                3 => expires = Timestamp(unzigzag(field.number()?)),
                4 => key = Some(KeyHash(array("join token", &field.value)?)),
                5 => node = NodeId(field.number()?),
                _ => field.keep(&mut unknown),
            }
        }
        let used = key.map(|key| (key, node));
        let grant = JoinGrant { hash: TokenHash::from_bytes(hash), roles, expires, used };
        Ok(IssuedToken { grant, unknown })
    }
}
