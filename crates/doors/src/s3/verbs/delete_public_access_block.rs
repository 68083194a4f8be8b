use http::{Response, StatusCode};
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::put_public_access_block::replace;

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    replace(&call, None, StatusCode::NO_CONTENT).await
}
