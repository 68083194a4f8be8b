//! Public access blocks, and settings that decide only what S3 answers.

use cairn_auth::{Action, Visibility};
use cairn_base::Error;
use serde::{Deserialize, Serialize};

use super::namespace::{open_bucket, store};
use crate::rows::{Bucket, BucketMark, PublicAccessBlock};
use crate::{Context, Stop, Verb, View, keys};

/// The way to end a block, in errors.
const REMEDY: &str = "end that first with S3's DeletePublicAccessBlock, as `aws s3api \
                      delete-public-access-block` does";

/// Sets the public access block of a bucket, or ends it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PutPublicAccessBlock {
    pub bucket: String,
    pub block: Option<PublicAccessBlock>,
}

impl Verb for PutPublicAccessBlock {
    type Reply = ();
    const NAME: &'static str = "put_public_access_block";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        let action = Action::PutBucketPublicAccessBlock;
        let mut opened = open_bucket(view, context, &self.bucket, action)?;
        opened.bucket.set_public_access_block(self.block);
        store(view, keys::bucket(opened.id), &opened.bucket);
        Ok(())
    }
}

/// Actions of which [`MarkBucket`] needs one.
pub const MARKS: &[Action] = &[
    Action::PutBucketOwnershipControls,
    Action::PutBucketVersioning,
    Action::PutAccelerateConfiguration,
];

/// Sets or removes a mark of a bucket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MarkBucket {
    pub bucket: String,
    pub mark: BucketMark,
    pub is_set: bool,
}

impl Verb for MarkBucket {
    type Reply = ();
    const NAME: &'static str = "mark_bucket";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        let action = match self.mark {
            BucketMark::NoOwnershipRule => Action::PutBucketOwnershipControls,
            BucketMark::VersioningSuspended => Action::PutBucketVersioning,
            BucketMark::AccelerationSuspended => Action::PutAccelerateConfiguration,
        };
        let mut opened = open_bucket(view, context, &self.bucket, action)?;
        opened.bucket.marks.set(self.mark, self.is_set);
        store(view, keys::bucket(opened.id), &opened.bucket);
        Ok(())
    }
}

/// Checks that a public access block allows to choose a visibility.
pub(super) fn check_visibility(bucket: &Bucket, chosen: Visibility) -> Result<(), Error> {
    let refuses = bucket.public_access_block.is_some_and(PublicAccessBlock::refuses);
    if chosen == Visibility::Public && refuses {
        let name = &bucket.name;
        let text = format!("the public access block of bucket {name} refuses this: {REMEDY}");
        return Err(Error::Denied(text));
    }
    Ok(())
}

/// Checks that a bucket would be public at once if that were chosen. S3 lets its clients choose
/// what its block then hides; elsewhere that is an error.
pub fn check_is_shown(bucket: &Bucket) -> Result<(), Error> {
    if bucket.public_access_block.is_some_and(PublicAccessBlock::hides) {
        let name = &bucket.name;
        let text = format!("the public access block of bucket {name} keeps it private: {REMEDY}");
        return Err(Error::Denied(text));
    }
    Ok(())
}
