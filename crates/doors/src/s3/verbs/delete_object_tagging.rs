use http::{Response, StatusCode};
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::reply;
use super::super::tags::Tags;
use super::check_version;
use super::put_object_tagging::replace;

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    check_version(call.query())?;
    replace(&call, Tags::new()).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}
