//! All wishes of a request are done or refused: ACLs, tags, headers of every operation.

use crate::s3_harness::{Client, Server};

/// Headers of S3's API, whatever operation they belong to.
const HEADERS: &[(&str, &str)] = &[
    ("if-match", "\"x\""),
    ("if-modified-since", "Thu, 01 Jan 2026 00:00:00 GMT"),
    ("if-none-match", "\"x\""),
    ("if-unmodified-since", "Thu, 01 Jan 2026 00:00:00 GMT"),
    ("x-amz-acl", "private"),
    ("x-amz-bucket-object-lock-enabled", "true"),
    ("x-amz-bypass-governance-retention", "true"),
    ("x-amz-checksum-algorithm", "CRC32"),
    ("x-amz-checksum-crc32", "AAAAAA=="),
    ("x-amz-checksum-mode", "ENABLED"),
    ("x-amz-checksum-type", "COMPOSITE"),
    ("x-amz-copy-source-range", "bytes=0-0"),
    ("x-amz-copy-source-if-match", "\"x\""),
    ("x-amz-copy-source-server-side-encryption-customer-algorithm", "AES256"),
    ("x-amz-grant-full-control", "id=1"),
    ("x-amz-grant-read", "id=1"),
    ("x-amz-if-match-last-modified-time", "1"),
    ("x-amz-if-match-size", "1"),
    ("x-amz-max-parts", "1"),
    ("x-amz-meta-a", "b"),
    ("x-amz-metadata-directive", "REPLACE"),
    ("x-amz-mfa", "1 2"),
    ("x-amz-mp-object-size", "1"),
    ("x-amz-object-attributes", "ETag"),
    ("x-amz-object-lock-legal-hold", "ON"),
    ("x-amz-object-lock-mode", "GOVERNANCE"),
    ("x-amz-object-ownership", "ObjectWriter"),
    ("x-amz-optional-object-attributes", "Other"),
    ("x-amz-part-number-marker", "1"),
    ("x-amz-sdk-checksum-algorithm", "CRC32"),
    ("x-amz-server-side-encryption", "AES256"),
    ("x-amz-server-side-encryption-aws-kms-key-id", "k"),
    ("x-amz-server-side-encryption-bucket-key-enabled", "true"),
    ("x-amz-server-side-encryption-context", "e30="),
    ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
    ("x-amz-source-expected-bucket-owner", "000000000099"),
    ("x-amz-storage-class", "GLACIER"),
    ("x-amz-tagging", "a=b"),
    ("x-amz-tagging-directive", "REPLACE"),
    ("x-amz-trailer", "x-amz-checksum-crc32"),
    ("x-amz-transition-default-minimum-object-size", "varies_by_storage_class"),
    ("x-amz-unheard-of", "1"),
    ("x-amz-website-redirect-location", "/b"),
    ("x-amz-write-offset-bytes", "1"),
];

/// Operations, and which of those headers they honour, beside those of their bodies.
const OPERATIONS: &[(&str, &str, &str)] = &[
    ("GET", "/", ""),
    ("HEAD", "/photos", ""),
    ("GET", "/photos", ""),
    ("GET", "/photos?list-type=2", ""),
    ("GET", "/photos?versions", ""),
    ("GET", "/photos?uploads", ""),
    ("GET", "/photos?acl", ""),
    ("GET", "/photos?tagging", ""),
    ("GET", "/photos?location", ""),
    ("GET", "/photos?versioning", ""),
    ("GET", "/photos?policy", ""),
    ("GET", "/photos?logging", ""),
    ("PUT", "/fresh", "x-amz-acl x-amz-bucket-object-lock-enabled x-amz-object-ownership"),
    ("PUT", "/photos?acl", "x-amz-acl"),
    ("DELETE", "/photos", ""),
    ("DELETE", "/photos?tagging", ""),
    ("GET", "/photos/a", "x-amz-checksum-mode if-"),
    ("HEAD", "/photos/a", "x-amz-checksum-mode if-"),
    ("GET", "/photos/a?acl", ""),
    ("GET", "/photos/a?tagging", ""),
    (
        "GET",
        "/photos/a?attributes",
        "x-amz-object-attributes x-amz-max-parts x-amz-part-number-marker",
    ),
    (
        "PUT",
        "/photos/a",
        "if-match if-none-match x-amz-acl x-amz-checksum-algorithm x-amz-checksum-type \
         x-amz-meta-a x-amz-storage-class x-amz-tagging",
    ),
    (
        "POST",
        "/photos/a?uploads",
        "if-match if-none-match x-amz-acl x-amz-checksum-algorithm x-amz-checksum-type \
         x-amz-meta-a x-amz-storage-class x-amz-tagging",
    ),
    (
        "DELETE",
        "/photos/a",
        "if-match if-none-match x-amz-if-match-size x-amz-bypass-governance-retention",
    ),
    ("DELETE", "/photos/a?tagging", ""),
];

