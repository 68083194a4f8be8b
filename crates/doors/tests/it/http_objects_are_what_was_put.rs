//! PUT, GET, HEAD and DELETE of objects, and the headers that are stored with them.

use crate::http_harness::Server;

/// Bytes with no period that a block or piece has.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

#[test]
fn bytes_come_back_at_all_sizes() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    for len in [0, 1, 430, 16 << 10, (16 << 10) + 1, 158_720, 1 << 20, (4 << 20) + 5, 70 << 20] {
        let data = pattern(len);
        let path = format!("/storage/bucket/dir/{len}");
        let made = root.put(&path, &data).expect(201);
        for round in 0..2 {
            let got = root.get(&path).expect(200);
            assert!(got.body == data, "{len} bytes, round {round}: got {}", got.body.len());
            assert_eq!(got.header("etag"), made.header("etag"));
        }
        let head = root.call("HEAD", &path, &[], b"").expect(200);
        assert_eq!(head.header("content-length"), Some(len.to_string()));
        let got = root.get(&path);
        for name in ["etag", "last-modified", "content-type", "accept-ranges"] {
            assert_eq!(head.header(name), got.header(name), "{name}");
        }
        assert_eq!(head.header("x-content-type-options").as_deref(), Some("nosniff"));
    }
}

#[test]
fn an_object_is_replaced_and_deleted() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    let first = root.put("/storage/bucket/a", b"one").expect(201);
    let second = root.put("/storage/bucket/a", b"two").expect(204);
    assert_ne!(first.header("etag"), second.header("etag"));
    assert_eq!(root.get("/storage/bucket/a").body, b"two");
    root.call("DELETE", "/storage/bucket/a", &[], b"").expect(204);
    let again = root.call("DELETE", "/storage/bucket/a", &[], b"").expect(404);
    assert_eq!(again.error(), "not_found");
    let gone = root.get("/storage/bucket/a").expect(404);
    let id = gone.json()["request_id"].as_str().unwrap().to_owned();
    assert!(id.len() == 17 && id.starts_with('r'), "{id}");
    assert_eq!(gone.header("x-request-id").as_deref(), gone.json()["request_id"].as_str());
    root.put("/storage/bucket/a/b", b"").expect(201);
    root.put("/storage/bucket/a", b"").expect(409);
    root.put("/storage/bucket/a/b/c", b"").expect(409);
}

#[test]
fn headers_are_stored_and_sent() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    let headers = [
        ("Content-Type", "text/x-own"),
        ("Cache-Control", "max-age=5"),
        ("Content-Encoding", "gzip"),
        ("Content-Language", "de"),
        ("Content-Disposition", "inline"),
        ("Expires", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("X-Cairn-Meta-Color", "grün"),
        ("X-Cairn-Meta-size", "9"),
    ];
    root.call("PUT", "/storage/bucket/a", &headers, b"x").expect(201);
    let got = root.get("/storage/bucket/a").expect(200);
    for (name, value) in headers {
        assert_eq!(got.header(&name.to_lowercase()).as_deref(), Some(value), "{name}");
    }
    let update = br#"{"cache_control": "no-cache"}"#;
    root.call("PATCH", "/storage/bucket", &[], update).expect(204);
    root.put("/storage/bucket/b", b"x").expect(201);
    let of = |path| root.get(path).header("cache-control");
    assert_eq!(of("/storage/bucket/a").as_deref(), Some("max-age=5"));
    assert_eq!(of("/storage/bucket/b").as_deref(), Some("no-cache"));
}

#[test]
fn the_type_is_by_name_then_by_content() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
    let table: [(&str, &[u8], &str); 5] = [
        ("a.html", b"x", "text/html"),
        ("a.JPG", b"x", "image/jpeg"),
        ("a.d/plain", png, "image/png"),
        ("a", b"x", "application/octet-stream"),
        ("empty", b"", "application/octet-stream"),
    ];
    for (name, body, kind) in table {
        let path = format!("/storage/bucket/{name}");
        root.put(&path, body).expect(201);
        assert_eq!(root.get(&path).header("content-type").as_deref(), Some(kind), "{name}");
    }
}

