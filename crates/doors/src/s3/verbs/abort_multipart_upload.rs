use cairn_fs::ops::multipart::AbortUpload;
use http::{Response, StatusCode};
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::error::Codes;
use super::super::{reply, upload_id};

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let verb = AbortUpload { name: upload_id::of(&call) };
    call.run(Codes::upload(), verb).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}
