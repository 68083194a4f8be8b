use http::{Response, StatusCode};
use s3s::dto::AccessControlPolicy;
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::error::not_implemented;
use super::super::{reply, xml};
use super::{acl, check_version};

/// Accepts an ACL equal to the current one; refuses any other.
pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let policy: Option<AccessControlPolicy> = xml::parse_some(&call.xml)?;
    check_version(call.query())?;
    if policy.is_some() || !call.headers().contains_key("x-amz-acl") {
        return Err(not_implemented(
            "ACLs of objects other than the canned one of their bucket: all objects of a bucket \
             are private or public together, by `cairn bucket set NAME --visibility public`; a \
             link to one is made by `cairn share add BUCKET/KEY`",
        ));
    }
    acl::check_object(&call).await?;
    call.open().await?;
    Ok(reply::empty(StatusCode::OK))
}
