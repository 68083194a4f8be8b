//! Blocks of public access to a bucket, and settings of S3 that only its replies depend on.

use serde::{Deserialize, Serialize};

/// A public access block of S3. Here a bucket has one visibility, which stands for what an ACL and
/// what a policy of S3 can allow to everybody, so the two flags of a pair mean one thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PublicAccessBlock {
    pub block_acls: bool,
    pub ignore_acls: bool,
    pub block_policy: bool,
    pub restrict_buckets: bool,
}

/// Bit that says that there is a block: it may have no flags.
const IS_SET: u64 = 1;
/// Bit that says that the bucket is public when the block ends.
const PUBLIC_BEHIND: u64 = 1 << 5;

impl PublicAccessBlock {
    /// Returns whether it refuses to make the bucket public.
    pub fn refuses(self) -> bool {
        self.block_acls || self.block_policy
    }

    /// Returns whether a public bucket is treated as private.
    pub fn hides(self) -> bool {
        self.ignore_acls || self.restrict_buckets
    }

    /// Returns the names of the flags that are on, as S3 has them.
    pub fn names(mut self) -> Vec<&'static str> {
        let names =
            ["BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"];
        let flags = names.into_iter().zip(self.flags());
        flags.filter_map(|(name, flag)| flag.then_some(name)).collect()
    }

    fn flags(&mut self) -> [&mut bool; 4] {
        let PublicAccessBlock { block_acls, ignore_acls, block_policy, restrict_buckets } = self;
        [block_acls, ignore_acls, block_policy, restrict_buckets]
    }
}

/// Returns the number of the field that has the block, 0 for none.
pub(super) fn encode(block: Option<PublicAccessBlock>, is_public_behind: bool) -> u64 {
    let Some(mut block) = block else { return 0 };
    let mut bits = IS_SET | if is_public_behind { PUBLIC_BEHIND } else { 0 };
    for (at, flag) in block.flags().into_iter().enumerate() {
        bits |= u64::from(*flag) << (at + 1);
    }
    bits
}

/// Returns the block, and whether the bucket is public behind it; `None` for bits that this version
/// does not know.
pub(super) fn decode(bits: u64) -> Option<(Option<PublicAccessBlock>, bool)> {
    if bits == 0 {
        return Some((None, false));
    }
    if bits & IS_SET == 0 || bits >= PUBLIC_BEHIND << 1 {
        return None;
    }
    let mut block = PublicAccessBlock::default();
    for (at, flag) in block.flags().into_iter().enumerate() {
        *flag = bits & 1 << (at + 1) != 0;
    }
    Some((Some(block), bits & PUBLIC_BEHIND != 0))
}

/// A setting of S3 without effect on the store: it decides only what S3 answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum BucketMark {
    /// The rule `BucketOwnerEnforced`, which each bucket has, was deleted.
    NoOwnershipRule,
    /// Versioning was suspended; the bucket has no versions.
    VersioningSuspended,
    AccelerationSuspended,
}

/// The marks of a bucket. Those of newer versions stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BucketMarks(pub(super) u64);

impl BucketMarks {
    fn bit(mark: BucketMark) -> u64 {
        match mark {
            BucketMark::NoOwnershipRule => 1,
            BucketMark::VersioningSuspended => 2,
            BucketMark::AccelerationSuspended => 4,
        }
    }

    pub fn has(self, mark: BucketMark) -> bool {
        self.0 & BucketMarks::bit(mark) != 0
    }

    pub fn set(&mut self, mark: BucketMark, is_set: bool) {
        if is_set {
            self.0 |= BucketMarks::bit(mark);
        } else {
            self.0 &= !BucketMarks::bit(mark);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_stored_as_it_is() {
        assert_eq!(decode(0), Some((None, false)));
        for bits in (0..64u64).filter(|bits| bits & 1 == 1) {
            let (block, is_public_behind) = decode(bits).unwrap();
            assert_eq!(encode(block, is_public_behind), bits);
        }
        assert!([2, 32, 65, 64].into_iter().all(|bits| decode(bits).is_none()));
    }
}
