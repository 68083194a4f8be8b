//! Writing, appending, truncating and coalescing.

use bytes::Bytes;
use cairn_base::{BlockId, BodyId, Error, GroupId, Ino, SessionId, Timestamp, limits};
use cairn_meta::ops::append::{Append, AppendReply};
use cairn_meta::ops::coalesce::{Coalesce, ReadChunk};
use cairn_meta::ops::edit::COALESCE_BYTES;
use cairn_meta::ops::setattr::Setattr;
use cairn_meta::ops::truncate::{PunchHole, Truncate};
use cairn_meta::ops::write::{Data, Write};
use cairn_meta::ops::write_over::WriteOver;
use cairn_meta::rows::{BucketKind, Content, Extent, Inode, Place, SessionState};

use crate::body_sharing::Leaves;
use crate::harness::{SESSION, Store, fails};

/// A store with one empty file in it.
pub fn one_file(seed: u64) -> (Store, Ino) {
    let mut store = Store::new(seed);
    let top = store.bucket("bucket", BucketKind::Posix);
    let ino = store.file(top, "f");
    (store, ino)
}

pub fn write(store: &mut Store, ino: Ino, offset: u64, data: Data) -> Inode {
    let spare = store.next_body();
    store.run(Write { ino, session: SESSION, opened: true, spare, offset, data }).unwrap()
}

/// Writes one block of `len` bytes, and says which.
pub fn write_block(store: &mut Store, ino: Ino, offset: u64, len: u64) -> (BlockId, BodyId) {
    let spare = store.next_body();
    let body = match store.inode(ino).unwrap().content {
        Content::Body(body) => body,
        _ => spare,
    };
    let extent = store.block(0, len);
    let Place::Block { block, .. } = extent.place else { panic!() };
    let data = Data::Blocks { body, extents: vec![extent] };
    store.run(Write { ino, session: SESSION, opened: true, spare, offset, data }).unwrap();
    (block, body)
}

fn append(store: &mut Store, ino: Ino, len: usize) -> AppendReply {
    let spare = store.next_body();
    let data = Data::Inline(vec![b'a'; len].into());
    store.run(Append { ino, session: SESSION, opened: true, spare, chunk: 0, data }).unwrap()
}

fn truncate(store: &mut Store, ino: Ino, size: u64) -> Inode {
    let spare = store.next_body();
    store.run(Truncate { ino, session: SESSION, opened: true, spare, size }).unwrap().inode
}

fn row(store: &mut Store, ino: Ino, chunk: u32) -> Vec<(u64, u64)> {
    let extents = store.run(ReadChunk { ino, chunk }).unwrap().unwrap().1;
    extents.iter().map(|extent| (extent.offset, extent.len)).collect()
}

#[test]
fn small_files_stay_in_their_inode() {
    let (mut store, ino) = one_file(1);
    let hello = || Data::Inline(Bytes::from_static(b"hello"));
    write(&mut store, ino, 3, hello());
    truncate(&mut store, ino, 1 << 30);
    let inode = write(&mut store, ino, 0, hello());
    assert_eq!(inode.content, Content::Inline(Bytes::from_static(b"hellollo")));
    assert_eq!(inode.size, 1 << 30);
    let inode = write(&mut store, ino, limits::INLINE_BYTES as u64 - 4, hello());
    let Content::Body(body) = inode.content else { panic!("{:?}", inode.content) };
    assert_eq!(row(&mut store, ino, 0), [(0, 8), (16380, 5)]);
    let leaves = store.run(Leaves { body, start: 4, end: 16381 }).unwrap();
    let expected = |offset, bytes: &'static [u8]| Extent {
        offset,
        len: bytes.len() as u64,
        place: Place::Inline(Bytes::from_static(bytes)),
    };
    assert_eq!(leaves, [expected(4, b"ollo"), expected(16380, b"h")]);
    // To nothing and it has no body again.
    assert_eq!(truncate(&mut store, ino, 0).content, Content::Empty);
    assert!(store.rows.contains_key(&cairn_meta::keys::drain_body(body)));
}

