//! One suite over every engine, through the trait.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::clock::RealClock;
use cairn_base::rng::SeededRng;
use cairn_meta::engine::embedded::Config;
use cairn_meta::engine::raft::Timing;
use cairn_meta::engine::{
    CommitError, CommitFault, EmbeddedEngine, Engine, Fence, Memory, Postgres,
};
use cairn_sim::SimDisk;
use tokio::runtime::{Builder, Runtime};

use crate::postgres::server::{self, Server};
use crate::raft::group::{Group, Hosts};
use crate::support::{Rows, all, apply, commit, delete, open, put, random_changes, small};

/// An engine that can be closed and opened again, if it is of that kind.
trait Rig {
    fn engine(&self) -> &dyn Engine;
    fn reopen(&mut self) {}
}

struct MemoryRig(Memory);

impl Rig for MemoryRig {
    fn engine(&self) -> &dyn Engine {
        &self.0
    }
}

struct EmbeddedRig {
    disk: SimDisk,
    engine: Option<EmbeddedEngine>,
    config: Config,
}

impl EmbeddedRig {
    fn new(config: Config) -> EmbeddedRig {
        let disk = SimDisk::new(1);
        let engine = Some(open(&disk, config.clone()).unwrap());
        EmbeddedRig { disk, engine, config }
    }
}

impl Rig for EmbeddedRig {
    fn engine(&self) -> &dyn Engine {
        self.engine.as_ref().unwrap()
    }

    fn reopen(&mut self) {
        self.engine = None;
        self.engine = Some(open(&self.disk, self.config.clone()).unwrap());
    }
}

struct PostgresRig {
    server: &'static Server,
    schema: String,
    engine: Option<Postgres>,
}

impl PostgresRig {
    fn new(server: &'static Server) -> PostgresRig {
        let mut rig = PostgresRig { server, schema: server::schema(), engine: None };
        rig.reopen();
        rig
    }
}

impl Rig for PostgresRig {
    fn engine(&self) -> &dyn Engine {
        self.engine.as_ref().unwrap()
    }

    fn reopen(&mut self) {
        let config = self.server.config(&self.schema);
        // Some tests hold many snapshots.
        let config = cairn_meta::engine::postgres::Config { connections: 64, ..config };
        self.engine = None;
        self.engine = Some(Postgres::open(&config).unwrap());
    }
}

/// Three members in one process, used through the leader.
struct RaftRig {
    runtime: Runtime,
    group: Group,
    leader: u64,
}

impl RaftRig {
    fn new() -> RaftRig {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        let clock = Arc::new(RealClock::default());
        let hosts = Hosts { clock, threads: None, timing: Timing::default() };
        let group = runtime.block_on(Group::found(hosts, small));
        let leader = runtime.block_on(group.leader());
        RaftRig { runtime, group, leader }
    }
}

impl Rig for RaftRig {
    fn engine(&self) -> &dyn Engine {
        &self.group.engines[&self.leader]
    }

    fn reopen(&mut self) {
        self.runtime.block_on(self.group.restart_all());
        self.leader = self.runtime.block_on(self.group.leader());
    }
}

/// Runs `check` over every engine, fresh.
fn on_each(check: impl Fn(&mut dyn Rig)) {
    check(&mut MemoryRig(Memory::new()));
    check(&mut EmbeddedRig::new(small(1)));
    let background = Config { background: true, ..small(2) };
    check(&mut EmbeddedRig::new(background));
    let roomy = Config { memtable_bytes: 1 << 20, log_segment_bytes: 4 << 20, ..small(3) };
    check(&mut EmbeddedRig::new(roomy));
    check(&mut RaftRig::new());
    if let Some(server) = server::shared() {
        check(&mut PostgresRig::new(server));
    }
}

fn keys(rows: &[(Bytes, Bytes)]) -> Vec<&str> {
    rows.iter().map(|(key, _)| std::str::from_utf8(key).unwrap()).collect()
}

#[test]
fn a_new_engine_is_empty() {
    on_each(|rig| {
        assert_eq!(rig.engine().fence().unwrap(), Fence::default());
        assert!(all(rig.engine()).is_empty());
        assert_eq!(rig.engine().snapshot().unwrap().batch(), 0);
    });
}

