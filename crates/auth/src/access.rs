//! Rights and the one function that decides.

use cairn_base::{Error, Result, UserId};
use serde::{Deserialize, Serialize};

use crate::{Caller, Principal};

/// What an operation does to a bucket. Each operation of the store names one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Action {
    /// Read objects and their attributes.
    Read,
    /// List keys, uploads and directories.
    List,
    /// Make, replace, append to and delete objects.
    Write,
    /// Read the bucket's settings.
    Inspect,
    /// Change the bucket's settings and rights; delete it.
    Administer,
}

impl Action {
    fn needs(self) -> Rights {
        match self {
            Action::Read | Action::List | Action::Inspect => Rights::READ,
            Action::Write => Rights::WRITE,
            Action::Administer => Rights::ADMIN,
        }
    }
}

/// A set of rights a user has on one bucket.
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

    /// As stored: bit 0 read, bit 1 write, bit 2 administer.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Bits of a newer version grant nothing.
    pub fn from_bits(bits: u8) -> Rights {
        Rights(bits & Rights::ALL.0)
    }

    /// From words such as `read,write`, as used by the CLI and the HTTP API.
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

/// Who may read without credentials.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Visibility {
    /// Only who has a right to.
    #[default]
    Private,
    /// Anybody may read objects and list keys.
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

/// What of a bucket's settings decides on access.
#[derive(Clone, Copy, Debug)]
pub struct BucketAccess<'a> {
    pub name: &'a str,
    pub owner: UserId,
    pub visibility: Visibility,
    pub grants: &'a [(UserId, Rights)],
}

/// May `caller` do `action` in the bucket? `Err(Error::Denied)` if not.
pub fn decide(caller: &Caller, bucket: BucketAccess<'_>, action: Action) -> Result<()> {
    if caller.is_root() {
        return Ok(());
    }
    let rights = match caller.principal() {
        Principal::User(user) if user == bucket.owner => Rights::ALL,
        Principal::User(user) => bucket
            .grants
            .iter()
            .filter(|(grantee, _)| *grantee == user)
            .fold(Rights::NONE, |rights, (_, more)| rights.union(*more)),
        _ => Rights::NONE,
    };
    let public =
        bucket.visibility == Visibility::Public && matches!(action, Action::Read | Action::List);
    if public || rights.contains(action.needs()) {
        return Ok(());
    }
    Err(Error::Denied(format!("{action:?} in bucket {}", bucket.name).to_lowercase()))
}

/// May `caller` manage users and keys and run maintenance? Only root.
pub fn decide_admin(caller: &Caller, what: &str) -> Result<()> {
    if caller.is_root() {
        return Ok(());
    }
    Err(Error::Denied(format!("{what}: only root may")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: UserId = UserId(7);
    const READER: UserId = UserId(8);
    const WRITER: UserId = UserId(9);
    const STRANGER: UserId = UserId(10);

    /// Every principal x every action x both visibilities.
    #[test]
    fn matrix() {
        use Action::{Administer, Inspect, List, Read, Write};
        let grants = [(READER, Rights::READ), (WRITER, Rights::WRITE)];
        let all = [Read, List, Write, Inspect, Administer];
        let table: [(Caller, &[Action], &[Action]); 7] = [
            (Caller::anonymous(), &[], &[Read, List]),
            (Caller::verified(STRANGER), &[], &[Read, List]),
            (Caller::verified(READER), &[Read, List, Inspect], &[Read, List, Inspect]),
            (Caller::verified(WRITER), &[Write], &[Read, List, Write]),
            (Caller::verified(OWNER), &all, &all),
            (Caller::verified(UserId::ROOT), &all, &all),
            (Caller::system(), &all, &all),
        ];
        for (caller, private, public) in table {
            for action in all {
                for (visibility, allowed) in
                    [(Visibility::Private, private), (Visibility::Public, public)]
                {
                    let bucket =
                        BucketAccess { name: "b", owner: OWNER, visibility, grants: &grants };
                    let got = decide(&caller, bucket, action).is_ok();
                    assert_eq!(got, allowed.contains(&action), "{caller:?} {action:?}");
                }
            }
        }
    }

    #[test]
    fn nobody_is_not_the_owner_of_an_ownerless_bucket() {
        let bucket = BucketAccess {
            name: "b",
            owner: UserId::NOBODY,
            visibility: Visibility::Private,
            grants: &[(UserId::NOBODY, Rights::ALL)],
        };
        assert!(decide(&Caller::anonymous(), bucket, Action::Read).is_err());
        assert!(decide_admin(&Caller::verified(OWNER), "gc").is_err());
    }

    #[test]
    fn words_round_trip() {
        for bits in 0..8 {
            let rights = Rights::from_bits(bits);
            assert_eq!(Rights::parse(&rights.to_string()).unwrap(), rights);
        }
        assert!(Rights::parse("read,everything").is_err());
    }
}
