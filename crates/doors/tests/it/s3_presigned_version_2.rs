//! URLs as aws-cli and boto3 presign them by default.

use aws_lc_rs::hmac::{HMAC_SHA1_FOR_LEGACY_USE_ONLY, Key, sign};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::s3_harness::{Client, NOW, Reply, Server};

/// The parts that are signed, and those that are sent.
struct Url<'a> {
    method: &'a str,
    path: &'a str,
    signed: String,
    expires: i64,
    query: Vec<(&'a str, &'a str)>,
    /// As they are signed, and as they are sent.
    lines: &'a str,
    headers: Vec<(&'a str, &'a str)>,
}

impl<'a> Url<'a> {
    fn new(method: &'a str, path: &'a str) -> Url<'a> {
        Url {
            method,
            path,
            signed: path.into(),
            expires: NOW + 60,
            query: Vec::new(),
            lines: "\n\n",
            headers: Vec::new(),
        }
    }

    fn send(&self, server: &Server, anonymous: &Client) -> Reply {
        let key = Key::new(HMAC_SHA1_FOR_LEGACY_USE_ONLY, server.root.secret.expose().as_bytes());
        let (fixed, amz) =
            self.lines.split_at(self.lines.match_indices('\n').nth(1).unwrap().0 + 1);
        let text = format!("{}\n{fixed}{}\n{amz}{}", self.method, self.expires, self.signed);
        let signature = STANDARD.encode(sign(&key, text.as_bytes()));
        let mut ask = anonymous.ask(self.method, self.path);
        for (name, value) in &self.query {
            ask = ask.query(name, value);
        }
        for (name, value) in &self.headers {
            ask = ask.header(name, value);
        }
        ask.query("AWSAccessKeyId", &server.root.id)
            .query("Signature", &signature)
            .query("Expires", &self.expires.to_string())
            .send()
    }
}

#[test]
fn are_good_for_what_was_signed_and_nothing_else() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    root.put("/photos/a", b"bytes").ok();
    root.put("/photos/b", b"other").ok();
    let anonymous = server.anonymous();
    let get = || Url::new("GET", "/photos/a");
    assert_eq!(get().send(&server, &anonymous).ok().text(), "bytes");

    let other_key = Url { signed: "/photos/b".into(), ..get() };
    other_key.send(&server, &anonymous).fails(403, "SignatureDoesNotMatch");
    let old = Url { expires: NOW - 1, ..Url::new("GET", "/photos/b") };
    old.send(&server, &anonymous).fails(403, "AccessDenied");
    let far = Url { expires: NOW + 30 * 86_400, ..Url::new("GET", "/photos/b") };
    far.send(&server, &anonymous).fails(403, "AccessDenied");
    let unsigned = Url { query: vec![("response-content-type", "text/html")], ..get() };
    unsigned.send(&server, &anonymous).fails(403, "SignatureDoesNotMatch");
    let split = Url { query: vec![("response-content-type", "a&acl")], ..get() };
    split.send(&server, &anonymous).fails(400, "InvalidRequest");
    let unknown = Url { query: vec![("retention", "")], ..get() };
    unknown.send(&server, &anonymous).fails(400, "InvalidRequest");
}

#[test]
fn cover_the_overrides_of_a_reply() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    root.put("/photos/a", b"bytes").ok();
    let url = Url {
        signed: "/photos/a?response-content-type=text/plain".into(),
        query: vec![("response-content-type", "text/plain")],
        ..Url::new("GET", "/photos/a")
    };
    let reply = url.send(&server, &server.anonymous()).ok();
    assert_eq!(reply.header("content-type"), Some("text/plain"));
}

/// SDKs repeat in the query the headers that they signed.
#[test]
fn carry_the_headers_that_were_signed() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    let anonymous = server.anonymous();
    let put = |lines, query, headers| {
        let url = Url { lines, query, headers, ..Url::new("PUT", "/photos/a") };
        url.send(&server, &anonymous)
    };
    let kind = ("content-type", "text/x-a");
    put("\ntext/x-a\n", vec![kind], vec![kind]).ok();
    assert_eq!(root.head("/photos/a").header("content-type"), Some("text/x-a"));
    let other = ("content-type", "text/x-b");
    put("\ntext/x-a\n", vec![kind], vec![other]).fails(403, "SignatureDoesNotMatch");
    put("\ntext/x-a\n", vec![kind], vec![]).fails(403, "SignatureDoesNotMatch");
    let md5 = ("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg==");
    put("1B2M2Y8AsgTpgAmY7PhCfg==\n\n", vec![md5], vec![md5]).ok();
    let meta = ("x-amz-meta-who", "me");
    let lines = "\n\nx-amz-meta-who:me\n";
    for headers in [vec![meta], vec![]] {
        root.put("/photos/a", b"").ok();
        put(lines, vec![meta], headers).ok();
        assert_eq!(root.head("/photos/a").header("x-amz-meta-who"), Some("me"));
    }
    let you = ("x-amz-meta-who", "you");
    put(lines, vec![meta], vec![you]).fails(403, "SignatureDoesNotMatch");
    put("\n\n", vec![meta], vec![]).fails(403, "SignatureDoesNotMatch");
    put("\n\nx-amz-meta-who:you\n", vec![meta], vec![you]).fails(400, "InvalidRequest");
    let split = ("x-amz-meta-a", "1\nx-amz-meta-b:2");
    let lines = "\n\nx-amz-meta-a:1\nx-amz-meta-b:2\n";
    put(lines, vec![split], vec![]).fails(400, "InvalidRequest");
    let acl = ("x-amz-acl", "private");
    put("\n\nx-amz-acl:private\n", vec![acl], vec![acl]).ok();
}

#[test]
fn list_as_those_of_s3_do() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    root.put("/photos/plain", b"1").ok();
    root.put("/photos/other", b"1").ok();
    let query = vec![("list-type", "2"), ("prefix", "p"), ("max-keys", "5")];
    let url = Url { query, ..Url::new("GET", "/photos") };
    assert_eq!(url.send(&server, &server.anonymous()).ok().all("Key"), ["plain"]);
    // They change nothing into something else.
    for (method, name) in [("PUT", "prefix"), ("GET", "retention"), ("DELETE", "list-type")] {
        let url = Url { query: vec![(name, "1")], ..Url::new(method, "/photos") };
        url.send(&server, &server.anonymous()).fails(400, "InvalidRequest");
    }
    let url = Url { query: vec![("policy", "")], ..Url::new("GET", "/photos") };
    url.send(&server, &server.anonymous()).fails(403, "SignatureDoesNotMatch");
}
