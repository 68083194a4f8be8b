//! A request that this door does not know is never executed as something else.

use crate::s3_harness::Server;

/// Sub-resources of S3, of its extensions and of other servers.
const SUB_RESOURCES: &[&str] = &[
    "abac",
    "accelerate",
    "acl",
    "analytics",
    "append",
    "attributes",
    "cors",
    "defaultObjectAcl",
    "delete",
    "encryption",
    "events",
    "extract",
    "intelligent-tiering",
    "inventory",
    "legal-hold",
    "lifecycle",
    "location",
    "logging",
    "metadata",
    "metadataConfiguration",
    "metadataInventoryTable",
    "metadataJournalTable",
    "metadataTable",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "partNumber",
    "policy",
    "policyStatus",
    "position",
    "publicAccessBlock",
    "renameObject",
    "replication",
    "replication-metrics",
    "requestPayment",
    "restore",
    "retention",
    "select",
    "select&select-type=2",
    "session",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
    "unheard-of",
    "unheard-of=1",
    "Retention",
    "RETENTION=",
    "analytics&id=1",
    "inventory&id=1",
    "metrics&id=1",
    "intelligent-tiering&id=1",
    "uploadId&partNumber",
    "acl&retention",
    "tagging&legal-hold",
    "list-type=2&lifecycle",
    "x-id=PutObject&retention",
    "versionId=1",
];

#[test]
fn no_sub_resource_is_passed_over() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    root.put("/photos/a", b"before").ok();
    for sub in SUB_RESOURCES {
        for method in ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"] {
            for path in ["/photos/a", "/photos", "/fresh", "/"] {
                let body: &[u8] = if matches!(method, "PUT" | "POST") { b"after" } else { b"" };
                let reply = root.ask(method, &format!("{path}?{sub}")).body(body).send();
                let what = format!("{method} {path}?{sub}: {} {}", reply.status, reply.text());
                assert_ne!(reply.status, 500, "{what}");
                if reply.status < 300 {
                    assert!(is_known(method, path, sub), "{what}");
                }
            }
            root.get("/fresh").fails(404, "NoSuchBucket");
        }
        if sub.contains("tagging") {
            root.put("/photos", b"").ok();
        }
        let got = root.get("/photos/a");
        assert_eq!(got.text(), "before", "{sub}");
        assert_eq!(root.get("/photos").ok().all("Key"), ["a"], "{sub}");
    }
    assert_eq!(root.get("/").ok().all("Name"), ["photos"]);
}

#[test]
fn sub_resources_in_the_wrong_place_are_told_from_features() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    root.put("/photos/a", b"before").ok();
    for (method, path, status, code) in [
        ("POST", "/photos?uploads", 400, "InvalidRequest"),
        ("PUT", "/photos?partNumber=1&uploadId=x", 400, "InvalidRequest"),
        ("DELETE", "/photos?uploadId=x", 400, "InvalidRequest"),
        ("GET", "/photos?attributes", 400, "InvalidRequest"),
        ("PUT", "/photos?retention", 400, "InvalidRequest"),
        ("GET", "/photos/a?versioning", 405, "MethodNotAllowed"),
        ("GET", "/photos/a?uploads", 400, "InvalidRequest"),
        ("PUT", "/photos/a?policy", 405, "MethodNotAllowed"),
        ("DELETE", "/photos/a?lifecycle", 405, "MethodNotAllowed"),
        ("POST", "/photos/a?delete", 405, "MethodNotAllowed"),
        ("GET", "/?versioning", 405, "MethodNotAllowed"),
        ("POST", "/?uploads", 405, "MethodNotAllowed"),
        ("POST", "/", 405, "MethodNotAllowed"),
        // A known request at its place, which is not implemented.
        ("PUT", "/photos?lifecycle", 501, "NotImplemented"),
        ("POST", "/photos/a?restore", 501, "NotImplemented"),
        ("PUT", "/photos?unheard-of", 501, "NotImplemented"),
    ] {
        root.ask(method, path).send().fails(status, code);
    }
    assert_eq!(root.get("/photos/a").text(), "before");
}

fn is_known(method: &str, path: &str, sub: &str) -> bool {
    let sub = sub.split('&').next().unwrap();
    match (method, path) {
        ("GET", "/photos") => matches!(
            sub,
            "accelerate"
                | "acl"
                | "location"
                | "logging"
                | "notification"
                | "ownershipControls"
                | "policyStatus"
                | "requestPayment"
                | "uploads"
                | "versioning"
                | "versions"
        ),
        ("GET", "/photos/a") => matches!(sub, "acl" | "tagging" | "attributes"),
        ("POST", "/photos/a") => sub == "uploads",
        ("DELETE", "/photos") => matches!(
            sub,
            "cors"
                | "encryption"
                | "lifecycle"
                | "ownershipControls"
                | "policy"
                | "publicAccessBlock"
                | "replication"
                | "tagging"
                | "website"
        ),
        ("DELETE", "/photos/a") => sub == "tagging",
        _ => false,
    }
}

