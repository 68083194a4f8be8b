//! Answers of the HTTP door, and walks over its pages.

use serde::{Deserialize, Serialize};

use super::address::{Address, escape};
use crate::connection::{Reply, Server};
use crate::failure::{Failure, Result};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Object {
    pub key: String,
    pub size: u64,
    pub etag: String,
    pub modified: String,
    #[serde(default)]
    pub content_type: String,
}

#[derive(Deserialize)]
struct ObjectPage {
    objects: Vec<Object>,
    prefixes: Vec<String>,
    next: Option<String>,
}

/// A line of a listing.
#[derive(Clone, Debug)]
pub enum ListingLine {
    Object(Object),
    /// A common prefix of keys.
    Prefix(String),
}

/// Calls `visit` with everything below a prefix (any prefix, not only a directory), in order.
pub fn each_listed(
    server: &Server,
    under: &Address,
    recursive: bool,
    visit: &mut dyn FnMut(ListingLine) -> Result<()>,
) -> Result<()> {
    // The path of a listing ends in a slash; the part after the last slash is in the query.
    let (directory, rest) = match under.key.rsplit_once('/') {
        Some((directory, rest)) => (format!("{directory}/"), rest),
        None => (String::new(), under.key.as_str()),
    };
    let path = under.with_key(directory).path();
    let mut query = format!("?prefix={}", escape(rest));
    if recursive {
        query.push_str("&recursive=1");
    }
    let mut after = String::new();
    loop {
        let page: ObjectPage = server.send("GET", &format!("{path}{query}{after}"))?.json()?;
        let mut lines: Vec<ListingLine> =
            page.objects.into_iter().map(ListingLine::Object).collect();
        lines.extend(page.prefixes.into_iter().map(ListingLine::Prefix));
        lines.sort_by(|one, other| name(one).cmp(name(other)));
        lines.into_iter().try_for_each(&mut *visit)?;
        match page.next {
            Some(next) => after = format!("&after={}", escape(&next)),
            None => return Ok(()),
        }
    }
}

/// Returns true if there is an object in a page of a listing.
fn has_objects(reply: Reply) -> Result<bool> {
    Ok(!reply.json::<ObjectPage>()?.objects.is_empty())
}

/// Returns the failure with the name of its object. If there is no such object, and there are keys
/// below that name, it says so, and `remedy`.
pub fn of_object(server: &Server, object: &Address, failure: Failure, remedy: &str) -> Failure {
    let is_missing = failure.is_not_found();
    let failure = failure.of(object);
    if !is_missing {
        return failure;
    }
    let below = object.with_key(format!("{}/", object.key));
    let query = format!("{}?limit=1&recursive=1", below.path());
    match server.send("GET", &query).and_then(has_objects) {
        Ok(true) => failure.and(&format!("it is a folder: {remedy}")),
        _ => failure,
    }
}

fn name(listed: &ListingLine) -> &str {
    match listed {
        ListingLine::Object(object) => &object.key,
        ListingLine::Prefix(prefix) => prefix,
    }
}

/// Calls `visit` with every object below a prefix.
pub fn each_object(
    server: &Server,
    under: &Address,
    visit: &mut dyn FnMut(Object) -> Result<()>,
) -> Result<()> {
    each_listed(server, under, true, &mut |listed| match listed {
        ListingLine::Object(object) => visit(object),
        ListingLine::Prefix(_) => Ok(()),
    })
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bucket {
    pub name: String,
    pub kind: String,
    pub owner: String,
    pub visibility: String,
    /// Flags of the public access block, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_access_block: Option<Vec<String>>,
    /// Set if the bucket is public once that block ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub public_behind_block: bool,
    pub created: String,
    pub cache_control: String,
    pub redirect: String,
    /// Servers of earlier versions omit it.
    #[serde(default)]
    pub html_listing: String,
    #[serde(default)]
    pub read_only: String,
    pub objects: u64,
    pub bytes: u64,
    pub uploads: u64,
    pub quota_objects: u64,
    pub quota_bytes: u64,
    /// Rights of other users, if the caller administers the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<Vec<Grant>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Grant {
    pub user: String,
    pub rights: String,
}

#[derive(Deserialize)]
struct BucketPage {
    buckets: Vec<Bucket>,
    next: Option<String>,
}

/// Returns a page of the buckets whose names begin with `prefix`, and the start of the next page.
pub fn bucket_page(
    server: &Server,
    prefix: &str,
    after: &str,
    limit: usize,
) -> Result<(Vec<Bucket>, Option<String>)> {
    let mut path = format!("/storage/?prefix={}&limit={limit}", escape(prefix));
    if !after.is_empty() {
        path.push_str(&format!("&after={}", escape(after)));
    }
    let BucketPage { buckets, next } = server.send("GET", &path)?.json()?;
    Ok((buckets, next))
}

/// Returns all buckets that the caller may look into.
pub fn buckets(server: &Server) -> Result<Vec<Bucket>> {
    let mut buckets = Vec::new();
    let mut after = String::new();
    loop {
        let page: BucketPage = server.send("GET", &format!("/storage/{after}"))?.json()?;
        buckets.extend(page.buckets);
        match page.next {
            Some(next) => after = format!("?after={}", escape(&next)),
            None => return Ok(buckets),
        }
    }
}
