//! Documents of errors, questions about what is off, requests that are sent again, copies.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest, Sha256};

use crate::s3_harness::{Client, Connection, Server};

const MIB: usize = 1 << 20;

fn store(server: &Server) -> Client {
    let root = server.root();
    root.put("/photos", b"").ok();
    root.put("/photos/a", b"0123456789").ok();
    root
}

fn sha256(bytes: &[u8]) -> String {
    BASE64.encode(Sha256::digest(bytes))
}

#[test]
fn errors_have_their_fields() {
    let server = Server::start();
    let root = store(&server);
    let words = "At least one of the pre-conditions you specified did not hold";
    for (method, header, value) in [
        ("PUT", "If-None-Match", "*"),
        ("PUT", "If-Match", "\"0\""),
        ("GET", "If-Match", "\"0\""),
        ("GET", "If-Unmodified-Since", "Thu, 01 Jan 1970 00:00:00 GMT"),
    ] {
        let reply = root.ask(method, "/photos/a").header(&header.to_lowercase(), value).send();
        let reply = reply.fails(412, "PreconditionFailed");
        assert_eq!((reply.one("Condition"), reply.one("Message")), (header.into(), words.into()));
    }
    let copy = root.ask("PUT", "/photos/b").header("x-amz-copy-source", "/photos/a");
    let copy = copy.header("x-amz-copy-source-if-match", "\"0\"").send();
    let copy = copy.fails(412, "PreconditionFailed");
    assert_eq!(copy.one("Condition"), "x-amz-copy-source-If-Match");
    let none = root.get("/photos/none").fails(404, "NoSuchKey");
    assert_eq!(
        (none.one("Key"), none.one("Message")),
        ("none".into(), "The specified key does not exist.".into())
    );
    let id = none.one("RequestId");
    assert!(id.starts_with('R') && none.header("x-amz-request-id") == Some(&*id), "{id}");
    assert_eq!(none.header("x-amz-id-2"), Some(&*none.one("HostId")));
    let none = root.get("/photos/none?tagging").fails(404, "NoSuchKey");
    assert_eq!(none.one("Key"), "none");
    let none = root.get("/nosuch?acl").fails(404, "NoSuchBucket");
    assert_eq!(none.one("BucketName"), "nosuch");
    let range = root.ask("GET", "/photos/a").header("range", "bytes=50-").send();
    let range = range.fails(416, "InvalidRange");
    assert_eq!(range.one("RangeRequested"), "bytes=50-");
    assert_eq!(range.one("ActualObjectSize"), "10");
    let upload = root.get("/photos/a?uploadId=none").fails(404, "NoSuchUpload");
    assert_eq!(upload.one("UploadId"), "none");
    for (method, path) in [
        ("PUT", "/nosuch/a?partNumber=1&uploadId=none"),
        ("GET", "/nosuch/a?uploadId=none"),
        ("DELETE", "/nosuch/a?uploadId=none"),
    ] {
        root.ask(method, path).send().fails(404, "NoSuchBucket");
    }
    let parts = list(&[(1, "\"0\"".into())]);
    root.post("/nosuch/a?uploadId=none", &parts).fails(404, "NoSuchBucket");
    let copy = root.ask("PUT", "/photos/b").header("x-amz-copy-source", "photos/%ZZ");
    copy.send().fails(400, "InvalidArgument");
}

#[test]
fn what_is_off_is_said_to_be() {
    let server = Server::start();
    let root = store(&server);
    for (parameter, code) in [
        ("policy", "NoSuchBucketPolicy"),
        ("lifecycle", "NoSuchLifecycleConfiguration"),
        ("object-lock", "ObjectLockConfigurationNotFoundError"),
        ("replication", "ReplicationConfigurationNotFoundError"),
        ("encryption", "ServerSideEncryptionConfigurationNotFoundError"),
    ] {
        root.get(&format!("/photos?{parameter}")).fails(404, code);
        root.get(&format!("/nosuch?{parameter}")).fails(404, "NoSuchBucket");
        root.put(&format!("/photos?{parameter}"), b"<x/>").fails(501, "NotImplemented");
        let stranger = server.user(&format!("stranger-{}", parameter.to_lowercase()));
        stranger.get(&format!("/photos?{parameter}")).fails(403, "AccessDenied");
    }
    for (parameter, root_element) in [
        ("logging", "<BucketLoggingStatus "),
        ("notification", "<NotificationConfiguration "),
        ("accelerate", "<AccelerateConfiguration "),
        ("requestPayment", "<Payer>BucketOwner</Payer>"),
    ] {
        let text = root.get(&format!("/photos?{parameter}")).ok().text();
        assert!(text.contains(root_element), "{text}");
        server.anonymous().get(&format!("/photos?{parameter}")).fails(403, "AccessDenied");
    }
    // Requests of browsers and encrypting clients are refused clearly.
    let form = b"--x\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\na\r\n--x--\r\n";
    let post =
        root.ask("POST", "/photos").header("content-type", "multipart/form-data; boundary=x");
    post.body(form).send().fails(501, "NotImplemented");
    root.ask("OPTIONS", "/photos/a").send().fails(400, "BadRequest");
    let put = root.ask("PUT", "/photos/a").header("x-amz-server-side-encryption", "AES256");
    put.body(b"x").send().fails(501, "NotImplemented");
    assert_eq!(root.get("/photos/a").ok().text(), "0123456789");
}

