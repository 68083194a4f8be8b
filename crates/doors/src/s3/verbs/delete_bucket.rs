use http::{Response, StatusCode};
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::error::Codes;
use super::super::reply;

/// Deletes a bucket, even with uploads in progress: no listing of objects shows them.
pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    match call.store.fs.delete_bucket(call.caller, call.bucket()).await {
        Ok(()) => Ok(reply::empty(StatusCode::NO_CONTENT)),
        Err(error) => Err(call.refused(error, Codes::bucket()).await),
    }
}
