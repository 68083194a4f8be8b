//! DELETE of an object.

use cairn_auth::Caller;
use cairn_base::{Error, Result};
use cairn_fs::Fs;
use cairn_fs::ops::delete_object::DeleteObject;
use http::{HeaderMap, Response};

use super::{Body, conditions, no_content};

pub async fn delete(
    fs: &Fs,
    caller: &Caller,
    bucket: &str,
    key: &str,
    headers: &HeaderMap,
) -> Result<Response<Body>> {
    let conditions = conditions::of_change(headers);
    let verb = DeleteObject { bucket: bucket.to_owned(), key: key.to_owned(), conditions };
    if fs.run(caller, verb).await? {
        return Ok(no_content());
    }
    Err(Error::NotFound(format!("object {key} in bucket {bucket}")))
}
