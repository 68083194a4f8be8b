//! Day files are compressed within their blocks: every door shows what it showed before, and lines
//! are appended and followed meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cairn_logs::settle::{SettledLogs, Settler};

use crate::http_harness::{Client, Reply, Server};
use crate::http_objects_are_followed::Stream;

const DAY: u64 = 24 * 3600;

/// Records of 200 bytes or so, as one request.
fn push(client: &Client, first: u32, count: u32) {
    let line = |n: u32| {
        let path = n.wrapping_mul(2_654_435_761) % 1000;
        format!(
            "{{\"create\":{{}}}}\n{{\"n\":{n},\"message\":\"GET /items/{path} HTTP/1.1 200\"}}\n"
        )
    };
    let body: String = (first..first + count).map(line).collect();
    let reply = client.call("POST", "/app/_bulk", &[], body.as_bytes()).expect(200);
    assert_eq!(reply.json()["errors"], false);
}

fn settle(server: &Server, settler: &mut Settler) -> SettledLogs {
    let fs = server.fs().clone();
    server.runtime.block_on(async move { settler.settle(&fs, |_| true).await.unwrap() })
}

/// Bytes of segments that blocks take.
fn usage(server: &Server) -> u64 {
    server.runtime.block_on(server.fs().blocks().usage()).unwrap().live_bytes
}

fn today(server: &Server) -> String {
    format!("/storage/logs-alice/app/{}.jsonl", cairn_base::day(server.fs().clock().now()))
}

/// Status, headers and body.
type Shown = (u16, Vec<(String, String)>, Vec<u8>);

/// What the door says of a file.
fn shown(client: &Client, path: &str) -> Vec<Shown> {
    let parts = |reply: Reply| {
        let of = |name: &str| Some((name.to_owned(), reply.header(name)?));
        let names = ["etag", "last-modified", "content-length", "content-range", "content-type"];
        (reply.status, names.into_iter().filter_map(of).collect(), reply.body)
    };
    let ranges = ["bytes=0-", "bytes=-10", "bytes=65535-65537", "bytes=300000-304095", "bytes=1-1"];
    let ranged = ranges.map(|range| parts(client.get_with(path, &[("Range", range)])));
    [vec![parts(client.get(path).expect(200))], ranged.to_vec()].concat()
}

#[test]
fn a_closed_day_shows_what_it_showed() {
    let server = Server::start();
    let alice = server.user("alice");
    let path = today(&server);
    for n in 0..30 {
        push(&alice, n * 1000, 500);
    }
    // Neither made by the intake nor where it made files.
    let other = "/storage/logs-alice/app/2020-01-01.jsonl";
    let body = alice.get(&path).expect(200).body;
    alice.put(other, &body).expect(201);
    let (before, former) = (shown(&alice, &path), usage(&server));
    let mut settler = Settler::default();
    settle(&server, &mut settler);
    assert_eq!(shown(&alice, &path), before, "a day that goes on");
    server.clock.advance(2 * DAY);
    let settled = settle(&server, &mut settler);
    assert_eq!(settled.files, 1);
    assert_eq!(shown(&alice, &path), before);
    assert_eq!(settle(&server, &mut settler), SettledLogs::default());
    assert_eq!(
        settle(&server, &mut Settler::default()),
        SettledLogs::default(),
        "after a start, too"
    );
    let fs = server.fs().clone();
    server.runtime.block_on(async move {
        for _ in 0..3 {
            fs.collect_garbage(&cairn_auth::Caller::system(), false).await.unwrap();
        }
    });
    assert_eq!(shown(&alice, &path), before);
    let bytes = body.len() as u64;
    assert!(former - usage(&server) > bytes / 2, "{former} {}", usage(&server));
    assert_eq!(alice.get(other).expect(200).body, body);
    // A late record has its place.
    alice.call("POST", &format!("{path}?append"), &[], b"late\n").expect(200);
    let whole = alice.get(&path).expect(200).body;
    assert_eq!(whole, [&body[..], b"late\n"].concat());
    assert_eq!(settle(&server, &mut settler).files, 1);
    assert_eq!(alice.get(&path).expect(200).body, whole);
}

#[test]
fn lines_are_appended_and_read_while_a_day_is_compressed() {
    let server = Server::start();
    let alice = server.user("alice");
    let path = today(&server);
    push(&alice, 0, 2000);
    let ended = Arc::new(AtomicBool::new(false));
    let (fs, until) = (server.fs().clone(), Arc::clone(&ended));
    let settling = server.runtime.spawn(async move {
        let (mut all, mut settler) = (SettledLogs::default(), Settler::default());
        loop {
            let is_last = until.load(Ordering::Relaxed);
            let settled = settler.settle(&fs, |_| true).await.unwrap();
            all.blocks += settled.blocks;
            all.bytes += settled.bytes;
            if is_last {
                return all;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let mut follower = Stream::followed(&alice, &format!("{path}?follow&offset=0"), &[]);
    let mut expected = alice.get(&path).expect(200).body;
    for n in 1..60 {
        push(&alice, n * 2000, 1500);
        let body = alice.get(&path).expect(200).body;
        assert!(body.starts_with(&expected) && body.ends_with(b"}\n"), "{n}");
        let text = std::str::from_utf8(&body[expected.len()..]).unwrap();
        let numbers = text.lines().map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["event"]["n"].as_u64().unwrap()
        });
        let first = u64::from(n) * 2000;
        assert!(numbers.eq(first..first + 1500), "{n}");
        expected = body;
    }
    let followed = follower.take(expected.len());
    assert!(followed.as_bytes() == expected);
    ended.store(true, Ordering::Relaxed);
    let settled = server.runtime.block_on(settling).unwrap();
    assert!(settled.blocks >= 2, "{settled:?} of {} bytes", expected.len());
}
