use std::io::ErrorKind;
use std::sync::Arc;

use cairn_base::Error;
use cairn_blocks::{Blocks, Store};
use cairn_sim::{Call, Fault, SimDisk};

use crate::support::{GROUP, config, id, is_there, put, run};

const LEN: usize = 5000;
/// Space for 8 segments of 64 KiB, hints, and the reserve.
const CAPACITY: u64 = 600 << 10;

/// With space kept back for about a hundred deletions.
fn open(disk: &SimDisk) -> Store {
    let mut config = config();
    config.reserve_bytes = 64 << 10;
    Store::open(Arc::new(disk.clone()), config).unwrap()
}

/// Writes until the disk is full; returns the blocks that were acknowledged.
async fn fill(store: &Store, next: &mut u64) -> Vec<u64> {
    let mut written = Vec::new();
    loop {
        *next += 1;
        match put(store, *next, LEN).await {
            Ok(()) => written.push(*next),
            Err(Error::Full(_)) => return written,
            Err(other) => panic!("{other:?}"),
        }
        assert!(written.len() < 1000);
    }
}

#[test]
fn a_hundred_times() {
    let mut disk = SimDisk::new(1);
    disk.set_capacity(Some(CAPACITY));
    let mut store = open(&disk);
    let mut next = 0;
    let mut live: Vec<u64> = Vec::new();
    run(async {
        for cycle in 0..100 {
            let written = fill(&store, &mut next).await;
            assert!(written.len() >= 10, "cycle {cycle}: only {} were written", written.len());
            live.extend(written);
            if cycle % 3 == 1 {
                // Full, and started again.
                disk = disk.kill();
                store = open(&disk);
            }
            assert!(live.iter().all(|counter| is_there(&store, *counter, LEN)));
            // One by one, as files are deleted.
            let gone: Vec<u64> = live.iter().copied().filter(|n| (n + cycle) % 4 != 0).collect();
            for counter in &gone {
                store.delete(GROUP, &[id(*counter)]).await.unwrap();
            }
            live.retain(|counter| !gone.contains(counter));
            for counter in &gone {
                assert!(!is_there(&store, *counter, LEN));
            }
            for _ in 0..3 {
                store.compact(false).unwrap();
            }
        }
    });
    let store = open(&disk.crash_image(5));
    assert!(live.iter().all(|counter| is_there(&store, *counter, LEN)));
    assert_eq!(store.usage_now().unwrap().blocks, live.len() as u64);
}

#[test]
fn whichever_call_finds_it_full() {
    for call in [Call::Allocate, Call::Write, Call::Create, Call::SyncData, Call::Rename] {
        for after in 0..60 {
            let disk = SimDisk::new(after);
            let store = open(&disk);
            disk.add_fault(Fault::once(Some(call), after).kind(ErrorKind::StorageFull));
            let mut acknowledged = Vec::new();
            run(async {
                for counter in 0..30 {
                    match put(&store, counter, LEN).await {
                        Ok(()) => acknowledged.push(counter),
                        Err(Error::Full(_)) => {}
                        Err(other) => panic!("{call:?} {after}: {other:?}"),
                    }
                }
            });
            assert!(acknowledged.len() >= 29, "{call:?} {after}: {}", acknowledged.len());
            for disk in [disk.kill(), disk.crash_image(after)] {
                let store = open(&disk);
                assert!(acknowledged.iter().all(|counter| is_there(&store, *counter, LEN)));
            }
        }
    }
}
