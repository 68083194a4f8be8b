//! Sizes and free room of the store.

use cairn_auth::{Action, Resource};
use cairn_base::{BucketId, Error, Ino, Redundancy, limits};
use serde::{Deserialize, Serialize};

use super::namespace::{load, load_known};
use super::posix::open_inode;
use crate::rows::{Bucket, Row, Usage};
use crate::{Context, Stop, Verb, View, keys};

/// Reads the usage and the quotas of the bucket of an inode; at the root, the usage of all buckets
/// that the caller may read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Statfs {
    pub ino: Ino,
}

impl Verb for Statfs {
    type Reply = Usage;
    const NAME: &'static str = "statfs";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Usage, Stop> {
        let inode = open_inode(view, context, self.ino, Action::GetObject)?;
        if self.ino != Ino::ROOT {
            return Ok(load(view, &keys::usage(inode.bucket))?.unwrap_or_default());
        }
        let (start, end) = (keys::usage(BucketId(0)), keys::usage(BucketId(u64::MAX)));
        let mut total = Usage::default();
        for (key, row) in view.scan(&start, &end, limits::OP_ROWS)? {
            let id = key.get(1..).and_then(|id| id.try_into().ok()).map(u64::from_be_bytes);
            let Some(id) = id else {
                let got = format!("{key:?}");
                return Err(Error::corrupt("key of a usage row", got, "a bucket").into());
            };
            let bucket: Bucket = load_known(view, &keys::bucket(BucketId(id)), "bucket")?;
            if context.allows(Action::GetBucketSettings, Resource::Bucket(bucket.access())) {
                let usage = Usage::decode(&row)?;
                total.objects = total.objects.saturating_add(usage.objects);
                total.bytes = total.bytes.saturating_add(usage.bytes);
                total.uploads = total.uploads.saturating_add(usage.uploads);
            }
        }
        Ok(total)
    }
}

/// Finds the number of replicas that the blocks of a file should have, according to its bucket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Replicas {
    pub ino: Ino,
}

impl Verb for Replicas {
    /// Number of replicas; 0 for the default of the cluster.
    type Reply = u8;
    const NAME: &'static str = "replicas";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<u8, Stop> {
        let inode = open_inode(view, context, self.ino, Action::PutObject)?;
        let bucket: Bucket = load_known(view, &keys::bucket(inode.bucket), "bucket")?;
        Ok(bucket.redundancy.map_or(0, Redundancy::number))
    }
}
