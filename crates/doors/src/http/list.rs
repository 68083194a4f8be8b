//! GET of what ends in `/`: the objects below, a page at a time.

use cairn_auth::Caller;
use cairn_base::{Error, Ino, Result, limits as store_limits};
use cairn_fs::Fs;
use cairn_fs::ops::list_objects::{ListObjects, Listed, Page};
use http::{Response, StatusCode};
use serde::Serialize;

use super::target::Query;
use super::{Body, json_of, rfc3339};

#[derive(Serialize)]
struct ShownListing {
    objects: Vec<ShownObject>,
    prefixes: Vec<String>,
    /// Where the next page begins: send it as `after`. Null at the end.
    next: Option<String>,
}

#[derive(Serialize)]
struct ShownObject {
    key: String,
    size: u64,
    etag: String,
    modified: String,
    content_type: String,
}

impl From<Listed> for ShownObject {
    fn from(Listed { key, ino, inode }: Listed) -> ShownObject {
        let size = if inode.is_directory() { 0 } else { inode.size };
        let etag = inode.etag(Ino(ino.0));
        let modified = rfc3339(inode.mtime);
        let content_type = inode.object.map(|object| object.content_type).unwrap_or_default();
        ShownObject { key, size, etag, modified, content_type }
    }
}

/// `prefix` is from the path; the query may add to it (`prefix`), and has `delimiter` (by default
/// `/`), `recursive`, `after` and `limit`.
pub async fn list(
    fs: &Fs,
    caller: &Caller,
    bucket: &str,
    prefix: &str,
    query: &Query,
) -> Result<Response<Body>> {
    let delimiter = match query.is_set("recursive") {
        true => "",
        false => query.get("delimiter").unwrap_or("/"),
    };
    let verb = ListObjects {
        bucket: bucket.to_owned(),
        prefix: format!("{prefix}{}", query.get("prefix").unwrap_or_default()),
        delimiter: delimiter.to_owned(),
        after: query.get("after").unwrap_or_default().to_owned(),
        max_keys: limit(query)?,
    };
    let Page { objects, prefixes, next, .. } = fs.read(caller, verb).await?;
    let objects = objects.into_iter().map(ShownObject::from).collect();
    Ok(json_of(StatusCode::OK, &ShownListing { objects, prefixes, next }))
}

/// How many entries a page may have: `limit`, from 1 to [`store_limits::LIST_KEYS`].
pub fn limit(query: &Query) -> Result<usize> {
    let most = store_limits::LIST_KEYS;
    match query.get("limit").map(str::parse::<usize>) {
        None => Ok(most),
        Some(Ok(limit)) if limit > 0 => Ok(limit.min(most)),
        Some(_) => Err(Error::Invalid(format!("limit: use a number from 1 to {most}"))),
    }
}
