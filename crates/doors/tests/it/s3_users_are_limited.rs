//! Limits of requests of one user, at the S3 door.

use cairn_auth::Caller;
use cairn_fs::ops::user_limits::SetUserLimits;

use crate::s3_harness::Server;

#[test]
fn a_user_beyond_a_limit_is_asked_to_slow_down() {
    let server = Server::start();
    let (root, alice) = (server.root(), server.user("alice"));
    let limit = SetUserLimits { name: "alice".into(), requests: Some(3), bytes: None };
    server.run(&Caller::system(), limit);
    // The clock stands still.
    for _ in 0..3 {
        alice.get("/").ok();
    }
    let refused = alice.get("/").fails(503, "SlowDown");
    assert_eq!(refused.header("retry-after"), Some("1"));
    alice.put("/bucket", b"").fails(503, "SlowDown");
    for _ in 0..20 {
        root.get("/").ok();
    }
    server.advance(1);
    alice.put("/bucket", b"").ok();
    for _ in 0..2 {
        alice.get("/bucket").ok();
    }
    alice.get("/bucket").fails(503, "SlowDown");
}
