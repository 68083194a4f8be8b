//! Users who are disabled, and who sees what was granted to whom.

use cairn_base::UserId;
use cairn_doors::limits::FAILURES;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};

use crate::http_harness::{Client, Server};

#[test]
fn every_credential_of_theirs_is_refused_until_they_are_enabled() {
    let server = Server::start();
    let (root, alice) = (server.root(), server.user("alice"));
    alice.put("/storage/alices", b"").expect(201);
    alice.put("/storage/alices/a", b"x").expect(201);
    let token = root.call("POST", "/admin/tokens", &[], br#"{"user":"alice"}"#).expect(201).json();
    let mut bearer = server.anonymous();
    bearer.authorization = Some(format!("Bearer {}", token["token"].as_str().unwrap()));
    bearer.get("/storage/alices/a").expect(200);
    let set = |name: &str, disabled: bool| {
        let json = format!("{{\"disabled\":{disabled}}}");
        root.call("PATCH", &format!("/admin/users/{name}"), &[], json.as_bytes())
    };
    set("alice", true).expect(204);
    for client in [&alice, &bearer] {
        assert_eq!(client.get("/storage/alices/a").expect(401).error(), "bad_credentials");
        client.put("/storage/alices/b", b"x").expect(401);
    }
    // The door of S3 asks the same, and so does the look at the credentials of a mount.
    let found = server.runtime.block_on(server.admit.secret_of("KEY-alice")).unwrap();
    assert!(found.is_none());
    let users = root.get("/admin/users").expect(200).json();
    let of = |name: &str| {
        let users = users["users"].as_array().unwrap();
        users.iter().find(|user| user["name"] == name).unwrap().clone()
    };
    assert_eq!((&of("alice")["disabled"], &of("root")["disabled"]), (&true.into(), &false.into()));
    assert_eq!((&of("alice")["access_keys"], &of("alice")["tokens"]), (&1.into(), &1.into()));
    root.get("/storage/alices/a").expect(200);
    set("alice", false).expect(204);
    for client in [&alice, &bearer] {
        client.get("/storage/alices/a").expect(200);
    }
    set("root", true).expect(409);
    set("nobody", true).expect(404);
    for refused in [r#"{}"#, r#"{"disabled":"yes"}"#, r#"{"disabled":true,"x":1}"#] {
        root.call("PATCH", "/admin/users/alice", &[], refused.as_bytes()).expect(400);
    }
    alice.get("/admin/users").expect(403);
    alice.call("PATCH", "/admin/users/root", &[], br#"{"disabled":true}"#).expect(403);
}

#[test]
fn grants_are_seen_by_those_who_give_them() {
    let server = Server::start();
    let [owner, reader, admin] = ["owner", "reader", "admin"].map(|name| server.user(name));
    owner.put("/storage/bucket", b"").expect(201);
    owner.call("PATCH", "/storage/bucket?grant=reader:read", &[], b"").expect(204);
    owner.call("PATCH", "/storage/bucket?grant=admin:all", &[], b"").expect(204);
    for client in [&owner, &admin, &server.root()] {
        let grants = client.get("/storage/bucket").expect(200).json()["grants"].clone();
        let expected = serde_json::json!([
            {"user": "reader", "rights": "read"},
            {"user": "admin", "rights": "read,write,admin"},
        ]);
        assert_eq!(grants, expected);
    }
    assert!(reader.get("/storage/bucket").expect(200).json().get("grants").is_none());
    owner.call("PATCH", "/storage/bucket?grant=reader:none", &[], b"").expect(204);
    owner.call("PATCH", "/storage/bucket?grant=admin:none", &[], b"").expect(204);
    assert_eq!(owner.get("/storage/bucket").json()["grants"], serde_json::json!([]));
}

/// The credentials of a mount are looked at again and again: a key or token that is gone is a no,
/// whatever others send from the same address.
#[test]
fn a_mount_holds_as_long_as_its_credentials() {
    let server = Server::start();
    let (root, eve) = (server.root(), server.user("eve"));
    let (_, user) =
        server.runtime.block_on(server.admit.secret_of("KEY-eve")).unwrap().expect("a key");
    let token = root.call("POST", "/admin/tokens", &[], br#"{"user":"eve"}"#).expect(201).json();
    let mut bearer = server.anonymous();
    bearer.authorization = Some(format!("Bearer {}", token["token"].as_str().unwrap()));
    let look = |client: &Client, user: UserId| {
        let value = HeaderValue::from_str(client.authorization.as_deref().unwrap()).unwrap();
        let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
        server.runtime.block_on(server.admit.holds(&headers, user))
    };
    let wrong = server.client("KEY-eve", "wrong-secret-0123456789");
    for _ in 0..FAILURES {
        wrong.get("/healthz").expect(401);
    }
    for client in [&eve, &bearer] {
        assert!(look(client, user).unwrap());
        // A key that is given to somebody else is not that of the mount's user.
        assert!(!look(client, UserId(user.0 + 1)).unwrap());
    }
    assert!(!look(&wrong, user).unwrap());
    let set = |json: &[u8]| root.call("PATCH", "/admin/users/eve", &[], json).expect(204);
    set(br#"{"disabled":true}"#);
    assert!(!look(&eve, user).unwrap() && !look(&bearer, user).unwrap());
    set(br#"{"disabled":false}"#);
    assert!(look(&eve, user).unwrap() && look(&bearer, user).unwrap());
    root.call("DELETE", "/admin/keys/KEY-eve", &[], b"").expect(204);
    assert!(!look(&eve, user).unwrap() && look(&bearer, user).unwrap());
}
