//! Retention: what is too old or too much is deleted, if the intake made it, and if the clock can
//! be believed.

use std::time::{Duration, Instant};

use cairn_logs::retention::{RetentionLook, RetentionSummary, retain};
use cairn_roles::{Pace, duties};

use crate::http_harness::{Client, PATIENCE, Server};

const DAY: u64 = 24 * 3600;
const SETTINGS: &str = "/storage/logs-alice/.retention.json";

fn push(client: &Client, source: &str) {
    let body = format!("{{\"create\":{{\"_index\":\"{source}\"}}}}\n{{}}\n");
    client.call("POST", "/_bulk", &[], body.as_bytes()).expect(200);
}

fn keys(client: &Client, prefix: &str) -> Vec<String> {
    let path = format!("/storage/logs-alice/?recursive&prefix={prefix}");
    let listed = client.get(&path).expect(200).json();
    let objects = listed["objects"].as_array().unwrap();
    objects.iter().map(|object| object["key"].as_str().unwrap().to_owned()).collect()
}

fn look(server: &Server) -> RetentionSummary {
    let fs = server.fs().clone();
    // On a thread whose log is the server's.
    let looking = server.runtime.spawn(async move { retain(&fs).await.unwrap() });
    server.runtime.block_on(looking).unwrap()
}

fn set(client: &Client, settings: &str) {
    let reply = client.put(SETTINGS, settings.as_bytes());
    assert!([201, 204].contains(&reply.status), "{}", reply.text());
}

/// A store with files of `days` days, the last one today.
fn store(days: u64) -> (Server, Client) {
    let server = Server::start();
    let alice = server.user("alice");
    // An hour more is no other day, whenever this runs.
    let of_day = server.fs().clock().now().0 / 1_000_000_000 % DAY as i64;
    server.clock.advance((DAY + DAY / 2 - of_day as u64) % DAY);
    for day in 0..days {
        if day > 0 {
            server.clock.advance(DAY);
        }
        push(&alice, "app");
        push(&alice, "other");
    }
    (server, alice)
}

