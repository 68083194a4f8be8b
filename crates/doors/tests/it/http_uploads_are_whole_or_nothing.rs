//! Uploads that stop early, lie about their length or digest, or are refused.

use std::time::{Duration, Instant};

use crate::http_harness::{Server, Setup};
use crate::http_objects_are_what_was_put::pattern;

const MD5_OF_HELLO: &str = "XUFAKrxLKna5cZ2REBfFkg==";
const SHA_OF_HELLO: &str = "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=";

#[test]
fn a_digest_is_verified() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    let structured = format!("sha-256=:{SHA_OF_HELLO}:");
    let plain = format!("sha-256={SHA_OF_HELLO}");
    let good = [("Content-MD5", MD5_OF_HELLO), ("Content-Digest", &structured), ("Digest", &plain)];
    for (name, value) in good {
        let put = |body: &[u8]| root.call("PUT", "/storage/bucket/a", &[(name, value)], body);
        assert_eq!(put(b"hellO").expect(400).error(), "bad_digest");
        root.get("/storage/bucket/a").expect(404);
        put(b"hello").expect(201);
        root.call("DELETE", "/storage/bucket/a", &[], b"").expect(204);
    }
    for (name, value) in [("Content-MD5", "x"), ("Content-Digest", "sha-256=x"), ("Digest", "a=b")]
    {
        let got = root.call("PUT", "/storage/bucket/a", &[(name, value)], b"hello").expect(400);
        assert_eq!(got.error(), "invalid", "{name}");
    }
    root.get("/storage/bucket/a").expect(404);
}

#[test]
fn a_short_body_changes_nothing() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    root.put("/storage/bucket/a", b"before").expect(201);
    for (announced, sent) in [(10, 9), (10, 0), (9 << 20, 5 << 20)] {
        let mut connection = root.connect();
        connection.send(&root.head("PUT", "/storage/bucket/a", &[], Some(announced)));
        connection.send(&pattern(sent));
        connection.half_close();
        let reply = connection.try_reply("PUT");
        assert!(reply.is_none_or(|reply| reply.status == 400));
        assert_eq!(root.get("/storage/bucket/a").body, b"before");
    }
    let mut connection = root.connect();
    let chunked = [("Transfer-Encoding", "chunked")];
    connection.send(&root.head("PUT", "/storage/bucket/a", &chunked, None));
    connection.send(b"5\r\nhello\r\n");
    connection.half_close();
    assert!(connection.try_reply("PUT").is_none_or(|reply| reply.status == 400));
    assert_eq!(root.get("/storage/bucket/a").body, b"before");
}

#[test]
fn a_chunked_body_and_what_follows_a_long_one() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    let mut connection = root.connect();
    let chunked = [("Transfer-Encoding", "chunked")];
    connection.send(&root.head("PUT", "/storage/bucket/a", &chunked, None));
    connection.send(b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n");
    connection.reply("PUT").expect(201);
    assert_eq!(root.get("/storage/bucket/a").body, b"hello world");
    // Bytes beyond the announced length are the next request, and no request.
    connection.send(&root.head("PUT", "/storage/bucket/a", &[], Some(5)));
    connection.send(b"hello and more\r\n\r\n");
    connection.reply("PUT").expect(204);
    connection.reply("GET").expect(400);
    assert!(connection.is_closed());
    assert_eq!(root.get("/storage/bucket/a").body, b"hello");
}

#[test]
fn ambiguous_lengths_are_refused() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    let both = "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n";
    let two = "Content-Length: 5\r\nContent-Length: 6\r\n";
    let bad = "Content-Length: +5\r\n";
    let odd = "Transfer-Encoding: chunked, identity\r\n";
    for headers in [both, two, bad, odd] {
        let mut connection = root.connect();
        let head = String::from_utf8(root.head("PUT", "/storage/bucket/a", &[], None)).unwrap();
        let head = head.trim_end().to_owned() + "\r\n" + headers + "\r\n";
        connection.send(head.as_bytes());
        connection.send(b"0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
        let first = connection.try_reply("PUT").map(|reply| reply.status);
        // Chunked wins over a length, as RFC 9112 has it; then the connection ends.
        assert!(matches!(first, Some(400 | 201 | 501) | None), "{headers}: {first:?}");
        if first != Some(201) {
            assert!(connection.is_closed(), "{headers}");
        }
    }
}

#[test]
fn rights_are_decided_before_the_body() {
    let server = Server::start();
    server.root().put("/storage/bucket", b"").expect(201);
    let expect = [("Expect", "100-continue")];
    for (client, status) in [(server.user("other"), 403), (server.anonymous(), 401)] {
        let mut connection = client.connect();
        connection.send(&client.head("PUT", "/storage/bucket/a", &expect, Some(1 << 30)));
        connection.reply("PUT").expect(status);
    }
    let root = server.root();
    for (path, status) in [("/storage/none/a", 404), ("/storage/bucket/%00", 400)] {
        let mut connection = root.connect();
        connection.send(&root.head("PUT", path, &expect, Some(1 << 30)));
        connection.reply("PUT").expect(status);
    }
    let mut connection = root.connect();
    connection.send(&root.head("PUT", "/storage/bucket/a", &expect, Some(5)));
    std::thread::sleep(Duration::from_millis(50));
    connection.send(b"hello");
    connection.reply("PUT").expect(201);
    // A refused upload that is sent anyhow: the reply arrives, and the connection lives on.
    let client = server.anonymous();
    let mut connection = client.connect();
    connection.send(&client.head("PUT", "/storage/bucket/a", &[], Some(1 << 20)));
    connection.send(&pattern(1 << 20));
    connection.reply("PUT").expect(401);
    connection.send(&client.head("GET", "/healthz", &[], None));
    connection.reply("GET").expect(200);
}

#[test]
fn what_is_too_large_is_refused_at_once() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    let mut connection = root.connect();
    let length = 10_000 * (5usize << 30) + 1;
    connection.send(&root.head("PUT", "/storage/bucket/a", &[], Some(length)));
    assert_eq!(connection.reply("PUT").expect(413).error(), "too_large");
    root.call("PATCH", "/storage/bucket", &[], &pattern(70 << 10)).expect(413);
    let part = [("Content-Range", "bytes 0-4/10")];
    root.call("PUT", "/storage/bucket/a", &part, b"hello").expect(400);
}

#[test]
fn an_upload_that_stalls_is_given_up() {
    let mut setup = Setup::default();
    setup.limits.upload_idle = Duration::from_millis(200);
    let server = Server::with(setup);
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    let mut connection = root.connect();
    connection.send(&root.head("PUT", "/storage/bucket/a", &[], Some(10)));
    connection.send(b"hello");
    let started = Instant::now();
    let reply = connection.reply("PUT").expect(408);
    assert!(reply.text().contains("stalled"), "{}", reply.text());
    assert!(started.elapsed() < Duration::from_secs(50), "that is what it takes usually");
    root.get("/storage/bucket/a").expect(404);
}
