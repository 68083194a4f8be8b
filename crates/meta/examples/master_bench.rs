//! Measures the master on the embedded engine, `master_bench DIR [seconds] [what]`, or on
//! PostgreSQL, with the URL of a new database for DIR; `what` is `reads`, `misses`, `creates`,
//! `creates=IN_FLIGHT` or `all`. Operations are sent by tokio tasks of the same process, each
//! with one in flight. F is 4 KiB write + fdatasync a second into a written file, one at a time,
//! measured before and after each row, since it wanders.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cairn_auth::{Caller, Visibility};
use cairn_base::clock::RealClock;
use cairn_base::{Disk, DiskFile, Ino, RealDisk, Result, Secret, UserId};
use cairn_meta::engine::{Embedded, Engine, Postgres, embedded, postgres};
use cairn_meta::master::{Config, Stats};
use cairn_meta::ops::{buckets::CreateBucket, create::Create, lookup::Lookup, mkdir::Mkdir};
use cairn_meta::rows::BucketKind;
use cairn_meta::{Context, Master, Stop, Verb, View, keys};

const F_BYTES: u64 = 64 << 20;
const DIRECTORIES: usize = 1000;
const FILES: usize = 10_000;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().unwrap_or_else(|| "/tmp/master-bench".into());
    let seconds: f64 = args.next().and_then(|text| text.parse().ok()).unwrap_or(3.0);
    let what = args.next().unwrap_or_else(|| "all".into());
    let time = Duration::from_secs_f64(seconds);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let store = Store::new(&dir, &runtime)?;
    if ["reads", "all"].contains(&&*what) {
        store.reads(&runtime, time);
    }
    if ["misses", "all"].contains(&&*what) {
        for in_flight in [1, 16, 64] {
            store.misses(&runtime, in_flight, time);
        }
    }
    if what.starts_with("creates") || what == "all" {
        let depths = match what.strip_prefix("creates=") {
            Some(depth) => vec![depth.parse().expect("a number")],
            None => vec![1, 16, 64, 1024],
        };
        for in_flight in depths {
            store.creates(&runtime, in_flight, &store.parents[..1], time)?;
            store.creates(&runtime, in_flight, &store.parents[1..], time)?;
        }
    }
    store.master.stop();
    drop(store);
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}

/// A store with a bucket, some directories, and files in the first of them.
struct Store {
    master: Master,
    caller: Caller,
    parents: Vec<Ino>,
    probe: Probe,
    next: Arc<AtomicU64>,
}

fn name(number: u64) -> Vec<u8> {
    format!("file-{number:016}").into_bytes()
}

impl Store {
    fn new(dir: &str, runtime: &tokio::runtime::Runtime) -> Result<Store> {
        let is_url = dir.starts_with("postgres");
        let disk_dir = if is_url { "/tmp/master-bench" } else { dir };
        let _ = std::fs::remove_dir_all(disk_dir);
        let disk = RealDisk::open(Path::new(disk_dir))?;
        let probe = Probe::new(&disk)?;
        let (engine, config): (Arc<dyn Engine>, _) = if is_url {
            let config = postgres::Config::new(Secret::new(dir.to_owned()));
            (Arc::new(Postgres::open(&config)?), Config::far())
        } else {
            let engine = Embedded::open(disk.sub("meta")?, embedded::Config::default())?;
            (Arc::new(engine), Config::default())
        };
        let clock = Arc::new(RealClock::default());
        let master = Master::start(engine, clock, config)?;
        let caller = Caller::verified(UserId(7));
        let parents = runtime.block_on(fill(&master, &caller))?;
        Ok(Store { master, caller, parents, probe, next: Arc::new(AtomicU64::new(1 << 40)) })
    }

