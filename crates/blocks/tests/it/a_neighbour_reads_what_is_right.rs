use std::sync::Arc;

use cairn_base::Error;
use cairn_base::Rng;
use cairn_base::rng::SeededRng;
use cairn_blocks::{BlockPlace, Blocks, NearBlocks, Store};
use cairn_sim::SimDisk;

use crate::support::{GROUP, bytes, id, open, put, run};

const LEN: usize = 40_000;
/// Many of them are in a segment.
const SHORT: usize = 3000;

fn place(store: &Store, counter: u64) -> BlockPlace {
    store.place(GROUP, id(counter)).unwrap()
}

/// Whether a block of its length is what it was, if it can be read.
fn read(near: &NearBlocks, counter: u64, place: BlockPlace) -> cairn_base::Result<bool> {
    let found = near.read(GROUP, id(counter), place, &(0..place.length))?;
    Ok(found == bytes(counter, place.length as usize))
}

#[test]
fn any_range_while_the_store_writes_on() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let near = NearBlocks::new(Arc::new(disk.clone()));
    let rng = SeededRng::new(3);
    run(async {
        for counter in 0..30 {
            put(&store, counter, LEN).await.unwrap();
            let counter = rng.next_u64() % (counter + 1);
            let (a, b) = (rng.next_u64() % LEN as u64, rng.next_u64() % LEN as u64);
            let range = a.min(b) as u32..a.max(b) as u32;
            let expected = bytes(counter, LEN).slice(range.start as usize..range.end as usize);
            let key = (GROUP, id(counter));
            assert_eq!(near.read(key.0, key.1, place(&store, counter), &range).unwrap(), expected);
            let now = near.read_now(key.0, key.1, place(&store, counter), &range).unwrap();
            assert!(now.is_none_or(|now| now == expected));
            let beyond = near.read(key.0, key.1, place(&store, counter), &(0..LEN as u32 + 1));
            assert!(matches!(beyond, Err(Error::RangeNotSatisfiable { .. })));
        }
    });
    assert!(store.place(GROUP, id(30)).is_none());
}

#[test]
fn what_was_read_stays_so_while_its_memory_is_wanted_again() {
    const LONG: usize = 3 << 20;
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let near = NearBlocks::new(Arc::new(disk.clone()));
    run(put(&store, 0, LONG)).unwrap();
    let (key, place, all) = ((GROUP, id(0)), place(&store, 0), bytes(0, LONG));
    let rng = SeededRng::new(5);
    let mut held = Vec::new();
    for round in 0..200 {
        let start = (rng.next_u64() % (LONG as u64 - 1)) as u32;
        let length = 1 + rng.next_u64() % (1 << 20);
        let range = start..(start + length as u32).min(LONG as u32);
        held.push((near.read(key.0, key.1, place, &range).unwrap(), range));
        if round % 20 == 19 {
            for (read, range) in held.drain(..) {
                assert!(read == all[range.start as usize..range.end as usize], "{range:?}");
            }
        }
    }
}

#[test]
fn a_place_that_holds_no_longer_is_an_error() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let near = NearBlocks::new(Arc::new(disk.clone()));
    let places: Vec<BlockPlace> = run(async {
        for counter in 0..40 {
            put(&store, counter, SHORT).await.unwrap();
        }
        (0..40).map(|counter| place(&store, counter)).collect()
    });
    // That of another block.
    for (counter, place) in (1..40).zip(&places) {
        assert!(read(&near, counter, *place).is_err());
    }
    let gone: Vec<_> = (0..40).filter(|counter| counter % 5 != 0).map(id).collect();
    let moved = run(async {
        store.delete(GROUP, &gone).await.unwrap();
        store.compact(false).unwrap().moved_blocks
    });
    assert!(moved > 0);
    let mut failed = 0;
    for (counter, old) in (0..).zip(places) {
        // The old one may be there still, and is right then.
        match read(&near, counter, old) {
            Ok(right) => assert!(right),
            Err(_) => failed += 1,
        }
        if counter % 5 == 0 {
            assert!(read(&near, counter, place(&store, counter)).unwrap());
        }
    }
    assert!(failed > 0);
}

#[test]
fn a_flipped_bit_is_noticed() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    run(put(&store, 0, LEN)).unwrap();
    let (near, place) = (NearBlocks::new(Arc::new(disk.clone())), place(&store, 0));
    for offset in (place.offset..place.offset + LEN as u64).step_by(997) {
        disk.flip_bit("00000001.seg", offset, 3).unwrap();
        let read = read(&near, 0, place);
        assert!(matches!(read, Err(Error::Corrupt { .. })), "{offset}: {read:?}");
        disk.flip_bit("00000001.seg", offset, 3).unwrap();
    }
    assert!(read(&near, 0, place).unwrap());
}
