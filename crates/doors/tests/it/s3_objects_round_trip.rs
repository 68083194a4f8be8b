//! The whole life of buckets and objects, through every operation.

use crate::s3_harness::{Client, Mode, Server, encode};

#[test]
fn buckets() {
    let server = Server::start();
    let root = server.root();
    root.get("/photos").fails(404, "NoSuchBucket");
    assert_eq!(root.head("/photos").status, 404);
    let made = root.put("/photos", b"").ok();
    assert_eq!(made.header("location"), Some("/photos"));
    root.put("/photos", b"").ok();
    server.user("other").put("/photos", b"").fails(409, "BucketAlreadyExists");
    root.put("/Photos", b"").fails(400, "InvalidBucketName");
    let located = "<CreateBucketConfiguration><LocationConstraint>eu-test-1\
                   </LocationConstraint></CreateBucketConfiguration>";
    root.put("/other", located.as_bytes()).ok();
    let list = root.get("/").ok();
    assert_eq!(list.all("Name"), ["other", "photos"]);
    assert_eq!(list.one("CreationDate"), "2026-01-01T00:00:00.000Z");
    assert_eq!(root.get("/?prefix=ph").all("Name"), ["photos"]);
    let page = root.get("/?max-buckets=1").ok();
    assert_eq!(page.all("Name"), ["other"]);
    let token = page.one("ContinuationToken");
    assert_eq!(root.get(&format!("/?continuation-token={token}")).all("Name"), ["photos"]);
    assert_eq!(root.head("/photos").ok().header("x-amz-bucket-region"), Some("eu-test-1"));
    let location = root.get("/photos?location").ok();
    assert!(location.text().contains(">eu-test-1</LocationConstraint>"), "{}", location.text());
    assert!(!root.get("/photos?versioning").ok().text().contains("Status"));
    root.put("/photos/a", b"1").ok();
    root.delete("/photos").fails(409, "BucketNotEmpty");
    assert_eq!(root.delete("/photos/a").status, 204);
    assert_eq!(root.delete("/photos").status, 204);
    root.get("/photos").fails(404, "NoSuchBucket");
}

