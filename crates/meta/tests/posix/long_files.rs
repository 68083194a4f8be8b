//! Files with more chunks than one operation may touch.

use cairn_base::{Ino, limits};
use cairn_meta::ops::truncate::{PunchHole, Truncate};
use cairn_meta::rows::Inode;

use crate::contents::{one_file, write_block};
use crate::harness::{SESSION, Store};
use crate::invariants::chunks;

const CHUNKS: u64 = 1000;

/// A file with a block at the end of each chunk, reaching into the next.
fn long_file(seed: u64, stride: u64) -> (Store, Ino, u64) {
    let (mut store, ino) = one_file(seed);
    for number in 0..CHUNKS {
        let end = (number + 1) * limits::CHUNK_BYTES * stride;
        write_block(&mut store, ino, end - 100, 200);
    }
    let size = store.inode(ino).unwrap().size;
    (store, ino, size)
}

fn check_end(store: &Store, inode: &Inode) {
    let rows = chunks(&store.rows);
    let end = rows.iter().flat_map(|(_, row)| &row.extents).map(|extent| extent.end()).max();
    assert!(end.unwrap_or(0) <= inode.size);
}

#[test]
fn truncation_goes_down_in_steps() {
    for (seed, stride) in [(1, 1), (2, 1000)] {
        let (mut store, ino, mut size) = long_file(seed, stride);
        let keep = limits::CHUNK_BYTES * stride * 3 + 50;
        let mut steps = 0;
        loop {
            let spare = store.next_body();
            let verb = Truncate { ino, session: SESSION, opened: true, spare, size: keep };
            let step = store.run(verb).unwrap();
            steps += 1;
            assert!(step.inode.size <= size && step.inode.size >= keep);
            size = step.inode.size;
            check_end(&store, &step.inode);
            if !step.more {
                break;
            }
        }
        assert_eq!(size, keep);
        assert!((3..20).contains(&steps), "{steps} steps");
        assert_eq!(store.freed() as u64, CHUNKS - 3);
        assert_eq!(chunks(&store.rows).len(), 3);
    }
}

#[test]
fn holes_are_made_in_steps() {
    let (mut store, ino, size) = long_file(3, 1);
    let offset = limits::CHUNK_BYTES * 3 + 50;
    let mut len = size - offset - 100;
    while len > 0 {
        let spare = store.next_body();
        let hole = PunchHole { ino, session: SESSION, opened: true, spare, offset, len };
        let punched = store.run(hole).unwrap();
        assert!(punched.remaining < len && punched.inode.size == size);
        len = punched.remaining;
        let rows = chunks(&store.rows);
        let mut extents = rows.iter().flat_map(|(_, row)| &row.extents);
        assert!(!extents.any(|e| e.slice(offset + len, size - 100).is_some()));
    }
    // The first three, and the last, which the hole cut.
    assert_eq!(chunks(&store.rows).len(), 4);
}

#[test]
fn to_nothing_is_one_step() {
    let (mut store, ino, _) = long_file(4, 1);
    let spare = store.next_body();
    let step = store.run(Truncate { ino, session: SESSION, opened: true, spare, size: 0 }).unwrap();
    assert!(!step.more);
}
