//! Replies to shippers of logs, in the form of their protocols.

use std::time::Duration;

use cairn_base::Error;
use cairn_logs::limits::ID_BYTES;
use cairn_logs::{Item, Outcome, json};
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::json as value;

use super::log_path::Probe;
use super::reply::json_bytes;
use super::{Body, json_of};

/// Methods of a path that answers questions only.
pub const PROBE: &str = "GET, HEAD, OPTIONS";
/// Methods of a path that takes records, and of `_bulk`.
pub const PUSH: &str = "POST, OPTIONS";
pub const BULK: &str = "POST, PUT, OPTIONS";

/// Types of messages of protocol buffers. Replies have the first.
pub const PROTOBUFS: [&str; 2] = ["application/x-protobuf", "application/protobuf"];
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

const X_ELASTIC_PRODUCT: HeaderName = HeaderName::from_static("x-elastic-product");
/// The version of Elasticsearch whose `_bulk` this is.
const VERSION: &str = "8.17.0";
/// Bytes of a name or a reason that a reply repeats: accepted names are no longer.
const NAME_BYTES: usize = ID_BYTES;
/// Bytes of the answer to a stored item, without its names.
const ANSWER_BYTES: usize = 96;

pub fn text(status: StatusCode, text: String) -> Response<Body> {
    let mut reply = Response::new(Body::Full(text.into()));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    reply
}

/// Returns whether the type of the body is one of these, whatever its parameters.
pub fn is_of(headers: &HeaderMap, types: &[&str]) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = value.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    types.iter().any(|expected| kind.eq_ignore_ascii_case(expected))
}

/// Adds the header that clients of Elasticsearch look for.
fn elastic(mut reply: Response<Body>) -> Response<Body> {
    let product = HeaderValue::from_static("Elasticsearch");
    reply.headers_mut().insert(X_ELASTIC_PRODUCT, product);
    reply
}

/// Answers the questions that clients of Elasticsearch ask before they send.
pub fn probe(probe: Probe) -> Response<Body> {
    let shown = match probe {
        Probe::HealthText => return elastic(text(StatusCode::OK, "cairn green\n".to_owned())),
        Probe::Version => value!({
            "name": "cairn",
            "cluster_name": "cairn",
            "cluster_uuid": "cairn",
            "version": {
                "number": VERSION,
                "build_flavor": "default",
                "build_type": "tar",
                "build_hash": "cairn",
                "build_snapshot": false,
                "lucene_version": "9.12.0",
                "minimum_wire_compatibility_version": "7.17.0",
                "minimum_index_compatibility_version": "7.0.0",
            },
            "tagline": "You Know, for Search",
        }),
        Probe::License => value!({
            "license": {"uid": "cairn", "type": "basic", "mode": "basic", "status": "active"},
            "features": {},
        }),
        Probe::Health => value!({"cluster_name": "cairn", "status": "green", "timed_out": false}),
        Probe::Present => value!({}),
    };
    elastic(json_of(StatusCode::OK, &shown))
}

/// Returns the status of an item, and the type of its error, so that clients resend items that may
/// be taken later, and no others.
fn refusal(error: &Error) -> (StatusCode, &'static str) {
    match error {
        Error::Unavailable(_) | Error::Conflict(_) => {
            (StatusCode::TOO_MANY_REQUESTS, "es_rejected_execution_exception")
        }
        Error::Full(_) | Error::ReadOnly(_) => {
            (StatusCode::TOO_MANY_REQUESTS, "cluster_block_exception")
        }
        Error::Denied(_) => (StatusCode::FORBIDDEN, "security_exception"),
        Error::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "illegal_argument_exception"),
        Error::Invalid(_) => (StatusCode::BAD_REQUEST, "document_parsing_exception"),
        Error::NotFound(_) => (StatusCode::NOT_FOUND, "index_not_found_exception"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "exception"),
    }
}

/// Answers `_bulk`: each action with its status, in order. The reply is written directly, since
/// values for each item would cost more than the records.
pub fn bulk(items: &[Item<'_>], outcome: &Outcome, took: Duration) -> Response<Body> {
    let mut refused = outcome.refused.iter().peekable();
    let mut failed = outcome.failed.iter().peekable();
    let names = |item: &Item<'_>| item.index.len().min(NAME_BYTES) + item.id.len().min(NAME_BYTES);
    let bytes: usize = items.iter().map(|item| names(item) + ANSWER_BYTES).sum();
    let mut out = Vec::with_capacity(bytes + ANSWER_BYTES);
    out.extend_from_slice(b"{\"took\":");
    out.extend_from_slice(itoa::Buffer::new().format(took.as_millis()).as_bytes());
    let errors = !outcome.refused.is_empty() || !outcome.failed.is_empty();
    out.extend_from_slice(if errors { b",\"errors\":true" } else { b",\"errors\":false" });
    out.extend_from_slice(b",\"items\":[");
    for (number, item) in items.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        let of_this = |(at, _): &&(usize, Error)| *at == number;
        let error = refused.next_if(of_this).or_else(|| failed.next_if(of_this));
        bulk_item(item, error.map(|(_, error)| error), &mut out);
    }
    out.extend_from_slice(b"]}");
    elastic(json_bytes(StatusCode::OK, out))
}

