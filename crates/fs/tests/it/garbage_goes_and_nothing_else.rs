use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::{Caller, Visibility};
use cairn_base::rng::SeededRng;
use cairn_base::{BlockId, BodyId, Clock, Ino, Owner, SessionId, Timestamp};
use cairn_blocks::Wish;
use cairn_fs::ops::buckets::CreateBucket;
use cairn_fs::ops::for_call::{CallId, ForCall};
use cairn_fs::ops::lookup::Lookup;
use cairn_fs::ops::mkdir::Mkdir;
use cairn_fs::ops::sessions::{EndSession, Format, ListSessions, OpenRemoteSession};
use cairn_fs::rows::{BucketKind, SessionState};
use cairn_fs::{Config, Fs, PutRequest};
use cairn_meta::Master;
use cairn_meta::engine::{Engine, Memory};

use crate::world::{BUCKET, World, data, root, run};

/// A clock that is set, seconds.
#[derive(Default)]
struct SetClock(AtomicU64);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(self.0.load(Ordering::Relaxed) as i64)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

const REMOTE: SessionId = SessionId(77);

/// A block that a process on another machine writes.
async fn write_remote(fs: &Fs, counter: u64) {
    let owner = Owner { body: BodyId { session: REMOTE, counter: 1 }, chunk: 0 };
    let block = BlockId { session: REMOTE, counter };
    fs.blocks().write(Wish::default(), block, owner, data(counter, 5000)).await.unwrap();
}

async fn state_of_remote(fs: &Fs) -> SessionState {
    let page = fs.read(&Caller::system(), ListSessions { after: None, limit: 99 }).await.unwrap();
    page.into_iter().find(|(session, _)| *session == REMOTE).unwrap().1.state
}

#[test]
fn what_comes_after_the_end_of_a_session_goes_too() {
    run(async {
        let world = World::new(5).await;
        let clock = Arc::new(SetClock::default());
        let config = Config { late: Duration::from_secs(300), ..Config::default() };
        let meta = world.fs.meta().clone();
        let fs = Fs::over(meta, Arc::clone(world.fs.blocks()), clock.clone(), config);
        let system = Caller::system();
        fs.run(&system, OpenRemoteSession { session: REMOTE, owner: 5 }).await.unwrap();
        write_remote(&fs, 1).await;
        assert!(!fs.has_sessions_to_reap(&system).await.unwrap());
        fs.run(&system, EndSession { session: REMOTE, reaped: false }).await.unwrap();
        assert!(fs.has_sessions_to_reap(&system).await.unwrap());
        assert_eq!(fs.collect_garbage(&system, true).await.unwrap().orphans, 1);
        // At once what is there, after a minute what has come since, and in the end the rest.
        let looks = [(0, 1, 1), (1, 0, 1), (59, 0, 1), (60, 1, 1), (299, 0, 1), (300, 1, 0)];
        for (at_secs, orphans, blocks) in looks {
            clock.0.store(at_secs, Ordering::Relaxed);
            assert_eq!(state_of_remote(&fs).await, SessionState::Ended);
            let report = fs.collect_garbage(&system, false).await.unwrap();
            assert_eq!(report.orphans, orphans, "after {at_secs} s");
            if [0, 60].contains(&at_secs) {
                write_remote(&fs, 2 + at_secs).await;
            }
            assert_eq!(world.blocks().await, blocks, "after {at_secs} s");
        }
        assert_eq!(state_of_remote(&fs).await, SessionState::Reaped);
        assert!(!fs.has_sessions_to_reap(&system).await.unwrap());
    });
}

/// All of them are looked at for it: not in each pass.
#[test]
fn calls_of_long_ago_are_forgotten_now_and_then() {
    run(async {
        let world = World::new(6).await;
        let (engine, clock) = (Arc::new(Memory::new()), Arc::new(SetClock::default()));
        let master = Master::start(engine.clone(), clock.clone(), Default::default()).unwrap();
        master.run(&Caller::system(), Format { cluster: 1 }).await.unwrap();
        let (blocks, rng) = (Arc::clone(world.fs.blocks()), SeededRng::new(6));
        let fs = Fs::start(master, blocks, clock.clone(), &rng, Config::default()).await.unwrap();
        let (name, kind) = (BUCKET.into(), BucketKind::Posix);
        let bucket = CreateBucket { name, kind, visibility: Visibility::Private };
        fs.run(&root(), bucket).await.unwrap();
        let lookup = Lookup { parent: Ino::ROOT, name: BUCKET.into() };
        let (parent, _) = fs.read(&root(), lookup).await.unwrap();
        let call = CallId { client: [1; 16], checksum: [2; 16], step: 0 };
        let verb = Mkdir { parent, name: b"directory".to_vec(), mode: 0o755, umask: 0 };
        fs.run(&root(), ForCall { call, verb }).await.unwrap();
        let calls = || engine.snapshot().unwrap().scan(b"a", b"b", 10).unwrap().len();
        let system = Caller::system();
        fs.collect_garbage(&system, false).await.unwrap();
        assert_eq!(calls(), 1, "it is of late");
        clock.0.store(1_000, Ordering::Relaxed);
        fs.collect_garbage(&system, true).await.unwrap();
        fs.collect_known_garbage(&system, false).await.unwrap();
        assert_eq!(calls(), 1, "it is not looked at");
        fs.collect_known_garbage(&system, true).await.unwrap();
        assert_eq!(calls(), 0);
    });
}

