//! Sends sampled requests to a collector of OpenTelemetry, as OTLP over HTTP in JSON
//! (docs/decisions/0013-timing.md). A collector that is slow or away costs spans, never requests.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cairn_base::trace::Traces;
use cairn_base::{Rng, Stage, waits};
use cairn_doors::observe::{EndedRequest, Export};
use cairn_meta::master::host;
use cairn_tls::Trust;
use hyper::Request;
use serde_json::{Value, json};

use crate::connection::AGENT;
use crate::connection::http::{Client, Outgoing};
use crate::failure::{Failure, Result};

/// Requests that wait to be sent; further ones are dropped.
const WAITING: usize = 4096;
/// Requests in one message, at most; fewer are sent after [`PERIOD`].
const BATCH: usize = 512;
const PERIOD: Duration = Duration::from_secs(1);
/// Longest part of a reply that is read, bytes.
const REPLY_BYTES: u64 = 1 << 20;
/// Numbers in OTLP: for a span of a server; for a failure.
const KIND_SERVER: u32 = 2;
const STATUS_ERROR: u32 = 2;
/// Status of a message of a session, whose outcome concerns the node that sent it.
const NO_STATUS: u16 = 0;

/// Makes an exporter that gives requests to a thread, which sends them to the collector at `url`.
pub fn export(url: &str) -> Result<Export> {
    let url = endpoint(url)?;
    let client = Client::new(&url, Trust::Public, Some(waits::TRACES)).map_err(Failure::usage)?;
    let (sender, receiver) = sync_channel(WAITING);
    let thread = std::thread::Builder::new().name("otlp".to_owned());
    thread.spawn(move || run(&url, &client, &receiver))?;
    Ok(Box::new(move |ended| offer(&sender, ended)))
}

/// Exports operations at a master, like [`export`]. Each is a span below that of the node that
/// asked.
pub fn of_sessions(url: &str, rng: &dyn Rng) -> Result<host::Export> {
    let export = export(url)?;
    let traces = Traces::new([rng.next_u64(), rng.next_u64()], 0.0);
    Ok(Arc::new(move |verb, mut stages| {
        stages.trace = traces.below(&stages.trace);
        export(EndedRequest { door: "session", verb, status: NO_STATUS, stages });
    }))
}

fn offer(sender: &SyncSender<(EndedRequest, SystemTime)>, ended: EndedRequest) {
    // If the queue is full, the request is dropped.
    let _ = sender.try_send((ended, SystemTime::now()));
}

/// Completes the URL of a collector as the standard says: a URL without a path is a base.
fn endpoint(url: &str) -> Result<String> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    match rest {
        Some("") | None => Err(Failure::usage(format!(
            "--otlp {url}: not a URL: use one such as http://127.0.0.1:4318"
        ))),
        Some(rest) if rest.trim_end_matches('/').contains('/') => Ok(url.to_owned()),
        Some(_) => Ok(format!("{}/v1/traces", url.trim_end_matches('/'))),
    }
}

fn run(url: &str, client: &Client, receiver: &Receiver<(EndedRequest, SystemTime)>) {
    let mut is_well = true;
    while let Ok(first) = receiver.recv() {
        let spans = gather(first, receiver);
        match send(url, client, message(&spans).to_string()) {
            Ok(()) => is_well = true,
            Err(error) if is_well => {
                tracing::warn!(url, %error, "traces are not taken; they are dropped until they are");
                is_well = false;
            }
            Err(_) => {}
        }
    }
}

fn send(url: &str, client: &Client, message: String) -> io::Result<()> {
    let path = url.splitn(4, '/').nth(3).unwrap_or_default();
    let request = Request::post(format!("/{path}"))
        .header("content-type", "application/json")
        .header("user-agent", AGENT)
        .body(())
        .map_err(io::Error::other)?;
    let reply = client.send(request, Outgoing::Bytes(message.into()))?;
    let status = reply.status();
    // Read to its end, so that the connection can be reused.
    io::copy(&mut reply.into_body().take(REPLY_BYTES), &mut io::sink())?;
    if status.is_success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("the collector answers with status {}", status.as_u16())))
    }
}

