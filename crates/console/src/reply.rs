//! Replies, with the headers that keep pages apart from everything else.

use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    LOCATION, REFERRER_POLICY, SET_COOKIE, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use maud::Markup;
use serde::Serialize;

use crate::assets::{self, Asset, GZIP_FROM};
use crate::body::Body;

pub type Reply = Response<Body>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const FOREVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

fn of(status: StatusCode, content_type: HeaderValue, bytes: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Body::Full(bytes.into()));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, content_type);
    reply.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    reply
}

pub fn html(status: StatusCode, page: Markup) -> Reply {
    of(status, HTML, page.into_string())
}

pub fn json(status: StatusCode, shown: &impl Serialize) -> Reply {
    let json = serde_json::to_vec(shown).expect("text and numbers can be JSON");
    of(status, JSON, json)
}

/// Makes a reply of events for a script, as long as the page is open: see [`crate::events`].
pub fn events(stream: BoxStream<'static, Bytes>) -> Reply {
    let mut reply = of(StatusCode::OK, EVENTS, Bytes::new());
    // Tells nginx not to buffer it.
    let buffering = HeaderName::from_static("x-accel-buffering");
    reply.headers_mut().insert(buffering, HeaderValue::from_static("no"));
    *reply.body_mut() = Body::Stream(stream);
    reply
}

/// Redirects to another page, by GET.
pub fn see_other(location: &str) -> Reply {
    let mut reply = Response::new(Body::default());
    *reply.status_mut() = StatusCode::SEE_OTHER;
    reply.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    // The caller has encoded each part of the location.
    let location = HeaderValue::from_str(location).unwrap_or(HeaderValue::from_static("/"));
    reply.headers_mut().insert(LOCATION, location);
    reply
}

pub fn asset(asset: &'static Asset) -> Reply {
    let content_type = HeaderValue::from_static(asset.content_type);
    let mut reply = of(StatusCode::OK, content_type, asset.plain);
    reply.headers_mut().insert(CACHE_CONTROL, FOREVER);
    reply.extensions_mut().insert(Gzip(asset.gzip.clone()));
    reply
}

/// Compressed form of the same body, made before.
#[derive(Clone)]
struct Gzip(Bytes);

/// Sets a cookie for the whole origin, for `secs` seconds; 0 removes it.
pub fn set_cookie(reply: &mut Reply, name: &str, is_secure: bool, value: &str, secs: u64) {
    let secure = if is_secure { "; Secure" } else { "" };
    let cookie =
        format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={secs}{secure}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        reply.headers_mut().append(SET_COOKIE, cookie);
    }
}

/// Sets the headers of every reply. `data` is the origin of the S3 door: a page may load things
/// only from there and from here. Scripts accept no reply without `x-cairn-console` as the
/// console's: a proxy may answer too, and a redirect may lead away.
pub fn protect(headers: &mut HeaderMap, data: &str) {
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' {data}; media-src \
         'self' {data}; frame-src 'self' {data}; connect-src 'self' {data}; form-action 'self'; \
         base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types console"
    );
    let policy = HeaderValue::from_str(&policy);
    let closed = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    let same_origin = HeaderValue::from_static("same-origin");
    let all = [
        (CONTENT_SECURITY_POLICY, policy.unwrap_or(closed)),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (HeaderName::from_static("x-cairn-console"), HeaderValue::from_static("1")),
        (HeaderName::from_static("cross-origin-opener-policy"), same_origin.clone()),
        (HeaderName::from_static("cross-origin-resource-policy"), same_origin),
        (
            HeaderName::from_static("permissions-policy"),
            HeaderValue::from_static("camera=(), geolocation=(), microphone=(), payment=()"),
        ),
    ];
    for (name, value) in all {
        headers.insert(name, value);
    }
}

/// Compresses a body if the client accepts that. Its length reveals nothing: a page has no secret,
/// or a secret that no other page has. A stream stays as it is.
pub fn compress(asked: &HeaderMap, reply: &mut Reply) {
    let Body::Full(whole) = reply.body() else { return };
    let whole = whole.clone();
    let accepts = asked.get_all(ACCEPT_ENCODING).iter().any(|value| {
        let codings = value.to_str().unwrap_or_default().split(',');
        codings.map(str::trim).any(|coding| coding == "gzip" || coding.starts_with("gzip;q=1"))
    });
    if whole.len() < GZIP_FROM {
        return;
    }
    reply.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if !accepts {
        return;
    }
    let made = match reply.extensions_mut().remove::<Gzip>() {
        Some(Gzip(made)) => made,
        None => assets::gzip(&whole),
    };
    reply.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    *reply.body_mut() = Body::Full(made);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_for_browsers_alone() {
        let mut reply = see_other("/");
        set_cookie(&mut reply, "__Host-cairn", true, "x", 5);
        let cookie = "__Host-cairn=x; Path=/; HttpOnly; SameSite=Strict; Max-Age=5; Secure";
        assert_eq!(reply.headers()[SET_COOKIE], cookie);
    }
}
