//! Conditions, ranges, copies and tags.

use crate::s3_harness::Server;

const ETAG: &str = "\"c4ca4238a0b923820dcc509a6f75849b\"";
const OTHER: &str = "\"00000000000000000000000000000000\"";
const NOW: &str = "Thu, 01 Jan 2026 00:00:00 GMT";
const BEFORE: &str = "Wed, 31 Dec 2025 23:59:59 GMT";
const AFTER: &str = "Thu, 01 Jan 2026 00:00:01 GMT";

#[test]
fn of_reads() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    root.ask("PUT", "/photos/a").header("cache-control", "x").body(b"1").send().ok();
    let table: &[(&[(&str, &str)], u16)] = &[
        (&[("if-match", ETAG)], 200),
        (&[("if-match", "*")], 200),
        (&[("if-match", "c4ca4238a0b923820dcc509a6f75849b")], 200),
        (&[("if-match", OTHER)], 412),
        (&[("if-match", "W/\"c4ca4238a0b923820dcc509a6f75849b\"")], 412),
        (&[("if-none-match", ETAG)], 304),
        (&[("if-none-match", "*")], 304),
        (&[("if-none-match", "W/\"c4ca4238a0b923820dcc509a6f75849b\"")], 304),
        (&[("if-none-match", OTHER)], 200),
        (&[("if-modified-since", NOW)], 304),
        (&[("if-modified-since", AFTER)], 304),
        (&[("if-modified-since", BEFORE)], 200),
        (&[("if-modified-since", "nonsense")], 200),
        (&[("if-unmodified-since", NOW)], 200),
        (&[("if-unmodified-since", AFTER)], 200),
        (&[("if-unmodified-since", BEFORE)], 412),
        (&[("if-match", ETAG), ("if-unmodified-since", BEFORE)], 200),
        (&[("if-match", OTHER), ("if-unmodified-since", AFTER)], 412),
        (&[("if-none-match", OTHER), ("if-modified-since", NOW)], 200),
        (&[("if-none-match", ETAG), ("if-modified-since", BEFORE)], 304),
        (&[("if-match", ETAG), ("if-none-match", ETAG)], 304),
        (&[("if-match", OTHER), ("if-none-match", ETAG)], 412),
    ];
    root.ask("PUT", "/photos?acl").header("x-amz-acl", "public-read").send().ok();
    for client in [server.root(), server.anonymous()] {
        for (headers, status) in table {
            for method in ["GET", "HEAD"] {
                let mut ask = client.ask(method, "/photos/a");
                for (name, value) in *headers {
                    ask = ask.header(name, value);
                }
                let got = ask.send();
                assert_eq!(got.status, *status, "{method} {headers:?}");
                if *status != 412 {
                    assert_eq!(got.etag(), ETAG);
                    assert_eq!(got.header("last-modified"), Some(NOW));
                    assert_eq!(got.header("cache-control"), Some("x"));
                }
                if *status == 304 {
                    assert_eq!(got.header("content-type"), None);
                }
            }
        }
    }
}

#[test]
fn of_changes() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    let put = |name: &str, value: &str| {
        root.ask("PUT", "/photos/a").header(name, value).body(b"1").send()
    };
    put("if-match", ETAG).fails(404, "NoSuchKey");
    put("if-none-match", "*").ok();
    put("if-none-match", "*").fails(412, "PreconditionFailed");
    put("if-none-match", ETAG).fails(412, "PreconditionFailed");
    put("if-match", OTHER).fails(412, "PreconditionFailed");
    put("if-match", ETAG).ok();
    put("if-match", "*").ok();
    let delete =
        |name: &str, value: &str| root.ask("DELETE", "/photos/a").header(name, value).send();
    delete("if-match", OTHER).fails(412, "PreconditionFailed");
    delete("x-amz-if-match-size", "2").fails(412, "PreconditionFailed");
    delete("x-amz-if-match-last-modified-time", NOW).fails(501, "NotImplemented");
    let body =
        |etag: &str| format!("<Delete><Object><Key>a</Key><ETag>{etag}</ETag></Object></Delete>");
    let some = root.post("/photos?delete", &body(OTHER)).ok();
    assert_eq!(some.one("Code"), "PreconditionFailed");
    delete("if-match", ETAG).ok();
    // A condition on what is gone already.
    delete("if-match", ETAG).ok();
    delete("x-amz-mfa", "0").fails(501, "NotImplemented");
    root.delete("/nosuch/a").fails(404, "NoSuchBucket");
}

