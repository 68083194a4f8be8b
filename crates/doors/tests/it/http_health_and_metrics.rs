//! `/healthz`, `/readyz`, `/metrics`, `/admin/status`, `/admin/gc`.

use crate::http_harness::Server;
use crate::http_objects_are_what_was_put::pattern;

#[test]
fn a_server_is_ready_until_its_master_has_ended() {
    let server = Server::start();
    let anonymous = server.anonymous();
    assert_eq!(anonymous.get("/healthz").expect(200).text(), "ok\n");
    assert_eq!(anonymous.get("/readyz").expect(200).json()["ready"], true);
    server.root().put("/storage/bucket?visibility=public", b"").expect(201);
    server.stop_master();
    let got = anonymous.get("/storage/bucket/a");
    assert!(matches!(got.status, 404 | 503), "{}", got.text());
    anonymous.get("/healthz").expect(200);
    let put = server.root().put("/storage/bucket/a", b"x").expect(503);
    assert_eq!(put.error(), "unavailable");
    assert!(put.header("retry-after").is_some());
}

#[test]
fn requests_are_counted() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    root.put("/storage/bucket/a", &pattern(1000)).expect(201);
    root.put("/storage/bucket/large", &pattern(3 << 20)).expect(201);
    for path in ["a", "a", "large", "none"] {
        root.get(&format!("/storage/bucket/{path}"));
    }
    let text = root.get("/metrics").expect(200).text();
    let number = |line: &str| {
        let found = text.lines().find_map(|found| found.strip_prefix(line));
        found.unwrap_or_else(|| panic!("{line} in {text}")).trim().parse::<f64>().unwrap()
    };
    let get = r#"{door="http",verb="get""#;
    assert_eq!(number(&format!(r#"cairn_requests_total{get},status="2xx"}}"#)), 3.0);
    assert_eq!(number(&format!(r#"cairn_requests_total{get},status="4xx"}}"#)), 1.0);
    assert!(number(&format!("cairn_sent_bytes_total{get}}}")) >= f64::from(2000 + (3 << 20)));
    assert_eq!(number(&format!("cairn_request_seconds_count{get}}}")), 4.0);
    let infinite = r#"cairn_request_seconds_bucket{le="+Inf",door="http",verb="get"}"#;
    assert_eq!(number(infinite), 4.0);
    assert!(number("cairn_connections") >= 1.0);
    assert!(number("cairn_blocks") >= 1.0);
    assert!(number("cairn_meta_ops_total") >= 4.0);
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn status_and_garbage() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    root.put("/storage/bucket/a", &pattern(1 << 20)).expect(201);
    root.call("DELETE", "/storage/bucket/a", &[], b"").expect(204);
    let status = root.get("/admin/status").expect(200).json();
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert!(status["durable_batch"].as_u64().unwrap() > 3);
    let dry = root.call("POST", "/admin/gc?dry_run=1", &[], b"").expect(200).json();
    assert_eq!(dry["drained"], 1);
    for _ in 0..3 {
        root.call("POST", "/admin/gc", &[], b"").expect(200);
    }
    assert_eq!(root.get("/admin/status").json()["blocks"]["blocks"], 0);
}

#[test]
fn every_reply_says_where_its_time_went() {
    let server = Server::start();
    let root = server.root();
    let check = |reply: crate::http_harness::Reply, first: &str| {
        let timing = reply.header("server-timing").unwrap();
        let stages: Vec<&str> = timing.split(", ").collect();
        assert!(stages[0].starts_with(first), "{timing}");
        assert!(stages.last().unwrap().starts_with("total;dur="), "{timing}");
        for stage in stages {
            let (_, time) = stage.split_once(";dur=").unwrap();
            assert!(time.parse::<f64>().unwrap() >= 0.0, "{timing}");
        }
    };
    check(root.put("/storage/bucket?visibility=public", b""), "admit");
    check(root.put("/storage/bucket/a", b"x"), "admit");
    server.anonymous().get("/storage/bucket/a").expect(200);
    check(server.anonymous().get("/storage/bucket/a"), "open");
    check(server.anonymous().get("/nothing"), "admit");
}