#[test]
fn a_download_has_a_name() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    root.put("/storage/bucket/d/na%C3%AFve%22%0d%0aX:y.txt", b"x").expect(201);
    let of = |query: &str| {
        let path = format!("/storage/bucket/d/na%C3%AFve%22%0d%0aX:y.txt{query}");
        root.get(&path).expect(200).header("content-disposition")
    };
    assert_eq!(of(""), None);
    let expected = "attachment; filename=\"na_ve___X:y.txt\"; \
                    filename*=UTF-8''na%C3%AFve%22%0D%0AX%3Ay.txt";
    assert_eq!(of("?download").as_deref(), Some(expected));
    assert_eq!(of("?download=b.txt").as_deref(), Some("attachment; filename=\"b.txt\""));
    assert_eq!(of("?download=0"), None);
}

#[test]
fn an_append_goes_to_the_end() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    let mut whole = Vec::new();
    for record in [pattern(10), pattern(20_000), pattern(3), pattern(4 << 20)] {
        let reply = root.call("POST", "/storage/bucket/log", &[], &record).expect(200);
        assert_eq!(reply.json()["offset"], whole.len());
        whole.extend_from_slice(&record);
        assert_eq!(reply.json()["size"], whole.len());
        assert_eq!(reply.header("x-cairn-size"), Some(whole.len().to_string()));
        let got = root.get("/storage/bucket/log");
        assert!(got.body == whole);
        assert_eq!(got.header("etag"), reply.header("etag"));
    }
    let long = pattern((4 << 20) + 1);
    root.call("POST", "/storage/bucket/log", &[], &long).expect(413);
    let bad = [("Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg==")];
    root.call("POST", "/storage/bucket/log", &bad, b"x").expect(400);
    root.call("POST", "/storage/bucket/log", &[("If-Match", "\"x\"")], b"x").expect(501);
    assert!(root.get("/storage/bucket/log").body == whole);
}

#[test]
fn an_object_moves_in_one_step() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    let headers = [("Content-Type", "text/x-moved"), ("X-Cairn-Meta-Colour", "blue")];
    root.call("PUT", "/storage/bucket/a/from", &headers, &pattern(300_000)).expect(201);
    let before = root.get("/storage/bucket/a/from");
    let to = |key: &str| format!("/storage/bucket/a/from?move-to={key}");
    for bad in ["", "a/from", "b/../c", "%00"] {
        root.call("POST", &to(bad), &[], b"").expect(400);
    }
    root.call("POST", &to("b"), &[("If-Match", "\"x\"")], b"").expect(501);
    root.put("/storage/bucket/there", b"other").expect(201);
    root.call("POST", &to("there"), &[("If-None-Match", "*")], b"").expect(412);
    assert_eq!(root.get("/storage/bucket/there").body, b"other");
    let moved = root.call("POST", &to("b/a+%26%20b"), &[], b"").expect(204);
    let after = root.get("/storage/bucket/b/a%20%26%20b");
    assert_eq!(moved.header("etag"), after.header("etag"));
    assert!(after.body == before.body);
    for name in ["content-type", "x-cairn-meta-colour"] {
        assert_eq!(after.header(name), before.header(name), "{name}");
    }
    root.get("/storage/bucket/a/from").expect(404);
    root.call("POST", &to("c"), &[], b"").expect(404);
    // It replaces what is there.
    root.call("POST", "/storage/bucket/b/a%20%26%20b?move-to=there", &[], b"").expect(204);
    assert!(root.get("/storage/bucket/there").body == before.body);
    server.anonymous().call("POST", "/storage/bucket/there?move-to=x", &[], b"").expect(401);
}

#[test]
fn appenders_at_once_lose_nothing() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    std::thread::scope(|scope| {
        for writer in 0..4u8 {
            let root = root.clone();
            scope.spawn(move || {
                for _ in 0..50 {
                    root.call("POST", "/storage/bucket/log", &[], &[writer; 7]).expect(200);
                }
            });
        }
    });
    let log = root.get("/storage/bucket/log").expect(200).body;
    assert_eq!(log.len(), 4 * 50 * 7);
    for record in log.chunks(7) {
        assert!(record.iter().all(|byte| *byte == record[0]), "{record:?}");
    }
}