#[test]
fn ranges() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    root.put("/photos/a", b"0123456789").ok();
    root.put("/photos/empty", b"").ok();
    for (range, status, body) in [
        ("bytes=2-4", 206, "234"),
        ("bytes=7-", 206, "789"),
        ("bytes=-2", 206, "89"),
        ("bytes=0-99", 206, "0123456789"),
        ("bytes=4-2", 200, "0123456789"),
        ("bytes=0-1,3-4", 200, "0123456789"),
        ("lines=1-2", 200, "0123456789"),
    ] {
        let got = root.ask("GET", "/photos/a").header("range", range).send();
        assert_eq!((got.status, got.text().as_str()), (status, body), "{range}");
        let head = root.ask("HEAD", "/photos/a").header("range", range).send();
        assert_eq!(head.status, status);
        assert_eq!(head.header("content-length"), got.header("content-length"));
        assert_eq!(head.header("content-range"), got.header("content-range"));
    }
    for (path, range, size) in [
        ("/photos/a", "bytes=10-", "10"),
        ("/photos/a", "bytes=-0", "10"),
        ("/photos/empty", "bytes=0-", "0"),
    ] {
        let got = root.ask("GET", path).header("range", range).send();
        assert_eq!(got.header("content-range"), Some(&*format!("bytes */{size}")));
        got.fails(416, "InvalidRange");
    }
    let etag = root.head("/photos/a").etag();
    let if_range = |value: &str| {
        root.ask("GET", "/photos/a")
            .header("range", "bytes=0-0")
            .header("if-range", value)
            .send()
            .status
    };
    assert_eq!((if_range(&etag), if_range(NOW)), (206, 206));
    assert_eq!((if_range(OTHER), if_range(BEFORE)), (200, 200));
    let both = root.ask("GET", "/photos/a?partNumber=1").header("range", "bytes=0-0").send();
    both.fails(400, "InvalidRequest");
    let one = root.get("/photos/a?partNumber=1").ok();
    assert_eq!((one.status, one.text().len()), (206, 10));
    root.get("/photos/a?partNumber=2").fails(416, "InvalidPartNumber");
}

#[test]
fn copies() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    root.put("/other", b"").ok();
    root.ask("PUT", "/photos/a%2Bb%20c")
        .header("content-type", "text/plain")
        .header("x-amz-meta-a", "1")
        .header("x-amz-tagging", "t=1")
        .header("x-amz-checksum-crc32c", "yZRlqg==")
        .body(b"hello world")
        .send()
        .ok();
    let copy =
        |target: &str, source: &str| root.ask("PUT", target).header("x-amz-copy-source", source);
    let source = "/photos/a%2Bb%20c";
    let reply = copy("/other/b", source).send().ok();
    assert_eq!(reply.one("ETag"), "\"5eb63bbbe01eeed093cb22bb8f5acdc3\"");
    assert_eq!(reply.one("ChecksumCRC32C"), "yZRlqg==");
    let got = root.get("/other/b").ok();
    assert_eq!((got.text().as_str(), got.header("x-amz-meta-a")), ("hello world", Some("1")));
    assert_eq!(got.header("x-amz-tagging-count"), Some("1"));
    let replaced = copy("/other/b", source)
        .header("x-amz-metadata-directive", "REPLACE")
        .header("x-amz-tagging-directive", "REPLACE")
        .header("x-amz-meta-b", "2");
    replaced.send().ok();
    let got = root.get("/other/b").ok();
    assert_eq!((got.header("x-amz-meta-a"), got.header("x-amz-meta-b")), (None, Some("2")));
    assert_eq!(got.header("x-amz-tagging-count"), None);
    assert_eq!(got.header("content-type"), Some("binary/octet-stream"));
    copy("/photos/a%2Bb%20c", source).send().fails(400, "InvalidRequest");
    let onto_itself = copy("/photos/a%2Bb%20c", source);
    onto_itself.header("x-amz-metadata-directive", "REPLACE").send().ok();
    copy("/other/c", "photos/nosuch").send().fails(404, "NoSuchKey");
    copy("/other/c", "nosuch/a").send().fails(404, "NoSuchBucket");
    copy("/nosuch/c", source).send().fails(404, "NoSuchBucket");
    copy("/other/c", "photos/a%2Bb%20c?versionId=abc").send().fails(501, "NotImplemented");
    copy("/other/c", "").send().fails(400, "InvalidRequest");
    copy("/other/c", "..%2F..%2Fetc/passwd").send().fails(400, "InvalidArgument");
    copy("/other/c", source)
        .header("x-amz-metadata-directive", "X")
        .send()
        .fails(400, "InvalidArgument");
    let etag = "\"5eb63bbbe01eeed093cb22bb8f5acdc3\"";
    for (name, value, status) in [
        ("x-amz-copy-source-if-match", etag, 200),
        ("x-amz-copy-source-if-match", OTHER, 412),
        ("x-amz-copy-source-if-none-match", etag, 412),
        ("x-amz-copy-source-if-none-match", OTHER, 200),
        ("x-amz-copy-source-if-modified-since", BEFORE, 200),
        ("x-amz-copy-source-if-modified-since", AFTER, 412),
        ("x-amz-copy-source-if-unmodified-since", AFTER, 200),
        ("x-amz-copy-source-if-unmodified-since", BEFORE, 412),
    ] {
        let reply = copy("/other/d", source).header(name, value).send();
        assert_eq!(reply.status, status, "{name} {value} {}", reply.text());
    }
}

