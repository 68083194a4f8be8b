use cairn_auth::Visibility;
use http::Response;
use s3s::dto::PolicyStatus;
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::reply;

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let bucket = call.settings().await?;
    reply::xml(&PolicyStatus { is_public: Some(bucket.visibility == Visibility::Public) })
}
