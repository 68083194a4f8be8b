//! Every verb, asked for by everybody.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::http_harness::{Client, Server, Setup};

/// A verb and the status for: anonymous, stranger, reader, writer, owner, root.
type Row = (&'static str, &'static str, [u16; 6]);

const PRIVATE: [Row; 30] = [
    ("GET", "/storage/bucket/a", [401, 403, 200, 403, 200, 200]),
    ("HEAD", "/storage/bucket/a", [401, 403, 200, 403, 200, 200]),
    ("PUT", "/storage/bucket/a", [401, 403, 403, 204, 204, 204]),
    ("POST", "/storage/bucket/a", [401, 403, 403, 200, 200, 200]),
    ("GET", "/storage/bucket/a?follow", [401, 403, 200, 403, 200, 200]),
    ("GET", "/storage/bucket/a?lines=1", [401, 403, 200, 403, 200, 200]),
    ("GET", "/storage/bucket/dir/?follow", [401, 403, 404, 403, 404, 404]),
    ("POST", "/storage/bucket/a?append", [401, 403, 403, 400, 400, 400]),
    ("GET", "/", [404, 200, 200, 200, 200, 200]),
    ("POST", "/_bulk", [401, 200, 200, 200, 200, 200]),
    ("POST", "/loki/api/v1/push", [401, 400, 400, 400, 400, 400]),
    ("POST", "/v1/logs", [401, 400, 400, 400, 400, 400]),
    ("POST", "/upload", [401, 400, 400, 400, 400, 400]),
    ("DELETE", "/storage/bucket/none", [401, 403, 403, 404, 404, 404]),
    ("GET", "/storage/bucket/", [401, 403, 200, 403, 200, 200]),
    ("GET", "/storage/bucket/?recursive", [401, 403, 200, 403, 200, 200]),
    ("GET", "/storage/bucket/dir/", [401, 403, 200, 403, 200, 200]),
    ("GET", "/storage/bucket/dir/?zip", [401, 403, 200, 403, 200, 200]),
    ("DELETE", "/storage/bucket/dir/", [401, 403, 403, 404, 404, 404]),
    ("GET", "/storage/bucket", [401, 403, 200, 403, 200, 200]),
    ("HEAD", "/storage/bucket", [401, 403, 200, 403, 200, 200]),
    ("PATCH", "/storage/bucket?cache_control=x", [401, 403, 403, 403, 204, 204]),
    ("GET", "/storage/bucket?cors", [401, 403, 200, 403, 200, 200]),
    ("PUT", "/storage/bucket?cors", [401, 403, 403, 403, 400, 400]),
    ("DELETE", "/storage/bucket?cors", [401, 403, 403, 403, 204, 204]),
    ("DELETE", "/storage/bucket", [401, 403, 403, 403, 409, 409]),
    ("PUT", "/storage/bucket", [401, 409, 409, 409, 409, 409]),
    ("GET", "/storage/", [401, 200, 200, 200, 200, 200]),
    ("GET", "/metrics", [200, 403, 403, 403, 403, 200]),
    ("GET", "/healthz", [200; 6]),
];

const PUBLIC: [Row; 5] = [
    ("GET", "/storage/bucket/a", [200; 6]),
    ("GET", "/storage/bucket/", [200; 6]),
    ("PUT", "/storage/bucket/a", [401, 403, 403, 204, 204, 204]),
    ("DELETE", "/storage/bucket/none", [401, 403, 403, 404, 404, 404]),
    ("PATCH", "/storage/bucket?cache_control=x", [401, 403, 403, 403, 204, 204]),
];

