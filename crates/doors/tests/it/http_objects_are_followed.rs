//! GET with `follow`: what is added is sent, once, to all who follow and may.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;

use cairn_doors::limits::Limits;
use serde_json::json;

use crate::http_harness::{Client, Server, Setup};

const EVENTS: (&str, &str) = ("Accept", "text/event-stream");

/// A reply that goes on.
pub struct Stream {
    status: u16,
    offset: Option<u64>,
    reader: BufReader<TcpStream>,
    /// Of the chunk that is being read.
    rest: Vec<u8>,
}

impl Stream {
    fn open(client: &Client, path: &str, headers: &[(&str, &str)]) -> Stream {
        let mut connection = client.connect();
        connection.send(&client.head("GET", path, headers, None));
        let mut reader = BufReader::new(connection.stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut offset = None;
        loop {
            line.clear();
            reader.read_line(&mut line).unwrap();
            if let Some(value) = line.strip_prefix("x-cairn-offset: ") {
                offset = value.trim().parse().ok();
            }
            if line.trim().is_empty() {
                return Stream { status, offset, reader, rest: Vec::new() };
            }
        }
    }

    pub fn followed(client: &Client, path: &str, headers: &[(&str, &str)]) -> Stream {
        let stream = Stream::open(client, path, headers);
        assert_eq!(stream.status, 200, "{path}");
        stream
    }

    /// Reads the next chunk; false at the end of the body.
    fn fill(&mut self) -> bool {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        let length = usize::from_str_radix(line.trim(), 16).expect("a chunk");
        let mut chunk = vec![0; length + 2];
        self.reader.read_exact(&mut chunk).unwrap();
        self.rest.extend(&chunk[..length]);
        length > 0
    }

    /// So many bytes.
    pub fn take(&mut self, count: usize) -> String {
        while self.rest.len() < count {
            assert!(self.fill(), "it ended behind {:?}", String::from_utf8_lossy(&self.rest));
        }
        String::from_utf8(self.rest.drain(..count).collect()).unwrap()
    }

    /// The next event: its type, its id and its data. Comments are passed over.
    fn event(&mut self) -> (String, String, String) {
        loop {
            let end = loop {
                match self.rest.windows(2).position(|window| window == b"\n\n") {
                    Some(end) => break end,
                    None => assert!(self.fill(), "it ended"),
                }
            };
            let block = self.take(end + 2);
            let of = |name: &str| {
                let values = block.lines().filter_map(|line| line.strip_prefix(name));
                values.collect::<Vec<_>>().join("\n")
            };
            let event = (of("event: "), of("id: "), of("data: "));
            if block.lines().any(|line| line.starts_with("data: ")) {
                return event;
            }
        }
    }

    fn datum(&mut self) -> String {
        self.event().2
    }

    /// All that comes until the body ends.
    fn until_end(mut self) -> String {
        while self.fill() {}
        String::from_utf8(self.rest).unwrap()
    }
}

fn store() -> (Server, Client) {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    root.put("/storage/bucket/log", b"one\ntwo\nthree\n").expect(201);
    (server, root)
}

fn append(client: &Client, text: &str) {
    client.call("POST", "/storage/bucket/log?append", &[], text.as_bytes()).expect(200);
}

fn counted(server: &Server, name: &str) -> u64 {
    let text = server.root().get("/metrics").expect(200).text();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("{name}: {text}")).trim().parse().unwrap()
}

