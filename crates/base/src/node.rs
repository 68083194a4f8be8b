//! The record of a node in the cluster map: its key and its roles.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// A part that a process plays in a cluster. A node may have several.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Role {
    /// Owns the namespace, or is a standby.
    Master,
    /// Keeps blocks on local disks.
    Chunkserver,
    /// Serves doors.
    Gateway,
}

impl Role {
    pub const ALL: [Role; 3] = [Role::Master, Role::Chunkserver, Role::Gateway];

    /// Returns a stable number, for rows and frames.
    pub fn number(self) -> u8 {
        match self {
            Role::Master => 1,
            Role::Chunkserver => 2,
            Role::Gateway => 3,
        }
    }

    pub fn from_number(number: u8) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.number() == number)
    }

    /// Returns a stable word, as used on the command line and in files.
    pub fn word(self) -> &'static str {
        match self {
            Role::Master => "master",
            Role::Chunkserver => "chunkserver",
            Role::Gateway => "gateway",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Role {
    type Err = Error;

    fn from_str(word: &str) -> Result<Role> {
        let role = Role::ALL.into_iter().find(|role| role.word() == word);
        role.ok_or_else(|| {
            Error::Invalid(format!("{word:?} is no role: master, chunkserver or gateway"))
        })
    }
}

/// A set of roles.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Roles(u16);

impl Roles {
    pub const NONE: Roles = Roles(0);

    pub fn with(self, role: Role) -> Roles {
        Roles(self.0 | 1 << role.number())
    }

    pub fn contains(self, role: Role) -> bool {
        self.0 & 1 << role.number() != 0
    }

    /// Returns whether all roles of `other` are among these.
    pub fn contains_all(self, other: Roles) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Role> {
        Role::ALL.into_iter().filter(move |role| self.contains(*role))
    }

    /// Returns one bit per role, at its number. Bits that this version does not know are kept.
    pub fn bits(self) -> u16 {
        self.0
    }

    pub fn from_bits(bits: u16) -> Roles {
        Roles(bits)
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Roles {
        roles.into_iter().fold(Roles::NONE, Roles::with)
    }
}

impl From<Role> for Roles {
    fn from(role: Role) -> Roles {
        Roles::NONE.with(role)
    }
}

impl fmt::Debug for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.iter().map(Role::word).collect();
        f.write_str(&words.join(", "))
    }
}

/// SHA-256 of a public key (of its SubjectPublicKeyInfo, DER).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash(pub [u8; 32]);

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyHash({self})")
    }
}

impl FromStr for KeyHash {
    type Err = Error;

    fn from_str(hex: &str) -> Result<KeyHash> {
        let bad = || Error::Invalid(format!("{hex:?} is not a SHA-256 in 64 hexadecimal digits"));
        if hex.len() != 64 || !hex.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(bad());
        }
        let mut hash = [0; 32];
        for (byte, at) in hash.iter_mut().zip((0..).step_by(2)) {
            let digits = hex.get(at..at + 2).ok_or_else(bad)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| bad())?;
        }
        Ok(KeyHash(hash))
    }
}

/// The pin of one node in the cluster map: a process that claims to be this node must have this
/// key, and may act only in these roles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pin {
    pub key: KeyHash,
    pub roles: Roles,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_have_numbers_and_words_of_their_own() {
        for role in Role::ALL {
            assert_eq!(Role::from_number(role.number()), Some(role));
            assert_eq!(role.word().parse::<Role>().unwrap(), role);
        }
        assert_eq!(Role::from_number(0), None);
        assert!("Master".parse::<Role>().is_err());
    }

    #[test]
    fn a_set_contains_what_was_put_into_it() {
        let two: Roles = [Role::Master, Role::Gateway].into_iter().collect();
        assert!(two.contains(Role::Master) && !two.contains(Role::Chunkserver));
        assert!(two.contains_all(Role::Gateway.into()) && two.contains_all(Roles::NONE));
        assert!(!two.contains_all(two.with(Role::Chunkserver)));
        assert_eq!(two.to_string(), "master, gateway");
        assert_eq!(Roles::from_bits(two.bits()), two);
    }

    #[test]
    fn a_key_hash_reads_back_from_its_text() {
        let hash = KeyHash(std::array::from_fn(|at| at as u8 * 7));
        assert_eq!(hash.to_string().parse::<KeyHash>().unwrap(), hash);
        for bad in ["", "00", &"0".repeat(63), &"g".repeat(64), &"é".repeat(32)] {
            assert!(bad.parse::<KeyHash>().is_err(), "{bad:?}");
        }
    }
}