#[test]
fn an_object_with_all_it_can_have() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    let put = root
        .ask("PUT", "/photos/a/b.txt")
        .header("content-type", "text/plain")
        .header("cache-control", "max-age=60")
        .header("content-disposition", "attachment")
        .header("content-encoding", "gzip")
        .header("content-language", "de")
        .header("expires", "never")
        .header("x-amz-meta-colour", "red")
        .header("x-amz-meta-Shape", "a  circle")
        .header("x-amz-tagging", "k1=v1&k2=a%20b")
        .header("x-amz-storage-class", "STANDARD")
        .header("x-amz-acl", "private")
        .header("content-md5", "XrY7u+Ae7tCTyyK7j1rNww==")
        .header("x-amz-checksum-crc32c", "yZRlqg==")
        .body(b"hello world")
        .send()
        .ok();
    let etag = "\"5eb63bbbe01eeed093cb22bb8f5acdc3\"";
    assert_eq!(put.etag(), etag);
    assert_eq!(put.header("x-amz-checksum-crc32c"), Some("yZRlqg=="));
    for method in ["GET", "HEAD"] {
        let ask = root.ask(method, "/photos/a/b.txt").header("x-amz-checksum-mode", "ENABLED");
        let got = ask.send().ok();
        for (name, value) in [
            ("content-type", "text/plain"),
            ("cache-control", "max-age=60"),
            ("content-disposition", "attachment"),
            ("content-encoding", "gzip"),
            ("content-language", "de"),
            ("expires", "never"),
            ("x-amz-meta-colour", "red"),
            ("x-amz-meta-shape", "a  circle"),
            ("x-amz-tagging-count", "2"),
            ("x-amz-checksum-crc32c", "yZRlqg=="),
            ("x-amz-checksum-type", "FULL_OBJECT"),
            ("etag", etag),
            ("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT"),
            ("content-length", "11"),
            ("accept-ranges", "bytes"),
        ] {
            assert_eq!(got.header(name), Some(value), "{method} {name}");
        }
        assert!(got.header("x-amz-request-id").is_some());
        assert_eq!(got.body, if method == "GET" { &b"hello world"[..] } else { b"" });
    }
    assert_eq!(root.get("/photos/a/b.txt").header("x-amz-checksum-crc32c"), None);
    let tags = root.get("/photos/a/b.txt?tagging").ok();
    assert_eq!(
        (tags.all("Key"), tags.all("Value")),
        (strings(&["k1", "k2"]), strings(&["v1", "a b"]))
    );
    let attributes = root
        .ask("GET", "/photos/a/b.txt?attributes")
        .header("x-amz-object-attributes", "ETag,Checksum,ObjectSize,StorageClass,ObjectParts")
        .send()
        .ok();
    assert_eq!(attributes.one("ETag"), "5eb63bbbe01eeed093cb22bb8f5acdc3");
    assert_eq!(attributes.one("ChecksumCRC32C"), "yZRlqg==");
    assert_eq!(attributes.one("ObjectSize"), "11");
    assert_eq!(attributes.one("StorageClass"), "STANDARD");
    assert!(!attributes.text().contains("ObjectParts"));
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn sizes_around_every_border() {
    let server = Server::start();
    let root = server.root();
    root.put("/b", b"").fails(400, "InvalidBucketName");
    root.put("/sizes", b"").ok();
    let data: Vec<u8> =
        (0..9u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for size in
        [0, 1, 16 << 10, (16 << 10) + 1, 155_000, 256 << 10, 4 << 20, (4 << 20) + 1, 9 << 20]
    {
        for mode in [Mode::Hashed, Mode::Chunks] {
            let ask = root.ask("PUT", "/sizes/x").body(&data[..size]).mode(mode);
            ask.send().ok();
            let got = root.get("/sizes/x").ok();
            assert!(got.body == data[..size], "{size} {mode:?}");
            assert_eq!(root.head("/sizes/x").header("content-length"), Some(&*size.to_string()));
            assert_eq!(got.header("content-encoding"), None);
            // Once more, from memory and without a signature.
        }
    }
    let part = root.ask("GET", "/sizes/x").header("range", "bytes=4194300-4194310").send();
    assert_eq!((part.status, &part.body[..]), (206, &data[4_194_300..=4_194_310]));
    assert_eq!(part.header("content-range"), Some("bytes 4194300-4194310/9437184"));
}

#[test]
fn keys_of_every_sort() {
    let server = Server::start();
    let root = server.root();
    root.put("/odd", b"").ok();
    let long = "k".repeat(1024);
    let keys = [
        "a",
        "a-",
        "a/",
        "a//b",
        "/",
        "//",
        "/a",
        "a.",
        ".",
        "..",
        "../x",
        "./y",
        "a/../b",
        "a b",
        "a+b",
        "a%20b",
        "a%2Fb",
        "ü/ñ",
        "日本語",
        "a?b",
        "a#b",
        "a&b=c",
        "<&>\"'",
        "\u{1}\u{7f}",
        "a\rb",
        "a\nb",
        "trailing ",
        " leading",
        "*",
        "a;b",
        "a:b@c",
        "\\",
        "%",
        "💩",
        &long,
    ];
    for (at, key) in keys.iter().enumerate() {
        let path = format!("/odd/{}", encode(key, false));
        root.put(&path, format!("{at}").as_bytes()).ok();
    }
    for (at, key) in keys.iter().enumerate() {
        let path = format!("/odd/{}", encode(key, false));
        assert_eq!(root.get(&path).ok().text(), at.to_string(), "{key:?}");
        let path = format!("/odd/{}", encode(key, true));
        assert_eq!(root.get(&path).ok().text(), at.to_string(), "{key:?}");
    }
    let mut sorted: Vec<&str> = keys.to_vec();
    sorted.sort_unstable();
    assert_eq!(root.get("/odd?list-type=2").ok().all("Key"), sorted);
    let too_long = format!("/odd/{}", "k".repeat(1025));
    root.put(&too_long, b"").fails(400, "KeyTooLongError");
    root.get(&too_long).fails(400, "KeyTooLongError");
    root.put("/odd/a%00b", b"").fails(400, "InvalidArgument");
    root.put("/odd/a%FF", b"").fails(400, "InvalidURI");
    delete_all(&root, &keys);
    assert!(root.get("/odd?list-type=2").ok().all("Key").is_empty());
    root.delete("/odd").ok();
}

/// In one request, with every other character than letters as a reference.
fn delete_all(root: &Client, keys: &[&str]) {
    let objects: String = keys
        .iter()
        .map(|key| {
            let key: String = key
                .chars()
                .map(|char| match char {
                    'a'..='z' | '/' => char.to_string(),
                    other => format!("&#{};", other as u32),
                })
                .collect();
            format!("<Object><Key>{key}</Key></Object>")
        })
        .collect();
    let deleted = root.post("/odd?delete", &format!("<Delete>{objects}</Delete>")).ok();
    assert_eq!(deleted.all("Key"), keys);
    assert!(!deleted.text().contains("<Error>"), "{}", deleted.text());
}

#[test]
fn virtual_hosts() {
    let server = Server::start();
    let root = server.root();
    root.ask("PUT", "/").host("photos.s3.test").send().ok();
    root.ask("PUT", "/a/b").host("photos.s3.test:9000").body(b"1").send().ok();
    assert_eq!(root.get("/photos/a/b").ok().text(), "1");
    assert_eq!(root.ask("GET", "/a/b").host("photos.s3.test").send().ok().text(), "1");
    assert_eq!(root.ask("GET", "/photos/a/b").host("s3.test").send().ok().text(), "1");
    assert_eq!(root.ask("GET", "/photos/a/b").host("localhost").send().ok().text(), "1");
    assert_eq!(root.ask("GET", "/").host("photos.s3.test").send().ok().all("Key"), ["a/b"]);
}

#[test]
fn presigned_urls() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    let presigned = Mode::Presigned(60);
    root.ask("PUT", "/photos/a").mode(presigned).body(b"1").send().ok();
    let got = root
        .ask("GET", "/photos/a")
        .query("response-content-type", "text/css; a")
        .query("response-content-disposition", "attachment; filename=\"a b\"")
        .mode(presigned)
        .send()
        .ok();
    assert_eq!(got.text(), "1");
    assert_eq!(got.header("content-type"), Some("text/css; a"));
    assert_eq!(got.header("content-disposition"), Some("attachment; filename=\"a b\""));
    // Headers that an SDK moved into the query.
    root.ask("PUT", "/photos/b")
        .query("x-amz-tagging", "a=b")
        .query("x-amz-meta-c", "d")
        .mode(presigned)
        .send()
        .ok();
    let got = root.head("/photos/b").ok();
    assert_eq!(got.header("x-amz-tagging-count"), Some("1"));
    assert_eq!(got.header("x-amz-meta-c"), Some("d"));
    let refused = root.ask("PUT", "/photos/c").query("x-amz-object-lock-mode", "GOVERNANCE");
    refused.mode(presigned).send().fails(501, "NotImplemented");
    root.get("/photos/c").fails(404, "NoSuchKey");
}

