//! Every operation of both doors, for every sort of caller: each change and each refusal has one
//! record, and nothing else has any.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cairn_audit::{LineLog, LineQueue, LineSink, drain};
use cairn_auth::{Caller, Rights, Visibility};
use cairn_base::clock::RealClock;
use cairn_doors::Records;
use cairn_fs::ops::buckets::UpdateBucket;
use cairn_fs::ops::credentials::RemoveCredential;
use cairn_fs::{Fs, MetaStats};
use serde_json::Value;

use crate::rights_hold_at_both_doors::{ALL, HTTP, Operation, S3, Who, named};
use crate::{http_harness, s3_harness};

/// A log, and what was written to it.
struct Log {
    log: LineLog,
    text: Arc<Mutex<String>>,
}

struct Text(Arc<Mutex<String>>);

impl LineSink for Text {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap().push_str(std::str::from_utf8(lines).unwrap());
        Ok(())
    }

    fn reserve(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn new() -> Log {
        let (queue, text) = (Arc::new(LineQueue::new("audit", "test")), Arc::default());
        let (taken, mut sink) = (Arc::clone(&queue), Text(Arc::clone(&text)));
        std::thread::spawn(move || {
            drain(&taken, &RealClock::default(), Duration::ZERO, &mut sink);
        });
        let (clock, names) = (Arc::new(RealClock::default()), Arc::new(|_| None));
        Log { log: LineLog::new(clock, names, &[queue]), text }
    }

    fn records(&self) -> Vec<Value> {
        let text = self.text.lock().unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits for the record of this request: those of requests before are there, too, since each
    /// was answered before the next was sent.
    fn wait_for(&self, trace: &str) {
        let start = Instant::now();
        while !self.text.lock().unwrap().contains(trace) {
            assert!(start.elapsed() < http_harness::PATIENCE, "no record of {trace}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// How many rows of metadata were changed so far.
fn rows(fs: &Fs) -> u64 {
    match fs.meta().stats() {
        MetaStats::Local(master) => master.rows,
        MetaStats::Remote(_) => panic!("no master in this process"),
    }
}

/// A request that was made, and what is known of it besides its record.
struct SentRequest {
    who: Who,
    operation: Operation,
    status: u16,
    has_changed: bool,
}

fn trace(number: usize) -> String {
    format!("{:032x}", number + 1)
}

fn traceparent(number: usize) -> String {
    format!("00-{}-00000000000000ab-00", trace(number))
}

/// Each request has the records that it should have; returns how many there are by outcome.
fn check(asked: &[SentRequest], records: &[Value], door: &str) -> HashMap<String, usize> {
    let mut by_trace: HashMap<&str, Vec<&Value>> = HashMap::new();
    for record in records {
        by_trace.entry(record["trace"].as_str().unwrap()).or_default().push(record);
    }
    let mut outcomes = HashMap::new();
    for (number, SentRequest { who, operation, status, has_changed }) in asked.iter().enumerate() {
        let (method, path, _) = operation;
        let what = format!("{who:?} {method} {path}: {status}");
        let found = by_trace.remove(trace(number).as_str()).unwrap_or_default();
        let is_change = !matches!(*method, "GET" | "HEAD" | "OPTIONS");
        let is_refused = matches!(status, 401 | 403);
        let is_preflight = *method == "OPTIONS" && *status == 403;
        let is_recorded = is_change || is_refused && !is_preflight;
        assert_eq!(found.len(), usize::from(is_recorded), "{what}: {found:?}");
        let Some(record) = found.first() else {
            assert!(!has_changed, "{what}: changed without a record");
            continue;
        };
        let outcome = match status {
            401 | 403 => "refused",
            200..400 => "done",
            400..=499 | 501 => "failed",
            _ => "unknown",
        };
        assert_eq!(record["outcome"], outcome, "{what}");
        assert!(!(*has_changed && is_refused), "{what}: refused, and changed all the same");
        assert_eq!((&record["door"], &record["source"]), (&door.into(), &"127.0.0.1".into()));
        let credential = match who {
            Who::Anonymous | Who::Expired => Value::Null,
            // Those of users are nothing to a share link.
            _ if path.starts_with("/s/") => Value::Null,
            // The client signs one of the queries otherwise than the door.
            _ if record["reason"] == "SignatureDoesNotMatch" => Value::Null,
            Who::Root => record["credential"].clone(),
            _ => format!("KEY-{}", who.name()).into(),
        };
        assert_eq!(record["credential"], credential, "{what}: {record}");
        assert_eq!(record["user"].is_number(), !credential.is_null(), "{what}");
        assert_eq!(record["reason"].is_string(), outcome != "done", "{what}: {record}");
        let is_of_bucket = path.starts_with("/marked") && door == "s3"
            || path.starts_with("/storage/marked")
            || path.starts_with("/tus/marked");
        assert_eq!(record["bucket"] == "marked", is_of_bucket, "{what}: {record}");
        *outcomes.entry(outcome.to_owned()).or_default() += 1;
    }
    outcomes
}

fn visibility(visibility: Visibility) -> UpdateBucket {
    let visibility = Some(visibility);
    UpdateBucket { name: "marked".into(), visibility, ..UpdateBucket::default() }
}

fn grants() -> impl Iterator<Item = UpdateBucket> {
    let of = |(who, rights): (Who, Rights)| {
        let grant = Some((who.name(), rights));
        UpdateBucket { name: "marked".into(), grant, ..UpdateBucket::default() }
    };
    ALL.into_iter().flat_map(|who| who.grants().into_iter().map(move |one| (who, one))).map(of)
}

fn expire() -> RemoveCredential {
    RemoveCredential { id: format!("KEY-{}", Who::Expired.name()) }
}

#[test]
fn of_s3() {
    let log = Log::new();
    let records = Records::new(Some(log.log.clone()), None);
    let server = s3_harness::Server::with_records(records);
    let system = Caller::system();
    let clients = ALL.map(|who| match who {
        Who::Anonymous => server.anonymous(),
        Who::Root => server.root(),
        _ => server.user(&who.name()),
    });
    let owner = &clients[6];
    owner.put("/marked", b"").ok();
    owner.put("/marked/dir/MARK-KEY", b"bytes").ok();
    grants().for_each(|grant| drop(server.run(&system, grant)));
    server.run(&system, expire());
    let mut asked = Vec::new();
    for shown in [Visibility::Private, Visibility::Public] {
        server.run(&system, visibility(shown));
        for (who, client) in ALL.into_iter().zip(&clients) {
            for operation in S3 {
                let (method, path, headers) = operation;
                let mut ask = client.ask(method, &named(path));
                ask = ask.header("traceparent", &traceparent(asked.len()));
                for (name, value) in *headers {
                    ask = match *name {
                        "body" => ask.body(value.as_bytes()),
                        name => ask.header(name, value),
                    };
                }
                let before = rows(server.fs());
                let status = ask.send().status;
                let has_changed = rows(server.fs()) != before;
                asked.push(SentRequest { who, operation: *operation, status, has_changed });
                if *path == "/marked?acl" {
                    server.run(&system, visibility(shown));
                }
            }
        }
    }
    let last = trace(asked.len());
    server
        .anonymous()
        .ask("PUT", "/marked")
        .header("traceparent", &traceparent(asked.len()))
        .send();
    log.wait_for(&last);
    let outcomes = check(&asked, &log.records(), "s3");
    assert!(outcomes["done"] > 50 && outcomes["refused"] > 200, "{outcomes:?}");
}

#[test]
fn of_http() {
    let log = Log::new();
    let records = Records::new(Some(log.log.clone()), None);
    let server = http_harness::Server::with(http_harness::Setup { records, ..Default::default() });
    let (fs, system) = (server.fs(), Caller::system());
    let clients = ALL.map(|who| match who {
        Who::Anonymous => server.anonymous(),
        Who::Root => server.root(),
        _ => server.user(&who.name()),
    });
    let run = |verb: UpdateBucket| drop(server.runtime.block_on(fs.run(&system, verb)).unwrap());
    let owner = &clients[6];
    owner.put("/storage/marked", b"").expect(201);
    owner.put("/storage/marked/dir/MARK-KEY", b"bytes").expect(201);
    grants().for_each(run);
    server.runtime.block_on(fs.run(&system, expire())).unwrap();
    let mut asked = Vec::new();
    for shown in [Visibility::Private, Visibility::Public] {
        run(visibility(shown));
        for (who, client) in ALL.into_iter().zip(&clients) {
            for operation in HTTP {
                let (method, path, headers) = operation;
                let (body, headers): (Vec<_>, Vec<_>) =
                    headers.iter().copied().partition(|(name, _)| *name == "body");
                let body = body.first().map_or("", |(_, body)| body);
                let parent = traceparent(asked.len());
                let headers = [&headers[..], &[("traceparent", parent.as_str())]].concat();
                let before = rows(fs);
                let status = client.call(method, &named(path), &headers, body.as_bytes()).status;
                let has_changed = rows(fs) != before;
                asked.push(SentRequest { who, operation: *operation, status, has_changed });
            }
        }
    }
    let parent = traceparent(asked.len());
    server.anonymous().call("PUT", "/storage/marked", &[("traceparent", &parent)], b"");
    log.wait_for(&trace(asked.len()));
    let outcomes = check(&asked, &log.records(), "http");
    assert!(outcomes["done"] > 50 && outcomes["refused"] > 200, "{outcomes:?}");
}

#[test]
fn planted_secrets_are_in_no_record() {
    let (audit, access) = (Log::new(), Log::new());
    let records = Records::new(Some(audit.log.clone()), Some(access.log.clone()));
    let setup = http_harness::Setup { records: records.clone(), ..Default::default() };
    let server = http_harness::Server::with(setup);
    let root = server.root();
    root.put("/storage/bucket", b"planted-body").expect(201);
    root.put("/storage/bucket/a", b"planted-body").expect(201);
    let key = r#"{"user":"alice","id":"KEY","secret":"planted-secret-0123"}"#;
    root.call("POST", "/admin/keys", &[], key.as_bytes()).expect(201);
    root.call("POST", "/admin/keys", &[], &key.as_bytes()[..50]).expect(400);
    let made = root.call("POST", "/admin/tokens", &[], br#"{"user":"alice"}"#).expect(201).json();
    let token = made["token"].as_str().unwrap().to_owned();
    server.client("KEY", "planted-secret-wrong").get("/storage/").expect(401);
    // An id where the secret is.
    server.client("planted-secret-0123", "KEY").get("/storage/").expect(401);
    for authorization in [format!("Bearer {token}"), format!("Bearer {token}planted-tail")] {
        let client =
            http_harness::Client { authorization: Some(authorization), ..server.anonymous() };
        client.get("/storage/?token=planted-in-query");
        client.call("PUT", "/storage/bucket/b?%73ignature=planted-in-query", &[], b"");
    }
    let s3 = s3_harness::Server::with_records(records);
    s3.user("alice").put("/bucket", b"").ok();
    let mut presigned = Vec::new();
    for secs in [100, -100] {
        let mut ask = s3.user(&format!("bob{secs}")).ask("GET", "/bucket/a");
        ask.mode = s3_harness::Mode::Presigned(secs);
        let wire = String::from_utf8_lossy(&ask.wire()).into_owned();
        let signature = wire.split("X-Amz-Signature=").nth(1).unwrap();
        presigned.push(signature.chars().take(64).collect::<String>());
        assert!(ask.send().status >= 400);
    }
    let last = traceparent(0);
    for log in [&audit, &access] {
        root.call("PUT", "/storage/", &[("traceparent", &last)], b"");
        log.wait_for(&trace(0));
    }
    let text = [audit.text.lock().unwrap().clone(), access.text.lock().unwrap().clone()].concat();
    assert!(text.contains("/storage/bucket/a") && text.contains("keys id="), "{text}");
    let secrets = ["planted", "secret-of", &token, server.root.secret.expose(), "Basic ", "Bearer"];
    for secret in secrets.into_iter().chain(presigned.iter().map(String::as_str)) {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

#[test]
fn records_that_were_not_kept_are_in_the_record_of_their_request() {
    let log = Log::new();
    let records = Records::new(Some(log.log.clone()), None);
    let server = http_harness::Server::with(http_harness::Setup { records, ..Default::default() });
    let alice = server.user("alice");
    let item = |document: &str| format!("{{\"create\":{{\"_index\":\"app\"}}}}\n{document}\n");
    let bulk = [item("{}"), item("{bad"), item("{}"), item("bad")].concat();
    let json = ("Content-Type", "application/json");
    let name = "x".repeat(300);
    let stream =
        |job: &str| format!("{{\"stream\":{{\"job\":\"{job}\"}},\"values\":[[\"1\",\"x\"]]}}");
    let loki = format!("{{\"streams\":[{},{}]}}", stream("app"), stream(&name));
    let logged = r#"[{"timeUnixNano":"x"},{"timeUnixNano":"1"}]"#;
    let otlp = format!("{{\"resourceLogs\":[{{\"scopeLogs\":[{{\"logRecords\":{logged}}}]}}]}}");
    let requests = [
        ("/_bulk", item("{}"), 200),
        ("/_bulk", bulk, 200),
        ("/loki/api/v1/push", loki, 400),
        ("/v1/logs", otlp, 200),
    ];
    for (number, (path, body, status)) in requests.into_iter().enumerate() {
        let parent = traceparent(number);
        let headers = [json, ("traceparent", parent.as_str())];
        alice.call("POST", path, &headers, body.as_bytes()).expect(status);
    }
    log.wait_for(&trace(3));
    let records = log.records();
    let of = |number: usize| {
        let trace = trace(number);
        let record = records.iter().find(|record| record["trace"] == trace.as_str()).unwrap();
        (record["outcome"].as_str().unwrap(), record["reason"].as_str().unwrap_or_default())
    };
    assert_eq!(of(0), ("done", ""));
    assert_eq!(of(1), ("failed", "2 of 4 records were not kept: 2 invalid"));
    let one = ("failed", "1 of 2 records were not kept: 1 invalid");
    assert_eq!([of(2), of(3)], [one; 2]);
}
