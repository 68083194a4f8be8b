//! Logins of browsers to the console.

use bytes::Bytes;
use cairn_base::codec::{Fields, Writer};
use cairn_base::{Result, Timestamp};

use super::{FORMAT, Row, unexpected, unzigzag, zigzag};

/// A browser in which a user has logged in to the console: the row `k c <user> <hash>`, with the
/// hash of the secret that the browser keeps.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Login {
    /// Access key that was shown at login.
    pub credential: String,
    pub created: Timestamp,
    /// Time of the last use that was noted.
    pub seen: Timestamp,
    /// End of the login, however much it is used.
    pub expires: Timestamp,
    pub unknown: Vec<u8>,
}

impl Row for Login {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        writer
            .text(1, &self.credential)
            .number(2, zigzag(self.created.0))
            .number(3, zigzag(self.seen.0))
            .number(4, zigzag(self.expires.0))
            .raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<Login> {
        let mut login = Login::default();
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => login.credential = field.text()?,
                2 => login.created = Timestamp(unzigzag(field.number()?)),
                3 => login.seen = Timestamp(unzigzag(field.number()?)),
                4 => login.expires = Timestamp(unzigzag(field.number()?)),
                _ => field.keep(&mut login.unknown),
            }
        }
        if login.credential.is_empty() {
            Err(unexpected("login", "no access key"))
        } else {
            Ok(login)
        }
    }
}
