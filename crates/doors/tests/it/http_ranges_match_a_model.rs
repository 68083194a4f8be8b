//! Range, If-Range, multipart/byteranges.

use crate::http_harness::{Client, Reply, Server};
use crate::http_objects_are_what_was_put::pattern;

fn range(client: &Client, path: &str, range: &str) -> Reply {
    client.get_with(path, &[("Range", range)])
}

#[test]
fn one_range() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    for len in [10usize, 158_720, 5 << 20] {
        let data = pattern(len);
        let path = format!("/storage/bucket/{len}");
        root.put(&path, &data).expect(201);
        let edges = [0, 1, 9, len / 2, len - 2, len - 1];
        for first in edges {
            for last in edges.into_iter().filter(|last| first <= *last).chain([len + 5]) {
                let got = range(&root, &path, &format!("bytes={first}-{last}")).expect(206);
                let end = last.min(len - 1);
                assert!(got.body == data[first..=end], "{first}-{last} of {len}");
                let content_range = format!("bytes {first}-{end}/{len}");
                assert_eq!(got.header("content-range"), Some(content_range));
            }
            let got = range(&root, &path, &format!("bytes={first}-")).expect(206);
            assert!(got.body == data[first..]);
        }
        for suffix in [1, 2, len - 1, len, len + 1] {
            let got = range(&root, &path, &format!("bytes=-{suffix}")).expect(206);
            assert!(got.body == data[len.saturating_sub(suffix)..]);
        }
        for out in [format!("bytes={len}-"), format!("bytes={}-{}", len + 1, len + 2)] {
            let got = range(&root, &path, &out).expect(416);
            assert_eq!(got.header("content-range"), Some(format!("bytes */{len}")));
            assert_eq!(got.error(), "range_not_satisfiable");
        }
        for ignored in ["bytes=3-2", "bytes=x", "items=0-1", "bytes=1", "garbage"] {
            assert!(range(&root, &path, ignored).expect(200).body == data, "{ignored}");
        }
        let head = root.call("HEAD", &path, &[("Range", "bytes=0-1")], b"").expect(200);
        assert_eq!(head.header("content-length"), Some(len.to_string()));
    }
    root.put("/storage/bucket/empty", b"").expect(201);
    range(&root, "/storage/bucket/empty", "bytes=0-").expect(416);
    range(&root, "/storage/bucket/empty", "bytes=-1").expect(200);
}

/// The parts of a multipart reply: content range and bytes.
fn parts(reply: &Reply) -> Vec<(String, Vec<u8>)> {
    let kind = reply.header("content-type").unwrap();
    let boundary = kind.strip_prefix("multipart/byteranges; boundary=").unwrap();
    let mut rest = &reply.body[..];
    let mut found = Vec::new();
    let opening = format!("--{boundary}\r\n");
    while let Some(part) = rest.strip_prefix(opening.as_bytes()) {
        let end = part.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let head = std::str::from_utf8(&part[..end]).unwrap();
        let content_range =
            head.split("\r\n").find_map(|line| line.strip_prefix("Content-Range: bytes ")).unwrap();
        let (range, _) = content_range.split_once('/').unwrap();
        let (first, last) = range.split_once('-').unwrap();
        let len = last.parse::<usize>().unwrap() - first.parse::<usize>().unwrap() + 1;
        let body = &part[end + 4..];
        found.push((content_range.to_owned(), body[..len].to_vec()));
        rest = body[len..].strip_prefix(b"\r\n").unwrap();
    }
    assert_eq!(rest, format!("--{boundary}--\r\n").as_bytes());
    found
}

