//! Durable puts of concurrent writers: `bench DIR WRITERS BLOCK_BYTES TOTAL_MIB [async]`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use cairn_base::{BlockId, BodyId, Error, GroupId, Owner, RealDisk, SessionId};
use cairn_blocks::{Blocks, Config, Durability, Store};

const GROUP: GroupId = GroupId::LOCAL;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, writers, block_bytes, total_mib, rest @ ..] = &args[..] else {
        return Err("usage: bench DIR WRITERS BLOCK_BYTES TOTAL_MIB [async]".into());
    };
    let writers: u64 = writers.parse()?;
    let block_bytes: usize = block_bytes.parse()?;
    let blocks = (total_mib.parse::<usize>()? << 20) / block_bytes;
    let mut config = Config::new([1; 16], [2; 16]);
    if rest.first().is_some_and(|mode| mode == "async") {
        config.durability = Durability::Async;
    }
    if let Ok(syncers) = std::env::var("SYNCERS") {
        config.syncers = syncers.parse()?;
    }
    let start = Instant::now();
    let store = Store::open(Arc::new(RealDisk::open(&PathBuf::from(dir))?), config)?;
    println!("open {} ms {:?}", start.elapsed().as_millis(), store.open_report());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let per_writer = blocks as u64 / writers;
    let start = Instant::now();
    let mut latencies = runtime.block_on(async {
        let tasks: Vec<_> = (0..writers)
            .map(|writer| tokio::spawn(write(store.clone(), writer, per_writer, block_bytes)))
            .collect();
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await.expect("a writer ends"));
        }
        all
    });
    let secs = start.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let mib = (per_writer * writers) as f64 * block_bytes as f64 / (1 << 20) as f64;
    println!(
        "put {:.0} MiB/s {:.0} blocks/s p50 {} us p99 {} us",
        mib / secs,
        (per_writer * writers) as f64 / secs,
        latencies[latencies.len() / 2],
        latencies[latencies.len() * 99 / 100],
    );
    read(&store, &runtime, writers, per_writer, block_bytes);
    let start = Instant::now();
    store.close()?;
    println!("close {} ms", start.elapsed().as_millis());
    Ok(())
}

fn block(writer: u64, counter: u64) -> BlockId {
    BlockId { session: SessionId(writer), counter }
}

async fn write(store: Store, writer: u64, count: u64, block_bytes: usize) -> Vec<u64> {
    let data: Bytes = (0..block_bytes).map(|at| (at * 31 % 251) as u8).collect::<Vec<u8>>().into();
    let mut latencies = Vec::with_capacity(count as usize);
    for counter in 0..count {
        let owner = Owner { body: BodyId::default(), chunk: 0 };
        let start = Instant::now();
        match store.put(GROUP, block(writer, counter), owner, data.clone()).await {
            Ok(()) | Err(Error::Exists(_)) => {}
            Err(error) => panic!("{error}"),
        }
        latencies.push(start.elapsed().as_micros() as u64);
    }
    latencies
}

fn read(
    store: &Store,
    runtime: &tokio::runtime::Runtime,
    writers: u64,
    per_writer: u64,
    block_bytes: usize,
) {
    let start = Instant::now();
    let mut now = 0;
    let reads = 100_000.min((4usize << 30) >> block_bytes.ilog2());
    for n in 0..reads as u64 {
        let wanted = block(n % writers, n / writers % per_writer);
        if let Ok(Some(_)) = store.get_now(GROUP, wanted, 0..block_bytes as u32) {
            now += 1;
        } else {
            let got = runtime.block_on(store.get(GROUP, wanted, 0..block_bytes as u32));
            got.expect("a block is there");
        }
    }
    let us = start.elapsed().as_micros() as f64 / reads as f64;
    println!("read {us:.1} us each, {now} of {reads} at once");
    let start = Instant::now();
    for n in 0..20_000u64 {
        let wanted = block(n % writers, n / writers % per_writer);
        let at = (n * 4099 % (block_bytes as u64 - 4095)) as u32;
        let _ = store.get_now(GROUP, wanted, at..at + 4096);
    }
    println!("read of 4 KiB {:.2} us each", start.elapsed().as_micros() as f64 / 20_000.0);
}
