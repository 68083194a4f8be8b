//! Multipart uploads from end to end.

use crate::s3_harness::{Client, Reply, Server};

const MIB: usize = 1 << 20;

fn data(size: usize, seed: usize) -> Vec<u8> {
    (0..size).map(|at| ((at * 31 + at / 997 + seed) % 251) as u8).collect()
}

fn begin(client: &Client, path: &str) -> String {
    client.post(&format!("{path}?uploads"), "").ok().one("UploadId")
}

fn part(client: &Client, path: &str, upload: &str, number: u32, body: &[u8]) -> Reply {
    client.put(&format!("{path}?partNumber={number}&uploadId={upload}"), body)
}

fn complete(client: &Client, path: &str, upload: &str, parts: &[(u32, String)]) -> Reply {
    client.post(&format!("{path}?uploadId={upload}"), &list(parts))
}

fn list(parts: &[(u32, String)]) -> String {
    let parts: String = parts
        .iter()
        .map(|(number, etag)| {
            format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>")
        })
        .collect();
    format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>")
}

#[test]
fn an_upload_becomes_an_object() {
    let server = Server::start();
    let root = server.root();
    root.put("/videos", b"").ok();
    let begun = root
        .ask("POST", "/videos/a/film?uploads")
        .header("content-type", "video/mp4")
        .header("x-amz-meta-year", "1999")
        .header("x-amz-tagging", "a=b")
        .send()
        .ok();
    let upload = begun.one("UploadId");
    let path = "/videos/a/film";
    let (one, two, three) = (data(5 * MIB, 1), data(6 * MIB + 17, 2), data(1000, 3));
    // Out of order, one of them replaced, with holes in the numbering.
    let third = part(&root, path, &upload, 7, &three).ok().etag();
    part(&root, path, &upload, 2, &data(100, 9)).ok();
    let first = part(&root, path, &upload, 2, &one).ok().etag();
    let second = part(&root, path, &upload, 5, &two).ok().etag();
    part(&root, path, &upload, 6, b"left out").ok();
    root.get(path).fails(404, "NoSuchKey");
    let listed = root.get(&format!("{path}?uploadId={upload}")).ok();
    assert_eq!(listed.all("PartNumber"), ["2", "5", "6", "7"]);
    assert_eq!(listed.all("Size"), ["5242880", "6291473", "8", "1000"]);
    let page = root.get(&format!("{path}?uploadId={upload}&max-parts=2")).ok();
    assert_eq!(page.all("PartNumber"), ["2", "5"]);
    assert_eq!(
        (page.one("IsTruncated"), page.one("NextPartNumberMarker")),
        ("true".into(), "5".into())
    );
    let page = root.get(&format!("{path}?uploadId={upload}&part-number-marker=5")).ok();
    assert_eq!((page.all("PartNumber").len(), page.one("IsTruncated")), (2, "false".into()));
    let uploads = root.get("/videos?uploads").ok();
    assert_eq!((uploads.one("Key"), uploads.one("UploadId")), ("a/film".into(), upload.clone()));
    let parts = [(2, first), (5, second), (7, third)];
    let done = complete(&root, path, &upload, &parts).ok();
    assert!(done.one("ETag").ends_with("-3\""), "{}", done.text());
    assert_eq!(done.one("Location"), "http://test/videos/a/film");
    let whole = [&one[..], &two, &three].concat();
    let got = root.get(path).ok();
    assert!(got.body == whole);
    assert_eq!(got.etag(), done.one("ETag"));
    assert_eq!(got.header("content-type"), Some("video/mp4"));
    assert_eq!(got.header("x-amz-meta-year"), Some("1999"));
    assert_eq!(got.header("x-amz-tagging-count"), Some("1"));
    assert_eq!(complete(&root, path, &upload, &parts).ok().one("ETag"), done.one("ETag"));
    complete(&root, path, &upload, &parts[..1]).fails(404, "NoSuchUpload");
    part(&root, path, &upload, 1, b"").fails(404, "NoSuchUpload");
    assert!(root.get("/videos?uploads").ok().all("UploadId").is_empty());
    read_by_parts(&root, path, [&one, &two, &three]);
}