#[test]
fn several_ranges() {
    let server = Server::start();
    let root = server.root();
    let data = pattern(5 << 20);
    root.put("/storage/bucket", b"").expect(201);
    root.put("/storage/bucket/a.txt", &data).expect(201);
    let got = range(&root, "/storage/bucket/a.txt", "bytes=4000000-4999999, 0-9,1000-1009");
    let found = parts(&got.expect(206));
    let expected =
        [0..10, 1000..1010, 4_000_000..5_000_000].map(|range: std::ops::Range<usize>| {
            let name = format!("{}-{}/{}", range.start, range.end - 1, data.len());
            (name, data[range].to_vec())
        });
    assert!(found == expected);
    // Near each other, they become one.
    let got = range(&root, "/storage/bucket/a.txt", "bytes=0-9,20-29").expect(206);
    assert!(got.body == data[..30]);
    // Overlapping ones do not multiply what is sent.
    let overlapping = format!("bytes={}", ["0-"; 16].join(","));
    assert_eq!(range(&root, "/storage/bucket/a.txt", &overlapping).body.len(), data.len());
    let many: Vec<String> = (0..17).map(|at| format!("{0}-{0}", at * 1000)).collect();
    let got = range(&root, "/storage/bucket/a.txt", &format!("bytes={}", many.join(",")));
    assert_eq!(got.expect(200).body.len(), data.len());
}

#[test]
fn if_range_names_the_state() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    let etag = root.put("/storage/bucket/a", b"0123456789").expect(201).header("etag").unwrap();
    let modified = root.get("/storage/bucket/a").header("last-modified").unwrap();
    let weak = format!("W/{etag}");
    let table = [
        (etag.as_str(), 206),
        (modified.as_str(), 206),
        ("\"other\"", 200),
        (weak.as_str(), 200),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 200),
    ];
    for (value, status) in table {
        let headers = [("Range", "bytes=0-1"), ("If-Range", value)];
        root.get_with("/storage/bucket/a", &headers).expect(status);
    }
}

#[test]
fn conditions_decide() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    let path = "/storage/bucket/a";
    let etag = root.put(path, b"0123456789").expect(201).header("etag").unwrap();
    let now = root.get(path).header("last-modified").unwrap();
    let (past, other) = ("Sun, 06 Nov 1994 08:49:37 GMT", "\"other\"");
    let list = format!("\"x\", {etag}");
    let weak = format!("W/{etag}");
    let table: [(&[(&str, &str)], u16); 18] = [
        (&[("If-Match", &etag)], 200),
        (&[("If-Match", "*")], 200),
        (&[("If-Match", &list)], 200),
        (&[("If-Match", other)], 412),
        (&[("If-Match", &weak)], 412),
        (&[("If-None-Match", &etag)], 304),
        (&[("If-None-Match", &weak)], 304),
        (&[("If-None-Match", "*")], 304),
        (&[("If-None-Match", other), ("If-None-Match", &etag)], 304),
        (&[("If-None-Match", other)], 200),
        (&[("If-Modified-Since", &now)], 304),
        (&[("If-Modified-Since", past)], 200),
        (&[("If-Modified-Since", "garbage")], 200),
        (&[("If-Unmodified-Since", past)], 412),
        (&[("If-Unmodified-Since", &now)], 200),
        (&[("If-Match", &etag), ("If-Unmodified-Since", past)], 200),
        (&[("If-None-Match", other), ("If-Modified-Since", &now)], 200),
        (&[("If-Match", other), ("If-None-Match", &etag)], 412),
    ];
    for (headers, status) in table {
        for method in ["GET", "HEAD"] {
            let got = root.call(method, path, headers, b"");
            assert_eq!(got.status, status, "{method} {headers:?}");
            if status == 304 {
                assert_eq!(got.header("etag").as_ref(), Some(&etag));
                assert_eq!(got.header("last-modified").as_ref(), Some(&now));
                assert_eq!(got.header("content-type"), None);
            }
        }
    }
    root.call("PUT", path, &[("If-None-Match", "*")], b"x").expect(412);
    root.call("PUT", path, &[("If-Match", other)], b"x").expect(412);
    root.call("PUT", "/storage/bucket/new", &[("If-Match", other)], b"x").expect(404);
    root.call("PUT", "/storage/bucket/new", &[("If-None-Match", "*")], b"x").expect(201);
    root.call("DELETE", path, &[("If-Match", other)], b"").expect(412);
    assert_eq!(root.get(path).body, b"0123456789");
    root.call("PUT", path, &[("If-Match", &etag)], b"y").expect(204);
    root.call("DELETE", path, &[("If-Match", &etag)], b"").expect(412);
    root.call("DELETE", path, &[("If-Match", "*")], b"").expect(204);
}
