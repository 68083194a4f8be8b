use http::Response;
use s3s::dto::GetBucketTaggingOutput;
use s3s::{Body, S3ErrorCode, S3Result};

use super::super::call::Call;
use super::super::error::refuse;
use super::super::{reply, tags};

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let bucket = call.settings().await?;
    if bucket.tags.is_empty() {
        return Err(refuse(S3ErrorCode::NoSuchTagSet, "the TagSet does not exist"));
    }
    reply::xml(&GetBucketTaggingOutput { tag_set: tags::to_set(bucket.tags) })
}
