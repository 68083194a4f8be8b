//! Measures the embedded engine against the disk it lies on, `engine_bench DIR [seconds] [MiB of
//! memtable]`, or the engine on PostgreSQL, `engine_bench postgres://… [seconds]`, in a new
//! database. Prints F (4 KiB write + fdatasync a second into a written file, one at a time)
//! before and after each measurement, since it wanders.
#![allow(clippy::disallowed_methods)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cairn_base::rng::SeededRng;
use cairn_base::{Disk, RealDisk, Result, Rng, Secret};
use cairn_meta::engine::embedded::Config;
use cairn_meta::engine::{Change, EmbeddedEngine, Engine, Postgres, postgres};

const F_BYTES: u64 = 64 << 20;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().unwrap_or_else(|| "/tmp/engine-bench".into());
    let seconds: f64 = args.next().and_then(|text| text.parse().ok()).unwrap_or(5.0);
    let memtable: usize = args.next().and_then(|text| text.parse().ok()).unwrap_or(16);
    if dir.starts_with("postgres") {
        return on_postgres(&dir, Duration::from_secs_f64(seconds));
    }
    let config = Config { memtable_bytes: memtable << 20, ..Config::default() };
    for order in [Order::Random, Order::Inodes] {
        for pairs in [64, 512] {
            let _ = std::fs::remove_dir_all(&dir);
            let disk = RealDisk::open(Path::new(&dir))?;
            let probe = Probe::new(&disk)?;
            let engine = EmbeddedEngine::open(disk.sub("meta")?, config.clone())?;
            let before = probe.syncs_per_second()?;
            let rows = commits(&engine, pairs, order, Duration::from_secs_f64(seconds));
            let after = probe.syncs_per_second()?;
            println!("    F = {before:.0} before, {after:.0} after");
            reads(&engine, order, rows, "rows in memory and table")?;
            engine.checkpoint()?;
            reads(&engine, order, rows, "all rows in the table")?;
            let size = std::fs::metadata(Path::new(&dir).join("meta/rows.redb"))?.len();
            println!("    rows.redb: {} MiB for {} rows", size >> 20, rows * 2);
        }
    }
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}

fn on_postgres(url: &str, time: Duration) -> Result<()> {
    let disk = RealDisk::open(Path::new("/tmp/engine-bench"))?;
    let probe = Probe::new(&disk)?;
    for order in [Order::Random, Order::Inodes] {
        for pairs in [64, 512] {
            let mut config = postgres::Config::new(Secret::new(url.to_owned()));
            config.schema = format!("bench_{order:?}_{pairs}").to_lowercase();
            let engine = Postgres::open(&config)?;
            let before = probe.syncs_per_second()?;
            let rows = commits(&engine, pairs, order, time);
            let after = probe.syncs_per_second()?;
            println!("    F = {before:.0} before, {after:.0} after");
            reads(&engine, order, rows, "one thread")?;
        }
    }
    std::fs::remove_dir_all("/tmp/engine-bench")?;
    Ok(())
}

/// The order of keys.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// Spread over the key space: the worst for a tree.
    Random,
    /// Like Cairn's own keys: ascending inode numbers; random names in some directories.
    Inodes,
}

/// One 4 KiB write and sync after another.
struct Probe {
    file: Arc<dyn cairn_base::DiskFile>,
}

impl Probe {
    fn new(disk: &RealDisk) -> Result<Probe> {
        let file = disk.create("probe")?;
        for offset in (0..F_BYTES).step_by(1 << 20) {
            file.write_at(&[&[0; 1 << 20]], offset)?;
        }
        file.sync_data()?;
        Ok(Probe { file })
    }

    fn syncs_per_second(&self) -> Result<f64> {
        let start = Instant::now();
        let mut done = 0u64;
        while start.elapsed() < Duration::from_secs(1) {
            self.file.write_at(&[&[7; 4096]], done * 4096 % F_BYTES)?;
            self.file.sync_data()?;
            done += 1;
        }
        Ok(done as f64 / start.elapsed().as_secs_f64())
    }
}

