//! URLs as aws-cli and boto3 presign them by default.

use aws_lc_rs::hmac::{HMAC_SHA1_FOR_LEGACY_USE_ONLY, Key, sign};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::s3_harness::{Client, NOW, Reply, Server};

/// What is signed, and what is sent.
struct Url<'a> {
    method: &'a str,
    path: &'a str,
    signed: String,
    expires: i64,
    query: Vec<(&'a str, &'a str)>,
}

impl<'a> Url<'a> {
    fn new(method: &'a str, path: &'a str) -> Url<'a> {
        Url { method, path, signed: path.into(), expires: NOW + 60, query: Vec::new() }
    }

    fn send(&self, server: &Server, anonymous: &Client) -> Reply {
        let key = Key::new(HMAC_SHA1_FOR_LEGACY_USE_ONLY, server.root.secret.expose().as_bytes());
        let text = format!("{}\n\n\n{}\n{}", self.method, self.expires, self.signed);
        let signature = STANDARD.encode(sign(&key, text.as_bytes()));
        let mut ask = anonymous.ask(self.method, self.path);
        for (name, value) in &self.query {
            ask = ask.query(name, value);
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
