use http::Response;
use s3s::dto::{BucketLocationConstraint, GetBucketLocationOutput};
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::reply;
use super::super::store::DEFAULT_REGION;

/// Answers with the region. The first region of S3 has no name here.
pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    call.settings().await?;
    let named = Some(call.store.region()).filter(|region| *region != DEFAULT_REGION);
    let location_constraint = named.map(|name| BucketLocationConstraint::from(name.to_owned()));
    reply::xml(&GetBucketLocationOutput { location_constraint })
}