/// Part by part, and the table of them.
fn read_by_parts(root: &Client, path: &str, parts: [&[u8]; 3]) {
    let [one, two, _] = parts;
    let whole = parts.concat();
    // Read back by parts.
    let bounds = [0, one.len(), one.len() + two.len(), whole.len()];
    for number in 1..=3 {
        let got = root.get(&format!("{path}?partNumber={number}")).ok();
        assert_eq!(got.status, 206);
        assert!(got.body == whole[bounds[number - 1]..bounds[number]], "{number}");
        assert_eq!(got.header("x-amz-mp-parts-count"), Some("3"));
        let head = root.head(&format!("{path}?partNumber={number}"));
        assert_eq!(head.header("content-range"), got.header("content-range"));
    }
    root.get(&format!("{path}?partNumber=4")).fails(416, "InvalidPartNumber");
    root.get(&format!("{path}?partNumber=0")).fails(400, "InvalidArgument");
    let attributes = root
        .ask("GET", "/videos/a/film?attributes")
        .header("x-amz-object-attributes", "ObjectParts,ObjectSize")
        .header("x-amz-max-parts", "2")
        .send()
        .ok();
    assert_eq!(attributes.one("PartsCount"), "3");
    assert_eq!(attributes.all("Size"), ["5242880", "6291473"]);
    assert_eq!(attributes.one("IsTruncated"), "true");
}

#[test]
fn what_completion_refuses() {
    let server = Server::start();
    let root = server.root();
    root.put("/videos", b"").ok();
    let path = "/videos/a";
    let upload = begin(&root, path);
    let small = part(&root, path, &upload, 1, b"small").ok().etag();
    let large = part(&root, path, &upload, 2, &data(5 * MIB, 1)).ok().etag();
    let last = part(&root, path, &upload, 3, b"last").ok().etag();
    let refuse = |parts: &[(u32, &str)], status: u16, code: &str| {
        let parts: Vec<_> = parts.iter().map(|(at, etag)| (*at, (*etag).to_owned())).collect();
        complete(&root, path, &upload, &parts).fails(status, code);
        root.get(path).fails(404, "NoSuchKey");
    };
    refuse(&[], 400, "MalformedXML");
    refuse(&[(2, &large), (1, &small)], 400, "InvalidPartOrder");
    refuse(&[(2, &large), (2, &large)], 400, "InvalidPartOrder");
    refuse(&[(2, &small)], 400, "InvalidPart");
    refuse(&[(4, &last)], 400, "InvalidPart");
    refuse(&[(0, &last)], 400, "InvalidArgument");
    refuse(&[(1, &small), (2, &large)], 400, "EntityTooSmall");
    let wrong = root.ask("POST", &format!("{path}?uploadId={upload}"));
    let body = list(&[(2, large.clone()), (3, last.clone())]);
    let wrong = wrong.header("x-amz-mp-object-size", "5").body(body.as_bytes());
    wrong.send().fails(400, "InvalidRequest");
    for bad in ["nonsense", "00000000000000000000000000000001"] {
        let other = format!("{path}?uploadId={bad}");
        root.post(&other, &body).fails(404, "NoSuchUpload");
        root.get(&other).fails(404, "NoSuchUpload");
        root.delete(&other).fails(404, "NoSuchUpload");
        part(&root, path, bad, 1, b"").fails(404, "NoSuchUpload");
    }
    // An upload belongs to its key.
    complete(&root, "/videos/b", &upload, &[(3, last.clone())]).fails(404, "NoSuchUpload");
    for number in ["0", "10001", "-1"] {
        let path = format!("{path}?partNumber={number}&uploadId={upload}");
        root.put(&path, b"").fails(400, "InvalidArgument");
    }
    let ask = root.ask("POST", &format!("{path}?uploadId={upload}")).body(body.as_bytes());
    ask.clone().header("if-match", "\"x\"").send().fails(404, "NoSuchKey");
    root.put(path, b"there").ok();
    ask.clone().header("if-none-match", "*").send().fails(412, "PreconditionFailed");
    assert_eq!(root.get(path).text(), "there");
    ask.header("x-amz-mp-object-size", &(5 * MIB + 4).to_string()).send().ok();
    assert_eq!(root.head(path).header("content-length"), Some(&*(5 * MIB + 4).to_string()));
}