#[test]
fn a_block_goes_with_the_last_extent_that_names_it() {
    let (mut store, ino) = one_file(2);
    let mib = 1 << 20;
    write_block(&mut store, ino, 0, 4 * mib);
    write_block(&mut store, ino, mib, mib);
    assert_eq!((row(&mut store, ino, 0).len(), store.freed()), (3, 0));
    write_block(&mut store, ino, 0, mib);
    truncate(&mut store, ino, 3 * mib);
    assert_eq!(store.freed(), 0);
    assert_eq!(truncate(&mut store, ino, 2 * mib + 1).size, 2 * mib + 1);
    let spare = store.next_body();
    let hole = PunchHole { ino, session: SESSION, opened: true, spare, offset: 2 * mib, len: mib };
    let punched = store.run(hole.clone()).unwrap();
    assert_eq!((punched.inode.size, punched.remaining, store.freed()), (2 * mib + 1, 0, 1));
    fails(store.run(PunchHole { len: 0, ..hole }), "invalid");
}

#[test]
fn an_extent_over_the_end_of_a_chunk_stays_in_its_row() {
    let (mut store, ino) = one_file(3);
    let (mib, end) = (1 << 20, limits::CHUNK_BYTES);
    let (_, body) = write_block(&mut store, ino, end - mib, 4 * mib);
    write_block(&mut store, ino, end + mib, mib);
    assert_eq!(row(&mut store, ino, 0), [(end - mib, 2 * mib), (end + 2 * mib, mib)]);
    assert_eq!(row(&mut store, ino, 1), [(end + mib, mib)]);
    let leaves = store.run(Leaves { body, start: end, end: u64::MAX }).unwrap();
    let ranges: Vec<_> = leaves.iter().map(|leaf| (leaf.offset - end, leaf.len)).collect();
    assert_eq!(ranges, [(0, mib), (mib, mib), (2 * mib, mib)]);
    write_block(&mut store, ino, end + 2 * mib, mib);
    assert_eq!(store.freed(), 0);
    truncate(&mut store, ino, end - mib);
    assert_eq!(store.freed(), 3);
}

#[test]
fn blocks_are_for_the_right_body_session_and_chunk() {
    let (mut store, ino) = one_file(4);
    let spare = store.next_body();
    let good = store.block(0, 100);
    let write = |body, extent: &Extent| Write {
        ino,
        session: SESSION,
        opened: true,
        spare,
        offset: 0,
        data: Data::Blocks { body, extents: vec![extent.clone()] },
    };
    fails(store.run(write(BodyId::default(), &good)), "conflict");
    let group = GroupId::LOCAL;
    let place = |session, offset| Place::Block {
        group,
        block: BlockId { session: SessionId(session), counter: 1 },
        offset,
    };
    let bad = [
        Extent { place: place(SESSION.0 + 1, 0), ..good.clone() },
        Extent { place: place(SESSION.0, limits::BLOCK_BYTES as u32 - 99), ..good.clone() },
        Extent { place: Place::Inline(vec![0; 100].into()), ..good.clone() },
        Extent { len: 0, ..good.clone() },
    ];
    for extent in bad {
        fails(store.run(write(spare, &extent)), "invalid");
    }
    store.run(write(spare, &good)).unwrap();
    let data = Data::Blocks { body: spare, extents: vec![store.block(0, 10)] };
    let append = Append { ino, session: SESSION, opened: true, spare, chunk: 1, data };
    fails(store.run(append.clone()), "conflict");
    assert_eq!(store.run(Append { chunk: 0, ..append.clone() }).unwrap().offset, 100);
    store.session(SessionState::Ended);
    fails(store.run(Append { chunk: 0, ..append }), "unavailable");
    fails(store.run(write(spare, &good)), "unavailable");
}

#[test]
fn appends_gather_until_they_are_coalesced() {
    let (mut store, ino) = one_file(5);
    for number in 0..2 {
        let appended = append(&mut store, ino, 8 << 10);
        assert_eq!((appended.offset, appended.inline_bytes), (number * (8 << 10), 0));
    }
    let mut end = 16 << 10;
    loop {
        let appended = append(&mut store, ino, 1000);
        assert_eq!(appended.offset, end);
        end += 1000;
        assert_eq!(appended.inline_bytes, end);
        if end > COALESCE_BYTES as u64 {
            break;
        }
    }
    let (body, extents) = store.run(ReadChunk { ino, chunk: 0 }).unwrap().unwrap();
    assert_eq!(extents.len(), 2, "one that is full, and one that grows");
    let with = vec![store.block(0, extents[0].len)];
    let replaces = vec![extents[0].clone()];
    let coalesce = Coalesce { ino, session: SESSION, body, chunk: 0, replaces, with };
    append(&mut store, ino, 1000);
    assert!(store.run(coalesce.clone()).unwrap());
    assert!(!store.run(coalesce.clone()).unwrap(), "they are gone");
    assert_eq!(append(&mut store, ino, 1).inline_bytes, 3001 - 1000 + extents[1].len - 1000);
    let lost = Coalesce { with: vec![store.block(0, 10)], ..coalesce.clone() };
    fails(store.run(lost), "invalid");
    let spare = store.next_body();
    let (data, chunk) = (Data::Blocks { body, extents: vec![store.block(0, 4 << 20)] }, 0);
    let large = Append { ino, session: SESSION, opened: true, spare, chunk, data };
    store.run(large.clone()).unwrap();
    let extents = vec![store.block(0, 4 << 20), store.block(4 << 20, 1)];
    fails(store.run(Append { data: Data::Blocks { body, extents }, ..large }), "too_large");
}