#[test]
fn each_object_is_its_only_version() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    for key in ["a", "b/1", "b/2", "c"] {
        root.put(&format!("/photos/{key}"), key.as_bytes()).ok();
        root.put(&format!("/photos/{key}"), key.as_bytes()).ok();
    }
    let all = root.get("/photos?versions").ok();
    assert_eq!(all.all("Key"), ["a", "b/1", "b/2", "c"]);
    assert_eq!(all.all("VersionId"), ["null"; 4]);
    assert_eq!(all.all("IsLatest"), ["true"; 4]);
    let (mut seen, mut marker) = (Vec::new(), String::new());
    loop {
        let page = root.get(&format!("/photos?versions&max-keys=1{marker}")).ok();
        seen.extend(page.all("Key"));
        if page.one("IsTruncated") == "false" {
            break;
        }
        assert_eq!(page.one("NextVersionIdMarker"), "null");
        let next = page.one("NextKeyMarker").replace('/', "%2F");
        marker = format!("&key-marker={next}&version-id-marker=null");
    }
    assert_eq!(seen, ["a", "b/1", "b/2", "c"]);
    let rolled = root.get("/photos?versions&delimiter=%2F").ok();
    assert_eq!(rolled.all("Key"), ["a", "c"]);
    root.get("/photos?versions&version-id-marker=null").fails(400, "InvalidArgument");
    // A listed version can be read, described and deleted by its name.
    assert_eq!(root.get("/photos/a?versionId=null").ok().text(), "a");
    assert_eq!(root.head("/photos/a?versionId=null").status, 200);
    for part in ["acl", "tagging"] {
        root.get(&format!("/photos/a?{part}&versionId=null")).ok();
    }
    let copy = root.ask("PUT", "/photos/d").header("x-amz-copy-source", "/photos/a?versionId=null");
    copy.send().ok();
    assert_eq!(root.delete("/photos/a?versionId=null").status, 204);
    let gone = "<Delete><Object><Key>c</Key><VersionId>null</VersionId></Object></Delete>";
    root.post("/photos?delete", gone).ok();
    assert_eq!(root.get("/photos?versions").ok().all("Key"), ["b/1", "b/2", "d"]);
}

fn upload(root: &Client, path: &str, headers: &[(&str, &str)]) -> String {
    let ask = root.ask("POST", &format!("{path}?uploads"));
    let ask = headers.iter().fold(ask, |ask, (name, value)| ask.header(name, value));
    ask.send().ok().one("UploadId")
}

fn list(parts: &[(u32, String)]) -> String {
    let part = |(number, etag): &(u32, String)| {
        format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>")
    };
    let parts: String = parts.iter().map(part).collect();
    format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>")
}

#[test]
fn what_was_done_is_done_again() {
    let server = Server::start();
    let root = store(&server);
    let id = upload(&root, "/photos/k+%20", &[]);
    assert!(id.starts_with('u') && id.len() == 32, "{id}");
    let put = root.put(&format!("/photos/k+%20?partNumber=1&uploadId={id}"), b"abc").ok();
    let done = |id: &str, parts: &[(u32, String)]| {
        root.post(&format!("/photos/k+%20?uploadId={id}"), &list(parts))
    };
    let parts = [(1, put.etag())];
    let one = done(&id, &parts).ok();
    assert_eq!(one.one("Location"), "http://test/photos/k%2B%20");
    // The same id as it was written before, too.
    for id in [id.clone(), format!("0{}", &id[1..])] {
        let two = done(&id, &parts).ok();
        assert_eq!((two.one("ETag"), two.one("Location")), (one.one("ETag"), one.one("Location")));
    }
    done(&id, &[(2, put.etag())]).fails(404, "NoSuchUpload");
    root.delete(&format!("/photos/k+%20?uploadId={id}")).fails(404, "NoSuchUpload");
    let host = root.ask("POST", &format!("/k+%20?uploadId={id}")).host("photos.s3.test");
    let host = host.body(list(&parts).as_bytes()).send().ok();
    assert_eq!(host.one("Location"), "http://photos.s3.test/k%2B%20");

    let id = upload(&root, "/photos/x", &[]);
    for _ in 0..2 {
        assert_eq!(root.delete(&format!("/photos/x?uploadId={id}")).status, 204);
    }
    for condition in ["*", "\"0\""] {
        let delete = root.ask("DELETE", "/photos/absent").header("if-match", condition);
        assert_eq!(delete.send().status, 204);
    }
    let delete = "<Delete><Object><Key>absent</Key><ETag>*</ETag></Object></Delete>";
    assert_eq!(root.post("/photos?delete", delete).ok().one("Key"), "absent");
    let delete = root.ask("DELETE", "/nosuch/absent").header("if-match", "*");
    delete.send().fails(404, "NoSuchBucket");
    let delete = root.ask("DELETE", "/photos/a").header("if-match", "\"0\"");
    delete.send().fails(412, "PreconditionFailed");

    root.put("/pending", b"").ok();
    upload(&root, "/pending/x", &[]);
    assert!(root.get("/pending").ok().all("Key").is_empty());
    assert_eq!(root.delete("/pending").status, 204);
    root.get("/pending").fails(404, "NoSuchBucket");
    root.delete("/photos").fails(409, "BucketNotEmpty");
}