#[test]
fn an_aborted_upload_is_gone() {
    let server = Server::start();
    let root = server.root();
    root.put("/videos", b"").ok();
    let upload = begin(&root, "/videos/a");
    let etag = part(&root, "/videos/a", &upload, 1, b"1").ok().etag();
    assert_eq!(root.delete(&format!("/videos/a?uploadId={upload}")).status, 204);
    complete(&root, "/videos/a", &upload, &[(1, etag)]).fails(404, "NoSuchUpload");
    root.delete("/videos").ok();
}

#[test]
fn parts_by_copy() {
    let server = Server::start();
    let root = server.root();
    root.put("/videos", b"").ok();
    root.put("/source", b"").ok();
    let source = data(11 * MIB, 4);
    root.put("/source/a%20b", &source).ok();
    let upload = begin(&root, "/videos/copy");
    let copy = |number: u32, range: Option<&str>| {
        let path = format!("/videos/copy?partNumber={number}&uploadId={upload}");
        let ask = root.ask("PUT", &path).header("x-amz-copy-source", "source/a%20b");
        match range {
            Some(range) => ask.header("x-amz-copy-source-range", range).send(),
            None => ask.send(),
        }
    };
    let first = copy(1, Some("bytes=100-6291555")).ok().one("ETag");
    let second = copy(2, None).ok().one("ETag");
    let third = part(&root, "/videos/copy", &upload, 3, b"end").ok().etag();
    copy(4, Some("bytes=0-99999999")).fails(400, "InvalidArgument");
    copy(4, Some("bytes=5-1")).fails(400, "InvalidArgument");
    let parts = [(1, first), (2, second), (3, third)];
    complete(&root, "/videos/copy", &upload, &parts).ok();
    let whole = [&source[100..=6_291_555], &source[..], b"end"].concat();
    assert!(root.get("/videos/copy").ok().body == whole);
    root.delete("/source/a%20b").ok();
    assert!(root.get("/videos/copy").ok().body == whole);
    let upload = begin(&root, "/videos/c");
    let path = format!("/videos/c?partNumber=1&uploadId={upload}");
    let ask = |source: &str| root.ask("PUT", &path).header("x-amz-copy-source", source);
    ask("nosuch/a").send().fails(404, "NoSuchBucket");
    ask("videos/nosuch").send().fails(404, "NoSuchKey");
    ask("videos").send().fails(400, "InvalidArgument");
    ask("videos/").send().fails(400, "InvalidArgument");
    ask("").send().fails(400, "InvalidRequest");
    let path = "/videos/c?partNumber=1&uploadId=00000000000000000000000000000001";
    let ask = root.ask("PUT", path).header("x-amz-copy-source", "videos/copy");
    ask.send().fails(404, "NoSuchUpload");
}

