//! A whole cluster, simulated on one thread from a seed.
//!
//! ```text
//!   clients ──► gateways ── fs, sessions ──► masters ──► database    (2, fenced failover)
//!      │            └────── blocks ────────► chunkservers ── disks   (3 or 4, R = 2 or 3)
//!      ▼
//!   history ──► is there one order that explains it?
//! ```
//!
//! What runs is the product: masters, sessions, replication, repair, garbage collection, stores of
//! blocks. What is simulated is below it: the network (streams that are late and break), the disks,
//! the database, the clocks, and threads, which are given turns. Each process has a runtime of its
//! own, whose time the world sets forward: so it can be stopped, killed and started.

mod client;
#[path = "../../../../cairn/src/node/copies.rs"]
mod copies;
mod database;
mod digest;
mod faults;
mod health;
mod history;
mod host;
mod net;
mod roles;
mod world;

use world::run;

fn trace() {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let _ = tracing_subscriber::fmt().with_env_filter(filter).without_time().try_init();
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn one_seed() {
    trace();
    let seed = number("CAIRN_SEED", 1);
    let begun = std::time::Instant::now();
    let first = run(seed, None);
    eprintln!("{seed}: {first:?} in {:?}", begun.elapsed());
    let again = run(seed, None);
    assert_eq!(first.digest, again.digest, "the same seed, another history");
    assert_eq!(first.violations, Vec::<String>::new());
}

/// Seeds from `CAIRN_SEED` on, `CAIRN_SEEDS` of them, on all cores.
#[test]
fn seeds() {
    trace();
    let (first, count) = (number("CAIRN_SEED", 1), number("CAIRN_SEEDS", 20));
    let next = std::sync::atomic::AtomicU64::new(first);
    let failed = parking_lot::Mutex::new(Vec::new());
    let work = || {
        loop {
            let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if seed >= first + count {
                return;
            }
            let begun = std::time::Instant::now();
            let report = run(seed, None);
            let took = begun.elapsed();
            let (ops, answered, faults) = (report.ops, report.answered, report.faults);
            let (recovery, digest) = (report.recovery_ms, report.digest);
            eprintln!(
                "{seed}: {digest:016x} {ops} ops {answered} answered {faults} faults, well after {recovery} ms, {took:?}"
            );
            if number("CAIRN_TWICE", 0) > 0 && run(seed, None) != report {
                eprintln!("{seed}: FAILED another history");
                failed.lock().push(seed);
            }
            if !report.violations.is_empty() {
                eprintln!("{seed}: FAILED {}", report.violations.join("\n"));
                failed.lock().push(seed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(work);
        }
    });
    assert_eq!(failed.into_inner(), Vec::<u64>::new());
}