const ADMIN: [(&str, &str, &str); 12] = [
    ("GET", "/admin/keys", ""),
    ("POST", "/admin/keys", r#"{"user":"new"}"#),
    ("DELETE", "/admin/keys/none", ""),
    ("POST", "/admin/tokens", r#"{"user":"root"}"#),
    ("GET", "/admin/exports", ""),
    ("POST", "/admin/exports", r#"{"bucket":"none","user":"root","clients":["10.0.0.0/8"]}"#),
    ("PATCH", "/admin/exports/none", r#"{"owner":{"uid":1,"gid":1}}"#),
    ("DELETE", "/admin/exports/none", ""),
    ("GET", "/admin/status", ""),
    ("POST", "/admin/gc?dry_run=1", ""),
    ("GET", "/admin/nothing", ""),
    ("PUT", "/admin/keys", ""),
];

struct Cast {
    server: Server,
    clients: [Client; 6],
}

fn cast() -> Cast {
    let server = Server::start();
    let users = ["stranger", "reader", "writer", "owner"].map(|name| server.user(name));
    let [stranger, reader, writer, owner] = users;
    owner.put("/storage/bucket", b"").expect(201);
    owner.put("/storage/bucket/a", b"x").expect(201);
    owner.put("/storage/bucket/dir/b", b"x").expect(201);
    owner.call("PATCH", "/storage/bucket?grant=reader:read", &[], b"").expect(204);
    owner.call("PATCH", "/storage/bucket?grant=writer:write", &[], b"").expect(204);
    let clients = [server.anonymous(), stranger, reader, writer, owner, server.root()];
    Cast { server, clients }
}

fn check(cast: &Cast, table: &[Row]) {
    for (method, path, statuses) in table {
        for (at, (client, status)) in cast.clients.iter().zip(statuses).enumerate() {
            let got = client.call(method, path, &[], b"");
            assert_eq!(got.status, *status, "{method} {path} by #{at}: {}", got.text());
            assert_eq!(got.status == 401, got.header("www-authenticate").is_some());
        }
    }
}

#[test]
fn verbs_by_callers() {
    let cast = cast();
    check(&cast, &PRIVATE);
    cast.clients[4].call("PATCH", "/storage/bucket?visibility=public", &[], b"").expect(204);
    check(&cast, &PUBLIC);
}

#[test]
fn administration_is_for_root() {
    let cast = cast();
    let [anonymous, others @ .., root] = &cast.clients;
    for (method, path, json) in ADMIN {
        anonymous.call(method, path, &[], json.as_bytes()).expect(401);
        for other in others {
            other.call(method, path, &[], json.as_bytes()).expect(403);
        }
        let status = root.call(method, path, &[], json.as_bytes()).status;
        assert!(matches!(status, 200 | 201 | 404 | 405), "{method} {path}: {status}");
    }
}

#[test]
fn wrong_credentials_are_never_anonymous() {
    let cast = cast();
    let server = &cast.server;
    server.root().call("PATCH", "/storage/bucket?visibility=public", &[], b"").expect(204);
    let (id, secret) = (&server.root.id, server.root.secret.expose());
    let basic = |text: &str| format!("Basic {}", BASE64.encode(text));
    let wrong = [
        basic(&format!("{id}:wrong-secret-0123456789")),
        basic(&format!("{id}:{secret}x")),
        basic(&format!("{id}:")),
        basic(&format!("nobody:{secret}")),
        basic(&format!(":{secret}")),
        basic("no-colon"),
        basic("../../x:y"),
        "Basic".into(),
        "Basic !!!".into(),
        "Basic /w==".into(),
        "Bearer".into(),
        "Bearer x".into(),
        "Bearer cairn_AAAA_BBBB".into(),
        "Bearer cairn__".into(),
        "Digest username=root".into(),
        "AWS4-HMAC-SHA256 Credential=x".into(),
        String::new(),
    ];
    for authorization in wrong {
        let client = Client { authorization: Some(authorization.clone()), ..server.anonymous() };
        for path in ["/storage/bucket/a", "/storage/bucket/", "/healthz", "/nothing", "/metrics"] {
            let got = client.get(path);
            assert_eq!(got.status, 401, "{authorization:?} {path}");
            assert_eq!(got.error(), "bad_credentials");
        }
    }
    let root = server.root();
    let twice = root.authorization.clone().unwrap();
    root.get_with("/storage/bucket/a", &[("Authorization", &twice)]).expect(401);
}

#[test]
fn tokens_work_until_they_expire_or_are_removed() {
    let cast = cast();
    let (server, root) = (&cast.server, cast.server.root());
    let make = |json: &str| root.call("POST", "/admin/tokens", &[], json.as_bytes()).expect(201);
    let with = |token: &str| Client {
        authorization: Some(format!("Bearer {token}")),
        ..server.anonymous()
    };
    let made = make(r#"{"user":"reader"}"#).json();
    let (id, token) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
    let reader = with(token);
    reader.get("/storage/bucket/a").expect(200);
    reader.put("/storage/bucket/a", b"").expect(403);
    with(&format!("{token}x")).get("/storage/bucket/a").expect(401);
    root.call("DELETE", &format!("/admin/tokens/{id}"), &[], b"").expect(204);
    reader.get("/storage/bucket/a").expect(401);
    let made = make(r#"{"user":"reader","expires_s":600}"#).json();
    let brief = with(made["token"].as_str().unwrap());
    brief.get("/storage/bucket/a").expect(200);
    server.clock.advance(601);
    brief.get("/storage/bucket/a").expect(401);
    let post = |json: &str| root.call("POST", "/admin/tokens", &[], json.as_bytes());
    post(r#"{"user":"none"}"#).expect(404);
    post(r#"{"user":"reader","expires_s":0}"#).expect(400);
    post(r#"{"user":"reader","expires":9}"#).expect(400);
}

#[test]
fn keys_are_made_shown_once_and_removed() {
    let cast = cast();
    let root = cast.server.root();
    let post = |json: &str| root.call("POST", "/admin/keys", &[], json.as_bytes());
    let made = post(r#"{"user":"newcomer"}"#).expect(201).json();
    let (id, secret) = (made["id"].as_str().unwrap(), made["secret"].as_str().unwrap());
    let newcomer = cast.server.client(id, secret);
    newcomer.put("/storage/newcomers", b"").expect(201);
    let keys = root.get("/admin/keys").expect(200);
    assert!(keys.text().contains(id) && !keys.text().contains(secret));
    assert_eq!(keys.header("cache-control").as_deref(), Some("no-store"));
    let own = r#"{"user":"x","id":"OWN","secret":"0123456789abcdef"}"#;
    post(own).expect(201);
    assert_eq!(post(own).expect(409).error(), "exists");
    let short = post(r#"{"user":"x","secret":"tiny-se"}"#).expect(400);
    assert!(!short.text().contains("tiny-se"));
    let misspelt = post(r#"{"user":"x","secrets":"planted-secret-value"}"#).expect(400);
    assert!(!misspelt.text().contains("planted"), "{}", misspelt.text());
    root.call("DELETE", &format!("/admin/keys/{id}"), &[], b"").expect(204);
    newcomer.get("/storage/").expect(401);
    let last = root.call("DELETE", &format!("/admin/keys/{}", cast.server.root.id), &[], b"");
    last.expect(403);
}

#[test]
fn metrics_are_not_for_proxied_strangers() {
    let server = Server::with(Setup::default());
    server.anonymous().get("/metrics").expect(200);
    let forwarded = [("X-Forwarded-For", "1.2.3.4")];
    server.anonymous().get_with("/metrics", &forwarded).expect(401);
    server.root().get_with("/metrics", &forwarded).expect(200);
}
