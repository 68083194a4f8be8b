//! Several masters on one database, and a database that is not what it was.

use std::time::Duration;

use cairn_meta::engine::postgres::Config;
use cairn_meta::engine::{CommitError, Engine, Fence, Postgres};

use super::server;
use crate::support::{all, commit, put};

/// Commits until refused. Returns how many were acknowledged, and the fence that refused.
fn reign(engine: &Postgres, mut fence: Fence) -> (u64, Fence) {
    for acked in 0.. {
        let key = format!("{:08}", fence.batch + 1);
        match engine.commit(fence, vec![put(&key, &fence.epoch.to_string())]) {
            Ok(()) => fence.batch += 1,
            Err(CommitError::Fenced { found }) => return (acked, found),
            Err(other) => panic!("{other:?}"),
        }
    }
    unreachable!("refused at last")
}

#[test]
fn masters_shut_one_another_out() {
    let Some(server) = server::shared() else { return };
    let schema = server::schema();
    let engines = [server.open(&schema).unwrap(), server.open(&schema).unwrap()];
    let mut acked = 0;
    let mut fence = engines[0].take_over().unwrap();
    for turn in 0..12 {
        let (master, standby) = (&engines[turn % 2], &engines[(turn + 1) % 2]);
        std::thread::scope(|scope| {
            let reigning = scope.spawn(move || reign(master, fence));
            std::thread::sleep(Duration::from_millis(30));
            let taken = standby.take_over().unwrap();
            let (count, found) = reigning.join().unwrap();
            acked += count;
            assert_eq!(taken, Fence { epoch: fence.epoch + 1, batch: acked });
            assert_eq!(found, taken);
            fence = taken;
        });
    }
    assert!(acked > 0);
    let rows = all(&engines[0]);
    assert!(rows.keys().map(|key| &key[..]).eq(
        (1..=acked).map(|n| format!("{n:08}")).collect::<Vec<_>>().iter().map(String::as_bytes)
    ));
}

#[test]
fn a_database_that_lost_its_last_batches_is_noticed() {
    let Some(server) = server::shared() else { return };
    let schema = server::schema();
    let engine = server.open(&schema).unwrap();
    engine.take_over().unwrap();
    let old = commit(&engine, vec![put("a", "1")]);
    let lost = commit(&engine, vec![put("b", "1")]);
    server.sql(&format!("DELETE FROM {schema}.rows WHERE key = 'b'"));
    server.sql(&format!("UPDATE {schema}.fence SET batch = {}", old.batch));
    match engine.commit(lost, vec![put("c", "1")]) {
        Err(CommitError::Fenced { found }) => assert_eq!(found, old),
        other => panic!("{other:?}"),
    }
    let fence = engine.take_over().unwrap();
    assert_eq!(fence, Fence { epoch: old.epoch + 1, batch: old.batch });
    engine.commit(fence, vec![put("c", "1")]).unwrap();
    assert_eq!(all(&engine).len(), 2);
}

#[test]
fn snapshots_are_bounded_and_wait_for_one_another() {
    let Some(server) = server::shared() else { return };
    let schema = server::schema();
    let patience = Duration::from_secs(2);
    let config = Config { connections: 2, patience, ..server.config(&schema) };
    let engine = Postgres::open(&config).unwrap();
    commit(&engine, vec![put("a", "1")]);
    let held: Vec<_> = (0..2).map(|_| engine.snapshot().unwrap()).collect();
    assert!(held.iter().all(|snapshot| snapshot.batch() == 1));
    let refused = engine.snapshot().err().unwrap();
    assert!(refused.to_string().contains("all 2 connections"), "{refused}");
    // Commits have a connection of their own.
    commit(&engine, vec![put("a", "2")]);
    drop(held);
    assert_eq!(engine.snapshot().unwrap().batch(), 2);
}

/// A dropped snapshot leaves no transaction behind that would keep old rows from being cleaned.
#[test]
fn transactions_end_with_their_snapshots() {
    let Some(server) = server::Server::start(&[]) else { return };
    let engine = server.open("cairn").unwrap();
    let snapshot = engine.snapshot().unwrap();
    assert_eq!(snapshot.batch(), 0);
    let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'";
    assert_eq!(server.sql(open), "1");
    drop(snapshot);
    for _ in 0..6_000 {
        if server.sql(open) == "0" {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the transaction stays open");
}

#[test]
fn a_restart_is_survived_by_all_connections() {
    let Some(server) = server::Server::start(&[]) else { return };
    let engine = server.open_patiently("cairn").unwrap();
    for round in 1..=3 {
        let mut snapshots: Vec<_> = (0..4).map(|_| engine.snapshot().unwrap()).collect();
        let last = snapshots.pop().unwrap();
        drop(snapshots);
        server.stop();
        server.run();
        assert_eq!(last.get(&["a".into()]).unwrap_err().kind(), "unavailable");
        assert_eq!(engine.snapshot().unwrap().batch(), round - 1);
        let fence = engine.fence().unwrap();
        engine.commit(fence, vec![put("a", "1")]).unwrap();
        // The other way round: the first to notice is a commit.
        server.stop();
        server.run();
        let fence = engine.fence().unwrap();
        assert_eq!(fence.batch, round);
        assert_eq!(all(&engine).len(), 1);
    }
}

#[test]
fn without_a_server_calls_end_in_time() {
    let Some(server) = server::Server::start(&[]) else { return };
    let config = Config { patience: Duration::from_secs(3), ..server.config("cairn") };
    let engine = Postgres::open(&config).unwrap();
    let fence = commit(&engine, vec![put("a", "1")]);
    server.stop();
    assert_eq!(engine.fence().unwrap_err().kind(), "unavailable");
    match engine.commit(fence, vec![put("a", "2")]) {
        Err(CommitError::Failed(error)) => assert_eq!(error.kind(), "unavailable"),
        other => panic!("{other:?}"),
    }
    assert_eq!(engine.snapshot().err().unwrap().kind(), "unavailable");
    assert_eq!(Postgres::open(&config).err().unwrap().kind(), "unavailable");
    server.run();
    assert_eq!(engine.fence().unwrap(), fence);
    engine.commit(fence, vec![put("a", "3")]).unwrap();
    assert_eq!(&all(&engine)[&b"a"[..]][..], b"3");
}
