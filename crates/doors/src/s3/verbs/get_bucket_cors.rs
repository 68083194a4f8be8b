use http::{Response, StatusCode};
use s3s::dto::GetBucketCorsOutput;
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::error::{Codes, refuse_with, translate};
use super::super::{reply, rules};

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let bucket = call.settings().await?;
    if bucket.cors.is_empty() {
        let what = "The CORS configuration does not exist";
        return Err(refuse_with("NoSuchCORSConfiguration", StatusCode::NOT_FOUND, what));
    }
    let stored = bucket.cors.decode().map_err(|error| translate(error, Codes::bucket()))?;
    reply::xml(&GetBucketCorsOutput { cors_rules: Some(rules::to_set(stored)) })
}
