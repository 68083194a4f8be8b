//! GET and HEAD of an object. Both use one path: bytes in memory are answered at once, on the
//! thread that read the request.

use std::ops::Range;

use bytes::Bytes;
use cairn_auth::{Caller, Principal};
use cairn_base::{BodyId, Error};
use cairn_fs::ops::conditions::{Conditions, Current};
use cairn_fs::ops::multipart::PartTable;
use cairn_fs::rows::{Checksum, Content};
use cairn_fs::{Fs, Object};
use futures_util::TryStreamExt;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, EXPIRES, HeaderMap, HeaderName, HeaderValue, IF_RANGE, LAST_MODIFIED,
    RANGE, X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use s3s::{Body, S3Error, S3Result};

use super::super::call::Call;
use super::super::error::{Codes, bad_request, invalid, refuse_with};
use super::super::query::Query;
use super::super::range::{self, RequestedRange};
use super::super::reply::insert;
use super::super::{attributes, checksums, conditions};
use super::check_version;
use crate::content_type;
use crate::cors;
use crate::dates::last_modified;

/// Policy that gives a page that a user has stored an origin of its own: so it neither reads other
/// objects through the browser nor influences how they are fetched later. Its scripts run.
const APART: HeaderValue = HeaderValue::from_static(
    "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts",
);

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    answer(call, false).await
}

/// Answers a GET, or without the bytes a HEAD.
pub(super) async fn answer(call: Call<'_>, is_head: bool) -> S3Result<Response<Body>> {
    let (caller, bucket, key) = (call.caller, call.bucket(), call.key());
    let (query, headers) = (call.query(), call.headers());
    let reading = Reading { caller, bucket, key, query, headers, is_head };
    match reading.run(&call.store.fs).await {
        Ok(response) => Ok(response),
        Err(Failure::Refused(error)) => Err(error),
        Err(Failure::Store(error)) => Err(call.refused(error, Codes::object()).await),
    }
}

/// The reason why an object is not sent.
pub(crate) enum Failure {
    /// An error of the store; its code depends on what is missing.
    Store(Error),
    Refused(S3Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Store(error)
    }
}

impl From<S3Error> for Failure {
    fn from(error: S3Error) -> Failure {
        Failure::Refused(error)
    }
}

/// A request for an object.
pub(crate) struct Reading<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) bucket: &'a str,
    pub(crate) key: &'a str,
    pub(crate) query: &'a Query,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) is_head: bool,
}

/// A part of the object, requested by its number.
struct Part {
    range: Range<u64>,
    count: Option<u32>,
    /// Checksums of a part, unless it is the whole object.
    checksums: Option<Vec<Checksum>>,
}

/// Adds `Vary: Origin` if the bucket has rules for pages: a page gets further headers, so a cache
/// must not give it a reply that was made for another client.
fn differ_by_origin(object: &Object, response: &mut Response<Body>) {
    if !object.bucket().cors.is_empty() {
        cors::vary(response.headers_mut());
    }
}

