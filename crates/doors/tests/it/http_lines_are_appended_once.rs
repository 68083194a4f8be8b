//! POST with `append`: lines, packed or not, of many clients at once, and once for each key.

use std::io::Write;

use crate::http_harness::{Client, Server};

const LOG: &str = "/storage/bucket/log?append";

fn store() -> (Server, Client) {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    (server, root)
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    writer.write_all(body).unwrap();
    writer.finish().unwrap()
}

fn zstd(body: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(body, ruzstd::encoding::CompressionLevel::Fastest)
}

fn appended(client: &Client, headers: &[(&str, &str)], body: &[u8]) -> (u64, u64, bool) {
    let reply = client.call("POST", LOG, headers, body).expect(200);
    let json = reply.json();
    let offset = json["offset"].as_u64().unwrap();
    assert_eq!(reply.header("x-cairn-offset").as_deref(), Some(offset.to_string().as_str()));
    (offset, json["length"].as_u64().unwrap(), json["repeated"].as_bool().unwrap())
}

#[test]
fn lines_are_kept_whole_however_they_are_packed() {
    let (_server, root) = store();
    assert_eq!(appended(&root, &[], b"{\"a\":1}\n{\"a\":2}\n"), (0, 16, false));
    assert_eq!(appended(&root, &[], b"no end"), (16, 7, false));
    let packed = gzip(b"from gzip");
    assert_eq!(appended(&root, &[("Content-Encoding", "gzip")], &packed), (23, 10, false));
    let packed = zstd(b"from zstd\n");
    assert_eq!(appended(&root, &[("Content-Encoding", "zstd")], &packed), (33, 10, false));
    let whole = b"{\"a\":1}\n{\"a\":2}\nno end\nfrom gzip\nfrom zstd\n";
    assert_eq!(root.get("/storage/bucket/log").expect(200).body, whole);
}

#[test]
fn what_unpacks_to_too_much_is_refused() {
    let (_server, root) = store();
    let zeros = vec![b'0'; 64 << 20];
    for (coding, bomb) in [("gzip", gzip(&zeros)), ("zstd", zstd(&zeros))] {
        assert!(bomb.len() < 1 << 20);
        let reply = root.call("POST", LOG, &[("Content-Encoding", coding)], &bomb).expect(413);
        assert_eq!(reply.error(), "too_large");
    }
    for (coding, body) in [("gzip", &b"x"[..]), ("zstd", b"x"), ("br", b"x"), ("gzip", b"")] {
        root.call("POST", LOG, &[("Content-Encoding", coding)], body).expect(400);
    }
    root.call("POST", LOG, &[], &zeros[..(4 << 20) + 1]).expect(413);
    root.call("POST", LOG, &[], &zeros[..4 << 20]).expect(413);
    root.call("POST", LOG, &[], b"").expect(400);
    root.call("POST", "/storage/bucket/log?append&move-to=x", &[], b"x").expect(400);
    root.get("/storage/bucket/log").expect(404);
    assert_eq!(appended(&root, &[], &zeros[..(4 << 20) - 1]).1, 4 << 20);
}

#[test]
fn a_key_counts_once_for_a_body_a_path_and_a_user() {
    let (server, root) = store();
    let key = [("Idempotency-Key", "one")];
    assert_eq!(appended(&root, &key, b"a\n"), (0, 2, false));
    assert_eq!(appended(&root, &[], b"b\n"), (2, 2, false));
    assert_eq!(appended(&root, &key, b"a\n"), (0, 2, true));
    assert_eq!(appended(&root, &key, b"other\n"), (4, 6, false), "another body");
    assert_eq!(appended(&root, &[("Idempotency-Key", "two")], b"a\n"), (10, 2, false));
    let large = vec![b'x'; 100_000];
    assert_eq!(appended(&root, &key, &large), (12, 100_001, false));
    assert_eq!(appended(&root, &key, &large), (12, 100_001, true));
    let alice = server.user("alice");
    root.call("PATCH", "/storage/bucket?grant=alice:read,write", &[], b"").expect(204);
    assert_eq!(appended(&alice, &key, b"a\n"), (100_013, 2, false), "another user");
    root.call("POST", LOG, &[("Idempotency-Key", "")], b"x").expect(400);
    root.call("POST", LOG, &[("Idempotency-Key", &"x".repeat(257))], b"x").expect(400);
    server.clock.advance(2 * 3600);
    assert!(appended(&root, &key, b"a\n").2, "the clock was set ahead");
}

