//! The query parameters that a request takes. Any other is refused: if it were ignored, the request
//! would do something else than was asked for.

use cairn_base::{Error, Result};
use http::Method;

use super::log_path::LogPath;
use super::target::{Query, Target};

/// The query parameter that gives an object another key.
pub const MOVE_TO: &str = "move-to";
/// The query parameter for a body of lines.
pub const APPEND: &str = "append";
/// The query parameter for a bucket's rules for pages of other sites.
pub const CORS: &str = "cors";
/// The query parameter for a bucket's website.
pub const WEBSITE: &str = "website";
/// The query parameter to delete everything in a bucket, and not the bucket.
pub const CONTENT: &str = "content";

/// The query parameter that names a resumable upload.
pub const UPLOAD: &str = "upload";

/// The query parameter for a reply that goes on as bytes are added, and those for its beginning.
pub const FOLLOW: &str = "follow";
pub const OFFSET: &str = "offset";
pub const LINES: &str = "lines";

const NONE: &[&str] = &[];
const OBJECT: &[&str] = &[
    "download",
    "download-info",
    "expires",
    "follow",
    "format",
    "lines",
    "list",
    "no-redirect",
    "redirect",
];
const LISTING: &[&str] = &["after", "delimiter", "limit", "list", "prefix", "recursive"];
/// Parameters of listings of a whole bucket or below a prefix, which can also be archived.
const BUCKET: &[&str] = &["after", "delimiter", "limit", "list", "prefix", "recursive", "zip"];
/// Parameters of listings below a prefix, which may be a log source.
const PREFIX: &[&str] =
    &["after", "delimiter", "follow", "limit", "lines", "list", "prefix", "recursive", "zip"];
const LAST_LINES: &[&str] = &[LINES];
const FOLLOWING: &[&str] = &[FOLLOW, LINES, OFFSET];
const BUCKETS: &[&str] = &["after", "limit", "prefix"];
/// Parameters of `_bulk` that change nothing here: stored records are visible at once.
const BULK: &[&str] = &[
    "_source",
    "error_trace",
    "filter_path",
    "human",
    "pretty",
    "refresh",
    "require_alias",
    "require_data_stream",
    "timeout",
    "wait_for_active_shards",
];
const PROBE: &[&str] = &[
    "accept_enterprise",
    "filter_path",
    "format",
    "h",
    "human",
    "local",
    "pretty",
    "timeout",
    "v",
    "wait_for_status",
];
const SETTINGS: &[&str] = &[
    "cache_control",
    "grant",
    "html_listing",
    "quota_bytes",
    "quota_objects",
    "read_only",
    "redirect",
    "replicas",
    "visibility",
];

/// Checks the parameters of a request.
///
/// # Errors
/// `Invalid` with the names of those that are allowed.
pub fn check(target: &Target<'_>, method: &Method, query: &Query) -> Result<()> {
    let taken = taken(target, method, query);
    match query.names().find(|name| !taken.contains(name)) {
        None => Ok(()),
        Some(name) => {
            let takes = if taken.is_empty() { "none".to_owned() } else { taken.join(", ") };
            let text = format!("query parameter {name:?}: {method} of this path takes {takes}");
            Err(Error::Invalid(text))
        }
    }
}

fn taken(target: &Target<'_>, method: &Method, query: &Query) -> &'static [&'static str] {
    let is_list = query.is_set("list");
    match (target, method.as_str()) {
        (Target::Bucket(_), "GET" | "HEAD" | "PUT" | "DELETE") if query.is_set(CORS) => &[CORS],
        (Target::Bucket(_), "GET" | "HEAD" | "PUT" | "DELETE") if query.is_set(WEBSITE) => {
            &[WEBSITE]
        }
        (Target::Prefix { .. }, "GET" | "HEAD") if query.is_set("zip") => &["zip"],
        (Target::Prefix { prefix, .. }, "GET" | "HEAD") if prefix.is_empty() => BUCKET,
        (Target::Object { .. } | Target::Prefix { .. }, "GET" | "HEAD") if query.is_set(FOLLOW) => {
            FOLLOWING
        }
        (Target::Object { .. } | Target::Prefix { .. }, "GET" | "HEAD")
            if query.get(LINES).is_some() =>
        {
            LAST_LINES
        }
        (Target::Object { .. }, "GET" | "HEAD") if !is_list => OBJECT,
        (Target::Prefix { .. }, "GET" | "HEAD") => PREFIX,
        (Target::Object { .. }, "GET" | "HEAD") => LISTING,
        (Target::Object { .. }, "POST") => &[APPEND, MOVE_TO],
        (Target::Logs(LogPath::Bulk(_)), "POST" | "PUT") => BULK,
        (Target::Logs(LogPath::Probe(_)), "GET" | "HEAD") => PROBE,
        (Target::Bucket(_), "GET" | "HEAD") => {
            if is_list {
                LISTING
            } else {
                &[CORS, "list", WEBSITE]
            }
        }
        (Target::Bucket(_), "PUT") => &[CORS, "kind", "visibility", WEBSITE],
        (Target::Bucket(_), "DELETE") if query.is_set(CONTENT) => &[CONTENT],
        (Target::Bucket(_), "DELETE") => &[CONTENT, CORS, WEBSITE],
        (Target::Bucket(_), "PATCH") => SETTINGS,
        (Target::Prefix { prefix, .. }, "PUT") if prefix.is_empty() => &["kind", "visibility"],
        (Target::Prefix { prefix, .. }, "PATCH") if prefix.is_empty() => SETTINGS,
        (Target::Buckets, "GET" | "HEAD") => BUCKETS,
        (Target::ShareLinks, "GET" | "HEAD") => &["after", "all", "limit"],
        (Target::Tus { .. }, "DELETE" | "HEAD" | "PATCH" | "POST") => &[UPLOAD],
        (Target::Shared { .. }, "GET" | "HEAD") => &["after", "download", "limit", "zip"],
        (Target::Admin(path), "POST") if path == "gc" => &["dry_run"],
        _ => NONE,
    }
}
