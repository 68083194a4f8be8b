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
        assert!(written.len() < 2000);
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

#[test]
fn the_last_segments_are_smaller() {
    let disk = SimDisk::new(1);
    let mut config = config();
    (config.reserve_bytes, config.spare_bytes) = (56 << 10, 40 << 10);
    let store = Store::open(Arc::new(disk.clone()), config).unwrap();
    // Not a whole number of segments.
    disk.set_capacity(Some(400 << 10));
    assert!(!store.is_short_of_space());
    let written = run(fill(&store, &mut 0));
    let free = (400 << 10) - disk.used_bytes();
    assert!((36 << 10..64 << 10).contains(&free), "{free} bytes are free");
    assert!(written.len() >= 44, "{} blocks", written.len());
    assert!(store.is_short_of_space());
    assert!(written.iter().all(|counter| is_there(&store, *counter, LEN)));
}

#[test]
fn less_than_half_deleted_is_given_back() {
    let mut disk = SimDisk::new(1);
    disk.set_capacity(Some(5 << 20));
    let open = |disk: &SimDisk| {
        let mut config = config();
        (config.segment_bytes, config.reserve_bytes) = (512 << 10, 448 << 10);
        Store::open(Arc::new(disk.clone()), config).unwrap()
    };
    let mut store = open(&disk);
    let mut next = 0;
    run(async {
        let mut live = fill(&store, &mut next).await;
        for cycle in 0..8 {
            // A third of each segment, in one go.
            let (gone, left): (Vec<u64>, Vec<u64>) = live.iter().partition(|n| *n % 3 == cycle % 3);
            let ids: Vec<_> = gone.iter().copied().map(id).collect();
            store.delete(GROUP, &ids).await.unwrap();
            if cycle % 4 == 3 {
                disk = disk.kill();
                store = open(&disk);
            }
            let mut more = Vec::new();
            for _ in 0..10 {
                // As much as there must be space for a segment.
                store.compact(false).unwrap();
                more.extend(fill(&store, &mut next).await);
            }
            assert!(more.len() * 2 > gone.len(), "cycle {cycle}: {} of {}", more.len(), gone.len());
            live = left.into_iter().chain(more).collect();
            assert!(live.iter().all(|counter| is_there(&store, *counter, LEN)));
        }
    });
}