#[test]
fn coalescing_fills_holes_that_are_still_holes() {
    let (mut store, ino) = one_file(6);
    let (_, body) = write_block(&mut store, ino, 0, 100);
    write_block(&mut store, ino, 200, 100);
    let replaces = store.run(ReadChunk { ino, chunk: 0 }).unwrap().unwrap().1;
    let with = vec![store.block(0, 300)];
    let coalesce = Coalesce { ino, session: SESSION, body, chunk: 0, replaces, with };
    let before = store.inode(ino).unwrap();
    let mut other = Store::new(7);
    other.rows = store.rows.clone();
    other.counter = 1000;
    assert!(store.run(coalesce.clone()).unwrap());
    assert_eq!((store.inode(ino).unwrap(), store.freed()), (before, 2));
    write_block(&mut other, ino, 150, 1);
    assert!(!other.run(coalesce.clone()).unwrap());
    let beyond = Coalesce { with: vec![store.block(0, 301)], ..coalesce };
    assert!(!other.run(beyond).unwrap(), "behind the end of the file");
}

#[test]
fn a_chunk_takes_only_so_many_extents_and_inline_bytes() {
    let (mut store, ino) = one_file(8);
    store.forgetful = false;
    for number in 0..limits::CHUNK_EXTENTS as u64 {
        write_block(&mut store, ino, number * 100, 50);
    }
    let Content::Body(body) = store.inode(ino).unwrap().content else { panic!() };
    let data = Data::Blocks { body, extents: vec![store.block(0, 10)] };
    let more = Write { ino, session: SESSION, opened: true, spare: body, offset: 60, data };
    fails(store.run(more.clone()), "too_large");
    let far = Write { offset: limits::CHUNK_BYTES, ..more };
    store.run(far.clone()).unwrap();
    let data = Data::Inline(vec![1; limits::INLINE_BYTES].into());
    let inline =
        |number: u64| Write { offset: (100 + number) << 20, data: data.clone(), ..far.clone() };
    for number in 0..16 {
        store.run(inline(number)).unwrap();
    }
    fails(store.run(inline(16)), "too_large");
    fails(store.run(Write { offset: 1 << 50, ..inline(0) }), "too_large");
    let data = Data::Inline(vec![1; limits::INLINE_BYTES + 1].into());
    fails(store.run(Write { data, ..far }), "too_large");
}

#[test]
fn bytes_overwrite_only_what_they_were_taken_over() {
    const SECOND: i64 = 1_000_000_000;
    let (mut store, ino) = one_file(20);
    let write_over = |store: &mut Store, base: u64, shown: i64| {
        let (spare, data) = (store.next_body(), Data::Inline(Bytes::from_static(b"over")));
        let write = Write { ino, session: SESSION, opened: true, spare, offset: 0, data };
        store.run(WriteOver { write, base, shown: Timestamp(shown) })
    };
    let base = write(&mut store, ino, 0, Data::Inline(Bytes::from_static(b"base"))).data_change;
    let over = write_over(&mut store, base, 0).unwrap();
    assert!(over.data_change > base);
    let refused = write_over(&mut store, base, 0);
    assert!(matches!(refused, Err(Error::PreconditionFailed(_))), "others wrote since");
    // A change that is none of its bytes.
    let mode = Setattr { ino, mode: Some(0o600), ..Setattr::default() };
    store.run(mode).unwrap();
    // The time that was shown stays, unless it is far ahead.
    let shown = store.now + 5 * SECOND;
    let over = write_over(&mut store, over.data_change, shown).unwrap();
    assert_eq!((over.ctime.0, over.mtime.0), (shown, shown));
    let before = store.now;
    let over = write_over(&mut store, over.data_change, i64::MAX).unwrap();
    assert!((before..before + 20 * SECOND).contains(&over.ctime.0));
}
