//! Many tasks, a cache far too small, commits that fail and get lost. The replies must be those of
//! the same operations executed one after another, in an order that agrees with the acks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cairn_auth::Caller;
use cairn_base::clock::RealClock;
use cairn_base::rng::SeededRng;
use cairn_base::{Error, Rng};
use cairn_meta::Master;
use cairn_meta::master::Config;

use crate::engine::{Fate, TestEngine};
use crate::model::{Record, SERIAL, Step, refused_at, replay};
use crate::verbs::{key, number};

const STEPS: u64 = 130_000;

/// The state that the tasks of one run share.
struct Run {
    seed: u64,
    master: Master,
    /// The last serial number in the engine.
    durable: Arc<AtomicU64>,
    /// The highest serial number that anybody knows of.
    known: AtomicU64,
    done: AtomicBool,
}

#[test]
fn with_rows_fetched_by_threads() {
    for seed in 1..1 + cairn_sim::scale() {
        check(seed, Config { inline_us: 0, ..config(seed) }, 64, true);
    }
}

#[test]
fn with_rows_read_by_the_executor() {
    check(4, Config { inline_us: u64::MAX, ..config(4) }, 64, true);
}

#[test]
fn with_both() {
    for seed in [5, 6] {
        check(seed, Config { inline_us: 3, ..config(seed) }, 200, true);
    }
}

/// Each row is waited for on its own, so fewer steps take as long.
#[test]
fn with_one_waiting_operation_at_a_time() {
    let config = Config { inline_us: 0, parked_ops: 1, fetch_threads: 1, ..config(7) };
    check_steps(7, config, 16, true, STEPS / 4 * cairn_sim::scale());
}

#[test]
fn without_faults_and_with_a_large_cache() {
    check(8, Config::default(), 300, false);
}

fn config(seed: u64) -> Config {
    let rng = SeededRng::new(seed);
    Config {
        cache_bytes: 2000 + rng.below(6000) as usize,
        accepted_ops: 8 + rng.below(200) as usize,
        parked_ops: 2 + rng.below(60) as usize,
        fetch_threads: 1 + rng.below(4) as usize,
        ..Config::default()
    }
}

fn check(seed: u64, config: Config, tasks: u64, faults: bool) {
    check_steps(seed, config, tasks, faults, STEPS);
}

fn check_steps(seed: u64, config: Config, tasks: u64, faults: bool, steps: u64) {
    println!("seed {seed}, {config:?}");
    let durable = Arc::new(AtomicU64::new(0));
    let witness = Arc::clone(&durable);
    let engine = TestEngine::watched(
        move |commit| fate(seed, commit, faults),
        move |rows| {
            let serial = rows.get(&key(SERIAL)).map_or(0, number);
            witness.store(serial, Ordering::SeqCst);
        },
    );
    let clock = Arc::new(RealClock::default());
    let master = Master::start(engine.clone(), clock, config).expect("a master");
    let (known, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let run = Arc::new(Run { seed, master, durable, known, done });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let records = runtime.expect("a runtime").block_on(drive(&run, tasks, steps / tasks));
    run.master.stop();
    assert_eq!(run.master.failed(), None);
    let stats = run.master.stats();
    println!("{} records, {stats:?}", records.len());
    assert_eq!(stats.in_flight, 0);
    assert_eq!(replay(records), engine.rows(), "seed {seed}");
}

/// One commit in ten goes wrong.
fn fate(seed: u64, commit: u64, faults: bool) -> Fate {
    let rng = SeededRng::new(seed << 40 ^ commit);
    rng.next_u64();
    // So that batches fill up behind it.
    (0..rng.below(8)).for_each(|_| std::thread::yield_now());
    match rng.below(40) {
        0 if faults => Fate::Full,
        1 if faults => Fate::Broken,
        2 if faults => Fate::UnknownDone,
        3 if faults => Fate::UnknownLost,
        _ => Fate::Fine,
    }
}

async fn drive(run: &Arc<Run>, tasks: u64, each: u64) -> Vec<Record> {
    let change = |task| tokio::spawn(steps(Arc::clone(run), task, each));
    let writers: Vec<_> = (0..tasks).map(change).collect();
    let look = |task| tokio::spawn(looks(Arc::clone(run), task));
    let readers: Vec<_> = (1000..1004).map(look).collect();
    let mut records = Vec::new();
    for writer in writers {
        records.extend(writer.await.expect("a writer"));
    }
    run.done.store(true, Ordering::SeqCst);
    for reader in readers {
        records.extend(reader.await.expect("a reader"));
    }
    records
}

async fn steps(run: Arc<Run>, task: u64, count: u64) -> Vec<Record> {
    let rng = SeededRng::new(run.seed << 20 ^ task);
    let caller = Caller::system();
    let mut records = Vec::new();
    for _ in 0..count {
        let step = Step::random(&rng);
        let known = run.known.load(Ordering::SeqCst);
        let result = match run.master.run(&caller, step.clone()).await {
            Ok(reply) => {
                assert!(run.master.durable_batch() + u64::from(!reply.seen.changed) >= reply.batch);
                Ok(reply)
            }
            Err(Error::Full(_) | Error::Unavailable(_)) => continue,
            Err(error) => Err(refused_at(&error).expect("a refusal")),
        };
        run.acked(known, result.as_ref().map_or_else(|at| *at, |reply| reply.seen.serial));
        records.push((step, result));
    }
    records
}

async fn looks(run: Arc<Run>, task: u64) -> Vec<Record> {
    let rng = SeededRng::new(run.seed << 20 ^ task);
    let caller = Caller::system();
    let mut records = Vec::new();
    while !run.done.load(Ordering::SeqCst) {
        let step = Step::look(&rng);
        let known = run.known.load(Ordering::SeqCst);
        let reply = match rng.below(2) {
            0 => run.master.read(&caller, step.clone()).await,
            _ => match run.master.read_now(&caller, &step) {
                Some(result) => result,
                None => {
                    tokio::task::yield_now().await;
                    continue;
                }
            },
        };
        let reply = reply.expect("reads do not fail");
        run.acked(known, reply.seen.serial);
        assert!(run.master.durable_batch() >= reply.batch, "a read from the future");
        if records.len() < 50_000 {
            records.push((step, Ok(reply)));
        }
    }
    records
}

impl Run {
    /// Somebody got an answer as of `serial`, having asked when `known` was known.
    fn acked(&self, known: u64, serial: u64) {
        let seed = self.seed;
        assert!(serial >= known, "seed {seed}: went back from {known} to {serial}");
        let durable = self.durable.load(Ordering::SeqCst);
        assert!(serial <= durable, "seed {seed}: answered {serial}, durable is {durable}");
        self.known.fetch_max(serial, Ordering::SeqCst);
    }
}
