//! Writes that went elsewhere, were lost, or are of an earlier life of the disk.

use cairn_base::{Disk, Error};
use cairn_blocks::{Blocks, Config, Store};
use cairn_sim::SimDisk;

use crate::support::{GROUP, config, id, is_there, open, put, run};

const LEN: usize = 600;
const FOOTPRINT: u64 = 1024;
const BLOCKS: u64 = 20;

fn sample(seed: u64) -> SimDisk {
    let disk = SimDisk::new(1);
    let mut config = config();
    config.rng = std::sync::Arc::new(cairn_base::rng::SeededRng::new(seed));
    let store = Store::open(std::sync::Arc::new(disk.clone()), config).unwrap();
    run(async {
        for counter in 0..BLOCKS {
            put(&store, counter, LEN).await.unwrap();
        }
    });
    store.close().unwrap();
    disk
}

fn record(disk: &SimDisk, at: u64) -> Vec<u8> {
    let offset = (8192 + at * FOOTPRINT) as usize;
    disk.contents("00000001.seg").unwrap()[offset..offset + FOOTPRINT as usize].to_vec()
}

/// Puts `bytes` in the place of record `at`; with and without a hint, that block alone is gone.
fn check(disk: &SimDisk, at: u64, bytes: &[u8]) {
    for hint in [true, false] {
        let disk = disk.kill();
        disk.overwrite("00000001.seg", 8192 + at * FOOTPRINT, bytes).unwrap();
        if !hint {
            disk.remove("00000001.hint").unwrap();
        }
        let store = open(&disk);
        for counter in 0..BLOCKS {
            let got = store.get_now(GROUP, id(counter), 0..LEN as u32);
            match got {
                Ok(Some(_)) if counter != at => assert!(is_there(&store, counter, LEN)),
                Err(Error::Corrupt { .. }) if counter == at && hint => {}
                Err(Error::NotFound(_)) if counter == at && !hint => {}
                other => panic!("block {counter}, hint {hint}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_record_written_over_another() {
    let disk = sample(1);
    for at in 0..BLOCKS {
        let other = record(&disk, (at + 7) % BLOCKS);
        check(&disk, at, &other);
    }
}

#[test]
fn a_write_that_was_lost() {
    let disk = sample(1);
    for at in 0..BLOCKS {
        check(&disk, at, &[0; FOOTPRINT as usize]);
    }
}

#[test]
fn a_record_of_an_earlier_life_of_the_segment() {
    let (disk, earlier) = (sample(1), sample(2));
    for at in 0..BLOCKS {
        // The same block at the same offset of the segment of the same number.
        check(&disk, at, &record(&earlier, at));
    }
}

#[test]
fn a_hint_of_an_earlier_life_of_the_segment() {
    let (disk, earlier) = (sample(1), sample(2));
    disk.overwrite("00000001.hint", 0, &earlier.contents("00000001.hint").unwrap()).unwrap();
    let store = open(&disk);
    assert_eq!(store.open_report().scanned_segments, 1);
    assert!((0..BLOCKS).all(|counter| is_there(&store, counter, LEN)));
}

#[test]
fn another_disk_and_another_cluster() {
    let disk = sample(1);
    for (cluster, other) in [([9; 16], [2; 16]), ([1; 16], [9; 16])] {
        let opened =
            Store::open(std::sync::Arc::new(disk.clone()), Config::new(cluster, other)).map(drop);
        assert!(matches!(opened, Err(Error::Invalid(_))), "{opened:?}");
    }
}