#[test]
fn the_final_checksum_is_of_the_object() {
    let server = Server::start();
    let root = store(&server);
    let (one, two) = (vec![b'a'; 5 * MIB], vec![b'b'; 1000]);
    let composite = {
        let sums = [Sha256::digest(&one), Sha256::digest(&two)].concat();
        BASE64.encode(Sha256::digest(sums))
    };
    let full = {
        let whole = [&one[..], &two].concat();
        let put = root.ask("PUT", "/photos/whole").header("x-amz-checksum-algorithm", "CRC32");
        let put = put.body(&whole).send().ok();
        put.header("x-amz-checksum-crc32").unwrap().to_owned()
    };
    let with_count = format!("{composite}-2");
    let wrong_count = format!("{composite}-3");
    let other = sha256(b"other");
    for (algorithm, kind, value, fits) in [
        ("SHA256", "COMPOSITE", &composite, true),
        ("SHA256", "COMPOSITE", &with_count, true),
        ("SHA256", "COMPOSITE", &wrong_count, false),
        ("SHA256", "COMPOSITE", &other, false),
        ("CRC32", "FULL_OBJECT", &full, true),
        ("CRC32", "FULL_OBJECT", &"AAAAAQ==".to_owned(), false),
    ] {
        let begin = [("x-amz-checksum-algorithm", algorithm), ("x-amz-checksum-type", kind)];
        let id = upload(&root, "/photos/m", &begin);
        let part = |number: u32, body: &[u8]| {
            root.put(&format!("/photos/m?partNumber={number}&uploadId={id}"), body).ok().etag()
        };
        let parts = list(&[(1, part(1, &one)), (2, part(2, &two))]);
        let header = format!("x-amz-checksum-{}", algorithm.to_lowercase());
        let ask = root.ask("POST", &format!("/photos/m?uploadId={id}")).header(&header, value);
        let reply = ask.header("x-amz-checksum-type", kind).body(parts.as_bytes()).send();
        if fits {
            let told = reply.ok().one(&format!("Checksum{algorithm}"));
            assert!(told.starts_with(value.trim_end_matches("-2")), "{told} {value}");
        } else {
            drop(reply.fails(400, "BadDigest"))
        }
    }
    let id = upload(&root, "/photos/m", &[]);
    let put = root.put(&format!("/photos/m?partNumber=1&uploadId={id}"), b"x").ok();
    let ask = root.ask("POST", &format!("/photos/m?uploadId={id}"));
    let parts = list(&[(1, put.etag())]);
    let ask = ask.header("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==").body(parts.as_bytes());
    ask.send().fails(400, "BadDigest");
}

