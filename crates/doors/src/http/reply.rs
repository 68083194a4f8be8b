//! Replies: the future of a reply, and simple replies.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use cairn_base::Scope;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

use super::Body;

/// A reply that is ready, or in progress. Only the latter is boxed.
pub enum Reply {
    Now(Option<Response<Body>>),
    Later(Scope<dyn Future<Output = Response<Body>> + Send>),
}

impl Future for Reply {
    type Output = Response<Body>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response<Body>> {
        match &mut *self {
            Reply::Now(reply) => Poll::Ready(reply.take().expect("polled after it was ready")),
            Reply::Later(future) => Pin::new(future).poll(context),
        }
    }
}

/// Returns a reply of JSON that must not be cached: it is true at this moment only, and may contain
/// a secret.
pub fn json_of(status: StatusCode, shown: &impl Serialize) -> Response<Body> {
    let json = serde_json::to_vec(shown).expect("text and numbers can be JSON");
    json_bytes(status, json)
}

/// Returns a reply of text that is JSON already.
pub fn json_bytes(status: StatusCode, json: Vec<u8>) -> Response<Body> {
    let mut reply = Response::new(Body::Full(json.into()));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    reply
}

pub fn no_content() -> Response<Body> {
    let mut reply = Response::new(Body::empty());
    *reply.status_mut() = StatusCode::NO_CONTENT;
    reply
}

/// Makes the reply to a HEAD: it has the length that a GET would have, and no body.
pub fn strip_body(reply: &mut Response<Body>) {
    let length = reply.body().len();
    if let Some(length @ 1..) = length {
        reply.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    *reply.body_mut() = Body::empty();
}
