use cairn_fs::ops::public_access;
use cairn_fs::rows::PublicAccessBlock;
use http::{Response, StatusCode};
use s3s::dto::PublicAccessBlockConfiguration;
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::error::Codes;
use super::super::{reply, xml};

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let wanted: PublicAccessBlockConfiguration = xml::parse(&call.xml)?;
    let block = PublicAccessBlock {
        block_acls: wanted.block_public_acls.unwrap_or_default(),
        ignore_acls: wanted.ignore_public_acls.unwrap_or_default(),
        block_policy: wanted.block_public_policy.unwrap_or_default(),
        restrict_buckets: wanted.restrict_public_buckets.unwrap_or_default(),
    };
    replace(&call, Some(block), StatusCode::OK).await
}

pub(super) async fn replace(
    call: &Call<'_>,
    block: Option<PublicAccessBlock>,
    status: StatusCode,
) -> S3Result<Response<Body>> {
    let verb = public_access::PutPublicAccessBlock { bucket: call.bucket().to_owned(), block };
    call.run(Codes::bucket(), verb).await?;
    Ok(reply::empty(status))
}