#[test]
fn headers_that_ask_for_more_are_refused() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    root.put("/photos/a", b"before").ok();
    for (name, value, status, code) in [
        ("x-amz-acl", "public-read", 501, "NotImplemented"),
        ("x-amz-acl", "authenticated-read", 501, "NotImplemented"),
        ("x-amz-grant-read", "id=1", 501, "NotImplemented"),
        ("x-amz-grant-full-control", "id=1", 501, "NotImplemented"),
        ("x-amz-server-side-encryption", "AES256", 501, "NotImplemented"),
        ("x-amz-server-side-encryption", "aws:kms", 501, "NotImplemented"),
        ("x-amz-server-side-encryption-customer-algorithm", "AES256", 501, "NotImplemented"),
        ("x-amz-server-side-encryption-customer-key", "AAAA", 501, "NotImplemented"),
        ("x-amz-object-lock-mode", "COMPLIANCE", 501, "NotImplemented"),
        ("x-amz-object-lock-retain-until-date", "2030-01-01T00:00:00Z", 501, "NotImplemented"),
        ("x-amz-object-lock-legal-hold", "ON", 501, "NotImplemented"),
        ("x-amz-website-redirect-location", "/b", 501, "NotImplemented"),
        ("x-amz-write-offset-bytes", "6", 501, "NotImplemented"),
        ("x-amz-storage-class", "GLACIER", 400, "InvalidStorageClass"),
        ("x-amz-unheard-of", "1", 501, "NotImplemented"),
        ("x-amz-expected-bucket-owner", "000000000099", 403, "AccessDenied"),
    ] {
        let ask = |method: &str, path: &str| root.ask(method, path).header(name, value);
        ask("PUT", "/photos/a").body(b"after").send().fails(status, code);
        ask("POST", "/photos/a?uploads").send().fails(status, code);
        let copy = ask("PUT", "/photos/b").header("x-amz-copy-source", "/photos/a");
        copy.send().fails(status, code);
        assert_eq!(root.get("/photos/a").text(), "before");
    }
    root.ask("PUT", "/photos/a").header("x-amz-expected-bucket-owner", "000000000001").send().ok();
    assert!(root.get("/photos?uploads").ok().all("UploadId").is_empty());
    root.get("/photos/b").fails(404, "NoSuchKey");
    let copy = root.ask("PUT", "/photos/b").header("x-amz-copy-source", "/photos/a?versionId=1");
    copy.send().fails(501, "NotImplemented");
    root.get("/photos/a?versionId=1").fails(404, "NoSuchVersion");
    root.get("/photos/a?versionId=null").ok();
}

#[test]
fn forms_are_not_taken() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    let form = "--x\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\na\r\n\
                --x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nb\r\n--x--\r\n";
    for client in [server.anonymous(), root.clone()] {
        for path in ["/photos", "/photos?delete", "/photos/a?uploads", "/photos/a", "/"] {
            let ask = client.ask("POST", path).body(form.as_bytes());
            let reply = ask.header("content-type", "multipart/form-data; boundary=x").send();
            assert!(matches!(reply.status, 400 | 403 | 405 | 501), "{path} {}", reply.text());
        }
    }
    assert!(root.get("/photos").ok().all("Key").is_empty());
    let made = root.ask("POST", "/photos/a?uploads");
    made.header("content-type", "multipart/form-data; boundary=x").send().ok();
}

#[test]
fn xml_is_bounded_and_plain() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    root.put("/photos/a", b"1").ok();
    let delete = |body: &str| root.post("/photos?delete", body);
    delete("").fails(400, "MissingRequestBodyError");
    delete("nonsense").fails(400, "MalformedXML");
    delete("<Delete></Delete>").fails(400, "MalformedXML");
    delete("<Delete><Object></Object></Delete>").fails(400, "MalformedXML");
    delete("<!DOCTYPE x [<!ENTITY e \"a\">]><Delete><Object><Key>&e;</Key></Object></Delete>")
        .fails(400, "MalformedXML");
    delete("<Delete><Object><Key><![CDATA[a]]></Key></Object></Delete>").fails(400, "MalformedXML");
    delete("<Delete><Object><Key>a<!-- x --><![CDATA[b]]></Key></Object></Delete>")
        .fails(400, "MalformedXML");
    delete(&format!("<Delete>{}</Delete>", "<Object><Key>k</Key></Object>".repeat(1001)))
        .fails(400, "MalformedXML");
    delete(&format!("<Delete>{}</Delete>", " ".repeat(2 << 20)))
        .fails(400, "MaxMessageLengthExceeded");
    delete(&"<a>".repeat(100_000)).fails(400, "MalformedXML");
    assert_eq!(root.get("/photos").ok().all("Key"), ["a"]);
    let digest =
        root.ask("POST", "/photos?delete").header("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==");
    let body = b"<Delete><Object><Key>a</Key></Object></Delete>";
    digest.body(body).send().fails(400, "BadDigest");
    assert_eq!(root.get("/photos").ok().all("Key"), ["a"]);
    let quiet = delete("<Delete><Quiet>true</Quiet><Object><Key>a</Key></Object></Delete>").ok();
    assert!(quiet.all("Key").is_empty());
    assert!(root.get("/photos").ok().all("Key").is_empty());
}
