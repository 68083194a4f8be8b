//! A dump is loaded row by row; a dump that is not whole is not loaded at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use cairn_auth::{Caller, Visibility};
use cairn_base::clock::RealClock;
use cairn_base::rng::SeededRng;
use cairn_base::{Capability, ClusterMap, Error, Ino, SHARD_BITS, SessionId, UserId};
use cairn_meta::dump::{self, Contents, Summary};
use cairn_meta::engine::embedded::Config;
use cairn_meta::engine::{Change, CommitFault, EmbeddedEngine, Engine, Fence, Memory, Postgres};
use cairn_meta::ops::buckets::CreateBucket;
use cairn_meta::ops::conditions::Conditions;
use cairn_meta::ops::put_object::{NewContent, PutObject};
use cairn_meta::ops::sessions::{Format, OpenSession};
use cairn_meta::rows::{
    BucketKind, Counter, Inode, Kind, ObjectAttributes, Row, Session, encode_number,
};
use cairn_meta::{Master, capabilities, check, keys, master};
use cairn_sim::SimDisk;

use crate::postgres::server;
use crate::support::{all, commit, open, put, small};

const SESSION: SessionId = SessionId(77);
const CLUSTER: u64 = 0xC1;

/// An embedded engine as large as a server's.
fn embedded(disk: &SimDisk) -> EmbeddedEngine {
    let sizes = Config { memtable_bytes: 1 << 20, log_segment_bytes: 8 << 20, ..small(1) };
    open(disk, sizes).unwrap()
}

/// Objects of more than one section.
fn populate(engine: &Arc<EmbeddedEngine>) {
    let clock = Arc::new(RealClock::default());
    let master = Master::start(engine.clone(), clock, master::Config::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (root, system) = (Caller::verified(UserId::ROOT), Caller::system());
    runtime.block_on(async {
        master.run(&system, Format { cluster: CLUSTER }).await.unwrap();
        master.run(&system, OpenSession { session: SESSION }).await.unwrap();
        let (kind, visibility) = (BucketKind::S3, Visibility::Private);
        let bucket = CreateBucket { name: "bucket".into(), kind, visibility };
        master.run(&root, bucket).await.unwrap();
        for number in 0..300 {
            let size = 9000 + number;
            let content = NewContent::Inline(Bytes::from(vec![number as u8; size]));
            let put = PutObject {
                bucket: "bucket".into(),
                key: format!("deep/{}/{number}", number % 7),
                session: SESSION,
                content,
                size: size as u64,
                object: ObjectAttributes { etag: "e".repeat(32), ..Default::default() },
                tags: vec![],
                conditions: Conditions::default(),
            };
            master.run(&root, put).await.unwrap();
        }
    });
    master.stop();
}

fn dumped(engine: &dyn Engine) -> (Vec<u8>, Summary) {
    let mut out = Vec::new();
    let summary = dump::write(&*engine.snapshot().unwrap(), &mut out, &mut |_| {}).unwrap();
    assert_eq!(summary.bytes, out.len() as u64);
    (out, summary)
}

fn load(engine: &dyn Engine, bytes: &[u8]) -> cairn_base::Result<Summary> {
    dump::load(engine, &mut &bytes[..], &|map| Ok(map.clone()), &mut |_| {})
}

fn verify(bytes: &[u8]) -> cairn_base::Result<Summary> {
    dump::verify(&mut &bytes[..], &mut |_| {})
}

/// A dump of a few sections, and where they begin.
fn sample() -> (Vec<u8>, Vec<usize>) {
    let engine = Memory::new();
    let rng = SeededRng::new(3);
    let row = |number: u64| -> Change {
        let value = vec![rng.below(256) as u8; 700 << 10];
        (Bytes::from(format!("i{number}")), Some(value.into()))
    };
    let mut rows: Vec<Change> = (0..3).map(row).collect();
    rows.push((keys::cluster(), Some(encode_number(CLUSTER))));
    commit(&engine, rows);
    let (bytes, _) = dumped(&engine);
    let starts = |magic: &'static [u8]| {
        let found = bytes.windows(4).enumerate().filter(move |(_, four)| *four == magic);
        found.map(|(at, _)| at)
    };
    let starts: Vec<usize> = starts(b"SECT").chain(starts(b"TAIL")).collect();
    assert_eq!((starts.len(), starts[0]), (4, 36));
    (bytes, starts)
}