#[test]
fn files_go_that_the_intake_made_and_are_too_old() {
    let (server, alice) = store(5);
    assert_eq!(look(&server), RetentionSummary::default(), "nobody said anything");
    let before = keys(&alice, "app/");
    // Not made by the intake: a file of such a name, and a copy with the mark of another place.
    alice.put("/storage/logs-alice/app/2020-01-01.jsonl", b"mine\n").expect(201);
    let reply = alice.get(&format!("/storage/logs-alice/{}", before[0])).expect(200);
    let mark = reply.header("x-cairn-meta-cairn-log").unwrap();
    assert_eq!(mark, format!("logs-alice/{}", before[0]));
    let copy = [("X-Cairn-Meta-Cairn-Log", mark.as_str())];
    alice.call("PUT", "/storage/logs-alice/app/2020-01-02.jsonl", &copy, b"copy\n").expect(201);
    // Lines were appended to this one first.
    alice.call("POST", "/storage/logs-alice/app/2020-01-03.jsonl?append", &[], b"x").expect(200);

    set(&alice, r#"{"sources":{"app":{"days":2}}}"#);
    assert_eq!(look(&server), RetentionSummary { deleted: 2, held: 0 });
    let mine = ["01", "02", "03"].map(|day| format!("app/2020-01-{day}.jsonl"));
    assert_eq!(keys(&alice, "app/"), [&mine[..], &before[2..]].concat());
    assert_eq!(keys(&alice, "other/").len(), 5);
    assert_eq!(look(&server), RetentionSummary::default());
    set(&alice, r#"{"all":{"days":0},"sources":{"app":{}}}"#);
    assert_eq!(look(&server), RetentionSummary { deleted: 4, held: 0 });
    assert_eq!(keys(&alice, "other/").len(), 1, "today's stays");
    assert_eq!(keys(&alice, "app/").len(), 6);
}

#[test]
fn the_oldest_files_go_where_there_are_too_many_bytes() {
    let (server, alice) = store(4);
    let before = keys(&alice, "app/");
    let size = alice.get(&format!("/storage/logs-alice/{}", before[0])).expect(200).body.len();
    set(&alice, &format!("{{\"sources\":{{\"app\":{{\"bytes\":{}}}}}}}", 2 * size + 1));
    assert_eq!(look(&server), RetentionSummary { deleted: 2, held: 0 });
    assert_eq!(keys(&alice, "app/"), before[2..]);
    set(&alice, r#"{"all":{"bytes":0}}"#);
    look(&server);
    assert_eq!(keys(&alice, "app/"), before[3..], "the newest stays");
}

#[test]
fn a_clock_that_jumps_deletes_nothing_until_somebody_says_that_it_is_right() {
    let (server, alice) = store(3);
    set(&alice, r#"{"all":{"days":1}}"#);
    // An hour is nothing.
    server.clock.advance(3600);
    assert_eq!(look(&server), RetentionSummary { deleted: 2, held: 0 });
    push(&alice, "app");
    let before = keys(&alice, "");
    server.clock.advance(30 * DAY);
    for _ in 0..3 {
        assert_eq!(look(&server), RetentionSummary { deleted: 0, held: 1 });
        server.clock.advance(3600);
    }
    assert_eq!(keys(&alice, ""), before);
    assert!(server.log.text().contains("retention --confirm"));
    set(&alice, r#"{"all":{"days":1}}"#);
    assert_eq!(look(&server), RetentionSummary { deleted: 4, held: 0 });
    // The next look comes within a day of this one.
    server.clock.advance(DAY - 3600);
    assert_eq!(look(&server), RetentionSummary::default());
}

#[test]
fn a_clock_that_jumps_during_a_look_is_noticed_by_the_next_one() {
    let (server, alice) = store(3);
    set(&alice, r#"{"all":{"days":20}}"#);
    let (fs, mut begun) = (server.fs().clone(), RetentionLook::default());
    let mut step = || server.runtime.block_on(begun.step(&fs)).unwrap();
    // The buckets are listed, and the look at one begins.
    assert!(!step() && !step());
    server.clock.advance(30 * DAY);
    while !step() {}
    assert_eq!(begun.retained, RetentionSummary::default());
    assert_eq!(look(&server), RetentionSummary { deleted: 0, held: 1 });
}

#[test]
fn settings_that_cannot_be_read_delete_nothing() {
    let (server, alice) = store(3);
    for bad in ["{", "{\"all\":{\"day\":0}}", ""] {
        set(&alice, bad);
        assert_eq!(look(&server), RetentionSummary::default(), "{bad}");
    }
    assert!(server.log.text().contains("old logs were not deleted"));
    assert_eq!(keys(&alice, "app/").len(), 3);
}

#[test]
fn many_files_are_looked_at_in_small_steps() {
    let days = 130;
    let (server, alice) = store(days);
    let size = alice.get(&format!("/storage/logs-alice/{}", keys(&alice, "app/")[0])).expect(200);
    let bytes = 10 * size.body.len() + 1;
    set(
        &alice,
        &format!("{{\"all\":{{\"bytes\":{bytes}}},\"sources\":{{\"other\":{{\"days\":5}}}}}}"),
    );
    let fs = server.fs().clone();
    let looking = server.runtime.spawn(async move {
        let (mut look, mut steps) = (RetentionLook::default(), Vec::new());
        while !look.step(&fs).await.unwrap() {
            steps.push(look.retained.deleted);
        }
        (look.retained, steps.len())
    });
    let (retained, steps) = server.runtime.block_on(looking).unwrap();
    assert_eq!(retained, RetentionSummary { deleted: 120 + 124, held: 0 });
    assert!(steps > 8, "{steps}");
    assert_eq!((keys(&alice, "app/").len(), keys(&alice, "other/").len()), (10, 6));
}

#[test]
fn a_process_looks_again_and_again() {
    let (server, alice) = store(4);
    let pace =
        Pace { logs: Duration::from_millis(20), logs_rest: Duration::ZERO, ..Pace::default() };
    let fs = server.fs().clone();
    let duty = server.runtime.spawn(duties::delete_old_logs(fs, pace));
    let wait_for = |left: usize| {
        let begun = Instant::now();
        while keys(&alice, "app/").len() != left {
            assert!(begun.elapsed() < PATIENCE, "{left} are left");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    set(&alice, r#"{"all":{"days":2}}"#);
    wait_for(3);
    set(&alice, r#"{"all":{"days":1}}"#);
    wait_for(2);
    duty.abort();
}