fn gather(
    first: (EndedRequest, SystemTime),
    receiver: &Receiver<(EndedRequest, SystemTime)>,
) -> Vec<(EndedRequest, SystemTime)> {
    let deadline = Instant::now() + PERIOD;
    let mut spans = vec![first];
    while spans.len() < BATCH {
        let left = deadline.saturating_duration_since(Instant::now());
        match receiver.recv_timeout(left) {
            Ok(span) => spans.push(span),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    spans
}

fn message(spans: &[(EndedRequest, SystemTime)]) -> Value {
    let spans: Vec<Value> = spans.iter().map(|(ended, at)| span(ended, *at)).collect();
    let scope = json!({ "name": "cairn", "version": env!("CARGO_PKG_VERSION") });
    json!({ "resourceSpans": [{
        "resource": { "attributes": [text("service.name", "cairn")] },
        "scopeSpans": [{ "scope": scope, "spans": spans }],
    }] })
}

fn span(EndedRequest { door, verb, status, stages }: &EndedRequest, at: SystemTime) -> Value {
    let end = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let start = end.saturating_sub(stages.total().as_nanos());
    let mut attributes = vec![text("cairn.door", door), text("cairn.verb", verb)];
    if *status != NO_STATUS {
        let value = json!({ "intValue": status.to_string() });
        attributes.push(json!({ "key": "http.response.status_code", "value": value }));
    }
    for stage in Stage::ALL.into_iter().filter(|stage| !stages.spent(*stage).is_zero()) {
        let us = stages.spent(stage).as_nanos() as f64 / 1e3;
        let key = format!("cairn.stage.{}_us", stage.name());
        attributes.push(json!({ "key": key, "value": { "doubleValue": us } }));
    }
    let trace = &stages.trace;
    let mut span = json!({
        "traceId": trace.to_string(),
        "spanId": format!("{:016x}", trace.span),
        "name": format!("{door} {verb}"),
        "kind": KIND_SERVER,
        "startTimeUnixNano": start.to_string(),
        "endTimeUnixNano": end.to_string(),
        "attributes": attributes,
    });
    if trace.parent != 0 {
        span["parentSpanId"] = format!("{:016x}", trace.parent).into();
    }
    if *status >= 500 {
        span["status"] = json!({ "code": STATUS_ERROR });
    }
    span
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_base::Stages;
    use cairn_base::trace::Trace;

    #[test]
    fn a_base_url_gets_the_path_of_the_standard() {
        for (given, used) in [
            ("http://a:4318", "http://a:4318/v1/traces"),
            ("https://a/", "https://a/v1/traces"),
            ("http://a/custom/path", "http://a/custom/path"),
        ] {
            assert_eq!(endpoint(given).unwrap(), used);
        }
        for bad in ["", "a:4318", "ftp://a", "http://"] {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_span_says_what_was_done_and_where_the_time_went() {
        let trace = Trace { id: 0xabc, span: 0x12, parent: 0x34, sampled: true };
        let mut stages = Stages::start(trace);
        stages.lap(Stage::Meta);
        let ended = EndedRequest { door: "s3", verb: "GetObject", status: 503, stages };
        let shown = message(&[(ended, UNIX_EPOCH + Duration::from_secs(5))]);
        let span = &shown["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert_eq!(span["traceId"], "00000000000000000000000000000abc");
        assert_eq!(span["spanId"], "0000000000000012");
        assert_eq!(span["parentSpanId"], "0000000000000034");
        assert_eq!(span["name"], "s3 GetObject");
        assert_eq!(span["endTimeUnixNano"], "5000000000");
        assert_eq!(span["status"]["code"], STATUS_ERROR);
        let keys = span["attributes"].as_array().unwrap().iter().map(|one| one["key"].clone());
        assert!(keys.into_iter().any(|key| key == "cairn.stage.meta_us"));
    }

    #[test]
    fn only_a_success_is_one() {
        use std::io::Write;
        use std::net::TcpListener;

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let client = Client::new(&url, Trust::Public, Some(waits::TRACES)).unwrap();
        let taken = [(200, true), (202, true), (302, false), (404, false), (503, false)];
        let server = std::thread::spawn(move || {
            for (status, _) in taken {
                let mut stream = listener.accept().unwrap().0;
                let mut asked = Vec::new();
                while !asked.ends_with(b"{}") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    asked.push(byte[0]);
                }
                let elsewhere = "Location: http://127.0.0.1:1/\r\nConnection: close";
                let head = format!("HTTP/1.1 {status} So\r\n{elsewhere}\r\nContent-Length: 0");
                stream.write_all(format!("{head}\r\n\r\n").as_bytes()).unwrap();
            }
        });
        for (status, is_taken) in taken {
            assert_eq!(send(&url, &client, "{}".to_owned()).is_ok(), is_taken, "{status}");
        }
        server.join().unwrap();
    }

    #[test]
    fn what_does_not_fit_is_dropped() {
        let (sender, receiver) = sync_channel(1);
        let trace = Trace { id: 1, span: 1, parent: 0, sampled: true };
        let ended =
            EndedRequest { door: "http", verb: "get", status: 200, stages: Stages::start(trace) };
        (0..3).for_each(|_| offer(&sender, ended));
        drop(sender);
        assert_eq!(receiver.iter().count(), 1);
    }
}
