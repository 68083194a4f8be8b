//! Every bit of a segment and of its hint is flipped, one at a time, and the store opened anew. The
//! short form flips two bits of each byte.

use std::sync::atomic::{AtomicU64, Ordering};

use cairn_base::Error;
use cairn_blocks::Blocks;
use cairn_sim::SimDisk;

use crate::support::{GROUP, bytes, id, open, owner, put, run};

const SEGMENT: &str = "00000001.seg";
const HINT: &str = "00000001.hint";

struct Sample {
    disk: SimDisk,
    lengths: Vec<usize>,
    deleted: u64,
}

/// One segment of 64 KiB, full but for the last few bytes, and its hint.
fn sample() -> Sample {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let mut lengths: Vec<usize> = (0..30).map(|n| 100 + n * 42).collect();
    lengths.extend([17_000, 1500, 1700]);
    let deleted = 4;
    run(async {
        for (counter, len) in lengths.iter().enumerate() {
            put(&store, counter as u64, *len).await.unwrap();
        }
        store.delete(GROUP, &[id(deleted)]).await.unwrap();
    });
    store.close().unwrap();
    let used = disk.contents(SEGMENT).unwrap().len();
    assert!((60 << 10..=64 << 10).contains(&used), "{used}");
    assert!(disk.contents("00000002.seg").is_err());
    Sample { disk, lengths, deleted }
}

/// Opens the disk and reads all. Returns how many blocks could not be read.
fn check(sample: &Sample, disk: &SimDisk) -> usize {
    let store = open(disk);
    let mut lost = 0;
    for (counter, &len) in sample.lengths.iter().enumerate() {
        let counter = counter as u64;
        match store.get_now(GROUP, id(counter), 0..len as u32) {
            Ok(Some(got)) => {
                assert!(got == bytes(counter, len), "wrong bytes");
                assert_eq!(store.stat(GROUP, id(counter)).unwrap().owner, owner(counter));
            }
            Err(Error::Corrupt { .. } | Error::NotFound(_)) => {
                lost += usize::from(counter != sample.deleted);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(lost <= 1, "{lost} blocks lost by one bit");
    if lost == 1 {
        let report = store.open_report();
        let noticed = report.damaged_segments
            + report.torn_records
            + store.usage_now().unwrap().corrupt_reads;
        assert!(noticed > 0, "a block is lost and nothing was said");
    }
    lost
}

fn bits_a_byte() -> u64 {
    8 / cairn_sim::stride() as u64
}

fn flip_all(sample: &Sample, file: &str, with_hint: bool) -> u64 {
    let base = sample.disk.kill();
    if !with_hint {
        use cairn_base::Disk;
        base.remove(HINT).unwrap();
    }
    let base = base.snapshot();
    let len = sample.disk.contents(file).unwrap().len() as u64;
    let (next, lost) = (AtomicU64::new(0), AtomicU64::new(0));
    let stride = cairn_sim::stride() as u32;
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= len {
                return;
            }
            for bit in (at as u32 % stride..8).step_by(stride as usize) {
                let disk = base.kill_image();
                disk.flip_bit(file, at, bit).unwrap();
                let result = std::panic::catch_unwind(|| check(sample, &disk));
                let count = result.unwrap_or_else(|_| panic!("bit {bit} of byte {at} of {file}"));
                lost.fetch_add(count as u64, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    let flips = len * bits_a_byte();
    println!("{flips} flips in {file} (hint: {with_hint}): {lost:?} reads refused");
    lost.into_inner()
}

#[test]
fn in_a_segment_with_a_hint() {
    let sample = sample();
    assert_eq!(check(&sample, &sample.disk.kill()), 0);
    let data: usize = sample.lengths.iter().sum();
    // Each flip in data, at least, must cost the block; none may cost another.
    assert!(flip_all(&sample, SEGMENT, true) >= (data as u64 - 312) * bits_a_byte());
}

#[test]
fn in_a_segment_that_must_be_scanned() {
    let sample = sample();
    let data: usize = sample.lengths.iter().sum();
    assert!(flip_all(&sample, SEGMENT, false) >= (data as u64 - 312) * bits_a_byte());
}

#[test]
fn in_a_hint() {
    let sample = sample();
    assert_eq!(flip_all(&sample, HINT, true), 0);
}
