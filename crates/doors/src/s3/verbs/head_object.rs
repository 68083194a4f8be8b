use http::Response;
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::get_object;

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    get_object::answer(call, true).await
}
