//! Capabilities: knowledge that a program needs so that it does not misread rows.
//!
//! A field that a program does not know is kept and ignored ([`crate::codec`]). Where that would be
//! wrong, the row names the capabilities that its reader must have. Such rows are written only
//! after an administrator has turned the capability on, which a cluster allows when all of its
//! nodes have it. `docs/format.md` has the numbers, decision 0057 the reasons.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// A capability. Its number is stored in rows and never reused; its name is for people.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Capability {
    /// Rows that name the capabilities of their readers. The map of a cluster is the first of them.
    RequiredFields = 1,
}

impl Capability {
    pub const ALL: &[Capability] = &[Capability::RequiredFields];

    /// Returns the name, as used by people and commands.
    pub const fn name(self) -> &'static str {
        match self {
            Capability::RequiredFields => "required-fields",
        }
    }

    /// Describes its purpose, in one line of a list.
    pub const fn purpose(self) -> &'static str {
        match self {
            Capability::RequiredFields => {
                "rows say what their reader must know; programs before refuse them"
            }
        }
    }

    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Finds a capability that this program has by its number.
    ///
    /// # Errors
    /// `NotImplemented` for a number of a later release.
    pub fn from_number(number: u64) -> Result<Capability> {
        let found = Capability::ALL.iter().find(|one| u64::from(one.number()) == number);
        found.copied().ok_or_else(|| {
            Error::NotImplemented(format!(
                "capability {number} of the store: this program does not know it, a later release \
                 wrote this: install that release"
            ))
        })
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Capability {
    type Err = Error;

    fn from_str(text: &str) -> Result<Capability> {
        let found = Capability::ALL.iter().find(|one| one.name() == text);
        found.copied().ok_or_else(|| {
            let names: Vec<&str> = Capability::ALL.iter().map(|one| one.name()).collect();
            let names = names.join(", ");
            Error::Invalid(format!("{text:?} is no capability of this program: it has {names}"))
        })
    }
}

/// A set of capabilities, by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CapabilitySet(u64);

impl CapabilitySet {
    pub const NONE: CapabilitySet = CapabilitySet(0);

    /// Returns the capabilities of this program.
    pub fn own() -> CapabilitySet {
        Capability::ALL.iter().copied().collect()
    }

    #[must_use]
    pub const fn with(self, capability: Capability) -> CapabilitySet {
        CapabilitySet(self.0 | 1 << capability.number())
    }

    pub const fn contains(self, capability: Capability) -> bool {
        self.0 & 1 << capability.number() != 0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the capabilities of this set that another lacks.
    #[must_use]
    pub const fn without(self, other: CapabilitySet) -> CapabilitySet {
        CapabilitySet(self.0 & !other.0)
    }

    /// Returns the capabilities in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = Capability> {
        Capability::ALL.iter().copied().filter(move |one| self.contains(*one))
    }
}

impl FromIterator<Capability> for CapabilitySet {
    fn from_iter<I: IntoIterator<Item = Capability>>(all: I) -> CapabilitySet {
        all.into_iter().fold(CapabilitySet::NONE, CapabilitySet::with)
    }
}

impl fmt::Display for CapabilitySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Capability::name).collect();
        f.write_str(&names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_find_their_capability() {
        for one in Capability::ALL {
            assert_eq!(Capability::from_number(one.number().into()).unwrap(), *one);
            assert_eq!(one.name().parse::<Capability>().unwrap(), *one);
            assert!((1..64).contains(&one.number()), "a bit of a set");
        }
        let later = Capability::from_number(63).unwrap_err();
        assert!(matches!(later, Error::NotImplemented(_)), "{later}");
        assert!("x".parse::<Capability>().unwrap_err().to_string().contains("required-fields"));
    }

    #[test]
    fn a_set_tells_what_another_lacks() {
        let one = CapabilitySet::NONE.with(Capability::RequiredFields);
        assert_eq!(one.without(CapabilitySet::NONE), one);
        assert!(one.without(one).is_empty() && CapabilitySet::NONE.without(one).is_empty());
        assert_eq!(one.to_string(), "required-fields");
    }
}
