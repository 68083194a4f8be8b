//! GET and HEAD of an object. Nothing here waits: bytes in memory are sent as they are, and
//! everything else becomes a stream.

use std::ops::Range;

use bytes::Bytes;
use cairn_auth::Visibility;
use cairn_base::{Error, Result, Timestamp};
use cairn_fs::{ByteStream, Object};
use futures_util::{StreamExt, stream};
use http::header::{
    AUTHORIZATION, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, HeaderName, RANGE, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use super::range::RangeSelection;
use super::target::Query;
use super::{Body, conditions, headers, range};
use crate::content_type::{self, OCTET_STREAM};
use crate::cors;

/// Policy that makes users' content inert. A browser that shows it runs no script of it, sends no
/// form of it, and keeps it apart from the origin whose credentials the browser knows. Styles,
/// pictures and sound of the same door are shown.
pub const INERT: HeaderValue = HeaderValue::from_static(
    "sandbox; default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
     media-src 'self'; font-src 'self'",
);
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The parts of a request that matter to a read.
pub struct ReadRequest<'a> {
    pub method: &'a Method,
    pub headers: &'a HeaderMap,
    pub query: Option<&'a str>,
    pub key: &'a str,
    /// True if the host name serves nothing but the bucket: then its pages may run.
    pub is_website: bool,
}

/// The source of a read: an object, or the description of one in a link.
pub trait Source: Clone + Send + 'static {
    /// Returns the ETag without quotes.
    fn etag(&self) -> String;
    fn modified(&self) -> Timestamp;
    fn size(&self) -> u64;
    /// Sets the headers of every reply, including a 304.
    fn validators(&self, etag: &str, headers: &mut HeaderMap);
    /// Returns whether anybody who has its address may read it.
    fn is_open(&self) -> bool;
    /// Returns whether replies to pages of other sites differ.
    fn differs_by_origin(&self) -> bool;
    /// Sets the headers of a reply with the object, except its length.
    fn describe(&self, headers: &mut HeaderMap);
    /// Returns the bytes of `range`, if they are in memory in one piece.
    fn read_now(&self, range: Range<u64>) -> Option<Bytes>;
    fn send(&self, range: Range<u64>) -> ByteStream;
}

impl Source for Object {
    fn etag(&self) -> String {
        Object::etag(self)
    }

    fn modified(&self) -> Timestamp {
        self.inode().mtime
    }

    fn size(&self) -> u64 {
        Object::size(self)
    }

    fn validators(&self, etag: &str, headers: &mut HeaderMap) {
        headers::validators(self, etag, headers);
    }

    fn is_open(&self) -> bool {
        self.bucket().visibility == Visibility::Public
    }

    fn differs_by_origin(&self) -> bool {
        !self.bucket().cors.is_empty()
    }

    fn describe(&self, headers: &mut HeaderMap) {
        headers::describe(self, headers);
    }

    fn read_now(&self, range: Range<u64>) -> Option<Bytes> {
        Object::read_now(self, range)
    }

    fn send(&self, range: Range<u64>) -> ByteStream {
        Object::send(self, range)
    }
}

/// Returns the bytes of an object that the reply may have, for which it must be opened; `None` if
/// there are none.
pub fn sent(read: &ReadRequest<'_>, object: &Object) -> Option<Range<u64>> {
    if read.method == Method::HEAD {
        return None;
    }
    match wanted(read.headers, &object.etag(), object).ok()? {
        RangeSelection::Whole => Some(0..object.size()),
        RangeSelection::One(range) => Some(range),
        RangeSelection::Several(ranges) => Some(ranges.first()?.start..ranges.last()?.end),
    }
}

/// Returns the reply to a GET or HEAD of an open object.
pub fn reply<S: Source>(
    read: &ReadRequest<'_>,
    object: &S,
    boundary: impl Fn() -> String,
) -> Result<Reply> {
    let etag = object.etag();
    let mut reply = Response::new(Body::empty());
    reply.headers_mut().reserve(16);
    object.validators(&etag, reply.headers_mut());
    keep_apart(object, reply.headers_mut());
    match conditions::check_read(read.headers, &etag, object.modified(), object.size()) {
        Err(Error::NotModified(_)) => {
            *reply.status_mut() = StatusCode::NOT_MODIFIED;
            return Ok(reply);
        }
        checked => checked?,
    }
    object.describe(reply.headers_mut());
    if !read.is_website {
        reply.headers_mut().insert(CONTENT_SECURITY_POLICY, INERT);
        save_active(read.key, reply.headers_mut());
    }
    if let Some(query) = read.query {
        disposition(&Query::parse(Some(query))?, read.key, reply.headers_mut());
    }
    let size = object.size();
    if read.method == Method::HEAD {
        reply.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(size));
        return Ok(reply);
    }
    match wanted(read.headers, &etag, object)? {
        RangeSelection::Whole => *reply.body_mut() = bytes_of(object, 0..size),
        RangeSelection::One(range) => {
            *reply.status_mut() = StatusCode::PARTIAL_CONTENT;
            let value = HeaderValue::try_from(content_range(&range, size));
            reply.headers_mut().insert(CONTENT_RANGE, value.map_err(|_| unsayable())?);
            *reply.body_mut() = bytes_of(object, range);
        }
        RangeSelection::Several(ranges) => several(&mut reply, object, &ranges, &boundary())?,
    }
    Ok(reply)
}

