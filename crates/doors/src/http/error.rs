//! Errors as clients see them: a status, and JSON with a kind, a text and the request's id.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use cairn_base::{Error, stage};
use http::header::{
    ALLOW, CONNECTION, CONTENT_RANGE, EXPECT, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, Version};
use serde::Serialize;

use super::{Body, json_of};
use crate::admit::AdmitError;
use crate::pacing;
use crate::upload::{Upload, UploadError};

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The reason why a request failed.
#[derive(Debug)]
pub enum Failure {
    Store(Error),
    Refused(AdmitError),
    /// There is no room for it now, through no fault of the server.
    Busy(&'static str),
    /// The user has used up a limit, for this long.
    Limited(Duration),
    /// The body arrived too slowly.
    Slow(String),
    /// The path does not take this method.
    Method {
        allow: &'static str,
    },
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Store(error)
    }
}

impl Failure {
    /// Returns the reason for records: the text of a refusal, which has no words of the client, and
    /// the kind of any other failure.
    pub fn reason(&self) -> String {
        match self {
            Failure::Store(error @ (Error::Denied(_) | Error::ReadOnly(_))) => error.to_string(),
            Failure::Store(error) | Failure::Refused(AdmitError::Failed(error)) => {
                error.kind().to_owned()
            }
            Failure::Refused(AdmitError::Credentials) => "bad_credentials".to_owned(),
            Failure::Busy(_) => "unavailable".to_owned(),
            Failure::Limited(_) => "too_many_requests".to_owned(),
            Failure::Slow(_) => "too_slow".to_owned(),
            Failure::Method { .. } => "method_not_allowed".to_owned(),
        }
    }
}

/// A body without its end is the client's fault.
impl From<UploadError> for Failure {
    fn from(error: UploadError) -> Failure {
        match error {
            UploadError::Idle(_) | UploadError::Slow(..) => Failure::Slow(error.to_string()),
            UploadError::Broken(_) => Failure::Store(Error::Invalid(error.to_string())),
        }
    }
}

impl From<AdmitError> for Failure {
    fn from(refused: AdmitError) -> Failure {
        match refused {
            AdmitError::Failed(error) => Failure::Store(error),
            other => Failure::Refused(other),
        }
    }
}

/// Numbers requests that fail, so that a client's report finds its line in the log.
#[derive(Debug)]
pub struct RequestIds(AtomicU64);

impl RequestIds {
    pub fn new(start: u64) -> RequestIds {
        RequestIds(AtomicU64::new(start))
    }

    pub fn next(&self) -> String {
        // An odd multiplier: ids differ in all digits and never repeat within 2^64. A letter comes
        // first, so that no program takes an id for a number.
        let number = self.0.fetch_add(1, Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        format!("r{number:016x}")
    }
}

#[derive(Serialize)]
struct ShownError<'a> {
    error: &'a str,
    message: &'a str,
    request_id: &'a str,
}

fn status_of(error: &Error) -> StatusCode {
    match error {
        Error::NotFound(_) => StatusCode::NOT_FOUND,
        Error::Exists(_)
        | Error::Conflict(_)
        | Error::NotEmpty(_)
        | Error::IsDirectory(_)
        | Error::NotDirectory(_) => StatusCode::CONFLICT,
        Error::Denied(_) | Error::ReadOnly(_) => StatusCode::FORBIDDEN,
        Error::PreconditionFailed(_) => StatusCode::PRECONDITION_FAILED,
        Error::NotModified(_) => StatusCode::NOT_MODIFIED,
        Error::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        Error::Full(_) => StatusCode::INSUFFICIENT_STORAGE,
        Error::Invalid(_) | Error::BadDigest(_) | Error::CrossBucket(_) => StatusCode::BAD_REQUEST,
        Error::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        Error::RangeNotSatisfiable { .. } => StatusCode::RANGE_NOT_SATISFIABLE,
        Error::NotImplemented(_) => StatusCode::NOT_IMPLEMENTED,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Returns the reply to a failed request whose body may be unread. It asks for credentials if that
/// may help.
pub fn failed(
    failure: Failure,
    parts: &Parts,
    upload: Upload,
    asks: bool,
    ids: &RequestIds,
) -> Response<Body> {
    let goes_on = parts.headers.contains_key(EXPECT) || upload.linger();
    let mut reply = reply(failure, asks, &ids.next());
    if !goes_on && parts.version < Version::HTTP_2 {
        reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    reply
}

/// Returns the reply to a failed request. A denied caller without credentials is asked for some.
pub fn reply(failure: Failure, is_anonymous: bool, id: &str) -> Response<Body> {
    match failure {
        Failure::Store(Error::Denied(text)) if is_anonymous => {
            unauthorized("denied", &format!("denied: {text}"), id)
        }
        Failure::Store(error) => store(&error, id),
        Failure::Method { allow } => {
            let text = format!("this path takes {allow}");
            let mut reply = json(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &text, id);
            reply.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
            reply
        }
        Failure::Busy(text) => {
            tracing::debug!(request_id = id, text, "no room for a request");
            let text = format!("unavailable, try again later: {text}");
            let mut reply = json(StatusCode::SERVICE_UNAVAILABLE, "unavailable", &text, id);
            reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            reply
        }
        Failure::Limited(wait) => {
            let seconds = pacing::seconds(wait);
            let text = format!("a limit of this user is used up: try again in {seconds} s");
            let status = StatusCode::TOO_MANY_REQUESTS;
            let mut reply = json(status, "too_many_requests", &text, id);
            reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
            reply
        }
        Failure::Slow(text) => {
            let mut reply = json(StatusCode::REQUEST_TIMEOUT, "too_slow", &text, id);
            reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            reply
        }
        Failure::Refused(AdmitError::Failed(error)) => store(&error, id),
        Failure::Refused(AdmitError::Credentials) => {
            unauthorized("bad_credentials", "the credentials are malformed, unknown or expired", id)
        }
    }
}

fn store(error: &Error, id: &str) -> Response<Body> {
    let status = status_of(error);
    let text = match error {
        Error::Corrupt { .. } => {
            "stored bytes fail their checksum: see the server's log".to_owned()
        }
        Error::Io(_) => "an input/output error of the server: see its log".to_owned(),
        other => other.to_string(),
    };
    // A missing feature is no failure.
    if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED {
        let trace = stage::trace().map(tracing::field::display);
        tracing::error!(trace, request_id = id, kind = error.kind(), %error, "request failed");
    }
    let mut reply = json(status, error.kind(), &text, id);
    let headers = reply.headers_mut();
    match error {
        Error::Unavailable(_) => {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        Error::RangeNotSatisfiable { size } => {
            if let Ok(value) = HeaderValue::try_from(format!("bytes */{size}")) {
                headers.insert(CONTENT_RANGE, value);
            }
        }
        _ => {}
    }
    reply
}

fn unauthorized(kind: &str, text: &str, id: &str) -> Response<Body> {
    let mut reply = json(StatusCode::UNAUTHORIZED, kind, text, id);
    let headers = reply.headers_mut();
    headers.append(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"cairn\""));
    let basic = HeaderValue::from_static("Basic realm=\"cairn\", charset=\"UTF-8\"");
    headers.append(WWW_AUTHENTICATE, basic);
    reply
}

fn json(status: StatusCode, kind: &str, message: &str, id: &str) -> Response<Body> {
    let shown = ShownError { error: kind, message, request_id: id };
    let mut reply = json_of(status, &shown);
    if let Ok(id) = HeaderValue::try_from(id) {
        reply.headers_mut().insert(X_REQUEST_ID, id);
    }
    reply
}