#[test]
fn there_and_back() {
    let disk = SimDisk::new(1);
    let first = Arc::new(embedded(&disk));
    populate(&first);
    let (bytes, summary) = dumped(&*first);
    let fence = first.fence().unwrap();
    assert_eq!((summary.cluster, summary.batch), (CLUSTER, fence.batch));
    assert_eq!(summary.rows, all(&*first).len() as u64);
    assert_eq!(verify(&bytes).unwrap(), summary);
    let mut rows = all(&*first);
    // Sessions know that they come out of a dump.
    for (_, row) in rows.iter_mut().filter(|(key, _)| key.starts_with(b"s")) {
        *row = Session { loaded: true, ..Session::decode(row).unwrap() }.encode();
    }
    let postgres = server::shared().map(|server| server.open(&server::schema()).unwrap());
    let middle: Box<dyn Engine> = match postgres {
        Some(postgres) => Box::new(postgres),
        None => Box::new(Memory::new()),
    };
    assert_eq!(load(&*middle, &bytes).unwrap(), summary);
    let (again, _) = dumped(&*middle);
    let disk = SimDisk::new(2);
    let last = embedded(&disk);
    let passed = load(&last, &again).unwrap();
    assert!(passed.batch > summary.batch);
    drop(last);
    // The rows in its log, too.
    let last = embedded(&disk);
    for engine in [&*middle, &last] {
        assert_eq!(all(engine), rows);
        assert!(engine.fence().unwrap().batch > fence.batch);
        assert_eq!(dump::contents(engine).unwrap(), Contents::Store(CLUSTER));
        let report = check::check(&*engine.snapshot().unwrap(), &mut |_| {}).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

#[test]
fn a_batch_number_is_kept_through_a_restart() {
    let (batch, disk) = (1 << 40, SimDisk::new(1));
    let engine = embedded(&disk);
    assert_eq!(engine.take_over_at(batch).unwrap(), Fence { epoch: 1, batch });
    assert_eq!(engine.take_over_at(3).unwrap(), Fence { epoch: 2, batch });
    engine.abandon();
    let engine = embedded(&disk);
    assert_eq!(engine.fence().unwrap(), Fence { epoch: 2, batch });
    commit(&engine, vec![put("a", "1")]);
    drop(engine);
    assert_eq!(embedded(&disk).fence().unwrap(), Fence { epoch: 2, batch: batch + 1 });
    let Some(server) = server::shared() else { return };
    let schema = server::schema();
    let first = server.open(&schema).unwrap();
    assert_eq!(first.take_over_at(batch).unwrap(), Fence { epoch: 1, batch });
    drop(first);
    let second = server.open(&schema).unwrap();
    assert_eq!(second.take_over_at(3).unwrap(), Fence { epoch: 2, batch });
}

#[test]
fn what_is_cut_off_is_refused_and_leaves_no_store() {
    let (bytes, starts) = sample();
    let around = starts.iter().flat_map(|at| [at - 1, *at, at + 1, at + 31, at + 32]);
    let cuts = around.chain([0, 1, 8, 35, bytes.len() - 1]);
    for cut in cuts.filter(|cut| *cut < bytes.len()) {
        let error = verify(&bytes[..cut]).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. } | Error::Invalid(_)), "{cut}: {error}");
        let engine = Memory::new();
        load(&engine, &bytes[..cut]).unwrap_err();
        let expected = if cut < starts[1] { Contents::Nothing } else { Contents::Part };
        assert_eq!(dump::contents(&engine).unwrap(), expected, "{cut}");
        if expected == Contents::Part {
            let rows = all(&engine);
            let refused = load(&engine, &bytes).unwrap_err();
            assert!(refused.to_string().contains("a load that did not end"), "{refused}");
            assert_eq!(all(&engine), rows);
        }
    }
}

#[test]
fn what_was_altered_is_refused() {
    let (bytes, starts) = sample();
    let heads = starts.iter().flat_map(|at| *at..at + 38);
    let places: Vec<usize> =
        (0..36).chain(heads).chain((36..bytes.len()).step_by(40_001)).collect();
    for at in places.into_iter().filter(|at| *at < bytes.len()) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(verify(&flipped).is_err(), "{at}");
    }
    // Whole parts that are missing, twice there, or out of order.
    let part = |at: usize| &bytes[starts[at]..*starts.get(at + 1).unwrap_or(&bytes.len())];
    let header = &bytes[..36];
    for parts in [&[0, 2, 3][..], &[0, 1, 1, 2, 3], &[1, 0, 2, 3], &[3], &[0, 1, 2, 3, 3]] {
        let parts: Vec<&[u8]> = parts.iter().map(|at| part(*at)).collect();
        let error = verify(&[header, &parts.concat()].concat()).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    }
}

#[test]
fn what_is_no_dump_is_refused() {
    let mut newer = sample().0;
    newer[8] = 2;
    for (bytes, text) in [
        (&b""[..], "not a dump"),
        (b"PGDMP", "not a dump"),
        (&[0; 5000], "not a dump"),
        (&newer, "version 2"),
    ] {
        let engine = Memory::new();
        let error = load(&engine, bytes).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(engine.fence().unwrap(), Fence::default());
    }
    let refused = dump::write(&*Memory::new().snapshot().unwrap(), &mut Vec::new(), &mut |_| {});
    assert_eq!(refused.unwrap_err().kind(), "not_found");
}

