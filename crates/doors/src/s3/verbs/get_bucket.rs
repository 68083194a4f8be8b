//! Settings of a bucket that have one answer here.

use cairn_auth::{Caller, Visibility};
use cairn_fs::ops::buckets::GetBucket;
use cairn_fs::rows::Bucket;
use s3s::S3Result;
use s3s::dto::{
    BucketLocationConstraint, GetBucketLocationInput, GetBucketLocationOutput,
    GetBucketPolicyStatusInput, GetBucketPolicyStatusOutput, GetBucketVersioningInput,
    GetBucketVersioningOutput, PolicyStatus,
};

use super::super::error::Codes;
use super::super::library::Asked;
use super::super::store::Store;

const DEFAULT_REGION: &str = "us-east-1";

pub(super) fn region(store: &Store) -> String {
    match store.region.as_str() {
        "" => DEFAULT_REGION.to_owned(),
        region => region.to_owned(),
    }
}

/// The bucket, for whoever may know its settings.
pub(super) async fn open(store: &Store, asked: &Asked, name: &str) -> S3Result<Bucket> {
    inspect(store, &asked.caller, name).await
}

/// As [`open`].
pub(crate) async fn inspect(store: &Store, caller: &Caller, name: &str) -> S3Result<Bucket> {
    let verb = GetBucket { name: name.to_owned() };
    let (opened, _) = store.read(caller, name, Codes::bucket(), verb).await?;
    Ok(opened.bucket)
}

/// The first region of all has no name here.
pub(crate) async fn location(
    store: &Store,
    asked: Asked,
    input: GetBucketLocationInput,
) -> S3Result<GetBucketLocationOutput> {
    open(store, &asked, &input.bucket).await?;
    let named = Some(region(store)).filter(|region| region != DEFAULT_REGION);
    let location_constraint = named.map(BucketLocationConstraint::from);
    Ok(GetBucketLocationOutput { location_constraint })
}

/// Never enabled.
pub(crate) async fn versioning(
    store: &Store,
    asked: Asked,
    input: GetBucketVersioningInput,
) -> S3Result<GetBucketVersioningOutput> {
    open(store, &asked, &input.bucket).await?;
    Ok(GetBucketVersioningOutput::default())
}

pub(crate) async fn policy_status(
    store: &Store,
    asked: Asked,
    input: GetBucketPolicyStatusInput,
) -> S3Result<GetBucketPolicyStatusOutput> {
    let bucket = open(store, &asked, &input.bucket).await?;
    let is_public = Some(bucket.visibility == Visibility::Public);
    Ok(GetBucketPolicyStatusOutput { policy_status: Some(PolicyStatus { is_public }) })
}