#[test]
fn copies_have_their_checksums() {
    let server = Server::start();
    let root = store(&server);
    let (one, two) = (vec![b'a'; 5 * MIB], vec![b'b'; 1000]);
    let whole = [&one[..], &two].concat();
    let begin = [("x-amz-checksum-algorithm", "SHA256")];
    let id = upload(&root, "/photos/src", &begin);
    let part = |number: u32, body: &[u8]| {
        root.put(&format!("/photos/src?partNumber={number}&uploadId={id}"), body).ok().etag()
    };
    let parts = list(&[(1, part(1, &one)), (2, part(2, &two))]);
    root.post(&format!("/photos/src?uploadId={id}"), &parts).ok();

    let id = upload(&root, "/photos/parts", &begin);
    let mut parts = Vec::new();
    for (number, range, bytes) in [
        (1, "bytes=0-5242879".to_owned(), &one[..]),
        (2, format!("bytes=5242880-{}", whole.len() - 1), &two),
    ] {
        let path = format!("/photos/parts?partNumber={number}&uploadId={id}");
        let ask = root.ask("PUT", &path).header("x-amz-copy-source", "/photos/src");
        let copied = ask.header("x-amz-copy-source-range", &range).send().ok();
        assert_eq!(copied.one("ChecksumSHA256"), sha256(bytes));
        parts.push((number, copied.one("ETag")));
    }
    let done = root.post(&format!("/photos/parts?uploadId={id}"), &list(&parts)).ok();
    assert!(done.one("ChecksumSHA256").ends_with("-2"), "{}", done.text());

    let copy = |algorithm: Option<&str>| {
        let ask = root.ask("PUT", "/photos/copy").header("x-amz-copy-source", "/photos/src");
        let ask = match algorithm {
            Some(word) => ask.header("x-amz-checksum-algorithm", word),
            None => ask,
        };
        ask.send()
    };
    assert_eq!(copy(None).ok().one("ChecksumSHA256"), sha256(&whole));
    let head = root.ask("HEAD", "/photos/copy").header("x-amz-checksum-mode", "ENABLED").send();
    assert_eq!(head.header("x-amz-checksum-sha256"), Some(&*sha256(&whole)));
    assert_eq!(head.header("x-amz-checksum-type"), Some("FULL_OBJECT"));
    for algorithm in ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256", "SHA512", "XXHASH128"] {
        let copied = copy(Some(algorithm)).ok().one(&format!("Checksum{algorithm}"));
        let put = root.ask("PUT", "/photos/put").header("x-amz-checksum-algorithm", algorithm);
        let put = put.body(&whole).send().ok();
        let header = format!("x-amz-checksum-{}", algorithm.to_lowercase());
        assert_eq!(put.header(&header), Some(&*copied));
    }
    copy(Some("MD4")).fails(400, "InvalidRequest");
    assert!(root.get("/photos/copy").ok().body == whole);
}

#[test]
fn a_refused_upload_leaves_its_connection() {
    let server = Server::start();
    let root = store(&server);
    let body = vec![b'x'; 4 * MIB];
    let refused = [
        ("x-amz-storage-class", "GLACIER", 400),
        ("x-amz-server-side-encryption", "AES256", 501),
        ("x-amz-expected-bucket-owner", "000000000099", 403),
        ("content-range", "bytes 0-1/2", 400),
    ];
    let mut connection = Connection::open(server.address);
    for (name, value, status) in refused {
        let wire = root.ask("PUT", "/photos/big").header(name, value).body(&body).wire();
        let (head, rest) = wire.split_at(wire.len() - body.len() + 10);
        connection.send(head);
        let reply = connection.reply("PUT");
        assert_eq!((reply.status, reply.header("connection")), (status, None), "{name}");
        // The client sends on, and the connection is good for the next request.
        connection.send(rest);
    }
    connection.send(&root.ask("GET", "/photos/a").wire());
    assert_eq!(connection.reply("GET").text(), "0123456789");
    // Of what is too long it is told that the connection ends.
    let mut wire = root.ask("PUT", "/photos/big").header("x-amz-storage-class", "GLACIER").wire();
    let text = String::from_utf8(wire).unwrap();
    wire = text.replacen("content-length: 0", "content-length: 99999999", 1).into_bytes();
    connection.send(&wire);
    let reply = connection.reply("PUT");
    assert_eq!((reply.status, reply.header("connection")), (400, Some("close")));
}

#[test]
fn dates_are_read_as_clients_write_them() {
    let server = Server::start();
    let root = store(&server);
    for zone in ["GMT", "-0000", "+0000"] {
        let ask = root.ask("GET", "/photos/a").lie(|lie| lie.no_date = true);
        ask.header("date", &format!("Thu, 01 Jan 2026 00:00:00 {zone}")).send().ok();
    }
    let ask = root.ask("GET", "/photos/a").lie(|lie| lie.no_date = true);
    let ask = ask.header("date", "Thu, 01 Jan 2026 01:00:00 +0100");
    ask.send().fails(403, "AccessDenied");
}

#[test]
fn tokens_are_no_numbers() {
    let server = Server::start();
    let root = store(&server);
    // Nor are the names of requests, many of which would have no letter.
    for _ in 0..100 {
        let id = root.get("/photos/none").fails(404, "NoSuchKey").one("RequestId");
        assert!(id.starts_with('R'), "{id}");
    }
    root.put("/photos/b", b"").ok();
    let token = root.get("/photos?list-type=2&max-keys=1").ok().one("NextContinuationToken");
    assert!(token.starts_with("k."), "{token}");
    for token in [&*token, &token[2..]] {
        let page = root.get(&format!("/photos?list-type=2&continuation-token={token}")).ok();
        assert_eq!(page.all("Key"), ["b"]);
    }
}
