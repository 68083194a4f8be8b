//! What shippers of logs are answered, in the words of their protocols.

use std::time::Duration;

use cairn_base::Error;
use cairn_logs::{Item, Outcome};
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use super::log_path::Probe;
use super::{Body, json_of};

/// Methods of a path that clients only ask.
pub const PROBE: &str = "GET, HEAD, OPTIONS";
/// Methods of a path that takes records, and of `_bulk`.
pub const PUSH: &str = "POST, OPTIONS";
pub const BULK: &str = "POST, PUT, OPTIONS";

const X_ELASTIC_PRODUCT: HeaderName = HeaderName::from_static("x-elastic-product");
/// The version of Elasticsearch whose `_bulk` this is.
const VERSION: &str = "8.17.0";

pub fn text(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut reply = Response::new(Body::Full(text.into()));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    reply
}

/// As their clients want it: they look for this header.
fn elastic(mut reply: Response<Body>) -> Response<Body> {
    let product = HeaderValue::from_static("Elasticsearch");
    reply.headers_mut().insert(X_ELASTIC_PRODUCT, product);
    reply
}

/// The answer to what clients of Elasticsearch ask before they send.
pub fn probe(probe: Probe) -> Response<Body> {
    let shown = match probe {
        Probe::HealthText => return elastic(text(StatusCode::OK, "cairn green\n")),
        Probe::Version => json!({
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
        Probe::License => json!({
            "license": {"uid": "cairn", "type": "basic", "mode": "basic", "status": "active"},
            "features": {},
        }),
        Probe::Health => json!({"cluster_name": "cairn", "status": "green", "timed_out": false}),
        Probe::Present => json!({}),
    };
    elastic(json_of(StatusCode::OK, &shown))
}

/// The status of an item, and the type of its error, so that clients send again what may be taken
/// then, and nothing else.
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

/// The answer to `_bulk`: each action with its status, in their order.
pub fn bulk(items: &[Item], outcome: &Outcome, took: Duration) -> Response<Body> {
    let mut refused = outcome.refused.iter().peekable();
    let mut failed = outcome.failed.iter().peekable();
    let mut shown = Vec::with_capacity(items.len());
    for item in items {
        let of_this = |(number, _): &&(usize, Error)| *number == item.record;
        let error = refused.next_if(of_this).or_else(|| failed.next_if(of_this));
        let mut about = match error {
            None => json!({
                "_version": 1,
                "result": "created",
                "status": StatusCode::CREATED.as_u16(),
            }),
            Some((_, error)) => {
                let (status, kind) = refusal(error);
                let error = json!({"type": kind, "reason": error.to_string()});
                json!({"status": status.as_u16(), "error": error})
            }
        };
        about["_index"] = Value::from(item.index.as_str());
        about["_id"] = Value::from(item.id.as_str());
        shown.push(json!({ item.action: about }));
    }
    let errors = !outcome.refused.is_empty() || !outcome.failed.is_empty();
    let took = took.as_millis() as u64;
    let all = json!({"took": took, "errors": errors, "items": shown});
    elastic(json_of(StatusCode::OK, &all))
}

/// An `ExportLogsServiceResponse`.
pub fn otlp(is_json: bool, refused: usize, why: Option<&str>) -> Response<Body> {
    if is_json {
        let shown = match why {
            None => json!({}),
            Some(why) => {
                let rejected = refused.to_string();
                json!({"partialSuccess": {"rejectedLogRecords": rejected, "errorMessage": why}})
            }
        };
        return json_of(StatusCode::OK, &shown);
    }
    let mut message = Vec::new();
    if let Some(why) = why {
        let mut partial = vec![0x08];
        varint(refused as u64, &mut partial);
        partial.push(0x12);
        varint(why.len() as u64, &mut partial);
        partial.extend_from_slice(why.as_bytes());
        message.push(0x0a);
        varint(partial.len() as u64, &mut message);
        message.extend_from_slice(&partial);
    }
    let mut reply = Response::new(Body::Full(message.into()));
    let kind = HeaderValue::from_static("application/x-protobuf");
    reply.headers_mut().insert(CONTENT_TYPE, kind);
    reply
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
