use cairn_fs::rows::BucketMark;
use http::{Response, StatusCode};
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::neutral::mark;

/// Deletes the rule from answers; ACLs cannot express more without it.
pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let mut response = mark(&call, BucketMark::NoOwnershipRule, true).await?;
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}
