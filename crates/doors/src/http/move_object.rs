//! POST to an object with `?move-to=<key>`: moves it to that key.

use cairn_auth::Caller;
use cairn_base::{Error, Result};
use cairn_fs::Fs;
use cairn_fs::ops::move_object::MoveObject;
use http::header::{ETAG, IF_MATCH, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, Response};

use super::target::check_new;
use super::{Body, conditions, headers, no_content};

/// Moves the object. With `If-None-Match: *`, an object that already has the new key stays.
pub async fn move_object(
    fs: &Fs,
    caller: &Caller,
    bucket: &str,
    key: &str,
    target: &str,
    headers: &HeaderMap,
) -> Result<Response<Body>> {
    check_new(target)?;
    if [IF_MATCH, IF_UNMODIFIED_SINCE].iter().any(|name| headers.contains_key(name)) {
        return Err(Error::NotImplemented("If-Match and If-Unmodified-Since on a move".into()));
    }
    let verb = MoveObject {
        bucket: bucket.to_owned(),
        key: key.to_owned(),
        target: target.to_owned(),
        conditions: conditions::of_change(headers),
    };
    let moved = fs.run(caller, verb).await?;
    let mut reply = no_content();
    reply.headers_mut().insert(ETAG, headers::quoted(&moved.put.etag));
    Ok(reply)
}