fn bulk_item(item: &Item<'_>, error: Option<&Error>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"");
    out.extend_from_slice(item.action.as_bytes());
    out.extend_from_slice(b"\":{\"_index\":");
    json::text(out, cut(&item.index));
    out.extend_from_slice(b",\"_id\":");
    json::text(out, cut(&item.id));
    match error {
        None => out.extend_from_slice(b",\"_version\":1,\"result\":\"created\",\"status\":201"),
        Some(error) => {
            let (status, kind) = refusal(error);
            out.extend_from_slice(b",\"status\":");
            out.extend_from_slice(status.as_str().as_bytes());
            out.extend_from_slice(b",\"error\":{\"type\":");
            json::text(out, kind);
            out.extend_from_slice(b",\"reason\":");
            json::text(out, cut(&error.to_string()));
            out.push(b'}');
        }
    }
    out.extend_from_slice(b"}}");
}

/// Returns the beginning of a client's text, so that a reply is not much longer than its request.
fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(NAME_BYTES)).unwrap_or_default()
}

/// Returns an `ExportLogsServiceResponse`.
pub fn otlp(is_json: bool, refused: usize, why: Option<&str>) -> Response<Body> {
    if is_json {
        let shown = match why {
            None => value!({}),
            Some(why) => {
                let rejected = refused.to_string();
                value!({"partialSuccess": {"rejectedLogRecords": rejected, "errorMessage": why}})
            }
        };
        return json_of(StatusCode::OK, &shown);
    }
    let mut message = Vec::new();
    if let Some(why) = why {
        let partial = number_and_text(refused as u64, why);
        message.push(0x0a);
        varint(partial.len() as u64, &mut message);
        message.extend_from_slice(&partial);
    }
    let mut reply = Response::new(Body::Full(message.into()));
    reply.headers_mut().insert(CONTENT_TYPE, PROTOBUF);
    reply
}

/// Gives an error for OpenTelemetry the form of the request: exporters that send messages of
/// protocol buffers read a `google.rpc.Status`, and show no reason otherwise.
pub fn show_otlp_error(asked: &HeaderMap, reply: &mut Response<Body>) {
    let status = reply.status();
    let is_error = status.is_client_error() || status.is_server_error();
    if !is_error || !is_of(asked, &PROTOBUFS) {
        return;
    }
    let Body::Full(json) = reply.body() else { return };
    let Ok(error) = serde_json::from_slice::<serde_json::Value>(json) else { return };
    let message = error["message"].as_str().unwrap_or_default();
    let message = number_and_text(grpc_code(status), message);
    *reply.body_mut() = Body::Full(message.into());
    reply.headers_mut().insert(CONTENT_TYPE, PROTOBUF);
}

/// Returns the code of gRPC for a status.
fn grpc_code(status: StatusCode) -> u64 {
    match status.as_u16() {
        400 => 3,
        401 => 16,
        403 => 7,
        404 => 5,
        408 | 504 => 4,
        409 => 10,
        413 | 429 | 507 => 8,
        405 | 501 => 12,
        502 | 503 => 14,
        _ => 13,
    }
}

/// Returns a message with a number in field 1 and a text in field 2.
fn number_and_text(number: u64, text: &str) -> Vec<u8> {
    let mut message = vec![0x08];
    varint(number, &mut message);
    message.push(0x12);
    varint(text.len() as u64, &mut message);
    message.extend_from_slice(text.as_bytes());
    message
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use cairn_logs::bulk;
    use http_body_util::BodyExt;
    use serde_json::Value;

    use super::*;

    async fn answered(body: &[u8], outcome: &Outcome) -> (usize, Value) {
        let items = bulk::items(body, "path", 100).unwrap();
        let reply = super::bulk(&items, outcome, Duration::from_millis(7));
        assert_eq!(reply.headers()[CONTENT_TYPE], "application/json");
        let bytes = reply.into_body().collect().await.unwrap().to_bytes();
        (bytes.len(), serde_json::from_slice(&bytes).unwrap())
    }

    #[tokio::test]
    async fn each_item_has_its_names_and_what_became_of_it() {
        let body = b"{\"create\":{\"_index\":\"a\\\"\\n\",\"_id\":\"\\u0001\\u00e9\"}}\n{}\n\
                     {\"delete\":{\"_id\":7}}\n{\"index\":{}}\n{}\n";
        let refused = vec![(1, Error::Invalid("\"no\"".into()))];
        let failed = vec![(2, Error::Unavailable("later".into()))];
        let (_, json) = answered(body, &Outcome { records: 3, refused, failed }).await;
        let error = |kind: &str, reason: &str| value!({"type": kind, "reason": reason});
        let reason = Error::Invalid("\"no\"".into()).to_string();
        let later = Error::Unavailable("later".into()).to_string();
        let expected = value!({"took": 7, "errors": true, "items": [
            {"create": {"_index": "a\"\n", "_id": "\u{1}é", "_version": 1, "result": "created",
                        "status": 201}},
            {"delete": {"_index": "path", "_id": "7", "status": 400,
                        "error": error("document_parsing_exception", &reason)}},
            {"index": {"_index": "path", "_id": "", "status": 429,
                       "error": error("es_rejected_execution_exception", &later)}},
        ]});
        assert_eq!(json, expected);
        let (_, json) = answered(b"", &Outcome::default()).await;
        assert_eq!(json, value!({"took": 7, "errors": false, "items": []}));
    }

    #[tokio::test]
    async fn names_that_are_too_long_are_not_repeated_whole() {
        let long = "é".repeat(100_000);
        let body = format!("{{\"create\":{{\"_index\":\"{long}\",\"_id\":\"{long}\"}}}}\n{{}}\n");
        let refused = vec![(0, Error::Invalid(long))];
        let outcome = Outcome { records: 1, refused, ..Outcome::default() };
        let (bytes, json) = answered(body.as_bytes(), &outcome).await;
        assert!(bytes < 4 * NAME_BYTES, "{bytes}");
        assert_eq!(json["items"][0]["create"]["_id"], "é".repeat(NAME_BYTES / 2));
    }
}