#[test]
fn bytes_come_as_they_are_added() {
    let (_server, root) = store();
    let mut all = Stream::followed(&root, "/storage/bucket/log?follow&offset=0", &[]);
    assert_eq!(all.take(14), "one\ntwo\nthree\n");
    let mut some = Stream::followed(&root, "/storage/bucket/log?follow&offset=4", &[]);
    assert_eq!((some.offset, some.take(10)), (Some(4), "two\nthree\n".into()));
    let mut last = Stream::followed(&root, "/storage/bucket/log?follow&lines=1", &[]);
    assert_eq!((last.offset, last.take(6)), (Some(8), "three\n".into()));
    let mut new = Stream::followed(&root, "/storage/bucket/log?follow", &[]);
    assert_eq!(new.offset, Some(14));
    let mut text = String::new();
    for number in 0..50 {
        let line = format!("{number} {}\n", "x".repeat(number * 997));
        append(&root, &line);
        text.push_str(&line);
    }
    for stream in [&mut all, &mut some, &mut last, &mut new] {
        assert!(stream.take(text.len()) == text);
    }
    for (bad, status) in [
        ("offset=99999999", 416),
        ("offset=1000000&x", 400),
        ("offset=2026-11-26:1", 400),
        ("offset=1&lines=1", 400),
        ("lines=x", 400),
        ("list", 400),
    ] {
        root.get(&format!("/storage/bucket/log?follow&{bad}")).expect(status);
    }
    root.get_with("/storage/bucket/log?follow", &[("Range", "bytes=1-")]).expect(400);
    root.get("/storage/bucket/none?follow").expect(404);
    root.get("/storage/bucket/none/?follow").expect(404);
    root.get("/storage/bucket/?follow").expect(400);
}

#[test]
fn the_last_lines_are_those_of_a_model() {
    let (_server, root) = store();
    let line = |number: usize| format!("{number}{}\n", "y".repeat(number * 37 % 5000));
    let lines: Vec<String> = (0..200).map(line).collect();
    for end in ["", "no line yet"] {
        let text = lines.concat() + end;
        root.put("/storage/bucket/lines", text.as_bytes());
        for count in [0, 1, 2, 60, 199, 200, 201, 1000] {
            let whole = text.split_inclusive('\n').rev().take(count);
            let expected: usize = whole.map(str::len).sum();
            let path = format!("/storage/bucket/lines?follow&lines={count}");
            let stream = Stream::followed(&root, &path, &[]);
            assert_eq!(stream.offset, Some((text.len() - expected) as u64), "{count} {end:?}");
            let path = format!("/storage/bucket/lines?lines={count}");
            assert!(root.get(&path).expect(200).text() == text[text.len() - expected..]);
        }
    }
    root.put("/storage/bucket/long", &vec![b'x'; 17 << 20]).expect(201);
    root.get("/storage/bucket/long?follow&lines=1").expect(413);
    root.get("/storage/bucket/long?lines=1").expect(413);
    root.get("/storage/bucket/long?lines=1&list").expect(400);
    root.put("/storage/bucket/empty", b"").expect(201);
    let stream = Stream::followed(&root, "/storage/bucket/empty?follow&lines=5", &[]);
    assert_eq!(stream.offset, Some(0));
}

#[test]
fn events_are_lines_and_their_ids_resume() {
    let (_server, root) = store();
    let path = "/storage/bucket/log?follow&lines=2";
    let mut stream = Stream::followed(&root, path, &[EVENTS]);
    let event = |id: &str, data: &str| (String::new(), id.to_owned(), data.to_owned());
    assert_eq!(stream.event(), event("8", "two"));
    assert_eq!(stream.event(), event("14", "three"));
    // A line that has not come whole.
    root.call("POST", "/storage/bucket/log", &[], b"fo").expect(200);
    root.call("POST", "/storage/bucket/log", &[], b"ur\r\n\nsix\n").expect(200);
    assert_eq!(stream.event(), event("20", "four"));
    assert_eq!(stream.event(), event("21", ""));
    drop(stream);
    append(&root, "seven");
    let mut stream = Stream::followed(&root, path, &[EVENTS, ("Last-Event-ID", "21")]);
    assert_eq!(stream.event(), event("25", "six"));
    assert_eq!(stream.event(), event("31", "seven"));
    // Longer than one event.
    let long = "é".repeat(50_000);
    append(&root, &format!("{long}\nend"));
    let (kind, _, first) = stream.event();
    let (last_kind, id, rest) = stream.event();
    assert_eq!((kind.as_str(), last_kind.as_str()), ("part", ""));
    assert!(first + &rest == long && id == "100032");
    assert_eq!(stream.datum(), "end");
}

