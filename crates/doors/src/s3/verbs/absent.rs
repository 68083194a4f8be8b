//! Questions about missing features. The answer is the same for all buckets, and given to callers
//! that may know the bucket.

use http::{Response, StatusCode};
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::error::{bad_request, refuse_with};
use super::super::reply;
use super::super::xml::DECLARATION;

/// Answers that there is no such setting.
pub(crate) async fn missing(
    call: Call<'_>,
    code: &'static str,
    message: &'static str,
) -> S3Result<Response<Body>> {
    call.settings().await?;
    Err(refuse_with(code, StatusCode::NOT_FOUND, message))
}

/// Answers with a document that says so.
pub(crate) async fn document(
    call: Call<'_>,
    root: &'static str,
    inside: &'static str,
) -> S3Result<Response<Body>> {
    call.settings().await?;
    let xmlns = "http://s3.amazonaws.com/doc/2006-03-01/";
    let text = format!("{DECLARATION}\n<{root} xmlns=\"{xmlns}\">{inside}</{root}>");
    Ok(reply::text(text))
}

/// Deletes a setting that is not there: done.
pub(crate) async fn deleted(call: Call<'_>) -> S3Result<Response<Body>> {
    call.allowed().await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// Answers that the objects of a bucket without Object Lock are not locked, and cannot be.
pub(crate) async fn unlocked(call: Call<'_>) -> S3Result<Response<Body>> {
    call.allowed().await?;
    Err(bad_request("Bucket is missing Object Lock Configuration"))
}