#[test]
fn rows_are_put_replaced_and_deleted() {
    on_each(|rig| {
        commit(rig.engine(), vec![put("b", "1"), put("a", "2"), put("c", "")]);
        commit(rig.engine(), vec![put("a", "3"), delete("b"), delete("never there")]);
        for _ in 0..2 {
            let snapshot = rig.engine().snapshot().unwrap();
            assert_eq!(snapshot.batch(), 2);
            let wanted: Vec<Bytes> = ["c", "b", "a", "x", "a"].map(Bytes::from).to_vec();
            let got = snapshot.get(&wanted).unwrap();
            let text = |value: &Option<Bytes>| value.as_ref().map(|v| v.to_vec());
            let got: Vec<_> = got.iter().map(text).collect();
            let a = Some(b"3".to_vec());
            assert_eq!(got, [Some(vec![]), None, a.clone(), None, a]);
            let (batch, read) = rig.engine().read(&wanted).unwrap();
            assert_eq!((batch, read), (2, snapshot.get(&wanted).unwrap()));
            let none = rig.engine().read(&["x".into(), "y".into()]).unwrap();
            assert_eq!(none, (2, vec![None, None]));
            assert_eq!(rig.engine().read(&[]).unwrap(), (2, vec![]));
            drop(snapshot);
            rig.reopen();
        }
    });
}

#[test]
fn an_empty_commit_moves_the_fence() {
    on_each(|rig| {
        assert_eq!(commit(rig.engine(), vec![]), Fence { epoch: 0, batch: 1 });
        rig.reopen();
        assert_eq!(rig.engine().fence().unwrap(), Fence { epoch: 0, batch: 1 });
    });
}

#[test]
fn scans_keep_to_range_order_and_limit() {
    on_each(|rig| {
        let names = ["", "a", "a\0", "aa", "ab", "b", "ba", "c"];
        // In layers: some rows at rest, some in memory, some deleted again.
        commit(rig.engine(), names.iter().step_by(2).map(|name| put(name, "x")).collect());
        rig.reopen();
        commit(rig.engine(), names.iter().skip(1).step_by(2).map(|n| put(n, "y")).collect());
        commit(rig.engine(), vec![delete("ab"), delete("b"), put("c", "z")]);
        let snapshot = rig.engine().snapshot().unwrap();
        let scan = |start: &str, end: &str, limit| {
            let rows = snapshot.scan(start.as_bytes(), end.as_bytes(), limit).unwrap();
            keys(&rows).join(",")
        };
        assert_eq!(scan("", "d", 100), ",a,a\0,aa,ba,c");
        assert_eq!(scan("a", "c", 100), "a,a\0,aa,ba");
        assert_eq!(scan("a\0", "aa\0", 100), "a\0,aa");
        assert_eq!(scan("", "d", 3), ",a,a\0");
        assert_eq!(scan("aa", "d", 2), "aa,ba");
        assert_eq!(scan("", "d", usize::MAX), ",a,a\0,aa,ba,c");
        for (start, end, limit) in [("a", "a", 9), ("b", "a", 9), ("", "", 9), ("", "d", 0)] {
            assert_eq!(scan(start, end, limit), "");
        }
    });
}

#[test]
fn long_scans_over_many_deletes() {
    on_each(|rig| {
        let name = |n: usize| format!("{n:06}");
        for start in (0..3000).step_by(100) {
            let rows = (start..start + 100).map(|n| put(&name(n), "v")).collect();
            commit(rig.engine(), rows);
        }
        rig.reopen();
        for start in (0..2990).step_by(100) {
            let rows = (start..start + 90).map(|n| delete(&name(n))).collect();
            commit(rig.engine(), rows);
        }
        let snapshot = rig.engine().snapshot().unwrap();
        let rows = snapshot.scan(b"0", b"9", 150).unwrap();
        assert_eq!(rows.len(), 150);
        assert_eq!(&rows[149].0[..], name(1499).as_bytes());
        assert_eq!(snapshot.scan(b"0", b"9", 10_000).unwrap().len(), 300);
    });
}

