//! `/healthz`, `/readyz`, `/metrics`, `/admin/status`, `/admin/gc`.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::{BlockId, Error, GroupId, Owner, Result};
use cairn_blocks::{BlockCounters, BlockInfo, BlockPlace, Blocks, Manner, Usage, Wish};

use crate::http_harness::{Server, Setup};
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

/// Blocks on chunkservers that are all down.
struct Away;

fn away<T>() -> Result<T> {
    Err(Error::Unavailable("blocks: 3 of 3 groups have no member that is up".into()))
}

#[async_trait]
impl Blocks for Away {
    async fn write(&self, _: Wish, _: BlockId, _: Owner, _: Bytes) -> Result<GroupId> {
        away()
    }

    async fn get(&self, _: GroupId, _: BlockId, _: Range<u32>) -> Result<Bytes> {
        away()
    }

    fn get_now(&self, _: GroupId, _: BlockId, _: Range<u32>) -> Result<Option<Bytes>> {
        Ok(None)
    }

    async fn delete(&self, _: GroupId, _: &[BlockId]) -> Result<()> {
        away()
    }

    fn groups(&self) -> Vec<GroupId> {
        Vec::new()
    }

    async fn inventory(&self, _: GroupId, _: Option<BlockId>, _: usize) -> Result<Vec<BlockInfo>> {
        away()
    }

    async fn is_compressed(&self, _: GroupId, _: BlockId) -> Result<bool> {
        away()
    }

    async fn usage(&self) -> Result<Usage> {
        Ok(Usage::default())
    }

    fn available(&self) -> Result<()> {
        away()
    }

    async fn room(&self) -> Result<Usage> {
        self.usage().await
    }

    fn place(&self, _: GroupId, _: BlockId) -> Option<BlockPlace> {
        None
    }

    fn manner(&self) -> Manner {
        Manner::default()
    }

    fn counted(&self) -> BlockCounters {
        BlockCounters::default()
    }
}

/// A gateway whose chunkservers are down says so to a balancer, and to who puts: at once, in words.
#[test]
fn a_server_is_not_ready_without_its_blocks() {
    let server = Server::with(Setup { blocks: Some(Arc::new(Away)), ..Setup::default() });
    let ready = server.anonymous().get("/readyz").expect(503).json();
    assert_eq!(ready["ready"], false);
    assert!(ready["reasons"][0].as_str().unwrap().contains("no member that is up"), "{ready}");
    server.anonymous().get("/healthz").expect(200);
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    // Longer than what is read before it is known, shorter than what is left of it.
    let put = root.put("/storage/bucket/a", &pattern(12 << 20)).expect(503);
    assert_eq!(put.error(), "unavailable");
    root.get("/storage/bucket/a").expect(404);
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
    // Described by the names that samples have.
    assert!(text.contains("# TYPE cairn_requests_total counter\n"), "{text}");
    assert!(!text.contains("# EOF"), "{text}");
    let version = format!(r#"cairn_build_info{{version="{}"}}"#, env!("CARGO_PKG_VERSION"));
    assert_eq!(number(&version), 1.0);
    for name in ["process_resident_memory_bytes", "process_open_fds", "process_max_fds"] {
        assert!(number(&format!("{name} ")) >= 1.0, "{name}");
    }
    assert!(number("process_cpu_seconds_total ") >= 0.0);
    let asks = [("accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")];
    for (headers, kind) in [(&[][..], "text/plain"), (&asks[..], "application/openmetrics-text")] {
        let reply = root.call("GET", "/metrics", headers, b"").expect(200);
        assert!(reply.header("content-type").unwrap().starts_with(kind), "{kind}");
        assert_eq!(reply.text().ends_with("# EOF\n"), !headers.is_empty());
    }
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

/// Names and milliseconds of a `Server-Timing`; the last is the total.
fn stages(reply: &crate::http_harness::Reply) -> Vec<(String, f64)> {
    let timing = reply.header("server-timing").expect("a Server-Timing");
    let stage = |part: &str| {
        let (name, time) = part.split_once(";dur=").unwrap();
        (name.to_owned(), time.parse().unwrap())
    };
    timing.split(", ").map(stage).collect()
}

#[test]
fn replies_say_where_their_time_went() {
    let server = Server::start();
    let (root, anonymous) = (server.root(), server.anonymous());
    let check = |reply: crate::http_harness::Reply, wanted: &[&str]| {
        let mut stages = stages(&reply);
        let (last, total) = stages.pop().unwrap();
        assert_eq!(last, "total");
        assert!(stages.iter().map(|(_, ms)| ms).sum::<f64>() <= total + 1e-9, "{stages:?}");
        for name in wanted {
            assert!(stages.iter().any(|(stage, _)| stage == name), "{name}: {stages:?}");
        }
    };
    check(root.put("/storage/bucket?visibility=public", b""), &["admit", "meta", "sync"]);
    check(root.put("/storage/bucket/a", b"x"), &["admit", "meta", "sync"]);
    let large = pattern(9 << 20);
    check(root.put("/storage/bucket/large", &large), &["admit", "meta", "write", "sync"]);
    check(anonymous.get("/storage/bucket/a").expect(200), &["meta"]);
    check(anonymous.get("/storage/bucket/a").expect(200), &["meta", "cache"]);
    check(root.get("/storage/bucket/none").expect(404), &["meta"]);
}

#[test]
fn who_is_refused_learns_nothing_from_the_time_it_took() {
    let server = Server::start();
    let (root, anonymous) = (server.root(), server.anonymous());
    root.put("/storage/private", b"").expect(201);
    root.put("/storage/private/a", b"x").expect(201);
    root.put("/storage/public?visibility=public", b"").expect(201);
    let wrong = [("Authorization", "Basic YTpi")];
    for reply in [
        anonymous.get("/storage/private/a").expect(401),
        anonymous.get("/storage/private/none").expect(401),
        anonymous.get("/storage/public/none").expect(404),
        anonymous.put("/storage/private/b", b"x").expect(401),
        anonymous.call("GET", "/storage/public/a", &wrong, b"").expect(401),
    ] {
        assert!(reply.header("server-timing").is_none(), "{}", reply.text());
        assert!(reply.header("traceresponse").is_some());
    }
}

#[test]
fn a_trace_goes_on_under_its_id() {
    let server = Server::start();
    let root = server.root();
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    let id = |given: &str| {
        let reply = root.call("GET", "/storage/", &[("traceparent", given)], b"").expect(200);
        reply.header("traceresponse").unwrap()[3..35].to_owned()
    };
    assert_eq!(id(parent), parent[3..35]);
    let (first, second) = (id("nonsense"), id("nonsense"));
    assert!(first != second && first != "0".repeat(32));
}

#[test]
fn stages_are_counted_by_door() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    root.put("/storage/bucket/large", &pattern(3 << 20)).expect(201);
    root.get("/storage/bucket/large").expect(200);
    let text = root.get("/metrics").expect(200).text();
    for stage in ["admit", "meta", "write", "sync", "send"] {
        let line = format!(r#"cairn_stage_seconds_count{{door="http",stage="{stage}"}}"#);
        let count = text.lines().find_map(|found| found.strip_prefix(&line));
        let count: f64 = count.unwrap_or_else(|| panic!("{line}: {text}")).trim().parse().unwrap();
        assert!(count >= 1.0, "{line}");
    }
}
