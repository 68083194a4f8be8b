use cairn_fs::rows::BucketMark;
use http::Response;
use s3s::dto::{BucketVersioningStatus, GetBucketVersioningOutput};
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::reply;

/// Answers that versioning was never enabled, or that it is suspended if that was asked for.
pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let bucket = call.settings().await?;
    let suspended = BucketVersioningStatus::SUSPENDED;
    let status = bucket
        .marks
        .has(BucketMark::VersioningSuspended)
        .then(|| BucketVersioningStatus::from_static(suspended));
    reply::xml(&GetBucketVersioningOutput { status, ..GetBucketVersioningOutput::default() })
}