#[test]
fn a_snapshot_never_changes() {
    on_each(|rig| {
        let mut model = Rows::new();
        let mut snapshots = Vec::new();
        let rng = SeededRng::new(7);
        for batch in 1..=60 {
            let changes = random_changes(&rng, 40);
            apply(&mut model, &changes);
            commit(rig.engine(), changes);
            let snapshot = rig.engine().snapshot().unwrap();
            assert_eq!(snapshot.batch(), batch);
            snapshots.push((snapshot, model.clone()));
        }
        for (snapshot, model) in &snapshots {
            let rows = snapshot.scan(b"", b"z", usize::MAX).unwrap();
            assert!(rows.iter().map(|(k, v)| (k, v)).eq(model), "batch {:?}", snapshot.batch());
            for key in (0..40).map(|n| Bytes::from(format!("key-{n:04}"))) {
                let got = snapshot.get(std::slice::from_ref(&key)).unwrap();
                assert_eq!(got[0].as_ref(), model.get(&key));
            }
        }
    });
}

#[test]
fn a_commit_with_another_fence_is_refused() {
    on_each(|rig| {
        let old = commit(rig.engine(), vec![put("a", "1")]);
        for wrong in [
            Fence { batch: old.batch + 1, ..old },
            Fence { batch: old.batch - 1, ..old },
            Fence { epoch: old.epoch + 1, ..old },
        ] {
            match rig.engine().commit(wrong, vec![put("a", "2")]) {
                Err(CommitError::Fenced { found }) => assert_eq!(found, old),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(rig.engine().fence().unwrap(), old);
        assert_eq!(&all(rig.engine())[&b"a"[..]][..], b"1");
    });
}

#[test]
fn a_takeover_shuts_the_old_epoch_out_for_good() {
    on_each(|rig| {
        let old = commit(rig.engine(), vec![put("a", "1")]);
        let new = rig.engine().take_over().unwrap();
        assert_eq!(new, Fence { epoch: old.epoch + 1, batch: old.batch });
        rig.reopen();
        assert_eq!(rig.engine().fence().unwrap(), new);
        let refused = rig.engine().commit(old, vec![put("a", "2")]);
        assert!(matches!(refused, Err(CommitError::Fenced { found }) if found == new));
        rig.engine().commit(new, vec![put("a", "3")]).unwrap();
        rig.reopen();
        assert_eq!(&all(rig.engine())[&b"a"[..]][..], b"3");
    });
}

#[test]
fn large_keys_and_values() {
    on_each(|rig| {
        let big = Bytes::from(vec![7; 24 << 10]);
        let key = Bytes::from(vec![b'k'; 1100]);
        commit(rig.engine(), vec![(key.clone(), Some(big.clone()))]);
        rig.reopen();
        assert_eq!(all(rig.engine())[&key], big);
    });
}

#[test]
fn a_value_of_a_mebibyte_and_a_batch_beyond_the_limit() {
    let config = Config { log_segment_bytes: 2 << 20, ..small(5) };
    let mut rig = EmbeddedRig::new(config);
    let big = Bytes::from(vec![7; 1 << 20]);
    commit(rig.engine(), vec![(Bytes::from("k"), Some(big.clone()))]);
    rig.reopen();
    assert_eq!(all(rig.engine())[&b"k"[..]], big);
    let fence = rig.engine().fence().unwrap();
    let changes = ["a", "b", "c"].map(|key| (Bytes::from(key), Some(big.clone()))).to_vec();
    match rig.engine().commit(fence, changes) {
        Err(CommitError::Failed(error)) => assert_eq!(error.kind(), "too_large"),
        other => panic!("{other:?}"),
    }
    commit(rig.engine(), vec![put("d", "1")]);
}

#[test]
fn random_batches_agree_with_a_model() {
    on_each(|rig| {
        for seed in 0..6 {
            let rng = SeededRng::new(seed);
            let mut model = all(rig.engine());
            for _ in 0..200 {
                let changes = random_changes(&rng, 100);
                apply(&mut model, &changes);
                commit(rig.engine(), changes);
                if rng.below(25) == 0 {
                    rig.reopen();
                }
                if rng.below(8) == 0 {
                    assert_eq!(all(rig.engine()), model, "seed {seed}");
                    let start = format!("key-{:04}", rng.below(110));
                    let end = format!("key-{:04}", rng.below(110));
                    let limit = rng.below(20) as usize;
                    let snapshot = rig.engine().snapshot().unwrap();
                    let got = snapshot.scan(start.as_bytes(), end.as_bytes(), limit).unwrap();
                    let in_range =
                        |key: &Bytes| key[..] >= *start.as_bytes() && key[..] < *end.as_bytes();
                    let want = model.iter().filter(|(key, _)| in_range(key)).take(limit);
                    assert!(got.iter().map(|(k, v)| (k, v)).eq(want), "seed {seed}");
                }
            }
            assert_eq!(all(rig.engine()), model, "seed {seed}");
        }
    });
}

#[test]
fn readers_and_a_writer_at_once_see_whole_batches() {
    on_each(|rig| {
        let engine = rig.engine();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let stop = &stop;
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || {
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        let snapshot = engine.snapshot().unwrap();
                        let rows = snapshot.scan(b"r", b"s", 100).unwrap();
                        let batch = snapshot.batch().to_string();
                        assert!(
                            rows.iter()
                                .all(|(_, value)| value[..8] == *format!("{batch:>8}").as_bytes())
                        );
                        let keys: Vec<Bytes> = rows.iter().map(|(key, _)| key.clone()).collect();
                        assert!(snapshot.get(&keys).unwrap().iter().all(Option::is_some));
                        let (batch, rows) = engine.read(&keys).unwrap();
                        let batch = format!("{batch:>8}");
                        let is_of =
                            |row: &Option<Bytes>| row.as_ref().unwrap()[..8] == *batch.as_bytes();
                        assert!(rows.iter().all(is_of));
                    }
                });
            }
            for batch in 1..=400 {
                let value = format!("{batch:>8}{}", "x".repeat(100));
                commit(engine, (0..10).map(|n| put(&format!("r{n}"), &value)).collect());
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    });
}

