use cairn_fs::ops::list_objects::ListObjects;
use http::header::HeaderName;
use http::{Response, StatusCode};
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::error::Codes;
use super::super::reply;

const REGION: HeaderName = HeaderName::from_static("x-amz-bucket-region");

/// Answers whether the bucket exists, for callers that may list it.
pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let bucket = call.bucket().to_owned();
    let verb = ListObjects { bucket, max_keys: 0, ..ListObjects::default() };
    call.read(Codes::bucket(), verb).await?;
    let mut response = reply::empty(StatusCode::OK);
    reply::insert(response.headers_mut(), REGION, call.store.region());
    Ok(response)
}
