//! Rights of users in a bucket, by its settings.

use cairn_base::{BucketId, Error, Result, UserId};
use serde::{Deserialize, Serialize};

use crate::{Caller, Principal};

/// A set of rights that a user has in one bucket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Rights(u8);

impl Rights {
    pub const NONE: Rights = Rights(0);
    pub const READ: Rights = Rights(1);
    pub const WRITE: Rights = Rights(2);
    pub const ADMIN: Rights = Rights(4);
    pub const ALL: Rights = Rights(7);

    pub fn contains(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn union(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }

    /// Returns the bits as stored: bit 0 read, bit 1 write, bit 2 administer.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Reads stored bits. Bits of a newer version grant nothing.
    pub fn from_bits(bits: u8) -> Rights {
        Rights(bits & Rights::ALL.0)
    }

    /// Parses words such as `read,write`, as the CLI and the HTTP API use them.
    pub fn parse(words: &str) -> Result<Rights> {
        words.split(',').try_fold(Rights::NONE, |rights, word| {
            let one = match word.trim() {
                "none" => Rights::NONE,
                "read" => Rights::READ,
                "write" => Rights::WRITE,
                "admin" => Rights::ADMIN,
                "all" => Rights::ALL,
                other => {
                    let what = format!("right `{other}`: use read, write, admin, all or none");
                    return Err(Error::Invalid(what));
                }
            };
            Ok(rights.union(one))
        })
    }
}

impl std::fmt::Display for Rights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == Rights::NONE {
            return f.write_str("none");
        }
        let words = [(Rights::READ, "read"), (Rights::WRITE, "write"), (Rights::ADMIN, "admin")];
        let mut separator = "";
        for (right, word) in words {
            if self.contains(right) {
                write!(f, "{separator}{word}")?;
                separator = ",";
            }
        }
        Ok(())
    }
}

/// Visibility of a bucket: whether requests without credentials may read it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Visibility {
    /// Readable for users with a right to it.
    #[default]
    Private,
    /// Everybody may read objects and list keys.
    Public,
}

impl Visibility {
    pub fn parse(word: &str) -> Result<Visibility> {
        match word {
            "private" => Ok(Visibility::Private),
            "public" => Ok(Visibility::Public),
            other => Err(Error::Invalid(format!("visibility `{other}`: use private or public"))),
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Visibility::Private => "private",
            Visibility::Public => "public",
        }
    }
}

/// The settings of a bucket that decide on access to it.
#[derive(Clone, Copy, Debug)]
pub struct BucketAccess<'a> {
    pub label: Label<'a>,
    pub owner: UserId,
    pub visibility: Visibility,
    pub grants: &'a [(UserId, Rights)],
    /// Set if every change to its contents is refused, to all users.
    pub read_only: bool,
}

/// Name of a bucket as the caller knows it. A refusal reveals no more than that.
#[derive(Clone, Copy, Debug)]
pub enum Label<'a> {
    Name(&'a str),
    Number(BucketId),
}

impl BucketAccess<'_> {
    /// Returns the rights that the settings give to `caller`.
    pub(crate) fn rights_of(&self, caller: &Caller) -> Rights {
        match caller.principal() {
            Principal::User(user) if user == self.owner => Rights::ALL,
            Principal::User(user) => {
                let own = self.grants.iter().filter(|(grantee, _)| *grantee == user);
                own.fold(Rights::NONE, |rights, (_, more)| rights.union(*more))
            }
            Principal::Anonymous | Principal::System => Rights::NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        for bits in 0..8 {
            let rights = Rights::from_bits(bits);
            assert_eq!(Rights::parse(&rights.to_string()).unwrap(), rights);
        }
        assert!(Rights::parse("read,everything").is_err());
    }
}
