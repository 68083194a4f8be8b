//! The access keys of a user: made and ended by that user alone, and never with a token.

use crate::http_harness::Server;

const JSON: (&str, &str) = ("Content-Type", "application/json");

#[test]
fn a_user_makes_and_ends_keys_without_root() {
    let server = Server::start();
    let (root, alice, bob) = (server.root(), server.user("alice"), server.user("bob"));
    let made = alice.call("POST", "/keys", &[JSON], b"{}").expect(201).json();
    let (id, secret) = (made["id"].as_str().unwrap(), made["secret"].as_str().unwrap());
    server.client(id, secret).get("/storage/").expect(200);
    let listed = alice.get("/keys").expect(200).json();
    let ids: Vec<&str> =
        listed["keys"].as_array().unwrap().iter().map(|key| key["id"].as_str().unwrap()).collect();
    assert!(ids.len() == 2 && ids.contains(&id) && ids.contains(&"KEY-alice"), "{ids:?}");
    assert!(!listed.to_string().contains(secret));
    let end = |id: &str| format!("/keys/{id}");
    for other in [id, "KEY-alice", "none"] {
        bob.call("DELETE", &end(other), &[], b"").expect(404);
    }
    root.call("DELETE", &end("KEY-alice"), &[], b"").expect(404);
    alice.call("DELETE", &end(id), &[], b"").expect(204);
    server.client(id, secret).get("/storage/").expect(401);
    alice.get("/admin/keys").expect(403);
}

#[test]
fn neither_tokens_nor_pages_nor_nobody_make_keys() {
    let server = Server::start();
    let (root, alice) = (server.root(), server.user("alice"));
    let token = root.call("POST", "/admin/tokens", &[], br#"{"user":"alice"}"#).expect(201).json();
    let mut bearer = server.anonymous();
    bearer.authorization = Some(format!("Bearer {}", token["token"].as_str().unwrap()));
    bearer.get("/storage/").expect(200);
    bearer.call("POST", "/keys", &[JSON], b"{}").expect(403);
    bearer.get("/keys").expect(403);
    server.anonymous().call("POST", "/keys", &[JSON], b"{}").expect(401);
    let page = [("Sec-Fetch-Site", "same-origin")];
    alice.call("POST", "/keys", &page, b"{}").expect(403);
    alice.call("DELETE", "/keys/KEY-alice", &page, b"").expect(403);
    assert_eq!(
        alice.get("/keys").json()["keys"].as_array().unwrap().len(),
        2,
        "the key and the token"
    );
    alice.call("POST", "/keys", &[JSON], br#"{"user":"bob"}"#).expect(400);
    for _ in 0..31 {
        alice.call("POST", "/keys", &[JSON], b"{}").expect(201);
    }
    alice.call("POST", "/keys", &[JSON], b"{}").expect(413);
}