pub type Reply = Response<Body>;

/// Protects content that is not public: pages of other sites cannot show it, and caches keep it
/// only for the same credentials.
fn keep_apart<S: Source>(object: &S, headers: &mut HeaderMap) {
    let policy = if object.is_open() { "cross-origin" } else { "same-origin" };
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static(policy));
    if !object.is_open() {
        headers.insert(VARY, HeaderValue::from(AUTHORIZATION));
    }
    if object.differs_by_origin() {
        cors::vary(headers);
    }
}

fn unsayable() -> Error {
    Error::Invalid("the object has a header that cannot be sent".into())
}

fn wanted<S: Source>(headers: &HeaderMap, etag: &str, object: &S) -> Result<RangeSelection> {
    let Some(range) = headers.get(RANGE) else { return Ok(RangeSelection::Whole) };
    let Ok(range) = range.to_str() else { return Ok(RangeSelection::Whole) };
    if !conditions::range_counts(headers, etag, object.modified()) {
        return Ok(RangeSelection::Whole);
    }
    range::select(range, object.size())
}

fn bytes_of<S: Source>(object: &S, range: Range<u64>) -> Body {
    match object.read_now(range.clone()) {
        Some(bytes) => Body::Full(bytes),
        None => Body::stream(object.send(range.clone()), range.end - range.start),
    }
}

/// Makes browsers save content in which they would look for scripts: it neither runs nor looks like
/// a page of this site.
fn save_active(key: &str, headers: &mut HeaderMap) {
    let kind = headers.get(CONTENT_TYPE);
    if !kind.is_some_and(|kind| content_type::is_active(kind.as_bytes())) {
        return;
    }
    let stored = headers.get(CONTENT_DISPOSITION).map(HeaderValue::as_bytes);
    let is_saved = stored
        .and_then(|stored| stored.get(..10))
        .is_some_and(|word| word.eq_ignore_ascii_case(b"attachment"));
    if !is_saved {
        let name = content_type::last_component(key);
        headers.insert(CONTENT_DISPOSITION, headers::attachment(name));
    }
}

/// Handles `?download` and `?download=<name>`: the content is saved, not shown.
pub fn disposition(query: &Query, key: &str, headers: &mut HeaderMap) {
    if query.is_set("download") {
        let wanted = query.get("download").filter(|name| !matches!(*name, "" | "1" | "true"));
        let name = wanted.unwrap_or_else(|| content_type::last_component(key));
        headers.insert(CONTENT_DISPOSITION, headers::attachment(name));
    }
}

fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end - 1)
}

/// Turns a reply into a reply of several parts (`multipart/byteranges`).
fn several<S: Source>(
    reply: &mut Reply,
    object: &S,
    ranges: &[Range<u64>],
    boundary: &str,
) -> Result<()> {
    let size = object.size();
    let own_type = reply.headers().get(CONTENT_TYPE).cloned();
    let own_type = own_type.unwrap_or(HeaderValue::from_static(OCTET_STREAM));
    let mut parts = Vec::with_capacity(ranges.len());
    let mut length = 0;
    for range in ranges {
        let mut head = Vec::new();
        let between = if parts.is_empty() { "" } else { "\r\n" };
        head.extend_from_slice(format!("{between}--{boundary}\r\nContent-Type: ").as_bytes());
        head.extend_from_slice(own_type.as_bytes());
        let content_range = content_range(range, size);
        head.extend_from_slice(format!("\r\nContent-Range: {content_range}\r\n\r\n").as_bytes());
        length += head.len() as u64 + (range.end - range.start);
        parts.push((Bytes::from(head), range.clone()));
    }
    let end = Bytes::from(format!("\r\n--{boundary}--\r\n"));
    length += end.len() as u64;
    let object = object.clone();
    let body = stream::iter(parts)
        .flat_map(move |(head, range)| stream::once(async { Ok(head) }).chain(object.send(range)))
        .chain(stream::once(async { Ok(end) }))
        .boxed();
    *reply.status_mut() = StatusCode::PARTIAL_CONTENT;
    let kind = format!("multipart/byteranges; boundary={boundary}");
    let kind = HeaderValue::try_from(kind).map_err(|_| unsayable())?;
    reply.headers_mut().insert(CONTENT_TYPE, kind);
    *reply.body_mut() = Body::stream(body, length);
    Ok(())
}
