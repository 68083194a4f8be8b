//! Timing headers of a reply: the time in each stage (`Server-Timing`, W3C), and the trace.

use std::time::Duration;

use bytes::{BufMut, BytesMut};
use cairn_base::trace::Trace;
use cairn_base::{Stage, Stages};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const TRACERESPONSE: HeaderName = HeaderName::from_static("traceresponse");

/// Sets both headers. Times are left out of refusals, and of errors for anonymous callers: they
/// could reveal what exists.
pub(crate) fn say<B>(reply: &mut Response<B>, stages: &Stages, is_anonymous: bool) {
    let status = reply.status();
    let headers = reply.headers_mut();
    headers.insert(TRACERESPONSE, traceresponse(&stages.trace));
    if is_told(status, is_anonymous) {
        headers.insert(SERVER_TIMING, server_timing(stages));
    }
}

/// Returns a request's header about its trace.
pub(crate) fn traceparent(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get("traceparent").map(HeaderValue::as_bytes)
}

fn is_told(status: StatusCode, is_anonymous: bool) -> bool {
    let is_refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    let is_error = status.is_client_error() || status.is_server_error();
    !(is_refused || is_anonymous && is_error)
}

fn traceresponse(trace: &Trace) -> HeaderValue {
    HeaderValue::from_bytes(&trace.traceparent()).unwrap_or(HeaderValue::from_static(""))
}

/// Returns the stages in the form `meta;dur=0.004, total;dur=0.012`, in milliseconds.
fn server_timing(stages: &Stages) -> HeaderValue {
    let mut text = BytesMut::with_capacity(128);
    for stage in Stage::ALL {
        let spent = stages.spent(stage);
        if !spent.is_zero() {
            put(&mut text, stage.name(), spent);
            text.put_slice(b", ");
        }
    }
    put(&mut text, "total", stages.total());
    HeaderValue::from_maybe_shared(text.freeze()).unwrap_or(HeaderValue::from_static("total"))
}

fn put(text: &mut BytesMut, name: &str, time: Duration) {
    let us = time.as_micros() as u64;
    text.put_slice(name.as_bytes());
    text.put_slice(b";dur=");
    text.put_slice(itoa::Buffer::new().format(us / 1000).as_bytes());
    let rest = us % 1000;
    let digit = |value: u64| b'0' + (value % 10) as u8;
    text.put_slice(&[b'.', digit(rest / 100), digit(rest / 10), digit(rest)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_milliseconds() {
        let shown = |us| {
            let mut text = BytesMut::new();
            put(&mut text, "meta", Duration::from_micros(us));
            String::from_utf8(text.to_vec()).unwrap()
        };
        assert_eq!(shown(0), "meta;dur=0.000");
        assert_eq!(shown(1_042), "meta;dur=1.042");
        assert_eq!(shown(20_000_007), "meta;dur=20000.007");
    }

    #[test]
    fn a_refusal_says_nothing_of_its_time() {
        for (status, is_anonymous, told) in [
            (200, true, true),
            (200, false, true),
            (304, true, true),
            (401, true, false),
            (403, false, false),
            (404, true, false),
            (404, false, true),
            (503, true, false),
            (503, false, true),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(is_told(status, is_anonymous), told, "{status} {is_anonymous}");
        }
    }
}