fn store(server: &Server) -> Client {
    let root = server.root();
    root.put("/photos", b"").ok();
    root.put("/photos/a", b"before").ok();
    root
}

#[test]
fn headers_are_refused_where_they_have_no_effect() {
    let server = Server::start();
    let root = store(&server);
    let mut refused = 0;
    for (method, path, honoured) in OPERATIONS {
        let honoured: Vec<&str> = honoured.split(' ').collect();
        for (name, value) in HEADERS {
            let is_of_body = name.starts_with("x-amz-checksum-crc")
                || ["x-amz-sdk-checksum-algorithm", "x-amz-trailer"].contains(name);
            let takes_body = *method == "PUT" || path.contains("?delete");
            let reads = matches!(*method, "GET" | "HEAD") && name.starts_with("if-");
            // It only describes.
            let describes =
                matches!(*method, "GET" | "HEAD" | "DELETE") && name.starts_with("x-amz-meta-");
            let is_honoured = honoured.iter().any(|known| known == name);
            if is_honoured || (is_of_body && takes_body) || reads || describes {
                continue;
            }
            let reply = root.ask(method, path).header(name, value).send();
            assert!(matches!(reply.status, 400 | 501), "{method} {path} {name}: {}", reply.status);
            refused += 1;
        }
        assert_eq!(root.get("/photos/a").ok().text(), "before", "{method} {path}");
        root.get("/fresh").fails(404, "NoSuchBucket");
    }
    assert!(refused > 700, "{refused}");
    assert!(root.get("/photos?uploads").ok().all("UploadId").is_empty());
}

#[test]
fn parameters_are_refused_where_they_have_no_effect() {
    let server = Server::start();
    let root = store(&server);
    for path in ["/", "/photos", "/photos?list-type=2", "/photos/a", "/photos?uploads"] {
        for name in ["unheard-of=1", "v=2", "allow-unordered=true", "max-size=1"] {
            let join = if path.contains('?') { '&' } else { '?' };
            root.get(&format!("{path}{join}{name}")).fails(501, "NotImplemented");
        }
    }
    root.get("/photos/a?x-id=GetObject").ok();
}

#[test]
fn an_acl_that_cannot_be_kept_is_refused() {
    let server = Server::start();
    let root = store(&server);
    root.ask("PUT", "/public").header("x-amz-acl", "public-read").send().ok();
    root.put("/public/there", b"1").ok();
    for acl in ["private", "bucket-owner-full-control"] {
        let ask = |method: &str, path: &str| root.ask(method, path).header("x-amz-acl", acl);
        ask("PUT", "/public/secret").body(b"secret").send().fails(501, "NotImplemented");
        ask("POST", "/public/secret?uploads").send().fails(501, "NotImplemented");
        let copy = ask("PUT", "/public/secret").header("x-amz-copy-source", "/photos/a");
        copy.send().fails(501, "NotImplemented");
        ask("PUT", "/public/there?acl").send().fails(501, "NotImplemented");
        server.anonymous().get("/public/secret").fails(404, "NoSuchKey");
        ask("PUT", "/photos/b").body(b"b").send().ok();
        ask("PUT", "/photos/b?acl").send().ok();
        server.anonymous().get("/photos/b").fails(403, "AccessDenied");
    }
    assert!(root.get("/public?uploads").ok().all("UploadId").is_empty());
    let open = |path: &str| root.ask("PUT", path).header("x-amz-acl", "public-read").send();
    open("/public/open").ok();
    open("/public/open?acl").ok();
    open("/photos/b").fails(501, "NotImplemented");
    // A bucket that may not be written does not tell how visible it is.
    let stranger = server.user("stranger");
    for path in ["/public/x", "/photos/x"] {
        let reply = stranger.ask("PUT", path).header("x-amz-acl", "private").send();
        reply.fails(403, "AccessDenied");
    }
}