#[test]
fn what_was_never_published_goes_at_once_or_after_a_crash() {
    run(async {
        let world = World::new(1).await;
        let mut writer = world.fs.begin(&root(), BUCKET).await.unwrap();
        writer.push(data(1, 9 << 20)).await.unwrap();
        drop(writer.finish().await.unwrap());
        let mut writer = world.fs.begin(&root(), BUCKET).await.unwrap();
        writer.push(data(2, 9 << 20)).await.unwrap();
        let forgotten = writer.finish().await.unwrap();
        world.collect().await;
        assert!(world.blocks().await > 0, "the second one may still be published");
        std::mem::forget(forgotten);
        let world = world.killed(2).await;
        let dry = world.fs.collect_garbage(&root(), true).await.unwrap();
        assert_eq!(dry.orphans, 3);
        assert!(world.blocks().await > 0, "a dry run changes nothing");
        world.collect().await;
        assert_eq!(world.blocks().await, 0);
    });
}

#[test]
fn who_hangs_up_while_it_is_published_takes_nothing_away() {
    run(async {
        let world = World::new(3).await;
        let bytes = data(1, 100_000);
        let mut key = 0;
        while !put_and_hang_up(&world.fs, &key.to_string(), &bytes).await {
            key += 1;
        }
        let key = key.to_string();
        while world.find(&key).await.unwrap().is_none() {}
        world.collect().await;
        assert_eq!(world.find(&key).await.unwrap(), Some(bytes));
    });
}

/// Whether nobody waited for the answer any more when it came: it may come at once.
async fn put_and_hang_up(fs: &Fs, key: &str, bytes: &Bytes) -> bool {
    let caller = root();
    let mut writer = fs.begin(&caller, BUCKET).await.unwrap();
    writer.push(bytes.clone()).await.unwrap();
    let written = writer.finish().await.unwrap();
    let request = PutRequest { bucket: BUCKET.into(), key: key.into(), ..Default::default() };
    let mut put = Box::pin(fs.put_object(&caller, request, written));
    std::future::poll_fn(|context| Poll::Ready(put.as_mut().poll(context))).await.is_pending()
}

/// Random changes with kills in between; in the end only what is named is there.
#[test]
fn churn_with_crashes_leaks_and_loses_nothing() {
    (11..11 + cairn_sim::scale()).for_each(churn);
}

fn churn(seed: u64) {
    run(async {
        let rng = SeededRng::new(seed);
        let mut world = World::new(seed).await;
        let mut model: BTreeMap<String, Bytes> = BTreeMap::new();
        for step in 0..400u64 {
            let key = format!("d{}/k{}", rng.below(3), rng.below(8));
            match rng.below(10) {
                0..=4 => {
                    let len = [100, 20_000, 200_000, 5 << 20][rng.below(4) as usize];
                    let bytes = data(step, len);
                    world.put(&key, &bytes).await.unwrap();
                    model.insert(key, bytes);
                }
                5..=6 => {
                    let existed = world.delete(&key).await.unwrap();
                    assert_eq!(existed, model.remove(&key).is_some());
                }
                7 => {
                    let record = data(step, 30_000);
                    world.fs.append(&root(), BUCKET, &key, record.clone()).await.unwrap();
                    let bytes = model.entry(key).or_default();
                    *bytes = [&bytes[..], &record].concat().into();
                }
                8 => {
                    world.fs.collect_garbage(&root(), false).await.unwrap();
                    tokio::task::block_in_place(|| world.store.compact(false)).unwrap();
                }
                _ => world = world.killed(step).await,
            }
        }
        world.collect().await;
        for (key, bytes) in &model {
            assert!(world.get(key).await.unwrap() == bytes, "{key}, seed {seed}");
        }
        for key in model.keys() {
            world.delete(key).await.unwrap();
        }
        world.collect().await;
        assert_eq!(world.blocks().await, 0, "seed {seed}");
    });
}
