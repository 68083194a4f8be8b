//! Records of logs by the protocols of shippers: each becomes a line, and what cannot be taken is
//! said.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Value, json};

use crate::http_harness::{Client, Server};

const JSON: (&str, &str) = ("Content-Type", "application/json");
const PROTOBUF: (&str, &str) = ("Content-Type", "application/x-protobuf");
const JOURNAL: (&str, &str) = ("Content-Type", "application/vnd.fdo.journal");

fn store() -> (Server, Client) {
    let server = Server::start();
    let alice = server.user("alice");
    (server, alice)
}

/// A field of a message that has bytes.
fn bytes(field: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![field << 3 | 2];
    let mut len = bytes.len();
    while len >= 0x80 {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    out.extend(bytes);
    out
}

/// The lines of each source of alice, without the day.
fn lines(client: &Client) -> BTreeMap<String, Vec<Value>> {
    let listed = client.get("/storage/logs-alice/?recursive").expect(200).json();
    let mut sources = BTreeMap::new();
    for object in listed["objects"].as_array().unwrap() {
        let key = object["key"].as_str().unwrap();
        let (source, day) = key.split_once('/').unwrap();
        assert!(day.len() == "2026-11-26.jsonl".len() && day.ends_with(".jsonl"), "{key}");
        let path = format!("/storage/logs-alice/{}", key.replace('%', "%25"));
        let text = client.get(&path).expect(200).text();
        assert!(text.ends_with('\n'), "{text}");
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        sources.entry(source.to_owned()).or_insert_with(Vec::new).extend(lines);
    }
    sources
}

/// The value of a counter of records.
fn counted(server: &Server, protocol: &str, outcome: &str) -> u64 {
    let text = server.root().get("/metrics").expect(200).text();
    let labels = format!("protocol=\"{protocol}\",outcome=\"{outcome}\"}} ");
    let line = text.lines().find_map(|line| line.split_once(&labels));
    line.map_or(0, |(_, value)| value.parse().unwrap())
}

#[test]
fn loki_is_pushed_to_as_json_and_as_protobuf() {
    let (server, alice) = store();
    let push = |headers: &[(&str, &str)], body: &[u8]| {
        alice.call("POST", "/loki/api/v1/push", headers, body)
    };
    let stream = json!({"stream": {"job": "web/1", "level": "info"},
                        "values": [["1700000000000000001", "one"], ["5", "two", {"id": "7"}]]});
    push(&[JSON], json!({"streams": [stream]}).to_string().as_bytes()).expect(204);
    let time = [0x08, 0x80, 0xe2, 0xcf, 0xaa, 0x06];
    let entry = [bytes(1, &time), bytes(2, b"three")].concat();
    let message = bytes(1, &[bytes(1, b"{job=\"web/1\"}"), bytes(2, &entry)].concat());
    let packed = snap::raw::Encoder::new().compress_vec(&message).unwrap();
    push(&[PROTOBUF], &packed).expect(204);
    let lines = self::lines(&alice);
    let shown: Vec<(&Value, &Value)> =
        lines["web%2F1"].iter().map(|line| (&line["time"], &line["line"])).collect();
    let times = ["2023-11-14T22:13:20.000000001Z", "1970-01-01T00:00:00.000000005Z"];
    let expected =
        [(times[0], "one"), (times[1], "two"), ("2023-11-14T22:13:20.000000000Z", "three")];
    assert_eq!(
        format!("{shown:?}"),
        format!("{:?}", expected.map(|(time, line)| (Value::from(time), Value::from(line))))
    );
    assert_eq!(lines["web%2F1"][1]["metadata"]["id"], "7");
    assert_eq!(lines["web%2F1"][0]["labels"]["level"], "info");
    // One bad value: the others are kept, and it is said.
    let stream = json!({"stream": {"job": "x"}, "values": [["no time", "bad"], ["1", "good"]]});
    let refused = push(&[JSON], json!({"streams": [stream]}).to_string().as_bytes()).expect(400);
    assert!(refused.text().contains("1 of 2 records were refused"), "{}", refused.text());
    assert_eq!(self::lines(&alice)["x"].len(), 1);
    // Lengths that lie: too long, and too long for these bytes.
    push(&[PROTOBUF], b"\x80\x80\x80\x80\x08x").expect(413);
    push(&[PROTOBUF], b"\x80\x80\x40x").expect(400);
    push(&[PROTOBUF], &snap::raw::Encoder::new().compress_vec(b"x").unwrap()).expect(400);
    push(&[("Content-Type", "text/plain")], b"{}").expect(400);
    let counts = ["accepted", "refused"].map(|outcome| counted(&server, "loki", outcome));
    assert_eq!(counts, [4, 1]);
}

#[test]
fn bulk_answers_for_each_document() {
    let (server, alice) = store();
    let version = alice.get("/").expect(200);
    assert_eq!(version.header("x-elastic-product").as_deref(), Some("Elasticsearch"));
    assert_eq!(version.json()["version"]["number"], "8.17.0");
    for path in ["/_license", "/_cluster/health", "/_index_template/filebeat", "/_cat/health?v"] {
        alice.get(path).expect(200);
        alice.call("HEAD", path, &[], b"").expect(200);
    }
    alice.call("PUT", "/_index_template/filebeat", &[], b"{}").expect(405);
    let body = "{\"create\":{\"_index\":\"nginx\"}}\n{\"@timestamp\":\"t\",\"message\":\"one\"}\n\
                {\"index\":{\"_id\":\"7\"}}\n{\"message\":\n\
                {\"create\":{}}\n{\"message\":\"two\"}\n";
    let kind = ("Content-Type", "application/vnd.elasticsearch+x-ndjson; compatible-with=8");
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    writer.write_all(body.as_bytes()).unwrap();
    let (packed, gzip) = (writer.finish().unwrap(), ("Content-Encoding", "gzip"));
    let reply = alice.call("POST", "/path/_bulk?refresh=true", &[kind, gzip], &packed).expect(200);
    assert_eq!(reply.header("x-elastic-product").as_deref(), Some("Elasticsearch"));
    let json = reply.json();
    assert_eq!(json["errors"], true);
    let items = json["items"].as_array().unwrap();
    let statuses = [&items[0]["create"], &items[1]["index"], &items[2]["create"]];
    let statuses = statuses.map(|item| (item["status"].as_u64().unwrap(), item["_index"].clone()));
    let expected = [(201, "nginx"), (400, "path"), (201, "path")];
    assert_eq!(statuses, expected.map(|(status, index)| (status, Value::from(index))));
    assert_eq!(items[1]["index"]["error"]["type"], "document_parsing_exception");
    let lines = self::lines(&alice);
    assert_eq!(lines["nginx"][0]["event"], json!({"@timestamp": "t", "message": "one"}));
    assert_eq!(lines["path"].len(), 1);
    alice
        .call("PUT", "/_bulk?refresh", &[kind], b"{\"create\":{\"_index\":\"put\"}}\n{}\n")
        .expect(200);
    assert_eq!(self::lines(&alice)["put"].len(), 1);
    alice.call("GET", "/_bulk", &[], b"").expect(405);
    alice.call("POST", "/_bulk", &[kind], b"no action\n{}\n").expect(400);
    alice.call("POST", "/_bulk?pipeline=x", &[kind], b"").expect(400);
    let counts = ["accepted", "refused"].map(|outcome| counted(&server, "bulk", outcome));
    assert_eq!(counts, [3, 1]);
}

#[test]
fn otlp_is_taken_in_both_forms() {
    let (_server, alice) = store();
    let value = |text: &str| json!({"stringValue": text});
    let record = json!({"timeUnixNano": "5", "body": value("one")});
    let bad = json!({"timeUnixNano": "x", "body": value("bad")});
    let logs = |records: Value| {
        let name = json!({"key": "service.name", "value": value("shop")});
        let scopes = json!([{"scope": {"name": "lib"}, "logRecords": records}]);
        json!({"resourceLogs": [{"resource": {"attributes": [name]}, "scopeLogs": scopes}]})
            .to_string()
    };
    let push =
        |headers: &[(&str, &str)], body: &[u8]| alice.call("POST", "/v1/logs", headers, body);
    let reply = push(&[JSON], logs(json!([record])).as_bytes()).expect(200);
    assert_eq!(reply.text(), "{}");
    let partial = push(&[JSON], logs(json!([bad, record])).as_bytes()).expect(200).json();
    assert_eq!(partial["partialSuccess"]["rejectedLogRecords"], "1");
    let name = [bytes(1, b"service.name"), bytes(2, &bytes(1, b"shop"))].concat();
    let scope = bytes(2, &bytes(2, &bytes(5, &bytes(1, b"two"))));
    let message = bytes(1, &[bytes(1, &bytes(1, &name)), scope].concat());
    let reply = push(&[PROTOBUF], &message).expect(200);
    assert_eq!(reply.header("content-type").as_deref(), Some("application/x-protobuf"));
    assert!(reply.body.is_empty());
    let bodies: Vec<Value> =
        lines(&alice)["shop"].iter().map(|line| line["body"].clone()).collect();
    assert_eq!(bodies, ["one", "one", "two"]);
    push(&[PROTOBUF], b"\xff\xff\xff").expect(400);
    push(&[JSON], b"{}").expect(400);
    // Deeper than a thread has room for.
    let deep = "{\"arrayValue\":{\"values\":[".repeat(100_000) + &"]}}".repeat(100_000);
    push(&[JSON], logs(json!([])).replace("[]", &format!("[{{\"body\":{deep}}}]")).as_bytes())
        .expect(400);
    assert_eq!(lines(&alice)["shop"].len(), 3);
}

#[test]
fn a_journal_is_taken_as_it_comes() {
    let (server, alice) = store();
    let mut body = Vec::new();
    // More than is read before entries are stored.
    for number in 0..3000 {
        let padding = "x".repeat(1000);
        let entry = format!("_HOSTNAME=box\nMESSAGE={number}\nPADDING={padding}\n\n");
        body.extend(entry.as_bytes());
    }
    let reply = alice.call("POST", "/upload", &[JOURNAL], &body).expect(202);
    assert_eq!(reply.text(), "OK.\n");
    let lines = self::lines(&alice);
    let messages: Vec<String> =
        lines["box"].iter().map(|line| line["event"]["MESSAGE"].to_string()).collect();
    let expected: Vec<String> = (0..3000).map(|number| format!("\"{number}\"")).collect();
    assert_eq!(messages, expected);
    // One that is cut off is refused, and its uploader gets past it, too.
    alice.call("POST", "/upload", &[JOURNAL], b"MESSAGE=cut off").expect(202);
    assert_eq!(counted(&server, "journal", "refused"), 1);
    // An entry whose line would be too long is passed over and counted.
    let long = [b"_HOSTNAME=box\nLONG\n".as_slice(), &(400_000_u64).to_le_bytes()].concat();
    let body = [&long, &[0xff; 400_000][..], b"\n\n_HOSTNAME=box\nMESSAGE=last\n\n"].concat();
    alice.call("POST", "/upload", &[JOURNAL], &body).expect(202);
    assert_eq!(counted(&server, "journal", "refused"), 2);
    assert_eq!(self::lines(&alice)["box"].last().unwrap()["event"]["MESSAGE"], "last");
    alice.call("POST", "/upload", &[], b"").expect(400);
    let key = ("Idempotency-Key", "one");
    alice.call("POST", "/upload", &[JOURNAL, key], b"MESSAGE=x\n\n").expect(501);
}

#[test]
fn sources_and_buckets_are_kept_apart_and_bounded() {
    let (server, alice) = store();
    let bulk = |client: &Client, indices: &[String]| {
        let line = |index: &String| format!("{{\"create\":{{\"_index\":\"{index}\"}}}}\n{{}}\n");
        let body: String = indices.iter().map(line).collect();
        client.call("POST", "/_bulk", &[], body.as_bytes()).expect(200).json()
    };
    let many: Vec<String> = (0..1001).map(|number| format!("s{number}")).collect();
    let json = bulk(&alice, &many);
    let refused = |json: &Value| {
        let items = json["items"].as_array().unwrap();
        items.iter().filter(|item| item["create"]["status"] == 413).count()
    };
    assert_eq!(refused(&json), 1);
    assert_eq!(refused(&bulk(&alice, &["../../other".to_owned(), "s1".to_owned()])), 1);
    let bob = server.user("bob");
    assert_eq!(refused(&bulk(&bob, &["../../other/é".to_owned()])), 0);
    let keys = bob.get("/storage/logs-bob/?recursive").expect(200).json();
    let key = keys["objects"][0]["key"].as_str().unwrap();
    assert!(key.starts_with("%2E.%2F..%2Fother%2F%C3%A9/"), "{key}");
    // Somebody else has the bucket, and lets the user write there.
    let (carol, dave) = (server.user("carol"), server.user("dave"));
    carol.put("/storage/logs-dave", b"").expect(201);
    carol.call("PATCH", "/storage/logs-dave?grant=dave:read,write", &[], b"").expect(204);
    dave.call("POST", "/_bulk", &[], b"{\"create\":{\"_index\":\"x\"}}\n{}\n").expect(403);
    // More records than one request may have: none is kept.
    let many = vec!["s1".to_owned(); (1 << 16) + 1];
    let line = |index: &String| format!("{{\"create\":{{\"_index\":\"{index}\"}}}}\n{{}}\n");
    let body: String = many.iter().map(line).collect();
    let before = counted(&server, "bulk", "accepted");
    alice.call("POST", "/_bulk", &[], body.as_bytes()).expect(413);
    assert_eq!(counted(&server, "bulk", "accepted"), before);
    // No bucket can have this name.
    let reply = server.user("Erin_X").call("POST", "/a/_bulk", &[], b"{\"create\":{}}\n{}\n");
    assert_eq!(reply.expect(200).json()["items"][0]["create"]["status"], 400);
}

#[test]
fn a_request_with_a_key_counts_once() {
    let (server, alice) = store();
    let body = b"{\"create\":{\"_index\":\"a\"}}\n{}\n{\"create\":{\"_index\":\"b\"}}\n{}\n";
    for (key, expected) in [("one", 1), ("one", 1), ("two", 2)] {
        alice.call("POST", "/_bulk", &[("Idempotency-Key", key)], body).expect(200);
        let lines = self::lines(&alice);
        assert_eq!((lines["a"].len(), lines["b"].len()), (expected, expected));
    }
    // Also over midnight.
    server.clock.advance(24 * 3600 - 10);
    alice.call("POST", "/_bulk", &[("Idempotency-Key", "three")], body).expect(200);
    server.clock.advance(20);
    alice.call("POST", "/_bulk", &[("Idempotency-Key", "three")], body).expect(200);
    assert_eq!(lines(&alice)["a"].len(), 3);
}

#[test]
fn what_is_behind_records_that_were_not_stored_is_not_stored_either() {
    let (server, alice) = store();
    let bulk = |lengths: &[usize]| {
        let line = |length: &usize| {
            let text = "x".repeat(*length);
            format!("{{\"create\":{{\"_index\":\"a\"}}}}\n{{\"message\":\"{text}\"}}\n")
        };
        let body: String = lengths.iter().map(line).collect();
        let json = alice.call("POST", "/_bulk", &[], body.as_bytes()).expect(200).json();
        let items = json["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["create"]["status"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(bulk(&[1]), [201]);
    let quota = "/storage/logs-alice?quota_bytes=6000000";
    server.root().call("PATCH", quota, &[], b"").expect(204);
    // Three appends: the second one is too much, and the third one alone would not be.
    let statuses = bulk(&[1_000_000; 9]);
    assert_eq!(statuses[..4], [201; 4]);
    assert_eq!(statuses[4..], [429; 5]);
    assert_eq!(lines(&alice)["a"].len(), 5);
}
