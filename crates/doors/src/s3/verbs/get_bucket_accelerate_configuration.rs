use cairn_fs::rows::BucketMark;
use http::Response;
use s3s::dto::{BucketAccelerateStatus, GetBucketAccelerateConfigurationOutput};
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::reply;

/// Answers that nothing is accelerated, or that it was said so.
pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let bucket = call.settings().await?;
    let suspended = BucketAccelerateStatus::SUSPENDED;
    let status = bucket
        .marks
        .has(BucketMark::AccelerationSuspended)
        .then(|| BucketAccelerateStatus::from_static(suspended));
    let output = GetBucketAccelerateConfigurationOutput { status, ..Default::default() };
    reply::xml(&output)
}