#[test]
fn replies_say_where_their_time_went_and_in_which_trace() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    let put = root.put("/photos/large", &vec![7; 9 << 20]).ok();
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    let reply = root.ask("GET", "/photos/large").header("traceparent", parent).send().ok();
    assert_eq!(reply.header("traceresponse").map(|text| &text[..35]), Some(&parent[..35]));
    let timing = put.header("server-timing").expect("a Server-Timing");
    let parts = timing.split(", ").map(|part| part.split_once(";dur=").unwrap());
    let mut stages: Vec<(&str, f64)> =
        parts.map(|(name, time)| (name, time.parse().unwrap())).collect();
    let (last, total) = stages.pop().unwrap();
    assert_eq!(last, "total");
    assert!(stages.iter().map(|(_, ms)| ms).sum::<f64>() <= total, "{timing}");
    for wanted in ["admit", "meta", "write", "sync"] {
        assert!(stages.iter().any(|(name, _)| *name == wanted), "{wanted}: {timing}");
    }
    // Refused: it learns nothing from the time it took.
    for refused in [
        server.anonymous().get("/photos/large").fails(403, "AccessDenied"),
        server.user("other").get("/photos/large").fails(403, "AccessDenied"),
        server.anonymous().get("/photos/none").fails(403, "AccessDenied"),
    ] {
        assert_eq!(refused.header("server-timing"), None);
    }
}
