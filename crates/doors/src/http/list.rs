//! GET of a path that ends in `/`: lists the objects below, a page at a time.

use cairn_auth::Caller;
use cairn_base::{Error, Ino, Result, limits as store_limits};
use cairn_fs::Fs;
use cairn_fs::ops::buckets::FindBucket;
use cairn_fs::ops::list_objects::{ListObjects, ListedObject, Page};
use http::{HeaderMap, Response, StatusCode};
use serde::Serialize;

use super::listing_page::ListingPage;
use super::target::Query;
use super::{Body, json_of, page, rfc3339};

#[derive(Serialize)]
struct ShownListing {
    objects: Vec<ShownObject>,
    prefixes: Vec<String>,
    /// Key after which the next page begins: send it as `after`. Null at the end.
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

impl From<ListedObject> for ShownObject {
    fn from(ListedObject { key, ino, inode }: ListedObject) -> ShownObject {
        let size = if inode.is_directory() { 0 } else { inode.size };
        let etag = inode.etag(Ino(ino.0));
        let modified = rfc3339(inode.mtime);
        let content_type = inode.object.map(|object| object.content_type).unwrap_or_default();
        ShownObject { key, size, etag, modified, content_type }
    }
}

/// Lists a page. `prefix` is from the path; the query may add to it (`prefix`), and has `delimiter`
/// (by default `/`), `recursive`, `after` and `limit`.
pub async fn list(
    fs: &Fs,
    caller: &Caller,
    bucket: &str,
    prefix: &str,
    query: &Query,
) -> Result<Response<Body>> {
    let delimiter =
        if query.is_set("recursive") { "" } else { query.get("delimiter").unwrap_or("/") };
    let verb = ListObjects {
        bucket: bucket.to_owned(),
        prefix: format!("{prefix}{}", query.get("prefix").unwrap_or_default()),
        delimiter: delimiter.to_owned(),
        after: query.get("after").unwrap_or_default().to_owned(),
        max_keys: limit(query)?,
    };
    Ok(json(fs.read(caller, verb).await?))
}

/// Returns a listing as JSON.
pub fn json(page: Page) -> Response<Body> {
    let Page { objects, prefixes, next, .. } = page;
    let objects = objects.into_iter().map(ShownObject::from).collect();
    json_of(StatusCode::OK, &ShownListing { objects, prefixes, next })
}

/// Returns whether a person makes the request with a browser: it asks for pages by name, and has no
/// parameter that the links of pages do not have.
pub fn is_for_people(headers: &HeaderMap, query: &Query) -> bool {
    page::is_wanted(headers) && query.names().all(|name| matches!(name, "after" | "limit"))
}

/// Returns the request for the level below a prefix, as pages show it: up to the next slash.
pub fn level(bucket: &str, prefix: &str, query: &Query) -> Result<ListObjects> {
    Ok(ListObjects {
        bucket: bucket.to_owned(),
        prefix: prefix.to_owned(),
        delimiter: "/".to_owned(),
        after: query.get("after").unwrap_or_default().to_owned(),
        max_keys: limit(query)?,
    })
}

/// Answers like [`list`], or with a page for people if the bucket allows that.
pub async fn show(
    fs: &Fs,
    caller: &Caller,
    headers: &HeaderMap,
    bucket: &str,
    prefix: &str,
    query: &Query,
) -> Result<Response<Body>> {
    if !is_for_people(headers, query) {
        return list(fs, caller, bucket, prefix, query).await;
    }
    let listed = fs.read(caller, level(bucket, prefix, query)?).await?;
    let verb = FindBucket { name: bucket.to_owned() };
    let found = fs.read(&Caller::system(), verb).await?;
    if !found.is_some_and(|opened| opened.bucket.html_listing) {
        return Ok(json(listed));
    }
    let page = ListingPage {
        root_name: bucket,
        root: "",
        prefix,
        limit: query.get("limit"),
        is_first: query.get("after").is_none(),
    };
    Ok(page.reply(&listed))
}

/// Returns the most entries of a page: `limit`, from 1 to [`store_limits::LIST_KEYS`].
pub fn limit(query: &Query) -> Result<usize> {
    let most = store_limits::LIST_KEYS;
    match query.get("limit").map(str::parse::<usize>) {
        None => Ok(most),
        Some(Ok(limit)) if limit > 0 => Ok(limit.min(most)),
        Some(_) => Err(Error::Invalid(format!("limit: use a number from 1 to {most}"))),
    }
}
