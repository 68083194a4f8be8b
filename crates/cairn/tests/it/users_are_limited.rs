use std::time::{Duration, Instant};

use crate::support::{Server, bytes, directory, run};

/// Bytes of a limited user go at their rate, in and out, and those of others as they can.
#[test]
fn bytes_of_a_user_go_at_the_rate_of_its_limit() {
    let (_directory, store) = directory();
    let server = Server::start(&store, &[]);
    server.ok(&["bucket", "create", "photos"]);
    let content = bytes(7, 3 << 20);
    assert!(server.put("photos/a", &content));
    let made = server.ok(&["key", "create", "alice", "--json"]);
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    server.ok(&["bucket", "set", "photos", "--grant", "alice:read"]);
    server.ok(&["user", "limit", "alice", "--bandwidth", "1m"]);
    assert!(server.ok(&["user", "ls"]).contains("1.00 MiB/s"));
    let began = Instant::now();
    let mut get = server.anonymous(&["get", "photos/a", "-"]);
    get.env("CAIRN_KEY", made["id"].as_str().unwrap());
    get.env("CAIRN_SECRET", made["secret"].as_str().unwrap());
    let output = get.output().unwrap();
    assert!(output.status.success() && output.stdout == content);
    // One of three is there at once; and pieces go whole.
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    let began = Instant::now();
    assert_eq!(server.get("photos/a").unwrap(), content);
    assert!(began.elapsed() < Duration::from_secs(1), "root has no limit");
    for (args, code) in [
        (&["user", "limit", "alice"][..], 2),
        (&["user", "limit", "alice", "--bandwidth", "1k"], 1),
        (&["user", "limit", "root", "--requests", "1"], 1),
        (&["user", "limit", "carol", "--requests", "1"], 1),
    ] {
        assert_eq!(run(&mut server.client(args)).0, code, "{args:?}");
    }
}