#[test]
fn checksums_of_parts_and_of_the_whole() {
    let server = Server::start();
    let root = server.root();
    root.put("/videos", b"").ok();
    let (one, two) = (data(5 * MIB, 1), data(77, 2));
    for (algorithm, kind, header) in [
        ("CRC32", "COMPOSITE", "x-amz-checksum-crc32"),
        ("CRC32C", "FULL_OBJECT", "x-amz-checksum-crc32c"),
        ("CRC64NVME", "FULL_OBJECT", "x-amz-checksum-crc64nvme"),
        ("SHA256", "COMPOSITE", "x-amz-checksum-sha256"),
        ("XXHASH3", "COMPOSITE", "x-amz-checksum-xxhash3"),
    ] {
        let begun = root
            .ask("POST", "/videos/a?uploads")
            .header("x-amz-checksum-algorithm", algorithm)
            .header("x-amz-checksum-type", kind)
            .send()
            .ok();
        assert_eq!(begun.header("x-amz-checksum-type"), Some(kind));
        let upload = begun.one("UploadId");
        let put = |number: u32, body: &[u8]| part(&root, "/videos/a", &upload, number, body).ok();
        let (first, second) = (put(1, &one), put(2, &two));
        let sum = first.header(header).unwrap().to_owned();
        let path = format!("/videos/a?uploadId={upload}");
        assert_eq!(root.get(&path).ok().one(&format!("Checksum{algorithm}")), sum);
        let mixed = root.ask("PUT", &format!("/videos/a?partNumber=3&uploadId={upload}"));
        let mixed = mixed.header("x-amz-checksum-sha1", "Kq5sNclPz7QV2+lfQIuc6R7oRu0=");
        mixed.body(b"hello world").send().fails(400, "InvalidRequest");
        let parts = list(&[(1, first.etag()), (2, second.etag())]);
        let other = second.header(header).unwrap().to_owned();
        let wrong = root.ask("POST", &path).header(header, &other).body(parts.as_bytes());
        wrong.send().fails(400, "BadDigest");
        let done = root.post(&path, &parts).ok();
        let whole = done.one(&format!("Checksum{algorithm}"));
        assert_eq!(whole.ends_with("-2"), kind == "COMPOSITE", "{whole}");
        assert_eq!(done.one("ChecksumType"), kind);
        let head = root.ask("HEAD", "/videos/a").header("x-amz-checksum-mode", "ENABLED").send();
        assert_eq!(head.header(header), Some(&*whole));
        assert_eq!(head.header("x-amz-checksum-type"), Some(kind));
        let ask = |mode: &str| {
            let ask = root.ask("HEAD", "/videos/a?partNumber=2");
            ask.header("x-amz-checksum-mode", mode).send()
        };
        assert_eq!(ask("ENABLED").header(header), Some(&*other));
        assert_eq!(ask("ENABLED").header("x-amz-checksum-type"), Some(kind));
        assert_eq!(ask("").header(header), None);
        if kind == "FULL_OBJECT" {
            let ask = root.ask("PUT", "/videos/whole").header(header, &whole);
            ask.body(&[&one[..], &two].concat()).send().ok();
        }
    }
    for (algorithm, kind) in [
        ("SHA1", "FULL_OBJECT"),
        ("XXHASH64", "FULL_OBJECT"),
        ("CRC64NVME", "COMPOSITE"),
        ("MD4", ""),
    ] {
        let ask =
            root.ask("POST", "/videos/a?uploads").header("x-amz-checksum-algorithm", algorithm);
        ask.header("x-amz-checksum-type", kind).send().fails(400, "InvalidRequest");
    }
}