#[test]
fn one_read_serves_all_and_a_slow_one_delays_nobody() {
    let (server, root) = store();
    let open = || Stream::followed(&root, "/storage/bucket/log?follow", &[]);
    let mut streams: Vec<Stream> = (0..8).map(|_| open()).collect();
    assert_eq!(counted(&server, "cairn_followers"), 8);
    let slow = open();
    let mut text = String::new();
    // Each is read before the next one comes: more than the slow one's sockets take.
    for number in 0..30 {
        let line = format!("{number} {}\n", "x".repeat(1 << 20));
        append(&root, &line);
        streams.iter_mut().for_each(|stream| assert!(stream.take(line.len()) == line));
        text.push_str(&line);
    }
    let shared = counted(&server, "cairn_follow_reads_total{for=\"all\"}");
    assert!((1..=60).contains(&shared), "{shared} reads of 30 appends");
    // Each by each would be 240, and the slow one has read a part of it.
    let own = counted(&server, "cairn_follow_reads_total{for=\"one\"}");
    assert!(own < 150, "{own}");
    // It finds all of it, and reads what is not kept on its own.
    let mut slow = slow;
    assert!(slow.take(text.len()) == text);
    assert!(counted(&server, "cairn_follow_reads_total{for=\"one\"}") > 0);
    drop((streams, slow));
    // Who has gone is noticed when something is sent.
    while counted(&server, "cairn_followers") > 0 {
        append(&root, "x");
    }
}

#[test]
fn the_end_of_an_object_ends_the_stream_and_is_said() {
    let (server, root) = store();
    let open = || Stream::followed(&root, "/storage/bucket/log?follow", &[EVENTS]);
    let end = |why: &str| ("end".to_owned(), String::new(), format!("{{\"reason\":\"{why}\"}}"));
    let (mut replaced, plain) =
        (open(), Stream::followed(&root, "/storage/bucket/log?follow&offset=8", &[]));
    root.put("/storage/bucket/log", b"other\n").expect(204);
    assert_eq!(replaced.event(), end("replaced"));
    assert_eq!(plain.until_end(), "three\n");
    let mut deleted = open();
    root.call("DELETE", "/storage/bucket/log", &[], b"").expect(204);
    assert_eq!(deleted.event(), end("deleted"));
    assert_eq!(deleted.until_end(), "");
    root.put("/storage/bucket/log", b"other\n").expect(201);
    let mut moved = open();
    root.call("POST", "/storage/bucket/log?move-to=elsewhere", &[], b"").expect(204);
    assert_eq!(moved.event(), end("deleted"));
    root.put("/storage/bucket/log", b"one\ntwo\n").expect(201);
    let mut cut = open();
    let fs = server.fs();
    let caller = cairn_auth::Caller::system();
    let object = server.runtime.block_on(fs.open(&caller, "bucket", "log")).unwrap();
    server.runtime.block_on(fs.truncate(&caller, object.ino(), 2, true)).unwrap();
    assert_eq!(cut.event(), end("truncated"));
}

#[test]
fn who_may_not_read_any_more_sees_nothing_new() {
    let (server, root) = store();
    let alice = server.user("alice");
    root.get("/storage/bucket/log").expect(200);
    let path = "/storage/bucket/log?follow";
    alice.get(path).expect(403);
    server.anonymous().get(path).expect(401);
    let end = "{\"reason\":\"denied\"}";
    root.call("PATCH", "/storage/bucket?grant=alice:read", &[], b"").expect(204);
    let mut stream = Stream::followed(&alice, path, &[EVENTS]);
    append(&root, "a");
    assert_eq!(stream.datum(), "a");
    root.call("PATCH", "/storage/bucket?grant=alice:none", &[], b"").expect(204);
    assert_eq!(stream.datum(), end);
    append(&root, "b");
    assert_eq!(stream.until_end(), "");
    root.call("PATCH", "/storage/bucket?grant=alice:read", &[], b"").expect(204);
    let (mut stream, plain) =
        (Stream::followed(&alice, path, &[EVENTS]), Stream::followed(&alice, path, &[]));
    let disabled = json!({"disabled": true}).to_string();
    let json = [("Content-Type", "application/json")];
    root.call("PATCH", "/admin/users/alice", &json, disabled.as_bytes()).expect(204);
    assert_eq!(stream.datum(), end);
    assert_eq!(plain.until_end(), "");
}

