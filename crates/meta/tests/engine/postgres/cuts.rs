//! A connection cut at every byte: each commit is there as a whole or not at all, and the engine
//! finds out which.

use bytes::Bytes;
use cairn_meta::engine::{CommitError, Engine, Fence, Postgres};

use super::proxy::{Plan, Proxy};
use super::server;
use crate::support::{Rows, all, apply, delete, put};

struct Rig {
    proxy: Proxy,
    engine: Postgres,
    rows: Rows,
    unknown: u32,
    committed: u32,
}

impl Rig {
    fn new() -> Option<Rig> {
        let server = server::shared()?;
        let proxy = Proxy::new(server.port());
        let config = server.config_at(proxy.port(), &server::schema(), "sslmode=disable");
        let engine = Postgres::open(&config).unwrap();
        Some(Rig { proxy, engine, rows: Rows::new(), unknown: 0, committed: 0 })
    }

    /// Commits with `plan`, and returns whether it came true.
    fn commit(&mut self, plan: Plan, number: usize) -> bool {
        let changes = vec![
            put(&format!("new {}", number + 3), "x"),
            put("counter", &number.to_string()),
            delete(&format!("new {number}")),
        ];
        let fence = self.engine.fence().unwrap();
        let next = Fence { batch: fence.batch + 1, ..fence };
        self.proxy.plan(plan);
        let result = self.engine.commit(fence, changes.clone());
        let fired = self.proxy.settle();
        let now = self.engine.fence().unwrap();
        match result {
            Ok(()) => assert_eq!(now, next, "{plan:?}"),
            Err(CommitError::Unknown(error)) => {
                assert!(fired && error.kind() == "unavailable", "{plan:?}: {error}");
                self.unknown += 1;
                self.committed += u32::from(now == next);
                assert!(now == next || now == fence, "{plan:?}: {now:?}");
            }
            Err(other) => panic!("{plan:?}: {other:?}"),
        }
        if now == next {
            apply(&mut self.rows, &changes);
        }
        assert_eq!(all(&self.engine), self.rows, "{plan:?}");
        fired
    }
}

#[test]
fn on_the_way_to_the_server() {
    let Some(mut rig) = Rig::new() else { return };
    let mut at = 0;
    while rig.commit(Plan::CutToServer(at), at) {
        at += 7;
    }
    assert!(at > 300, "a commit has {at} bytes");
    assert_eq!(rig.committed, 0, "of half a message");
}

#[test]
fn on_the_way_back() {
    let Some(mut rig) = Rig::new() else { return };
    let mut at = 0;
    while rig.commit(Plan::CutToClient(at), at) {
        at += 1;
    }
    assert!(at > 30, "an answer has {at} bytes");
    assert_eq!(rig.committed, rig.unknown, "the server has it all");
    assert!(rig.unknown as usize >= at);
}

#[test]
fn while_reading() {
    let Some(mut rig) = Rig::new() else { return };
    rig.commit(Plan::Nothing, 7);
    let key = Bytes::from("counter");
    for (at, plan) in
        (0..400).flat_map(|at| [(at, Plan::CutToServer(at)), (at, Plan::CutToClient(at))])
    {
        if at % 9 != 0 {
            continue;
        }
        // The connection of the first snapshot was used before, that of the second is cut.
        rig.proxy.plan(plan);
        let read = rig.engine.snapshot().and_then(|snapshot| {
            let rows = snapshot.get(std::slice::from_ref(&key));
            let again = snapshot.get(std::slice::from_ref(&key));
            assert!(rows.is_ok() || again.is_err(), "{plan:?}: it came back");
            let ranged = snapshot.scan(b"counter", b"countess", 9)?;
            assert_eq!(ranged.len(), 1);
            assert_eq!(rows?[0].as_ref(), Some(&ranged[0].1));
            Ok((snapshot.batch(), again?))
        });
        let read = if at % 2 == 0 { read } else { rig.engine.read(std::slice::from_ref(&key)) };
        rig.proxy.settle();
        match read {
            Ok((batch, rows)) => {
                assert_eq!(rows[0].as_deref(), Some(&b"7"[..]));
                assert_eq!(batch, 1);
            }
            Err(error) => {
                assert_eq!(error.kind(), "unavailable", "{plan:?}: {error}");
            }
        }
        assert_eq!(all(&rig.engine).len(), 2);
    }
}

/// The worst of networks: it delivers a commit after the engine has received the answer that the
/// fence had not moved, and would not.
#[test]
fn a_commit_that_arrives_late_is_refused() {
    let Some(mut rig) = Rig::new() else { return };
    rig.commit(Plan::Nothing, 1);
    let fence = rig.engine.fence().unwrap();
    rig.proxy.plan(Plan::Keep);
    let lost = rig.engine.commit(fence, vec![put("late", "1")]);
    assert!(matches!(lost, Err(CommitError::Unknown(_))), "{lost:?}");
    assert_eq!(rig.engine.fence().unwrap(), fence);
    let answer = rig.proxy.release();
    assert!(answer.contains("SELECT 0"), "it was not executed: {answer:?}");
    assert_eq!(rig.engine.fence().unwrap(), fence);
    rig.commit(Plan::Nothing, 2);
}

/// As above, but nobody asked for the fence in between: whichever comes first counts.
#[test]
fn a_commit_that_arrives_late_is_not_applied_twice() {
    let Some(mut rig) = Rig::new() else { return };
    rig.commit(Plan::Nothing, 1);
    let fence = rig.engine.fence().unwrap();
    rig.proxy.plan(Plan::Keep);
    let lost = rig.engine.commit(fence, vec![put("late", "1")]);
    assert!(matches!(lost, Err(CommitError::Unknown(_))), "{lost:?}");
    rig.engine.commit(fence, vec![put("again", "1")]).unwrap();
    rig.proxy.release();
    let rows = all(&rig.engine);
    assert!(rows.contains_key(&b"again"[..]) && !rows.contains_key(&b"late"[..]));
    assert_eq!(rig.engine.fence().unwrap().batch, fence.batch + 1);
}

/// A commit that waits for a lock inside of the database has not been lost.
#[test]
fn a_commit_that_is_still_running_is_waited_for() {
    let Some(rig) = Rig::new() else { return };
    let fence = rig.engine.fence().unwrap();
    rig.proxy.plan(Plan::CutToClient(0));
    let result = rig.engine.commit(fence, vec![put("a", "1")]);
    assert!(matches!(result, Err(CommitError::Unknown(_))), "{result:?}");
    assert_eq!(rig.engine.fence().unwrap().batch, fence.batch + 1);
}
