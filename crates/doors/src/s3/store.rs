//! The store, as this door uses it.

use std::time::Duration;

use cairn_auth::Caller;
use cairn_base::Error;
use cairn_fs::ops::buckets::GetBucket;
use cairn_fs::ops::put_object::MayWrite;
use cairn_fs::rows::Bucket;
use cairn_fs::{Fs, WireVerb};
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::error::{Codes, translate};

/// Region of a server without a configured region.
pub(super) const DEFAULT_REGION: &str = "us-east-1";

/// The treatment of the bucket ACL `public-read`. In S3 it lets anybody list the bucket; here it
/// also lets anybody read all objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PublicAcl {
    #[default]
    Refuse,
    /// Makes the bucket public.
    Accept,
}

/// The store, as the verbs use it.
#[derive(Clone)]
pub(super) struct Store {
    pub(super) fs: Fs,
    pub(super) region: String,
    pub(super) patience: Duration,
    pub(super) public_acl: PublicAcl,
}

impl Store {
    /// Returns the region of all buckets.
    pub(super) fn region(&self) -> &str {
        match self.region.as_str() {
            "" => DEFAULT_REGION,
            region => region,
        }
    }

    /// Runs an operation that may change the metadata.
    pub(super) async fn run<V: WireVerb>(
        &self,
        caller: &Caller,
        bucket: &str,
        codes: Codes,
        verb: V,
    ) -> S3Result<V::Reply> {
        match self.fs.run(caller, verb).await {
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.refused(caller, &[bucket], error, codes).await),
        }
    }

    /// Runs an operation that only reads.
    pub(super) async fn read<V: WireVerb>(
        &self,
        caller: &Caller,
        bucket: &str,
        codes: Codes,
        verb: V,
    ) -> S3Result<V::Reply> {
        let outcome = match self.fs.read_now(caller, &verb) {
            Some(outcome) => outcome,
            None => self.fs.read(caller, verb).await,
        };
        match outcome {
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.refused(caller, &[bucket], error, codes).await),
        }
    }

    /// Returns a bucket, if the caller may know its settings.
    pub(super) async fn bucket(&self, caller: &Caller, name: &str) -> S3Result<Bucket> {
        let verb = GetBucket { name: name.to_owned() };
        let (opened, _) = self.read(caller, name, Codes::bucket(), verb).await?;
        Ok(opened.bucket)
    }

    /// Refuses callers that may not write in a bucket.
    pub(super) async fn may_write(&self, caller: &Caller, bucket: &str) -> S3Result<()> {
        let verb = MayWrite { bucket: bucket.to_owned() };
        self.read(caller, bucket, Codes::bucket(), verb).await.map(drop)
    }

    /// Returns the error for the client. If something was not found, a look at the buckets finds
    /// out whether it was one of them.
    pub(super) async fn refused(
        &self,
        caller: &Caller,
        buckets: &[&str],
        error: Error,
        mut codes: Codes,
    ) -> S3Error {
        if matches!(error, Error::NotFound(_)) {
            for bucket in buckets {
                let verb = GetBucket { name: (*bucket).to_owned() };
                if let Err(Error::NotFound(_)) = self.fs.read(caller, verb).await {
                    codes.not_found = S3ErrorCode::NoSuchBucket;
                }
            }
        }
        translate(error, codes)
    }
}