impl Reading<'_> {
    /// Returns the reply if everything it needs is in memory; otherwise `None`.
    pub(crate) fn now(&self, fs: &Fs) -> Option<Result<Response<Body>, Failure>> {
        if self.query.has("partNumber") {
            return None;
        }
        let object = match fs.open_now(self.caller, self.bucket, self.key)? {
            Ok(object) => object,
            Err(error) => return Some(Err(error.into())),
        };
        let (mut response, range) = match self.head(&object, None) {
            Ok(head) => head,
            Err(failure) => return Some(Err(failure)),
        };
        differ_by_origin(&object, &mut response);
        if let Some(range) = range {
            *response.body_mut() = Body::from(object.read_now(range)?);
        }
        Some(Ok(response))
    }

    async fn run(&self, fs: &Fs) -> Result<Response<Body>, Failure> {
        let place = (self.bucket, self.key);
        let object = fs.open_for(self.caller, place.0, place.1, |object| self.sent(object)).await?;
        let part = match self.query.get("partNumber") {
            Some(number) => Some(self.part(fs, &object, number).await?),
            None => None,
        };
        let (mut response, range) = self.head(&object, part)?;
        differ_by_origin(&object, &mut response);
        if let Some(range) = range {
            *response.body_mut() = body(&object, range);
        }
        Ok(response)
    }

    /// Returns the bytes of an object that may be sent, if there are any.
    fn sent(&self, object: &Object) -> Option<Range<u64>> {
        let size = object.size();
        match self.range(object, size) {
            _ if self.is_head => None,
            RequestedRange::Part(range) => Some(range),
            RequestedRange::Whole => Some(0..size),
            RequestedRange::OutOfRange => None,
        }
    }

    /// Returns the response without its body, and the range of bytes for the body, if there is one.
    fn head(
        &self,
        object: &Object,
        part: Option<Part>,
    ) -> Result<(Response<Body>, Option<Range<u64>>), Failure> {
        check_version(self.query)?;
        let conditions = conditions::of_read(self.headers)?;
        if let Some(response) = self.check(object, &conditions)? {
            return Ok((response, None));
        }
        let size = object.size();
        let asked = match &part {
            Some(part) => RequestedRange::Part(part.range.clone()),
            None => self.range(object, size),
        };
        let range = match &asked {
            RequestedRange::Whole => 0..size,
            RequestedRange::Part(range) => range.clone(),
            RequestedRange::OutOfRange => return Err(Error::RangeNotSatisfiable { size }.into()),
        };
        let mut response = Response::new(Body::empty());
        let headers = response.headers_mut();
        self.write_headers(object, part.as_ref(), headers)?;
        headers.insert(CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
        if asked != RequestedRange::Whole && size > 0 {
            let text = format!("bytes {}-{}/{size}", range.start, range.end - 1);
            insert(headers, CONTENT_RANGE, &text);
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        if asked == RequestedRange::Whole || size == 0 || part.is_some() {
            self.write_checksums(object, part.as_ref(), response.headers_mut());
        }
        Ok((response, (!self.is_head).then_some(range)))
    }

    /// Writes the checksums of the object or of one part, if they are asked for. Their type is that
    /// of the object in both cases.
    fn write_checksums(&self, object: &Object, part: Option<&Part>, headers: &mut HeaderMap) {
        let is_asked = self.headers.get("x-amz-checksum-mode").is_some_and(|it| it == "ENABLED");
        let Some(attributes) = object.attributes().filter(|_| is_asked) else { return };
        match part.and_then(|part| part.checksums.as_ref()) {
            Some(checksums) if checksums.is_empty() => return,
            Some(checksums) => checksums::write(checksums, 0, headers),
            None => checksums::write(&attributes.checksums, attributes.part_count, headers),
        }
        checksums::write_kind(&attributes.checksums, headers);
    }

    /// Returns a complete reply if the caller's copy is current.
    fn check(
        &self,
        object: &Object,
        conditions: &Conditions,
    ) -> Result<Option<Response<Body>>, Failure> {
        if conditions.is_empty() {
            return Ok(None);
        }
        let current = Current { ino: object.ino(), inode: object.inode() };
        match conditions.check_read(current) {
            Ok(()) => Ok(None),
            Err(Error::NotModified(_)) => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                let headers = response.headers_mut();
                write_validators(object, headers);
                let mut all = HeaderMap::new();
                self.write_headers(object, None, &mut all)?;
                for name in [CACHE_CONTROL, EXPIRES] {
                    if let Some(value) = all.remove(&name) {
                        headers.insert(name, value);
                    }
                }
                Ok(Some(response))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn range(&self, object: &Object, size: u64) -> RequestedRange {
        let Some(Ok(header)) = self.headers.get(RANGE).map(HeaderValue::to_str) else {
            return RequestedRange::Whole;
        };
        if let Some(validator) = self.headers.get(IF_RANGE) {
            let etag = format!("\"{}\"", object.etag());
            let date = last_modified(object.inode().mtime);
            if validator.as_bytes() != etag.as_bytes() && validator.as_bytes() != date.as_bytes() {
                return RequestedRange::Whole;
            }
        }
        range::parse(header, size)
    }

    fn write_headers(
        &self,
        object: &Object,
        part: Option<&Part>,
        headers: &mut HeaderMap,
    ) -> S3Result<()> {
        headers.reserve(14);
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        write_validators(object, headers);
        let mut content_type = "";
        if let Some(attributes) = object.attributes() {
            attributes::write(attributes, headers);
            content_type = &attributes.content_type;
            if attributes.tag_count > 0 {
                headers.insert("x-amz-tagging-count", attributes.tag_count.into());
            }
        }
        let default = &object.bucket().cache_control;
        if !default.is_empty() && !headers.contains_key(CACHE_CONTROL) {
            insert(headers, CACHE_CONTROL, default);
        }
        match content_type {
            "" => {
                let bytes = HeaderValue::from_static("binary/octet-stream");
                headers.insert(CONTENT_TYPE, bytes);
            }
            known => insert(headers, CONTENT_TYPE, known),
        }
        if let Some(count) = part.and_then(|part| part.count) {
            headers.insert("x-amz-mp-parts-count", count.into());
        }
        self.override_headers(headers)?;
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        let kind = headers.get(CONTENT_TYPE);
        if kind.is_some_and(|kind| content_type::is_active(kind.as_bytes())) {
            headers.insert(CONTENT_SECURITY_POLICY, APART);
        }
        Ok(())
    }

    /// Applies `response-content-type` and similar parameters: only the holder of a key may decide
    /// what a link shows.
    fn override_headers(&self, headers: &mut HeaderMap) -> S3Result<()> {
        for (name, value) in self.query.pairs() {
            let Some(header) = name.strip_prefix("response-") else { continue };
            if self.caller.principal() == Principal::Anonymous {
                return Err(bad_request(
                    "request specific response headers cannot be used for anonymous GET requests",
                ));
            }
            let header = HeaderName::from_bytes(header.as_bytes());
            match (header, HeaderValue::from_str(value)) {
                (Ok(header), Ok(value)) => headers.insert(header, value),
                _ => return Err(invalid(format!("{name} is not the value of a header"))),
            };
        }
        Ok(())
    }

    /// Returns the range of part `number`. An object that was not made of parts has one part.
    async fn part(&self, fs: &Fs, object: &Object, number: &str) -> Result<Part, Failure> {
        if self.headers.contains_key(RANGE) {
            let what = "cannot specify both Range header and partNumber query parameter";
            return Err(bad_request(what).into());
        }
        let number: u32 = match number.parse() {
            Ok(number) if (1..=cairn_base::limits::PARTS).contains(&number) => number,
            _ => return Err(invalid("partNumber must be an integer between 1 and 10000").into()),
        };
        // Bytes that were changed in place are no longer those of the parts.
        let attributes = object.attributes().filter(|attributes| attributes.part_count > 0);
        let table = attributes.and_then(|attributes| attributes.part_table);
        let Some((table, attributes)) = table.zip(attributes) else {
            return match number {
                1 => Ok(Part { range: 0..object.size(), count: None, checksums: None }),
                _ => Err(no_such_part().into()),
            };
        };
        let (mut after, mut seen, mut offset) = (0, 0, 0);
        loop {
            let verb = PartTable { upload: table, after, limit: 1000 };
            let (parts, more) = fs.read(&Caller::system(), verb).await?;
            for (at, part) in parts {
                after = at;
                // Parts that were uploaded and not used stay for a while.
                if part.taken != body_of(object) {
                    continue;
                }
                seen += 1;
                if seen == number {
                    let range = offset..offset + part.size;
                    let (count, checksums) = (Some(attributes.part_count), Some(part.checksums));
                    return Ok(Part { range, count, checksums });
                }
                offset += part.size;
            }
            if !more {
                return Err(no_such_part().into());
            }
        }
    }
}

pub(super) fn body_of(object: &Object) -> Option<BodyId> {
    match object.inode().content {
        Content::Body(body) => Some(body),
        _ => None,
    }
}

fn no_such_part() -> S3Error {
    let what = "the requested partnumber is not satisfiable";
    refuse_with("InvalidPartNumber", StatusCode::RANGE_NOT_SATISFIABLE, what)
}

fn body(object: &Object, range: Range<u64>) -> Body {
    match object.read_now(range.clone()) {
        Some(bytes) => Body::from(bytes),
        None => {
            let stream = object.send(range).map_ok(Frame::<Bytes>::data);
            Body::http_body_unsync(StreamBody::new(stream.inspect_err(|error| {
                tracing::error!(%error, "sending an object");
            })))
        }
    }
}

fn write_validators(object: &Object, headers: &mut HeaderMap) {
    insert(headers, ETAG, &format!("\"{}\"", object.etag()));
    headers.insert(LAST_MODIFIED, last_modified(object.inode().mtime));
}