/// As at S3, CRC64NVME of the whole object, whether its bytes came at once or in parts.
#[test]
fn objects_without_a_checksum_get_one() {
    const SUM: &str = "x-amz-checksum-crc64nvme";
    let server = Server::start();
    let root = server.root();
    root.put("/videos", b"").ok();
    let (one, two) = (data(5 * MIB, 1), data(77, 2));
    let whole = root.put("/videos/whole", &[&one[..], &two].concat()).ok();
    assert_eq!(whole.header("x-amz-checksum-type"), Some("FULL_OBJECT"));
    let sum = whole.header(SUM).unwrap().to_owned();
    let begin_of_two = || {
        let upload = begin(&root, "/videos/a");
        let put = |number, body: &[u8]| part(&root, "/videos/a", &upload, number, body).ok();
        let parts = list(&[(1, put(1, &one).etag()), (2, put(2, &two).etag())]);
        (format!("/videos/a?uploadId={upload}"), parts)
    };
    let (path, parts) = begin_of_two();
    assert_eq!(root.post(&path, &parts).ok().one("ChecksumCRC64NVME"), sum);
    let (path, parts) = begin_of_two();
    let ask = |kind: &str, sum: &str| {
        let ask = root.ask("POST", &path).header("x-amz-checksum-type", kind).header(SUM, sum);
        ask.body(parts.as_bytes()).send()
    };
    ask("COMPOSITE", &sum).fails(400, "InvalidRequest");
    ask("FULL_OBJECT", "AAAAAAAAAAA=").fails(400, "BadDigest");
    assert_eq!(ask("FULL_OBJECT", &sum).ok().one("ChecksumType"), "FULL_OBJECT");
    let head = root.ask("HEAD", "/videos/a").header("x-amz-checksum-mode", "ENABLED").send();
    assert_eq!(head.header(SUM), Some(&*sum));
    // A part with another checksum has no CRC64NVME, and neither has the object.
    let upload = begin(&root, "/videos/b");
    let other = root.ask("PUT", &format!("/videos/b?partNumber=1&uploadId={upload}"));
    let other = other.header("x-amz-checksum-md5", "XrY7u+Ae7tCTyyK7j1rNww==");
    let other = other.body(b"hello world").send().ok();
    let (path, parts) = (format!("/videos/b?uploadId={upload}"), list(&[(1, other.etag())]));
    let ask = root.ask("POST", &path).header(SUM, &sum).body(parts.as_bytes());
    ask.send().fails(400, "InvalidRequest");
    assert!(root.post(&path, &parts).ok().all("ChecksumCRC64NVME").is_empty());
}

#[test]
fn uploads_are_listed_in_pages() {
    let server = Server::start();
    let root = server.root();
    root.put("/videos", b"").ok();
    let mut all = Vec::new();
    for key in ["a/1", "a/2", "b", "b", "c/x", "d"] {
        all.push((key.to_owned(), begin(&root, &format!("/videos/{key}"))));
    }
    all.sort();
    let (mut seen, mut key, mut upload) = (Vec::new(), String::new(), String::new());
    loop {
        let path =
            format!("/videos?uploads&max-uploads=2&key-marker={key}&upload-id-marker={upload}");
        let page = root.get(&path.replace('/', "%2F").replacen("%2F", "/", 1)).ok();
        seen.extend(page.all("Key").into_iter().zip(page.all("UploadId")));
        if page.one("IsTruncated") == "false" {
            break;
        }
        (key, upload) = (page.one("NextKeyMarker"), page.one("NextUploadIdMarker"));
    }
    assert_eq!(seen, all);
    let rolled = root.get("/videos?uploads&delimiter=%2F").ok();
    assert_eq!(rolled.all("Key"), ["b", "b", "d"]);
    let prefixes: Vec<_> = rolled.all("CommonPrefixes");
    assert_eq!(prefixes, ["<Prefix>a/</Prefix>", "<Prefix>c/</Prefix>"]);
    assert_eq!(root.get("/videos?uploads&prefix=a%2F").ok().all("Key"), ["a/1", "a/2"]);
}

#[test]
fn a_slow_completion_is_answered_piecemeal() {
    let server = Server::impatient();
    let root = server.root();
    root.put("/videos", b"").ok();
    let upload = begin(&root, "/videos/a");
    let etag = part(&root, "/videos/a", &upload, 1, b"1").ok().etag();
    let wrong = complete(&root, "/videos/a", &upload, &[(2, etag.clone())]);
    assert_eq!((wrong.status, wrong.code().as_str()), (200, "InvalidPart"));
    assert_eq!((wrong.one("Resource"), wrong.all("RequestId").len()), ("/videos/a".into(), 1));
    assert_eq!(wrong.text().matches("<?xml").count(), 1, "{}", wrong.text());
    root.get("/videos/a").fails(404, "NoSuchKey");
    let done = complete(&root, "/videos/a", &upload, &[(1, etag)]);
    assert_eq!(done.header("transfer-encoding"), Some("chunked"));
    assert_eq!(done.text().matches("<?xml").count(), 1, "{}", done.text());
    assert_eq!(root.get("/videos/a").ok().etag(), done.one("ETag"));
}
