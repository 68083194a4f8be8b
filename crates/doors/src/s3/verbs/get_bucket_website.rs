use http::{Response, StatusCode};
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::error::{Codes, refuse_with, translate};
use super::super::{reply, website};

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let bucket = call.settings().await?;
    let stored = bucket.website.decode().map_err(|error| translate(error, Codes::bucket()))?;
    match stored {
        Some(stored) => reply::xml(&website::to_output(stored)),
        None => {
            let what = "The specified bucket does not have a website configuration";
            Err(refuse_with("NoSuchWebsiteConfiguration", StatusCode::NOT_FOUND, what))
        }
    }
}
