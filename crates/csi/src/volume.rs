//! Ids of volumes, which are names of buckets.

use sha2::{Digest, Sha256};
use tonic::Status;

/// Prefix of the names of this driver's buckets. It deletes no others.
pub const PREFIX: &str = "csi-";
/// Suffix of the name of a bucket that stays when its volume is deleted.
const KEPT: &str = "--keep";
/// Shortest and longest name of a bucket, bytes.
const NAME_BYTES: std::ops::RangeInclusive<usize> = 3..=63;
/// Longest name of a volume that is kept as it is, bytes: the rest of the name of its bucket.
const PLAIN_BYTES: usize = *NAME_BYTES.end() - PREFIX.len() - KEPT.len();
/// Length of the hash that replaces a name which cannot be part of a bucket's name, bytes.
const HASH_BYTES: usize = 16;
/// Length of the readable part of such a name, bytes: the rest beside the hash and the hyphen.
const SLUG_BYTES: usize = PLAIN_BYTES - 2 * HASH_BYTES - 2;

/// A volume. It has no characters that mean anything in a path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct VolumeId(String);

impl VolumeId {
    /// Parses the id that a caller sends. It may be any bucket: also a volume that no driver made.
    /// `None` if no bucket can have this name.
    pub fn parse(text: &str) -> Option<VolumeId> {
        let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = text.as_bytes();
        let is_good = NAME_BYTES.contains(&bytes.len())
            && bytes.iter().all(|byte| plain(byte) || matches!(byte, b'.' | b'-'))
            && bytes.first().is_some_and(plain)
            && bytes.last().is_some_and(plain)
            && !text.contains("..");
        is_good.then(|| VolumeId(text.to_owned()))
    }

    /// Parses the id that a call needs.
    ///
    /// # Errors
    /// `InvalidArgument` without an id; `NotFound` for an id that no volume can have.
    pub fn wanted(text: &str) -> Result<VolumeId, Status> {
        if text.is_empty() {
            return Err(Status::invalid_argument("the id of the volume is missing"));
        }
        VolumeId::parse(text).ok_or_else(|| Status::not_found(format!("volume {text:?}")))
    }

    /// Returns the id of the volume that a name stands for: always the same one.
    ///
    /// A name that can be part of the name of a bucket stays as it is. A hash stands for any other
    /// name. The two kinds have nothing in common: only the second contains `--`.
    pub fn of_name(name: &str, is_kept: bool) -> VolumeId {
        let end = if is_kept { KEPT } else { "" };
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = name.as_bytes();
        let stays = bytes.len() <= PLAIN_BYTES
            && bytes.iter().all(|&byte| plain(byte) || byte == b'-')
            && bytes.first().is_some_and(|&byte| plain(byte))
            && bytes.last().is_some_and(|&byte| plain(byte))
            && !name.contains("--");
        if stays {
            return VolumeId(format!("{PREFIX}{name}{end}"));
        }
        let digest = Sha256::digest(bytes);
        let hash: String = digest[..HASH_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        VolumeId(format!("{PREFIX}{}--{hash}{end}", slug(name)))
    }

    /// Returns true if a driver made it, so that a driver may delete it.
    pub fn is_of_driver(&self) -> bool {
        self.0.starts_with(PREFIX)
    }

    /// Returns true if the bucket stays when the volume is deleted.
    pub fn is_kept(&self) -> bool {
        self.is_of_driver() && self.0.ends_with(KEPT)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for VolumeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the readable part of a name: letters and digits, and one hyphen for everything between
/// them.
fn slug(name: &str) -> String {
    let mut slug = String::new();
    for c in name.chars().map(|c| c.to_ascii_lowercase()) {
        let is_plain = c.is_ascii_lowercase() || c.is_ascii_digit();
        match is_plain {
            true => slug.push(c),
            false if !slug.is_empty() && !slug.ends_with('-') => slug.push('-'),
            false => {}
        }
        if slug.len() == SLUG_BYTES {
            break;
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { "volume".to_owned() } else { slug.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_one_of_a_bucket_stays() {
        let uid = "pvc-0f6b3ad2-6a0e-4a43-9a45-111111111111";
        assert_eq!(VolumeId::of_name(uid, false).as_str(), format!("csi-{uid}"));
        let kept = VolumeId::of_name(uid, true);
        assert_eq!(kept.as_str(), format!("csi-{uid}--keep"));
        assert!(kept.is_kept() && !VolumeId::of_name(uid, false).is_kept());
    }

    #[test]
    fn every_name_has_an_id_of_its_own() {
        let long = "x".repeat(128);
        let names =
            ["a", "A", "a-", "a--b", "a--keep", "keep", "Ä", "a/../b", "", "a.b", "a_b", &long];
        let mut seen = std::collections::BTreeSet::new();
        for name in names {
            for is_kept in [false, true] {
                let id = VolumeId::of_name(name, is_kept);
                assert_eq!(VolumeId::parse(id.as_str()).as_ref(), Some(&id), "{name:?}");
                assert_eq!((id.is_of_driver(), id.is_kept()), (true, is_kept), "{name:?}");
                assert!(seen.insert(id), "{name:?}");
            }
        }
        // The id of a name is not the id of a volume with that id as its name.
        let id = VolumeId::of_name("A", false);
        let name = id.as_str().strip_prefix(PREFIX).unwrap();
        assert_ne!(VolumeId::of_name(name, false), id);
    }

    #[test]
    fn what_is_no_bucket_is_no_volume() {
        for bad in
            ["..", "a/b", "/etc", "../../etc", "ab", "A-B", "a..b", "-ab", "a\0b", "ab\n", "ü-ü"]
        {
            assert_eq!(VolumeId::parse(bad), None, "{bad:?}");
        }
        assert!(!VolumeId::parse("photos").unwrap().is_of_driver());
        assert!(!VolumeId::parse("photos--keep").unwrap().is_kept());
    }
}
