//! `?download-info`: the places from which the parts of an object can be fetched, as JSON or XML.

use std::fmt::Write as _;

use cairn_base::{Error, Result, Timestamp};
use cairn_fs::rows::{Extent, Place};
use cairn_fs::{Layout, Object};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde::Serialize;

use super::get::Reply;
use super::redirect::Maker;
use super::target::Query;
use super::{Body, json_of, rfc3339};
use crate::limits;

#[derive(Serialize)]
struct ShownInfo {
    size: u64,
    etag: String,
    /// Time in the form of RFC 3339.
    expires: String,
    /// Link to the whole object; null if it can only be fetched here, or in parts.
    #[serde(flatten)]
    whole: Option<Where>,
    /// All parts of the object, in order; none if it can only be fetched here.
    parts: Vec<Part>,
}

#[derive(Serialize)]
struct Part {
    offset: u64,
    length: u64,
    #[serde(flatten)]
    at: Where,
}

#[derive(Serialize)]
struct Where {
    scheme: String,
    host: String,
    path: String,
}

impl Where {
    fn new(url: &str, path: &str) -> Option<Where> {
        let (scheme, rest) = url.split_once("://")?;
        let (host, above) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let path = format!("{above}{path}");
        Some(Where { scheme: scheme.into(), host: host.into(), path })
    }
}

/// Returns the links to an object's blocks, made by `maker`.
pub async fn info(
    maker: &Maker<'_>,
    object: &Object,
    query: &Query,
    headers: &HeaderMap,
) -> Result<Reply> {
    let as_xml = wants_xml(query, headers)?;
    let Some(layout) = object.layout(limits::INFO_EXTENTS).await? else {
        let most = limits::INFO_EXTENTS;
        return Err(Error::TooLarge(format!(
            "download-info: the object has more than {most} blocks: download it without"
        )));
    };
    let etag = object.etag();
    let whole = maker.link(layout.clone(), etag.clone());
    let whole = whole.and_then(|(url, path)| Where::new(&url, &path));
    let parts: Option<Vec<Part>> = cuts(&layout)
        .into_iter()
        .map(|(offset, end)| {
            let length = end - offset;
            // The parts are bytes of their own, with an ETag of their own.
            let own = format!("{etag}.{offset}-{length}");
            let (url, path) = maker.link(layout.part(offset..end), own)?;
            let at = Where::new(&url, &path)?;
            Some(Part { offset, length, at })
        })
        .collect();
    let expires = rfc3339(Timestamp::from_secs(maker.expires));
    let parts = parts.unwrap_or_default();
    let shown = ShownInfo { size: layout.size(), etag, expires, whole, parts };
    Ok(if as_xml { xml(&shown) } else { json_of(StatusCode::OK, &shown) })
}

/// Returns whether the reply is XML: by `format`, otherwise by Accept, and JSON by default.
fn wants_xml(query: &Query, headers: &HeaderMap) -> Result<bool> {
    match query.get("format") {
        Some("xml") => Ok(true),
        Some("json") => Ok(false),
        Some(_) => Err(Error::Invalid("format: use json or xml".into())),
        None => {
            let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
            let first = accept.and_then(|accept| accept.split([',', ';']).next());
            Ok(matches!(first.map(str::trim), Some("application/xml" | "text/xml")))
        }
    }
}

/// Returns the beginning and end of each part. A part has blocks of one group only, and not too
/// many.
fn cuts(layout: &Layout) -> Vec<(u64, u64)> {
    let group_of = |extent: &Extent| match extent.place {
        Place::Block { group, .. } => Some(group),
        _ => None,
    };
    let (mut starts, mut group, mut blocks) = (vec![0], None, 0);
    for extent in layout.extents() {
        let Some(own) = group_of(extent) else { continue };
        if group.is_some_and(|group| group != own) || blocks == limits::PART_BLOCKS {
            starts.push(extent.offset);
            blocks = 0;
        }
        (group, blocks) = (Some(own), blocks + 1);
    }
    let ends = starts.iter().skip(1).copied().chain([layout.size()]).collect::<Vec<_>>();
    starts.into_iter().zip(ends).collect()
}

fn xml(shown: &ShownInfo) -> Reply {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<download-info>");
    let tag = |out: &mut String, name: &str, value: &str| {
        // Writing to a `String` cannot fail.
        let _ = write!(out, "<{name}>{}</{name}>", escape(value));
    };
    let place = |out: &mut String, place: &Where| {
        tag(out, "scheme", &place.scheme);
        tag(out, "host", &place.host);
        tag(out, "path", &place.path);
    };
    shown.whole.iter().for_each(|whole| place(&mut out, whole));
    tag(&mut out, "size", &shown.size.to_string());
    tag(&mut out, "etag", &shown.etag);
    tag(&mut out, "expires", &shown.expires);
    out.push_str("<parts>");
    for part in &shown.parts {
        out.push_str("<part>");
        tag(&mut out, "offset", &part.offset.to_string());
        tag(&mut out, "length", &part.length.to_string());
        place(&mut out, &part.at);
        out.push_str("</part>");
    }
    out.push_str("</parts></download-info>\n");
    let mut reply = Response::new(Body::Full(out.into()));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_base::{BlockId, GroupId, SessionId};

    #[test]
    fn parts_end_where_the_group_changes_or_there_are_enough_blocks() {
        let block = |counter| BlockId { session: SessionId(1), counter };
        let at = |offset: u64, group: u32| {
            let place = Place::Block { group: GroupId(group), block: block(offset), offset: 0 };
            Extent { offset, len: 1, place }
        };
        let layout = |extents: Vec<Extent>, size| Layout::new(size, extents).unwrap();
        assert_eq!(cuts(&layout(vec![], 5)), [(0, 5)]);
        // With a hole before, between and behind.
        let some = vec![at(1, 7), at(2, 7), at(5, 8), at(6, 7)];
        assert_eq!(cuts(&layout(some, 9)), [(0, 5), (5, 6), (6, 9)]);
        let most = limits::PART_BLOCKS as u64;
        let many = (0..2 * most + 1).map(|offset| at(offset, 7)).collect();
        let size = 2 * most + 1;
        assert_eq!(cuts(&layout(many, size)), [(0, most), (most, 2 * most), (2 * most, size)]);
    }

    #[test]
    fn urls_are_taken_apart() {
        let parts = |url: &str| {
            let Where { scheme, host, path } = Where::new(url, "/files/x")?;
            Some(format!("{scheme} {host} {path}"))
        };
        assert_eq!(parts("http://h:1").unwrap(), "http h:1 /files/x");
        assert_eq!(parts("https://h/a/b").unwrap(), "https h /a/b/files/x");
        assert_eq!(parts("h:1"), None);
    }
}
