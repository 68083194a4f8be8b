//! Blocks that are compressed are read, listed, moved and found damaged as all others are.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::limits::{BLOCK_BYTES, SUB_BLOCK_BYTES};
use cairn_base::rng::SeededRng;
use cairn_base::{Disk, Error};
use cairn_blocks::{Blocks, How, NearBlocks, Store, Wish};
use cairn_sim::SimDisk;

use crate::support::{GROUP, TEXT, bytes, id, is_there, open, owner, put, run};

/// Bytes of a block in one frame.
const FRAME: usize = 64 << 10;
const LENGTHS: [usize; 7] =
    [1, 300, SUB_BLOCK_BYTES, FRAME - 1, FRAME + 1, 3 * FRAME + 5000, BLOCK_BYTES];

/// Text in the first half, noise in the second.
fn mixed(len: usize) -> Bytes {
    [&bytes(TEXT, len / 2)[..], &bytes(1, len - len / 2)].concat().into()
}

fn is_compressed(store: &Store, counter: u64) -> bool {
    store.is_compressed_now(GROUP, id(counter)).unwrap()
}

/// The version of a segment, as its header has it.
fn version(disk: &SimDisk, name: &str) -> u8 {
    disk.contents(name).unwrap()[8]
}

#[test]
fn whole_after_writing_closing_and_crashing() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    run(async {
        for (counter, len) in (0..).zip(LENGTHS) {
            put(&store, TEXT | counter, len).await.unwrap();
            put(&store, counter, len).await.unwrap();
        }
    });
    let check = |disk: &SimDisk, scanned: bool| {
        let store = open(disk);
        for (counter, len) in (0..).zip(LENGTHS) {
            assert!(is_there(&store, TEXT | counter, len) && is_there(&store, counter, len));
            assert_eq!(is_compressed(&store, TEXT | counter), len > 300, "{len}");
            assert!(!is_compressed(&store, counter));
            let info = store.stat(GROUP, id(TEXT | counter)).unwrap();
            assert_eq!((info.length, info.owner), (len as u32, owner(TEXT | counter)));
        }
        let report = store.open_report();
        assert_eq!((report.damaged_segments, report.torn_records), (0, 0));
        assert_eq!(report.scanned_segments > 0, scanned);
        let usage = store.usage_now().unwrap();
        let plain: usize = LENGTHS.iter().sum();
        assert!(usage.live_bytes < plain as u64 * 3 / 2, "{usage:?}");
        // It goes on.
        run(put(&store, 99, 5000)).unwrap();
        run(put(&store, TEXT | 99, 5000)).unwrap();
        assert!(is_there(&store, 99, 5000) && is_there(&store, TEXT | 99, 5000));
    };
    check(&disk.crash_image(3), true);
    store.close().unwrap();
    check(&disk.crash_image(3), false);
}

#[test]
fn any_range_here_and_next_door() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let near = NearBlocks::new(Arc::new(disk.clone()));
    let rng = SeededRng::new(4);
    run(async {
        let all = [bytes(TEXT, 5 * FRAME + 77), mixed(9 * FRAME), mixed(FRAME + FRAME / 2)];
        for (counter, whole) in (0..).zip(&all) {
            let how = How { over: false, compress: true };
            store.put_as(GROUP, id(counter), owner(counter), whole.clone(), how).await.unwrap();
            assert!(is_compressed(&store, counter));
            let place = store.place(GROUP, id(counter)).unwrap();
            let (len, key) = (whole.len() as u64, (GROUP, id(counter)));
            let edges = [0, 1, FRAME as u64 - 1, FRAME as u64, len - 1, len];
            let edge = || match rng.below(3) {
                0 => edges[rng.below(6) as usize],
                _ => rng.below(len + 1),
            };
            for _ in 0..150 {
                let (a, b) = (edge(), edge());
                let range = a.min(b) as u32..a.max(b) as u32;
                let expected = whole.slice(range.start as usize..range.end as usize);
                let got = store.get(GROUP, id(counter), range.clone()).await.unwrap();
                assert!(got == expected, "{range:?}");
                // To unpack it is not done on the thread of a request.
                let now = store.get_now(GROUP, id(counter), range.clone()).unwrap();
                assert_eq!(now, range.is_empty().then(Bytes::new));
                assert!(near.read(key.0, key.1, place, &range).unwrap() == expected, "{range:?}");
                assert!(
                    near.read_now(key.0, key.1, place, &range)
                        .unwrap()
                        .is_none_or(|now| now == expected)
                );
            }
            let beyond = store.get(GROUP, id(counter), 0..len as u32 + 1).await;
            assert!(matches!(beyond, Err(Error::RangeNotSatisfiable { .. })));
        }
    });
}

#[test]
fn what_saves_too_little_stays_plain() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    run(async {
        let wish = Wish { compress: true, ..Wish::default() };
        for (counter, data) in [(1, bytes(1, 100_000)), (2, bytes(TEXT, 20))] {
            store.write(wish, id(counter), owner(counter), data.clone()).await.unwrap();
            assert!(!is_compressed(&store, counter));
            let got = store.get(GROUP, id(counter), 0..data.len() as u32).await.unwrap();
            assert!(got == data);
        }
    });
    assert_eq!(version(&disk, "00000001.seg"), 1, "an older program can read it");
}

