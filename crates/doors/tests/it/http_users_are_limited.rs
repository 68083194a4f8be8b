//! Limits of requests of one user, at the HTTP door.

use crate::http_harness::Server;

#[test]
fn a_user_beyond_a_limit_is_told_when_to_come_back() {
    let server = Server::start();
    let (root, alice, bob) = (server.root(), server.user("alice"), server.user("bob"));
    let limit = |name: &str, text: &str| {
        root.call("PATCH", &format!("/admin/users/{name}"), &[], text.as_bytes())
    };
    limit("alice", r#"{"requests_per_second":3}"#).expect(204);
    for (name, text, status) in [
        ("alice", r#"{"bytes_per_second":1000}"#, 400),
        ("alice", "{}", 400),
        ("root", r#"{"requests_per_second":3}"#, 409),
        ("nobody", r#"{"requests_per_second":3}"#, 404),
    ] {
        limit(name, text).expect(status);
    }
    let listed = root.get("/admin/users").expect(200).json();
    let of = |name: &str| {
        let users = listed["users"].as_array().unwrap();
        users.iter().find(|user| user["name"] == name).unwrap()["requests_per_second"].clone()
    };
    assert_eq!((of("alice"), of("bob")), (3.into(), 0.into()));
    // The clock stands still.
    for _ in 0..3 {
        alice.get("/storage").expect(200);
    }
    let reply = alice.get("/storage").expect(429);
    assert_eq!(reply.error(), "too_many_requests");
    assert_eq!(reply.header("retry-after").as_deref(), Some("1"));
    alice.put("/storage/bucket", b"").expect(429);
    for _ in 0..20 {
        bob.get("/storage").expect(200);
        root.get("/storage").expect(200);
    }
    server.clock.advance(1);
    for status in [200, 200, 200, 429] {
        alice.get("/storage").expect(status);
    }
    let text = root.get("/metrics").expect(200).text();
    assert!(text.contains("cairn_limited_requests_total 3\n"), "{text}");
    // The limit ends, once limits are looked at again.
    limit("alice", r#"{"requests_per_second":0}"#).expect(204);
    server.clock.advance(6);
    for _ in 0..20 {
        alice.get("/storage").expect(200);
    }
}