#[test]
fn an_acl_opens_no_bucket_unless_the_server_says_so() {
    let server = Server::with_closed_acls();
    let root = store(&server);
    for path in ["/open", "/photos?acl"] {
        let open = root.ask("PUT", path).header("x-amz-acl", "public-read").send();
        open.fails(501, "NotImplemented");
    }
    let list = root.get("/photos?acl").ok().text();
    let everybody = "<Grant><Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" \
        xsi:type=\"Group\"><URI>http://acs.amazonaws.com/groups/global/AllUsers</URI></Grantee>\
        <Permission>READ</Permission></Grant></AccessControlList>";
    let opened = list.replace("</AccessControlList>", everybody);
    assert_ne!(opened, list);
    root.put("/photos?acl", opened.as_bytes()).fails(501, "NotImplemented");
    root.get("/open").fails(404, "NoSuchBucket");
    server.anonymous().get("/photos").fails(403, "AccessDenied");
    // A request for the present state is accepted.
    root.put("/photos?acl", list.as_bytes()).ok();
    root.ask("PUT", "/photos?acl").header("x-amz-acl", "private").send().ok();
}

#[test]
fn a_bucket_is_made_as_it_is_asked_for() {
    let server = Server::start();
    let root = server.root();
    let with = |inside: &str| {
        let text = format!("<CreateBucketConfiguration>{inside}</CreateBucketConfiguration>");
        root.put("/tagged", text.as_bytes())
    };
    let tags = |key: &str| format!("<Tags><Tag><Key>{key}</Key><Value>b</Value></Tag></Tags>");
    with("<LocationConstraint>not a region</LocationConstraint>")
        .fails(400, "InvalidLocationConstraint");
    with("<LocationConstraint>elsewhere-1</LocationConstraint>")
        .fails(400, "InvalidLocationConstraint");
    with(&tags("&#1;")).fails(400, "InvalidTag");
    root.get("/tagged").fails(404, "NoSuchBucket");
    with(&tags("a")).ok();
    assert_eq!(root.get("/tagged?tagging").ok().one("Key"), "a");
    // Once more, as after a lost answer; what differs is refused.
    with(&tags("a")).ok();
    with(&tags("c")).fails(409, "BucketAlreadyOwnedByYou");
    with("").fails(409, "BucketAlreadyOwnedByYou");
    with("<LocationConstraint>eu-test-1</LocationConstraint>")
        .fails(409, "BucketAlreadyOwnedByYou");
    root.put("/plain", b"").ok();
    root.put("/plain", b"").ok();
    // Only us-east-1 of S3 makes a bucket again, and a region is named here.
    let located = b"<CreateBucketConfiguration><LocationConstraint>eu-test-1</LocationConstraint>\
                    </CreateBucketConfiguration>";
    root.put("/plain", located).fails(409, "BucketAlreadyOwnedByYou");
    let public = root.ask("PUT", "/plain").header("x-amz-acl", "public-read");
    public.clone().send().fails(409, "BucketAlreadyOwnedByYou");
    server.user("other").put("/plain", b"").fails(409, "BucketAlreadyExists");
    let both = root.ask("PUT", "/owned").header("x-amz-acl", "public-read");
    let both = both.header("x-amz-object-ownership", "BucketOwnerEnforced");
    both.send().fails(400, "InvalidBucketAclWithObjectOwnership");
    let one = root.ask("PUT", "/owned").header("x-amz-object-ownership", "BucketOwnerEnforced");
    one.send().ok();
    for name in ["foo.-bar", "foo-.bar"] {
        root.put(&format!("/{name}"), b"").fails(400, "InvalidBucketName");
    }
    assert_eq!(root.get("/?bucket-region=eu-test-1").ok().all("Name").len(), 3);
    assert!(root.get("/?bucket-region=elsewhere-1").ok().all("Name").is_empty());
}

#[test]
fn tags_are_text_that_xml_can_say() {
    let server = Server::start();
    let root = store(&server);
    for tag in ["a=b%00", "a%01=b", "a=%7F", "a=%0A"] {
        let put = root.ask("PUT", "/photos/t").header("x-amz-tagging", tag);
        put.body(b"t").send().fails(400, "InvalidTag");
    }
    root.ask("PUT", "/photos/t").header("x-amz-tagging", "=").send().fails(400, "InvalidArgument");
    root.get("/photos/t").fails(404, "NoSuchKey");
    let set = |path: &str, key: &str| {
        let tag = format!("<Tag><Key>{key}</Key><Value>v</Value></Tag>");
        root.put(path, format!("<Tagging><TagSet>{tag}</TagSet></Tagging>").as_bytes())
    };
    for path in ["/photos?tagging", "/photos/a?tagging"] {
        for key in ["&#11;", "&#1;", "\u{1}"] {
            set(path, key).fails(400, "InvalidTag");
        }
    }
    // S3 allows some characters only, in keys.
    for path in ["/photos?tagging", "/photos/a?tagging"] {
        for key in ["k!?*", "a&lt;", "{a}", "\u{20ac}", "a;b"] {
            set(path, key).fails(400, "InvalidTag");
        }
        set(path, "Kost stelle+-=._:/@9 \u{e9}").ok();
    }
    let put = root.ask("PUT", "/photos/t").header("x-amz-tagging", "k%21=v");
    put.body(b"t").send().fails(400, "InvalidTag");
    root.get("/photos/t").fails(404, "NoSuchKey");
    assert_eq!(set("/photos?tagging", "&#xE9;").status, 204);
    assert_eq!(root.get("/photos?tagging").ok().one("Key"), "é");
}

