use cairn_fs::rows::BucketMark;
use http::Response;
use s3s::dto::{ObjectOwnership, OwnershipControls};
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::{features, xml};
use super::neutral::{malformed, mark};

/// Takes the rule that holds in every bucket.
pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let OwnershipControls { rules } = xml::parse(&call.xml)?;
    let [rule] = &rules[..] else { return Err(malformed("OwnershipControls have one Rule")) };
    match rule.object_ownership.as_str() {
        ObjectOwnership::BUCKET_OWNER_ENFORCED => {}
        ObjectOwnership::BUCKET_OWNER_PREFERRED | ObjectOwnership::OBJECT_WRITER => {
            call.allowed().await?;
            return Err(features::is_off("ownershipControls"));
        }
        _ => return Err(malformed("ObjectOwnership: use BucketOwnerEnforced")),
    }
    mark(&call, BucketMark::NoOwnershipRule, false).await
}