#[test]
fn nothing_is_loaded_over_anything() {
    let (bytes, _) = sample();
    let engine = Memory::new();
    commit(&engine, vec![(keys::cluster(), Some(encode_number(9)))]);
    let before = (all(&engine), engine.fence().unwrap());
    let refused = load(&engine, &bytes).unwrap_err();
    assert!(refused.to_string().contains("a store already"), "{refused}");
    assert_eq!((all(&engine), engine.fence().unwrap()), before);
}

#[test]
fn a_load_survives_what_a_commit_may_do() {
    let (bytes, _) = sample();
    for after in 0..4 {
        for fault in [CommitFault::UnknownCommitted, CommitFault::UnknownLost] {
            let engine = Memory::new();
            engine.fail_commit(after, fault);
            load(&engine, &bytes).unwrap();
            assert_eq!(all(&engine).len(), 4);
        }
        for fault in [CommitFault::Failed, CommitFault::Fenced, CommitFault::Poisoned] {
            let engine = Memory::new();
            engine.fail_commit(after, fault);
            load(&engine, &bytes).unwrap_err();
            assert!(!matches!(dump::contents(&engine).unwrap(), Contents::Store(_)));
        }
    }
}

/// Two rows at both ends of the table that change together only.
#[test]
fn a_dump_shows_one_state() {
    let memory = Memory::new();
    while_committing(&memory, &memory);
    let disk = SimDisk::new(1);
    let engine = embedded(&disk);
    while_committing(&engine, &engine);
    if let Some(server) = server::shared() {
        let schema = server::schema();
        let engine = server.open(&schema).unwrap();
        let beside = Postgres::attach(&server.config(&schema)).unwrap();
        while_committing(&engine, &beside);
    }
}

fn while_committing(engine: &dyn Engine, beside: &dyn Engine) {
    let mut fence = engine.take_over().unwrap();
    let filler = (0..2000).map(|n| put(&format!("i{n:05}"), &"x".repeat(100)));
    let cluster = (keys::cluster(), Some(encode_number(CLUSTER)));
    engine.commit(fence, filler.chain([cluster, put("a", "0"), put("z", "0")]).collect()).unwrap();
    fence.batch += 1;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let number = number.to_string();
                engine.commit(fence, vec![put("a", &number), put("z", &number)]).unwrap();
                fence.batch += 1;
            }
        });
        let mut batches = Vec::new();
        for _ in 0..10 {
            let (bytes, summary) = dumped(beside);
            let copy = Memory::new();
            load(&copy, &bytes).unwrap();
            let rows = all(&copy);
            assert_eq!(rows[&b"a"[..]], rows[&b"z"[..]]);
            assert_eq!(rows[&b"a"[..]], (summary.batch - 1).to_string());
            batches.push(summary.batch);
        }
        stop.store(true, Ordering::Relaxed);
        assert!(batches.is_sorted());
    });
}

#[test]
fn a_capability_of_one_server_is_turned_on_for_good_and_dumped() {
    let name = Capability::RequiredFields;
    let engine = Memory::new();
    assert!(matches!(capabilities::enable(&engine, name), Err(Error::NotFound(_))));
    commit(&engine, vec![(keys::cluster(), Some(encode_number(CLUSTER)))]);
    assert!(capabilities::enabled(&engine).unwrap().is_empty());
    capabilities::enable(&engine, name).unwrap();
    let copy = Memory::new();
    let summary = load(&copy, &dumped(&engine).0).unwrap();
    assert_eq!(summary.cluster, CLUSTER);
    for store in [&engine, &copy] {
        assert!(capabilities::enabled(store).unwrap().contains(name));
        // A program before reads a plain number there.
        let row = all(store)[&keys::cluster()[..]].clone();
        assert!(Counter::decode(&row).is_err());
    }
    // A cluster has one switch, its map.
    commit(&engine, vec![(keys::map(), Some(ClusterMap::default().encode()))]);
    assert!(capabilities::enabled(&engine).unwrap().is_empty());
    assert!(matches!(capabilities::enable(&engine, name), Err(Error::Invalid(_))));
}

#[test]
fn numbers_of_other_shards_are_findings() {
    let engine = Memory::new();
    commit(&engine, vec![(keys::cluster(), Some(encode_number(CLUSTER)))]);
    let file = Inode { kind: Kind::File, ..Inode::default() };
    let far = Ino(1 << (u64::BITS - SHARD_BITS));
    commit(&engine, vec![(keys::inode(far), Some(file.encode()))]);
    let report = check::check(&*engine.snapshot().unwrap(), &mut |_| {}).unwrap();
    let found = report.findings.iter().filter(|one| one.what.contains("another shard"));
    assert_eq!(found.count(), 1, "{:?}", report.findings);
    let rng = SeededRng::new(9);
    assert!((0..1000).all(|_| SessionId::random(&rng).0 < far.0));
}