/// Records are stored in the file of the day on which they came: sent again after midnight, they
/// are not stored in that of the next day, too.
#[test]
fn a_request_with_a_key_counts_once_over_midnight() {
    const DAY: i64 = 24 * 3600;
    let server = Server::start();
    let alice = server.user("alice");
    let of_day = server.fs().clock().now().0 / 1_000_000_000 % DAY;
    server.clock.advance(((2 * DAY - of_day - 600) % DAY) as u64);
    let send = |key: &str, text: &str| {
        let body = format!("{{\"create\":{{}}}}\n{{\"message\":\"{text}\"}}\n");
        let headers = [("Idempotency-Key", key)];
        let reply = alice.call("POST", "/app/_bulk", &headers, body.as_bytes()).expect(200);
        assert_eq!(reply.json()["errors"], false);
    };
    send("a", "before");
    server.clock.advance(1200);
    send("a", "before");
    send("b", "after");
    send("b", "after");
    let listed = alice.get("/storage/logs-alice/?recursive").expect(200).json();
    let keys = listed["objects"].as_array().unwrap().iter().map(|object| object["key"].clone());
    let texts: Vec<String> = keys
        .map(|key| {
            let path = format!("/storage/logs-alice/{}", key.as_str().unwrap());
            alice.get(&path).expect(200).text()
        })
        .collect();
    assert_eq!(texts.len(), 2);
    for (text, word) in texts.iter().zip(["before", "after"]) {
        assert_eq!((text.lines().count(), text.contains(word)), (1, true), "{texts:?}");
    }
}

#[test]
fn appenders_at_once_lose_and_tear_no_line() {
    let (_server, root) = store();
    std::thread::scope(|scope| {
        for client in 0..8 {
            let root = &root;
            scope.spawn(move || {
                for number in 0..30 {
                    let padding = "x".repeat(number * 400);
                    let lines = format!("{client} {number} a {padding}\n{client} {number} b\n");
                    let (offset, length, _) = appended(root, &[], lines.as_bytes());
                    let range = format!("bytes={offset}-{}", offset + length - 1);
                    let read = root.get_with("/storage/bucket/log", &[("Range", &range)]);
                    assert_eq!(read.expect(206).text(), lines);
                }
            });
        }
    });
    let text = root.get("/storage/bucket/log").expect(200).text();
    let mut lines: Vec<&str> = text.lines().map(|line| line.trim_end_matches(['x', ' '])).collect();
    let mut expected: Vec<String> = (0..8)
        .flat_map(|client| {
            (0..30)
                .flat_map(move |number| ["a", "b"].map(|part| format!("{client} {number} {part}")))
        })
        .collect();
    lines.sort_unstable();
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

#[test]
fn who_may_only_write_appends_and_reads_nothing() {
    let (server, root) = store();
    let alice = server.user("alice");
    root.call("PATCH", "/storage/bucket?grant=alice:write", &[], b"").expect(204);
    let key = [("Idempotency-Key", "one")];
    assert_eq!(appended(&alice, &[], b"a\n"), (0, 2, false));
    assert_eq!(appended(&alice, &key, b"b\n"), (2, 2, false));
    assert_eq!(appended(&alice, &key, b"b\n"), (2, 2, true));
    // Extents become blocks although the writer may not read them.
    for _ in 0..40 {
        appended(&alice, &[], &[b'x'; 10_000]);
    }
    alice.get("/storage/bucket/log").expect(403);
    alice.get("/storage/bucket/log?follow").expect(403);
    root.call("PATCH", "/storage/bucket?grant=alice:read", &[], b"").expect(204);
    alice.call("POST", LOG, &[], b"c\n").expect(403);
    let text = root.get("/storage/bucket/log").expect(200).text();
    assert_eq!((text.len(), &text[..4]), (4 + 40 * 10_001, "a\nb\n"));
}
