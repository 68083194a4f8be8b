//! URLs by which a script uploads to the S3 door, each for one request about one key.

use cairn_base::{Error, limits as store_limits};
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};

use super::At;
use super::links::Link;
use crate::failure::Failure;
use crate::limits;
use crate::reply::{self, Reply};

/// A request that the browser is to send to the S3 door.
#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
enum Step {
    /// Asks whether there is such an object.
    Look {},
    /// Stores a whole object.
    Put {
        length: u64,
        content_type: String,
        replace: bool,
    },
    /// Begins a multipart upload.
    Create {
        content_type: String,
    },
    /// Stores parts of an upload: their numbers and lengths.
    Parts {
        upload: String,
        parts: Vec<(u32, u64)>,
    },
    /// Lists the parts after a number.
    List {
        upload: String,
        after: u32,
    },
    Complete {
        upload: String,
        length: u64,
        replace: bool,
    },
    Abort {
        upload: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UploadStepRequest {
    key: String,
    step: Step,
}

#[derive(Serialize)]
struct ShownUrls {
    urls: Vec<String>,
}

const ONLY_NEW: (&str, &str) = ("if-none-match", "*");

pub async fn presign(at: &At<'_>) -> Result<Reply, Failure> {
    let wanted: UploadStepRequest = serde_json::from_slice(&at.asked.body)
        .map_err(|error| Error::Invalid(format!("JSON of the body: {error}")))?;
    let UploadStepRequest { key, step } = wanted;
    at.asked.witness.note(|facts| facts.key = Some(key.clone()));
    check(&key)?;
    let secs = limits::UPLOAD_SECS;
    let link = |method, query, headers| Link { method, key: &key, query, headers, secs };
    let url = match &step {
        Step::Look {} => at.link(&link(Method::HEAD, &[], &[])).await?,
        Step::Put { length, content_type, replace } => {
            let length = length_of(*length)?;
            let mut headers = vec![("content-length", &*length), ("content-type", content_type)];
            headers.extend((!replace).then_some(ONLY_NEW));
            at.link(&link(Method::PUT, &[], &headers)).await?
        }
        Step::Create { content_type } => {
            let headers = [("content-type", content_type.as_str())];
            at.link(&link(Method::POST, &[("uploads", "")], &headers)).await?
        }
        Step::Parts { upload, parts } => return parts_of(at, &key, upload, parts).await,
        Step::List { upload, after } => {
            let after = after.to_string();
            let query = [("uploadId", upload.as_str()), ("part-number-marker", &after)];
            at.link(&link(Method::GET, &query, &[])).await?
        }
        Step::Complete { upload, length, replace } => {
            let length = length_of(*length)?;
            let mut headers = vec![("content-length", &*length)];
            headers.extend((!replace).then_some(ONLY_NEW));
            at.link(&link(Method::POST, &[("uploadId", upload)], &headers)).await?
        }
        Step::Abort { upload } => {
            at.link(&link(Method::DELETE, &[("uploadId", upload)], &[])).await?
        }
    };
    Ok(reply::json(StatusCode::OK, &ShownUrls { urls: vec![url] }))
}

async fn parts_of(
    at: &At<'_>,
    key: &str,
    upload: &str,
    parts: &[(u32, u64)],
) -> Result<Reply, Failure> {
    if parts.len() > limits::URLS {
        return Err(Error::Invalid(format!("more than {} parts at once", limits::URLS)).into());
    }
    let mut urls = Vec::with_capacity(parts.len());
    for (number, length) in parts {
        let (number, length) = (number.to_string(), length_of(*length)?);
        urls.push(
            at.link(&Link {
                method: Method::PUT,
                key,
                query: &[("partNumber", &number), ("uploadId", upload)],
                headers: &[("content-length", &length)],
                secs: limits::UPLOAD_SECS,
            })
            .await?,
        );
    }
    Ok(reply::json(StatusCode::OK, &ShownUrls { urls }))
}

/// Names of a dropped folder become parts of a key, and a browser takes some of them for steps of a
/// path.
fn check(key: &str) -> Result<(), Error> {
    let is_step = |name| matches!(name, "." | "..");
    if key.is_empty() || key.len() > store_limits::KEY_BYTES || key.split('/').any(is_step) {
        Err(Error::Invalid(format!("key {key:?}: no component may be . or ..")))
    } else {
        Ok(())
    }
}

fn length_of(length: u64) -> Result<String, Error> {
    if length <= store_limits::PART_BYTES_MAX {
        Ok(length.to_string())
    } else {
        Err(Error::TooLarge(format!("{length} bytes in one request")))
    }
}
