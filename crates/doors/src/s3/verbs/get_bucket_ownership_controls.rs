use cairn_fs::rows::BucketMark;
use http::{Response, StatusCode};
use s3s::dto::{ObjectOwnership, OwnershipControls, OwnershipControlsRule};
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::error::refuse_with;
use super::super::reply;

/// Answers with the rule that holds in every bucket, unless it was deleted.
pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let bucket = call.settings().await?;
    if bucket.marks.has(BucketMark::NoOwnershipRule) {
        let what = "The bucket ownership controls were not found";
        return Err(refuse_with("OwnershipControlsNotFoundError", StatusCode::NOT_FOUND, what));
    }
    let enforced = ObjectOwnership::from_static(ObjectOwnership::BUCKET_OWNER_ENFORCED);
    let rule = OwnershipControlsRule { object_ownership: enforced };
    reply::xml(&OwnershipControls { rules: vec![rule] })
}
