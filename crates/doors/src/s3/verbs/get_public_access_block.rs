use http::{Response, StatusCode};
use s3s::dto::PublicAccessBlockConfiguration;
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::error::refuse_with;
use super::super::reply;

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let bucket = call.settings().await?;
    let Some(block) = bucket.public_access_block else {
        let (code, what) = (
            "NoSuchPublicAccessBlockConfiguration",
            "The public access block configuration was not found",
        );
        return Err(refuse_with(code, StatusCode::NOT_FOUND, what));
    };
    reply::xml(&PublicAccessBlockConfiguration {
        block_public_acls: Some(block.block_acls),
        block_public_policy: Some(block.block_policy),
        ignore_public_acls: Some(block.ignore_acls),
        restrict_public_buckets: Some(block.restrict_buckets),
    })
}
