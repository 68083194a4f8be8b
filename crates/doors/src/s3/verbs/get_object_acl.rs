use http::Response;
use s3s::dto::GetObjectAclOutput;
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::reply;
use super::{acl, check_version};

/// Answers with the visibility of the object's bucket.
pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    check_version(call.query())?;
    let bucket = call.settings().await?;
    call.open().await?;
    let (owner, grants) = acl::listed(call.store, &bucket).await?;
    reply::xml(&GetObjectAclOutput {
        grants: Some(grants),
        owner: Some(owner),
        request_charged: None,
    })
}