#[test]
fn an_older_program_refuses_segments_that_may_have_them_and_no_others() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    run(async {
        put(&store, 1, 5000).await.unwrap();
        put(&store, TEXT | 2, 5000).await.unwrap();
        put(&store, 3, 5000).await.unwrap();
    });
    // A program that knows version 1 alone refuses any other, as this one does a third.
    assert_eq!([version(&disk, "00000001.seg"), version(&disk, "00000002.seg")], [1, 2]);
    assert!(disk.contents("00000003.seg").is_err(), "plain blocks go into the same segment");
    store.close().unwrap();
    let store = open(&disk.kill());
    run(put(&store, 4, 5000)).unwrap();
    store.close().unwrap();
    let mut header: [u8; 64] = disk.contents("00000001.seg").unwrap()[..64].try_into().unwrap();
    let disk = SimDisk::new(2);
    header[8] = 3;
    let crc = cairn_base::checksum::crc32c(&header[..60]).to_le_bytes();
    header[60..].copy_from_slice(&crc);
    disk.create("00000001.seg").unwrap().write_at(&[&header], 0).unwrap();
    let refused = Store::open(Arc::new(disk), crate::support::config()).map(drop);
    assert!(matches!(&refused, Err(Error::Invalid(text)) if text.contains("newer")), "{refused:?}");
}

#[test]
fn compaction_moves_them_as_they_are() {
    const LEN: usize = 30_000;
    let disk = SimDisk::new(1);
    let store = open(&disk);
    run(async {
        for counter in 0..60 {
            put(&store, TEXT | counter, LEN).await.unwrap();
            put(&store, counter, 3000).await.unwrap();
        }
        let gone: Vec<_> =
            (0..60).filter(|n| n % 4 != 0).flat_map(|n| [id(n), id(TEXT | n)]).collect();
        store.delete(GROUP, &gone).await.unwrap();
    });
    let report = store.compact(false).unwrap();
    assert!(report.moved_blocks > 8 && report.corrupt_blocks == 0, "{report:?}");
    let check = |store: &Store| {
        for counter in (0..60).step_by(4) {
            assert!(is_there(store, TEXT | counter, LEN) && is_there(store, counter, 3000));
            assert!(is_compressed(store, TEXT | counter));
        }
        assert_eq!(store.inventory_now(GROUP, None, 1000).len(), 30);
    };
    check(&store);
    check(&open(&disk.crash_image(5)));
    store.close().unwrap();
    check(&open(&disk.crash_image(5)));
    // The books are right: when all is deleted, all space is given back.
    let store = open(&disk.kill());
    let all: Vec<_> =
        store.inventory_now(GROUP, None, 1000).iter().map(|info| info.block).collect();
    run(async { store.delete(GROUP, &all).await }).unwrap();
    assert_eq!((store.usage_now().unwrap().live_bytes, store.usage_now().unwrap().blocks), (0, 0));
}

#[test]
fn any_flipped_bit_is_noticed_and_the_block_replaced() {
    const LEN: usize = 3 * FRAME;
    let disk = SimDisk::new(1);
    let store = open(&disk);
    run(put(&store, TEXT, LEN)).unwrap();
    assert!(is_compressed(&store, TEXT));
    let near = NearBlocks::new(Arc::new(disk.clone()));
    let place = store.place(GROUP, id(TEXT)).unwrap();
    let stored = store.usage_now().unwrap().live_bytes;
    assert!(stored < LEN as u64 / 2);
    let step = 97;
    for at in (0..stored - 512).step_by(step) {
        let (offset, bit) = (place.offset + at, (at % 8) as u32);
        disk.flip_bit("00000001.seg", offset, bit).unwrap();
        let verified = store.verify(GROUP, id(TEXT));
        assert!(matches!(verified, Err(Error::Corrupt { .. })), "{at}: {verified:?}");
        assert!(near.read(GROUP, id(TEXT), place, &(0..LEN as u32)).is_err());
        disk.flip_bit("00000001.seg", offset, bit).unwrap();
    }
    assert!(is_there(&store, TEXT, LEN));
    disk.flip_bit("00000001.seg", place.offset + 1000, 1).unwrap();
    let mut sick = Vec::new();
    let scrubbed = store.scrub(|_, found| {
        sick.extend(found.map(|found| found.block));
        std::ops::ControlFlow::Continue(())
    });
    assert_eq!((scrubbed.unwrap().sick.len(), sick), (1, vec![id(TEXT)]));
    let how = How { over: true, compress: true };
    run(store.put_as(GROUP, id(TEXT), owner(TEXT), bytes(TEXT, LEN), how)).unwrap();
    assert!(is_there(&store, TEXT, LEN) && is_compressed(&store, TEXT));
}

#[test]
fn it_is_written_plain_where_there_is_only_such_room() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    run(async {
        put(&store, 1, 5000).await.unwrap();
        // The segment that is there has room. No other one can be made.
        disk.set_capacity(Some(0));
        put(&store, TEXT | 1, 5000).await.unwrap();
        assert!(is_there(&store, TEXT | 1, 5000) && !is_compressed(&store, TEXT | 1));
        disk.set_capacity(None);
        put(&store, TEXT | 2, 5000).await.unwrap();
        assert!(is_there(&store, TEXT | 2, 5000) && is_compressed(&store, TEXT | 2));
    });
}
