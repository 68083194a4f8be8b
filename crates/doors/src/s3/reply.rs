//! Replies without an object: XML, or headers alone.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::ready;
use futures_util::{FutureExt, StreamExt, stream};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use s3s::xml::Serialize;
use s3s::{Body, S3Result, StdError};
use tokio::time::interval;

use super::document::{self, ErrorContext};
use super::xml::{self, DECLARATION};

/// Period at which a client that waits for the end of a reply gets a sign of life.
const BEAT: Duration = Duration::from_millis(100);

/// Returns a document.
pub(super) fn xml(output: &impl Serialize) -> S3Result<Response<Body>> {
    Ok(text(xml::write(output, DECLARATION)?))
}

/// Returns XML that is already written.
pub(super) fn text(text: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(text.into());
    let kind = HeaderValue::from_static("application/xml");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Returns a reply without a body.
pub(super) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Returns a document that begins before its contents are known: blanks come first, so that the
/// client does not give up.
pub(super) fn later<T: Serialize>(
    outcome: impl Future<Output = S3Result<T>> + Send + 'static,
    told: ErrorContext,
) -> Response<Body> {
    let end = outcome.map(move |outcome| {
        let written = outcome.and_then(|output| xml::write(&output, ""));
        written.unwrap_or_else(|error| document::text(&error, &told).into())
    });
    let rest = stream::unfold(Some((end.boxed(), interval(BEAT))), |waiting| async move {
        let (mut end, mut beats) = waiting?;
        tokio::select! {
            biased;
            end = &mut end => Some((end, None)),
            _ = beats.tick() => Some((Bytes::from_static(b" "), Some((end, beats)))),
        }
    });
    let all = stream::once(ready(Bytes::from_static(DECLARATION.as_bytes()))).chain(rest);
    let frames = all.map(|bytes| Ok::<_, StdError>(Frame::data(bytes)));
    text(Body::http_body_unsync(StreamBody::new(frames)))
}

/// Writes a header, if it can be one.
pub(super) fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
