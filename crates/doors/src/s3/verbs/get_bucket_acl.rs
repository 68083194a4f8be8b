use http::Response;
use s3s::dto::GetBucketAclOutput;
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::reply;
use super::acl;

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let bucket = call.settings().await?;
    let (owner, grants) = acl::listed(call.store, &bucket).await?;
    reply::xml(&GetBucketAclOutput { grants: Some(grants), owner: Some(owner) })
}
