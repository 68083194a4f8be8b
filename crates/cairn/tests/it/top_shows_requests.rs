use crate::support::{Server, bytes, directory};

/// What a server is asked for is counted once somebody looks, and shown in tables and as JSON.
#[test]
fn requests_are_shown_by_door_user_bucket_and_object() {
    let (_directory, store) = directory();
    let server = Server::start(&store, &[]);
    server.ok(&["bucket", "create", "photos"]);
    assert!(server.put("photos/cat", &bytes(1, 100_000)));
    let url = server.http.clone();
    let (top, gets) = std::thread::scope(|scope| {
        let top = scope.spawn(|| server.ok(&["top", &url, "--json"]));
        let mut gets = 0;
        while !top.is_finished() {
            assert_eq!(server.get("photos/cat").unwrap().len(), 100_000);
            gets += 1;
        }
        (top.join().unwrap(), gets)
    });
    let told: serde_json::Value = serde_json::from_str(&top).unwrap();
    assert_eq!(told["seconds"], 5.0);
    let first = |kind: &str| told[kind][0].clone();
    assert_eq!(first("buckets")["name"], "photos");
    assert_eq!(first("objects")["name"], "photos/cat");
    assert_eq!(first("users")["name"], "root");
    let requests = first("objects")["requests"].as_u64().unwrap();
    assert!((1..=2 * gets).contains(&requests), "{requests} of {gets}");
    assert!(first("objects")["sent_bytes"].as_u64().unwrap() >= 100_000 * (requests / 2));
    assert_eq!(first("doors")["name"], "http");
    assert!(first("slowest")["us"].as_u64().unwrap() > 0);
    let table = server.ok(&["top", "--once"]);
    assert!(table.contains("requests a second") && table.contains("DOOR"), "{table}");
    // Its own requests are no traffic: a server had some since the period before.
    let told: serde_json::Value = serde_json::from_str(&server.ok(&["top", "--json"])).unwrap();
    let slowest = told["slowest"].as_array().unwrap();
    assert!(slowest.iter().all(|slow| slow["operation"] != "admin"), "{told}");
    assert_eq!(told["in_flight"], serde_json::json!([]));
    // Only root may: names of others are in it.
    let (code, _, stderr) = crate::support::run(&mut server.anonymous(&["top", "--once"]));
    assert_eq!(code, 1, "{stderr}");
}