#[test]
fn idle_engines_move_their_rows_into_the_table() {
    let disk = SimDisk::new(4);
    let idle = std::time::Duration::from_millis(5);
    let config = Config { background: true, idle, ..small(4) };
    let engine = open(&disk, config.clone()).unwrap();
    commit(&engine, vec![put("a", "1")]);
    let report = loop {
        let report = cairn_meta::engine::embedded::verify(&disk.kill(), &config).unwrap();
        if report.log_records == 0 {
            break report;
        }
        std::thread::yield_now();
    };
    assert_eq!(report.fence, engine.fence().unwrap());
}

#[test]
fn memory_fails_as_planned() {
    let engine = Arc::new(Memory::new());
    let start = engine.fence().unwrap();
    let faults = [
        CommitFault::Failed,
        CommitFault::UnknownLost,
        CommitFault::UnknownCommitted,
        CommitFault::Fenced,
        CommitFault::Poisoned,
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        engine.fail_commit(number as u64, fault);
    }
    let failed = engine.commit(start, vec![put("a", "1")]);
    assert!(matches!(failed, Err(CommitError::Failed(_))));
    let lost = engine.commit(start, vec![put("a", "1")]);
    assert!(matches!(lost, Err(CommitError::Unknown(_))));
    assert!(all(&*engine).is_empty());
    let committed = engine.commit(start, vec![put("a", "1")]);
    assert!(matches!(committed, Err(CommitError::Unknown(_))));
    assert_eq!(all(&*engine).len(), 1);
    let now = engine.fence().unwrap();
    assert_eq!(now.batch, 1);
    let fenced = engine.commit(now, vec![put("a", "2")]);
    let found = Fence { epoch: 1, batch: 1 };
    assert!(matches!(fenced, Err(CommitError::Fenced { found: f }) if f == found));
    let poisoned = engine.commit(found, vec![]);
    assert!(matches!(poisoned, Err(CommitError::Poisoned(_))));
    assert!(matches!(engine.commit(found, vec![]), Err(CommitError::Poisoned(_))));
    assert_eq!(engine.commits(), 6);
}
