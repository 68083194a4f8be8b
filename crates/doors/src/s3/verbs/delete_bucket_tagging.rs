use http::Response;
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::tags::Tags;
use super::put_bucket_tagging::replace;

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    replace(&call, Tags::new()).await
}