#[test]
fn tags() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    root.put("/photos/a", b"1").ok();
    let tags = |pairs: &[(&str, &str)]| {
        let tags: String = pairs
            .iter()
            .map(|(key, value)| format!("<Tag><Key>{key}</Key><Value>{value}</Value></Tag>"))
            .collect();
        format!("<Tagging><TagSet>{tags}</TagSet></Tagging>")
    };
    for path in ["/photos/a?tagging", "/photos?tagging"] {
        root.put(path, tags(&[("a", "1"), ("b", "")]).as_bytes()).ok();
        assert_eq!(root.get(path).ok().all("Key"), ["a", "b"]);
        root.put(path, tags(&[("c", "+-=._:/@ é")]).as_bytes()).ok();
        assert_eq!(root.get(path).ok().all("Value"), ["+-=._:/@ é"]);
        root.put(path, tags(&[("c", "&lt;")]).as_bytes()).fails(400, "InvalidTag");
        root.put(path, tags(&[("c", "1"), ("c", "2")]).as_bytes()).fails(400, "InvalidTag");
        root.put(path, tags(&[("", "1")]).as_bytes()).fails(400, "InvalidTag");
        root.put(path, b"").fails(400, "MissingRequestBodyError");
        root.put(path, b"<Tagging>").fails(400, "MalformedXML");
        assert_eq!(root.get(path).ok().all("Value"), ["+-=._:/@ é"]);
        assert_eq!(root.delete(path).status, 204);
    }
    assert!(root.get("/photos/a?tagging").ok().all("Key").is_empty());
    root.get("/photos?tagging").fails(404, "NoSuchTagSet");
    let names: Vec<String> = (0..11).map(|at| format!("t{at}")).collect();
    let eleven: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    root.put("/photos/a?tagging", tags(&eleven).as_bytes()).fails(400, "BadRequest");
    root.put("/photos/nosuch?tagging", tags(&[]).as_bytes()).fails(404, "NoSuchKey");
    root.get("/photos/nosuch?tagging").fails(404, "NoSuchKey");
    let put = root.ask("PUT", "/photos/b").header("x-amz-tagging", "a=1&a=2").send();
    put.fails(400, "InvalidArgument");
    let long = "v".repeat(257);
    let put = root.ask("PUT", "/photos/b").header("x-amz-tagging", &format!("a={long}")).send();
    put.fails(400, "InvalidTag");
}

#[test]
fn metadata_has_a_limit() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    let put =
        |len: usize| root.ask("PUT", "/photos/a").header("x-amz-meta-a", &"v".repeat(len)).send();
    put(8191).ok();
    put(8192).fails(400, "MetadataTooLarge");
    let long = root.ask("PUT", "/photos/a").header("content-type", &"v".repeat(1025)).send();
    long.fails(400, "InvalidRequest");
}
