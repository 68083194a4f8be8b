//! Users, access keys and tokens.

use bytes::Bytes;
use cairn_auth::TokenHash;
use cairn_base::codec::{Fields, Writer};
use cairn_base::{Result, Timestamp, UserId};
use serde::{Deserialize, Serialize};

use super::{FORMAT, Row, UserQuotas, array, unexpected, unzigzag, zigzag};

/// A user: the row `k u <user>`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct User {
    pub name: String,
    pub created: Timestamp,
    /// Refuses the user's credentials.
    pub disabled: bool,
    pub limits: UserLimits,
    pub quotas: UserQuotas,
    pub unknown: Vec<u8>,
}

/// Limits per second of what doors do for a user, for each process separately; 0 for no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UserLimits {
    pub requests: u64,
    /// Bytes of the bodies of requests and of replies together.
    pub bytes: u64,
}

impl Row for User {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        writer.text(1, &self.name).number(2, zigzag(self.created.0));
        if self.disabled {
            writer.number(3, 1);
        }
        let UserQuotas { bytes, objects, buckets, uploads } = self.quotas;
        let limits = [(4, self.limits.requests), (5, self.limits.bytes)];
        let quotas = [(6, bytes), (7, objects), (8, buckets), (9, uploads)];
        for (tag, limit) in limits.into_iter().chain(quotas) {
            if limit > 0 {
                writer.number(tag, limit);
            }
        }
        writer.raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<User> {
        let mut user = User::default();
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => user.name = field.text()?,
                2 => user.created = Timestamp(unzigzag(field.number()?)),
                3 => user.disabled = field.number()? != 0,
                4 => user.limits.requests = field.number()?,
                5 => user.limits.bytes = field.number()?,
                6 => user.quotas.bytes = field.number()?,
                7 => user.quotas.objects = field.number()?,
                8 => user.quotas.buckets = field.number()?,
                9 => user.quotas.uploads = field.number()?,
                _ => field.keep(&mut user.unknown),
            }
        }
        Ok(user)
    }
}

/// An access key: the row `k a <access key id>`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AccessKey {
    pub user: UserId,
    /// The secret, sealed for the access key id.
    pub sealed: Vec<u8>,
    pub created: Timestamp,
    pub unknown: Vec<u8>,
}

impl Row for AccessKey {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        writer
            .number(1, self.user.0)
            .bytes(2, &self.sealed)
            .number(3, zigzag(self.created.0))
            .raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<AccessKey> {
        let mut key = AccessKey::default();
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => key.user = UserId(field.number()?),
                2 => key.sealed = field.value.to_vec(),
                3 => key.created = Timestamp(unzigzag(field.number()?)),
                _ => field.keep(&mut key.unknown),
            }
        }
        match key.user {
            UserId::NOBODY => Err(unexpected("access key", "no user")),
            _ => Ok(key),
        }
    }
}

/// A bearer token: the row `k t <token id>`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Token {
    pub user: UserId,
    pub hash: TokenHash,
    pub created: Timestamp,
    /// End of validity; 0 for never.
    pub expires: Timestamp,
    pub unknown: Vec<u8>,
}

impl Token {
    /// Returns whether the token has not expired.
    pub fn is_in_time(&self, now: Timestamp) -> bool {
        self.expires.0 == 0 || now < self.expires
    }
}

impl Row for Token {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        writer
            .number(1, self.user.0)
            .bytes(2, &self.hash)
            .number(3, zigzag(self.created.0))
            .number(4, zigzag(self.expires.0))
            .raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<Token> {
        let mut token = Token::default();
        let mut hash = None;
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => token.user = UserId(field.number()?),
                2 => hash = Some(array("token hash", &field.value)?),
                3 => token.created = Timestamp(unzigzag(field.number()?)),
                4 => token.expires = Timestamp(unzigzag(field.number()?)),
                _ => field.keep(&mut token.unknown),
            }
        }
        token.hash = hash.ok_or_else(|| unexpected("token", "no hash"))?;
        match token.user {
            UserId::NOBODY => Err(unexpected("token", "no user")),
            _ => Ok(token),
        }
    }
}
