use cairn_fs::ops::conditions::Conditions;
use cairn_fs::ops::delete_object::DeleteObject;
use http::{HeaderMap, Response, StatusCode};
use s3s::{Body, S3ErrorCode, S3Result};

use super::super::call::Call;
use super::super::error::{Codes, invalid};
use super::super::headers::text;
use super::super::{conditions, reply};
use super::check_version;

/// Deletes an object. A missing object is a success.
pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    check_version(call.query())?;
    let conditions = conditions(call.headers())?;
    let (bucket, key) = (call.bucket().to_owned(), call.key().to_owned());
    match call.run(Codes::object(), DeleteObject { bucket, key, conditions }).await {
        Ok(_) => {}
        // The condition was on an object that is already gone.
        Err(error) if *error.code() == S3ErrorCode::NoSuchKey => {}
        Err(error) => return Err(error),
    }
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

fn conditions(headers: &HeaderMap) -> S3Result<Conditions> {
    let size = text(headers, "x-amz-if-match-size")?;
    let if_size =
        size.map(|size| size.parse().map_err(|_| invalid("x-amz-if-match-size is not a number")));
    Ok(Conditions { if_size: if_size.transpose()?, ..conditions::of_change(headers)? })
}
