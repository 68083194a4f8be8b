//! The contents of the log at the highest level, and what it must not have.

use crate::http_harness::{Client, Server};

#[test]
fn planted_secrets_are_not_in_the_log() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"planted-body").expect(201);
    root.put("/storage/bucket/a", b"planted-body").expect(201);
    let key = r#"{"user":"u","id":"KEY","secret":"planted-secret-0123"}"#;
    root.call("POST", "/admin/keys", &[], key.as_bytes()).expect(201);
    root.call("POST", "/admin/keys", &[], &key.as_bytes()[..50]).expect(400);
    let made = root.call("POST", "/admin/tokens", &[], br#"{"user":"u"}"#).expect(201).json();
    let token = made["token"].as_str().unwrap().to_owned();
    server.client("KEY", "planted-secret-0123").get("/storage/").expect(200);
    server.client("KEY", "planted-secret-wrong").get("/storage/").expect(401);
    for authorization in [format!("Bearer {token}"), format!("Bearer {token}planted-tail")] {
        let client = Client { authorization: Some(authorization), ..server.anonymous() };
        client.get("/storage/?token=planted-in-query");
    }
    let log = server.log.text();
    assert!(log.contains("/storage/bucket/a"), "the log has requests in it");
    for secret in ["planted", &token, server.root.secret.expose(), "Basic ", "Bearer "] {
        assert!(!log.contains(secret), "{secret} in {log}");
    }
    server.stop_master();
    root.put("/storage/bucket/b", b"x").expect(503);
    assert!(server.log.text().contains("ERROR"), "a failure is logged as one");
}