    fn reads(&self, runtime: &tokio::runtime::Runtime, time: Duration) {
        let parent = self.parents[0];
        let lookups: Vec<Lookup> =
            (0..FILES as u64).map(|file| Lookup { parent, name: name(file) }).collect();
        let warm = |lookup: &Lookup| {
            runtime.block_on(self.master.read(&self.caller, lookup.clone())).map(drop)
        };
        lookups.iter().for_each(|lookup| warm(lookup).expect("a file"));
        let rows = FourRows((0..4).map(|n| keys::file_entry(parent, &name(n))).collect::<Vec<_>>());
        report_reads("read_now, 4 rows", time, |_| {
            self.master.read_now(&self.caller, &rows).expect("in memory").is_ok()
        });
        report_reads("read_now, lookup", time, |turn| {
            let lookup = &lookups[turn % FILES];
            self.master.read_now(&self.caller, lookup).expect("in memory").is_ok()
        });
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    report_reads("read_now, lookup, each of two threads", time, |turn| {
                        let lookup = &lookups[turn % FILES];
                        self.master.read_now(&self.caller, lookup).expect("in memory").is_ok()
                    });
                });
            }
        });
    }

    /// Lookups of names that are not there, so that nothing of them is cached.
    fn misses(&self, runtime: &tokio::runtime::Runtime, in_flight: usize, time: Duration) {
        let stop = Arc::new(AtomicBool::new(false));
        let start = Instant::now();
        let done: u64 = runtime.block_on(async {
            let tasks: Vec<_> = (0..in_flight)
                .map(|_| {
                    let (master, caller, parent) =
                        (self.master.clone(), self.caller.clone(), self.parents[0]);
                    let (stop, next) = (Arc::clone(&stop), Arc::clone(&self.next));
                    tokio::spawn(async move {
                        let mut done = 0;
                        while !stop.load(Ordering::Relaxed) {
                            let name = name(next.fetch_add(1, Ordering::Relaxed));
                            let found = master.read(&caller, Lookup { parent, name }).await;
                            assert_eq!(found.expect_err("no file").kind(), "not_found");
                            done += 1;
                        }
                        done
                    })
                })
                .collect();
            tokio::time::sleep(time).await;
            stop.store(true, Ordering::Relaxed);
            let mut done = 0;
            for task in tasks {
                done += task.await.expect("no panic");
            }
            done
        });
        let rate = done as f64 / start.elapsed().as_secs_f64();
        println!("misses, {in_flight} in flight: {rate:.0} lookups/s");
    }

    fn creates(
        &self,
        runtime: &tokio::runtime::Runtime,
        in_flight: usize,
        parents: &[Ino],
        time: Duration,
    ) -> Result<()> {
        let before = self.probe.syncs_per_second()?;
        let start = self.master.stats();
        let (busy, cpu) = (Instant::now(), Cpu::now());
        let mut latencies = runtime.block_on(self.create_for(in_flight, parents, time));
        let (seconds, cpu) = (busy.elapsed().as_secs_f64(), cpu.per_thread());
        let end = self.master.stats();
        let after = self.probe.syncs_per_second()?;
        latencies.sort_unstable();
        let at = |permille: usize| latencies[(latencies.len() - 1) * permille / 1000];
        let done = latencies.len() as f64;
        let f = (before + after) / 2.0;
        println!(
            "{in_flight:5} in flight, {:4} directories: {:7.0} creates/s = {:.2} x in flight x F \
             (F = {before:.0}, {after:.0}); us: p50 {}, p99 {}; {}",
            parents.len(),
            done / seconds,
            done / seconds / (in_flight as f64 * f),
            at(500),
            at(990),
            batches(&start, &end)
        );
        for (thread, used) in cpu {
            println!("        {thread:16} {:.2} us of CPU an operation", used / done);
        }
        Ok(())
    }

    /// Returns the latency of each, microseconds.
    async fn create_for(&self, in_flight: usize, parents: &[Ino], time: Duration) -> Vec<u32> {
        let stop = Arc::new(AtomicBool::new(false));
        let tasks: Vec<_> = (0..in_flight)
            .map(|_| {
                let (master, caller) = (self.master.clone(), self.caller.clone());
                let (stop, next) = (Arc::clone(&stop), Arc::clone(&self.next));
                let parents = parents.to_vec();
                tokio::spawn(async move {
                    let mut latencies = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let parent = parents[number as usize % parents.len()];
                        let create = Create {
                            parent,
                            name: name(number),
                            mode: 0o644,
                            umask: 0,
                            exclusive: true,
                        };
                        let begun = Instant::now();
                        master.run(&caller, create).await.expect("a new file");
                        latencies.push(begun.elapsed().as_micros() as u32);
                    }
                    latencies
                })
            })
            .collect();
        tokio::time::sleep(time).await;
        stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await.expect("no panic"));
        }
        all
    }
}