fn mixed(number: u64) -> u64 {
    SeededRng::new(number).next_u64()
}

/// Keys of a dirent and an inode, about 30 bytes each.
fn keys(order: Order, number: u64) -> [Bytes; 2] {
    let name = mixed(number);
    match order {
        Order::Random => [
            Bytes::from(format!("d{name:016x}{number:013}")),
            Bytes::from(format!("i{:016x}{number:013}", mixed(name))),
        ],
        Order::Inodes => [
            Bytes::from(format!("d{:08x}{name:016x}.bin", number / 100_000)),
            Bytes::from(format!("i{number:016x}")),
        ],
    }
}

fn batch(order: Order, from: u64, pairs: u64) -> Vec<Change> {
    let value = |number: u64| {
        let mut value = vec![0; 150];
        SeededRng::new(number).fill(&mut value);
        Some(Bytes::from(value))
    };
    let mut changes = Vec::new();
    for number in from..from + pairs {
        let [dirent, inode] = keys(order, number);
        changes.push((dirent, value(number)));
        changes.push((inode, value(number + 1)));
    }
    // The rows that all creates of a batch share.
    for shared in 0..4 {
        changes.push((Bytes::from(format!("t{shared:016x}")), value(shared)));
    }
    changes
}

/// Commits for `time`; making the batches is not counted. Returns the pairs committed.
fn commits(engine: &dyn Engine, pairs: u64, order: Order, time: Duration) -> u64 {
    let (mut done, mut busy, mut latencies) = (0, Duration::ZERO, Vec::new());
    let mut fence = engine.fence().expect("a fence");
    while busy < time {
        let changes = batch(order, done, pairs);
        let start = Instant::now();
        engine.commit(fence, changes).expect("a commit");
        let took = start.elapsed();
        fence.batch += 1;
        busy += took;
        done += pairs;
        latencies.push(took);
    }
    latencies.sort_unstable();
    let at = |permille: usize| latencies[(latencies.len() - 1) * permille / 1000].as_micros();
    let seconds = busy.as_secs_f64();
    println!(
        "{order:?} keys, {pairs} pairs a commit: {:.0} commits/s, {:.0} pairs/s; latency us: p50 \
         {}, p90 {}, p99 {}, p99.9 {}, max {}",
        latencies.len() as f64 / seconds,
        done as f64 / seconds,
        at(500),
        at(900),
        at(990),
        at(999),
        at(1000)
    );
    done
}

/// Returns how often `work` counts 1 per second, measured for a second or a little more.
fn per_second(work: impl Fn(u64) -> Result<usize>) -> Result<f64> {
    let start = Instant::now();
    let (mut done, mut number) = (0, 0);
    while start.elapsed() < Duration::from_secs(1) {
        for _ in 0..100 {
            done += work(number)?;
            number += 1;
        }
    }
    Ok(done as f64 / start.elapsed().as_secs_f64())
}

/// Point reads of random rows, each on a snapshot of its own; scans of 100 rows.
fn reads(engine: &dyn Engine, order: Order, pairs: u64, what: &str) -> Result<()> {
    let reads = per_second(|number| {
        let key = keys(order, mixed(number) % pairs);
        assert!(engine.read(&key[..1])?.1[0].is_some());
        Ok(1)
    })?;
    let snapshots = per_second(|_| {
        std::hint::black_box(engine.snapshot()?.batch());
        Ok(1)
    })?;
    let snapshot_ns = 1e9 / snapshots;
    let scanned = per_second(|number| {
        let [from, _] = keys(order, mixed(number) % pairs);
        Ok(engine.snapshot()?.scan(&from, b"e", 100)?.len())
    })?;
    println!(
        "    {what}: {reads:.0} reads/s, snapshot alone {snapshot_ns:.0} ns, scans \
         {:.2} M rows/s",
        scanned / 1e6
    );
    Ok(())
}
