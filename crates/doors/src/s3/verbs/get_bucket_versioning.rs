use http::Response;
use s3s::dto::GetBucketVersioningOutput;
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::reply;

/// Answers that versioning was never enabled.
pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    call.settings().await?;
    reply::xml(&GetBucketVersioningOutput::default())
}