#[test]
fn a_source_is_followed_from_day_to_day() {
    let server = Server::start();
    let alice = server.user("alice");
    let push = |line: &str| {
        let stream = json!({"stream": {"job": "app"}, "values": [["1", line]]});
        let body = json!({"streams": [stream]}).to_string();
        let kind = [("Content-Type", "application/json")];
        alice.call("POST", "/loki/api/v1/push", &kind, body.as_bytes()).expect(204);
    };
    let line = |stream: &mut Stream| -> (String, String) {
        let (_, id, data) = stream.event();
        let data: serde_json::Value = serde_json::from_str(&data).unwrap();
        (id, data["line"].as_str().unwrap().to_owned())
    };
    let path = "/storage/logs-alice/app/?follow";
    alice.get(path).expect(404);
    let pushed = |range: std::ops::Range<u32>| range.for_each(|number| push(&number.to_string()));
    pushed(0..3);
    let mut stream = Stream::followed(&alice, &format!("{path}&lines=2"), &[EVENTS]);
    let mut plain = Stream::followed(&alice, path, &[]);
    assert_eq!(line(&mut stream).1, "1");
    assert_eq!(line(&mut stream).1, "2");
    for day in 1..4_u32 {
        server.clock.advance(24 * 3600);
        pushed(day * 3..day * 3 + 3);
    }
    let (mut ids, mut lines) = (Vec::new(), Vec::new());
    for _ in 3..12 {
        let (id, line) = line(&mut stream);
        ids.push(id);
        lines.push(line);
    }
    assert_eq!(lines, (3..12).map(|number| number.to_string()).collect::<Vec<_>>());
    let days = |id: &String| id.matches(':').count();
    assert!(ids.iter().all(|id| days(id) >= 1), "{ids:?}");
    drop(stream);
    pushed(12..14);
    // From each event on, all that came after it, once.
    for (at, id) in ids.iter().enumerate() {
        let mut stream = Stream::followed(&alice, path, &[EVENTS, ("Last-Event-ID", id)]);
        for number in at + 4..14 {
            assert_eq!(line(&mut stream).1, number.to_string(), "after {id}");
        }
    }
    // The last lines are of several days.
    let mut stream = Stream::followed(&alice, &format!("{path}&lines=9"), &[EVENTS]);
    for number in 5..14 {
        assert_eq!(line(&mut stream).1, number.to_string());
    }
    let text = alice.get("/storage/logs-alice/app/?lines=9").expect(200).text();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let lines: Vec<String> = lines.map(|line| line["line"].as_str().unwrap().to_owned()).collect();
    assert_eq!(lines, (5..14).map(|number| number.to_string()).collect::<Vec<_>>());
    // As bytes, too.
    let mut seen = 3;
    let mut text = String::new();
    while seen < 14 {
        text.push_str(&plain.take(1));
        if text.ends_with('\n') {
            let line: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(line["line"], seen.to_string());
            (seen, text) = (seen + 1, String::new());
        }
    }
    alice.get(&format!("{path}&offset=5")).expect(400);
    let day = ids[0].split(':').next().unwrap();
    alice.get(&format!("{path}&offset={day}:9999999")).expect(416);
    alice.get(&format!("{path}&offset=1999-01-01:5")).expect(200);
    alice.get(&format!("{path}&offset=2026-11-26:x")).expect(400);
}

#[test]
fn a_server_that_stops_waits_for_no_follower() {
    let (mut server, root) = store();
    let stream = Stream::followed(&root, "/storage/bucket/log?follow", &[]);
    server.stop();
    // A connection that is given up has no last chunk.
    assert_eq!(stream.until_end(), "");
    server.wait();
}

#[test]
fn followers_leave_connections_to_others_and_that_is_no_error_of_the_server() {
    let limits = Limits { connections: 8, ..Limits::default() };
    let server = Server::with(Setup { limits, ..Setup::default() });
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    root.put("/storage/bucket/a", b"").expect(201);
    let followed: Vec<Stream> =
        (0..3).map(|_| Stream::followed(&root, "/storage/bucket/a?follow", &[])).collect();
    let refused = root.get("/storage/bucket/a?follow").expect(503);
    assert_eq!(refused.header("retry-after").as_deref(), Some("1"));
    assert_eq!(refused.json()["error"], "unavailable");
    root.get("/storage/bucket/a").expect(200);
    drop(followed);
    assert!(!server.log.text().contains(" ERROR "), "{}", server.log.text());
}