/// A bucket with files in its top directory and a thousand directories.
async fn fill(master: &Master, caller: &Caller) -> Result<Vec<Ino>> {
    let kind = BucketKind::Posix;
    let bucket = CreateBucket { name: "bench".into(), kind, visibility: Visibility::Private };
    let mut parents = vec![master.run(caller, bucket).await?.ino()];
    let parent = parents[0];
    for number in 0..FILES as u64 {
        let file = Create { parent, name: name(number), mode: 0o644, umask: 0, exclusive: true };
        if number % 64 == 0 {
            master.run(caller, file).await?;
        } else {
            tokio::spawn({
                let (master, caller) = (master.clone(), caller.clone());
                async move { master.run(&caller, file).await.map(drop) }
            });
        }
    }
    for number in 0..DIRECTORIES {
        let name = format!("directory-{number}").into_bytes();
        parents.push(master.run(caller, Mkdir { parent, name, mode: 0o755, umask: 0 }).await?.0);
    }
    Ok(parents)
}

struct FourRows(Vec<Bytes>);

impl Verb for FourRows {
    type Reply = usize;
    const NAME: &'static str = "four_rows";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> std::result::Result<usize, Stop> {
        let mut bytes = 0;
        for key in &self.0 {
            bytes += view.get(key)?.map_or(0, |row| row.len());
        }
        Ok(bytes)
    }
}

fn report_reads(what: &str, time: Duration, read: impl Fn(usize) -> bool) {
    let start = Instant::now();
    let mut done = 0;
    while start.elapsed() < time {
        for _ in 0..1000 {
            assert!(read(done), "{what}");
            done += 1;
        }
    }
    let rate = done as f64 / start.elapsed().as_secs_f64();
    println!("{what}: {rate:.0}/s, {:.0} ns each", 1e9 / rate);
}

fn batches(start: &Stats, end: &Stats) -> String {
    let batches = (end.batches - start.batches).max(1);
    format!(
        "{} ops a batch, commit {} us",
        (end.ops - start.ops) / batches,
        (end.commit_us - start.commit_us) / batches
    )
}

/// CPU time of the threads of this process, by name, microseconds.
struct Cpu(Vec<(String, f64)>);

impl Cpu {
    fn now() -> Cpu {
        let mut threads: Vec<(String, f64)> = Vec::new();
        for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let name = read("comm").trim().to_owned();
            let ns: f64 =
                read("schedstat").split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0.0);
            match threads.iter_mut().find(|(known, _)| *known == name) {
                Some((_, used)) => *used += ns / 1000.0,
                None => threads.push((name, ns / 1000.0)),
            }
        }
        Cpu(threads)
    }

    /// What was used since, by those that used some.
    fn per_thread(&self) -> Vec<(String, f64)> {
        let used = |(name, now): (String, f64)| {
            let before = self.0.iter().find(|(known, _)| *known == name).map_or(0.0, |b| b.1);
            (name, now - before)
        };
        let mut all: Vec<_> = Cpu::now().0.into_iter().map(used).collect();
        all.retain(|(_, used)| *used > 1000.0);
        all
    }
}

/// One 4 KiB write and sync after another.
struct Probe {
    file: Arc<dyn DiskFile>,
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