#[test]
fn unknown_elements_are_refused() {
    let server = Server::start();
    let root = store(&server);
    let odd = "<Unheard>1</Unheard>";
    for (method, path, element) in [
        ("PUT", "/fresh", "CreateBucketConfiguration"),
        ("PUT", "/photos?tagging", "Tagging"),
        ("PUT", "/photos/a?tagging", "Tagging"),
        ("POST", "/photos?delete", "Delete"),
    ] {
        let known = match element {
            "Tagging" => "<TagSet></TagSet>",
            "Delete" => "<Object><Key>a</Key></Object>",
            _ => "",
        };
        let text = format!("<{element}>{known}{odd}</{element}>");
        let reply = root.ask(method, path).body(text.as_bytes()).send();
        reply.fails(400, "MalformedXML");
    }
    assert_eq!(root.get("/photos/a").ok().text(), "before");
}

#[test]
fn a_piece_is_not_put_as_the_whole() {
    let server = Server::start();
    let root = store(&server);
    let put = root.ask("PUT", "/photos/a").header("content-range", "bytes 0-1/6");
    put.body(b"xx").send().fails(400, "InvalidRequest");
    assert_eq!(root.get("/photos/a").ok().text(), "before");
}

#[test]
fn checksums_that_are_asked_for_are_computed() {
    let server = Server::start();
    let root = store(&server);
    let ask = || root.ask("PUT", "/photos/sum").header("x-amz-checksum-algorithm", "CRC32");
    let sum = "DUoRhQ==";
    let put = ask().body(b"hello world").send().ok();
    assert_eq!(put.header("x-amz-checksum-crc32"), Some(sum));
    let head = root.ask("HEAD", "/photos/sum").header("x-amz-checksum-mode", "ENABLED").send();
    assert_eq!(head.header("x-amz-checksum-crc32"), Some(sum));
    let other = ask().header("x-amz-checksum-sha1", "Kq5sNclPz7QV2+lfQIuc6R7oRu0=");
    other.body(b"hello world").send().fails(400, "InvalidRequest");
    for word in ["", "MD4"] {
        let ask = root.ask("PUT", "/photos/sum").header("x-amz-checksum-algorithm", word);
        ask.body(b"x").send().fails(400, "InvalidRequest");
    }
    assert_eq!(root.get("/photos/sum").ok().text(), "hello world");
}

/// A wrong guess and a right one look the same to callers without rights.
#[test]
fn the_owner_of_a_private_bucket_is_not_told() {
    let server = Server::start();
    let root = store(&server);
    let owner = root.get("/photos?acl").ok().one("ID");
    assert!(owner.starts_with('c') && owner.len() == 64, "{owner}");
    let wrong = owner.replace('1', "2");
    for client in [server.anonymous(), server.user("stranger")] {
        for (method, path) in [("GET", "/photos/a"), ("GET", "/photos"), ("PUT", "/photos/b")] {
            let told = |guess: &str| {
                let ask = client.ask(method, path).header("x-amz-expected-bucket-owner", guess);
                let reply = ask.send().fails(403, "AccessDenied");
                (reply.one("Message"), reply.one("Detail"))
            };
            assert_eq!(told(&owner), told(&wrong), "{method} {path}");
        }
    }
    let ask =
        |guess: &str| root.ask("GET", "/photos/a").header("x-amz-expected-bucket-owner", guess);
    ask(&owner).send().ok();
    // As ids were written before.
    ask(&format!("0{}", &owner[1..])).send().ok();
    ask(&wrong).send().fails(403, "AccessDenied");
}

#[test]
fn a_public_bucket_tells_strangers_no_names() {
    let server = Server::start();
    let root = server.root();
    root.ask("PUT", "/public").header("x-amz-acl", "public-read").send().ok();
    root.put("/public/a", b"1").ok();
    root.post("/public/b?uploads", "").ok();
    let anonymous = server.anonymous();
    for path in ["/public", "/public?list-type=2&fetch-owner=true", "/public?versions"] {
        assert_eq!(root.get(path).ok().all("DisplayName"), ["root"], "{path}");
        assert!(anonymous.get(path).ok().all("DisplayName").is_empty(), "{path}");
    }
    anonymous.get("/public?uploads").fails(403, "AccessDenied");
}
