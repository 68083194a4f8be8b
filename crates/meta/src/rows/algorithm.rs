//! The algorithms of checksums.

use std::fmt;

use cairn_base::Result;
use serde::de::{Deserialize, Deserializer, EnumAccess, Error, VariantAccess, Visitor};
use serde::{Serialize, Serializer};

use super::unexpected;

/// A checksum algorithm of S3 (`x-amz-checksum-*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Algorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
    Sha512,
    Md5,
    XxHash64,
    XxHash3,
    XxHash128,
}

/// Number of the algorithms that every program knows, and their names in messages.
const FIRST: [&str; 5] = ["Crc32", "Crc32c", "Crc64Nvme", "Sha1", "Sha256"];

impl Algorithm {
    pub const ALL: [Algorithm; 10] = [
        Algorithm::Crc32,
        Algorithm::Crc32c,
        Algorithm::Crc64Nvme,
        Algorithm::Sha1,
        Algorithm::Sha256,
        Algorithm::Sha512,
        Algorithm::Md5,
        Algorithm::XxHash64,
        Algorithm::XxHash3,
        Algorithm::XxHash128,
    ];

    /// Returns the number in rows. In messages it is one less.
    pub(super) fn number(self) -> u8 {
        match self {
            Algorithm::Crc32 => 1,
            Algorithm::Crc32c => 2,
            Algorithm::Crc64Nvme => 3,
            Algorithm::Sha1 => 4,
            Algorithm::Sha256 => 5,
            Algorithm::Sha512 => 6,
            Algorithm::Md5 => 7,
            Algorithm::XxHash64 => 8,
            Algorithm::XxHash3 => 9,
            Algorithm::XxHash128 => 10,
        }
    }

    pub(super) fn from_number(number: u8) -> Result<Algorithm> {
        let found = Algorithm::ALL.into_iter().find(|algorithm| algorithm.number() == number);
        found.ok_or_else(|| unexpected("checksum", number))
    }

    /// Returns whether there were programs without it. These take its number for damage, so it is
    /// only in fields that they do not look into.
    pub fn is_later(self) -> bool {
        usize::from(self.number()) > FIRST.len()
    }

    /// Returns whether the checksum of all bytes can be computed from those of parts.
    pub fn is_crc(self) -> bool {
        matches!(self, Algorithm::Crc32 | Algorithm::Crc32c | Algorithm::Crc64Nvme)
    }

    /// Returns the length of the checksum, bytes.
    pub fn checksum_bytes(self) -> usize {
        match self {
            Algorithm::Crc32 | Algorithm::Crc32c => 4,
            Algorithm::Crc64Nvme | Algorithm::XxHash64 | Algorithm::XxHash3 => 8,
            Algorithm::Md5 | Algorithm::XxHash128 => 16,
            Algorithm::Sha1 => 20,
            Algorithm::Sha256 => 32,
            Algorithm::Sha512 => 64,
        }
    }
}

/// Messages have the index among [`Algorithm::ALL`]. A program that does not know it refuses the
/// message, so verbs keep their numbers.
impl Serialize for Algorithm {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let index = u32::from(self.number()) - 1;
        let name = FIRST.get(index as usize).copied().unwrap_or("later");
        serializer.serialize_unit_variant("Algorithm", index, name)
    }
}

impl<'de> Deserialize<'de> for Algorithm {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Algorithm, D::Error> {
        from.deserialize_enum("Algorithm", &FIRST, Variant)
    }
}

struct Variant;

impl<'de> Visitor<'de> for Variant {
    type Value = Algorithm;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a checksum algorithm")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> std::result::Result<Algorithm, A::Error> {
        let (index, variant) = data.variant::<u32>()?;
        variant.unit_variant()?;
        let found = usize::try_from(index).ok().and_then(|index| Algorithm::ALL.get(index));
        found.copied().ok_or_else(|| {
            A::Error::custom(format_args!(
                "checksum algorithm {index} is of a later release: install that release"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithms_keep_their_numbers() {
        for (index, algorithm) in Algorithm::ALL.into_iter().enumerate() {
            let sent = postcard::to_allocvec(&algorithm).unwrap();
            assert_eq!(sent, [index as u8]);
            assert_eq!(postcard::from_bytes::<Algorithm>(&sent).unwrap(), algorithm);
            assert_eq!(usize::from(algorithm.number()), index + 1);
            assert_eq!(Algorithm::from_number(algorithm.number()).unwrap(), algorithm);
        }
        assert!(postcard::from_bytes::<Algorithm>(&[10]).is_err());
        assert!(Algorithm::from_number(11).is_err());
    }
}
