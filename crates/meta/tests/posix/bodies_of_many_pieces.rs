//! A body of too many pieces is not shared: who copies is refused, and its owner writes on.

use bytes::Bytes;
use cairn_base::{BodyId, Error, Ino, UploadId, limits};
use cairn_meta::ops::clone::CloneFile;
use cairn_meta::ops::copy_object::CopyObject;
use cairn_meta::ops::copy_range::CopyRange;
use cairn_meta::ops::link::Link;
use cairn_meta::ops::move_object::MoveObject;
use cairn_meta::ops::multipart::{CopyPart, CreateUpload, UploadName};
use cairn_meta::ops::write::{Data, Write};
use cairn_meta::rows::{Content, Extent, Inode, ObjectAttributes};

use crate::contents::{one_file, write};
use crate::harness::{SESSION, Store, fails};

fn write_blocks(store: &mut Store, ino: Ino, offset: u64, extents: Vec<Extent>) {
    let spare = store.next_body();
    let body = match store.inode(ino).unwrap().content {
        Content::Body(body) => body,
        _ => spare,
    };
    let data = Data::Blocks { body, extents };
    store.run(Write { ino, session: SESSION, opened: true, spare, offset, data }).unwrap();
}

/// Adds `count` blocks with holes between them, all in one chunk.
fn add_pieces(store: &mut Store, ino: Ino, chunk: u64, count: u64) {
    for first in (0..count).step_by(250) {
        let pieces = first..count.min(first + 250);
        let extents = pieces.map(|at| store.block((at - first) * 1000, 10)).collect();
        write_blocks(store, ino, chunk * limits::CHUNK_BYTES + first * 1000, extents);
    }
}

/// A file in that many pieces.
fn file_of(pieces: u64) -> (Store, Ino) {
    let (mut store, ino) = one_file(pieces);
    write(&mut store, ino, 0, Data::Inline(vec![1; limits::INLINE_BYTES].into()));
    for chunk in 0..pieces.div_ceil(1000) {
        add_pieces(&mut store, ino, chunk + 1, (pieces - chunk * 1000).min(1000));
    }
    (store, ino)
}

fn upload(store: &mut Store) -> UploadId {
    store
        .run(CreateUpload {
            bucket: "bucket".into(),
            key: "parts".into(),
            object: ObjectAttributes::default(),
            tags: Vec::new(),
            checksum: None,
        })
        .unwrap()
}

fn copy_object(store: &mut Store, key: &str) -> Result<(), Error> {
    let copy = CopyObject {
        source_bucket: "bucket".into(),
        source_key: "f".into(),
        source_conditions: Default::default(),
        bucket: "bucket".into(),
        key: key.into(),
        conditions: Default::default(),
        object: None,
        tags: None,
    };
    store.run(copy).map(drop)
}

/// Copies in every way, the last byte where a part is copied, and returns the errors.
fn copies(store: &mut Store, source: Ino) -> Vec<Option<Error>> {
    let Inode { size, bucket, .. } = store.inode(source).unwrap();
    let object = copy_object(store, "object");
    let [clone, range] = ["clone", "range"].map(|name| store.file(bucket.ino(), name));
    let clone = store.run(CloneFile { source, ino: clone, session: SESSION, size });
    let (session, spare, opened, source_offset) = (SESSION, store.next_body(), true, size - 1);
    let (ino, offset, len) = (range, 0, 1);
    let range = CopyRange { source, source_offset, ino, offset, len, session, opened, spare };
    let range = store.run(range);
    let upload = upload(store);
    let part = CopyPart {
        name: UploadName { bucket: "bucket".into(), key: "parts".into(), upload },
        number: 1,
        source_bucket: "bucket".into(),
        source_key: "f".into(),
        source_conditions: Default::default(),
        range: Some((size - 1, size - 1)),
        session,
        body: store.next_body(),
    };
    let part = store.run(part);
    vec![object.err(), clone.err(), range.err(), part.err()]
}

fn body_of(store: &Store, ino: Ino) -> BodyId {
    match store.inode(ino).unwrap().content {
        Content::Body(body) => body,
        other => panic!("{other:?}"),
    }
}

fn write_on(store: &mut Store, ino: Ino) {
    let size = store.inode(ino).unwrap().size;
    for offset in [5, size] {
        write(store, ino, offset, Data::Inline(Bytes::from_static(b"on")));
    }
}

fn check_refused(store: &mut Store, ino: Ino) {
    let body = body_of(store, ino);
    for error in copies(store, ino) {
        assert_eq!(error.unwrap().kind(), "not_implemented");
    }
    write_on(store, ino);
    assert_eq!(body_of(store, ino), body, "it was not shared");
}

/// The bytes that became a body at first are one piece more, and those added at the end another:
/// the second copy is of as many as there may be.
#[test]
fn a_body_of_few_pieces_is_shared_and_written_on() {
    let (mut store, ino) = file_of(3998);
    let body = body_of(&store, ino);
    assert!(copies(&mut store, ino).iter().all(Option::is_none));
    write_on(&mut store, ino);
    assert_ne!(body_of(&store, ino), body);
    // Once more, with a body that refers to the first one.
    copy_object(&mut store, "again").unwrap();
    write_on(&mut store, ino);
}

#[test]
fn a_body_of_many_pieces_is_not_shared() {
    let (mut store, ino) = file_of(4000);
    check_refused(&mut store, ino);
}

#[test]
fn a_body_that_was_shared_and_came_to_many_pieces_is_not_shared_again() {
    let (mut store, ino) = file_of(3000);
    copy_object(&mut store, "before").unwrap();
    write_on(&mut store, ino);
    add_pieces(&mut store, ino, 9, 1000);
    check_refused(&mut store, ino);
}

#[test]
fn a_body_with_many_inline_bytes_is_not_shared() {
    let (mut store, ino) = one_file(1);
    for at in 0..26 {
        let offset = (at % 2) * limits::CHUNK_BYTES + at * 20_000;
        write(&mut store, ino, offset, Data::Inline(vec![1; limits::INLINE_BYTES].into()));
    }
    // Only what is not inline is shared by a copy of a part.
    add_pieces(&mut store, ino, 2, 1);
    check_refused(&mut store, ino);
}

#[test]
fn a_body_of_many_chunks_is_not_shared() {
    let (mut store, ino) = one_file(1);
    write(&mut store, ino, 0, Data::Inline(vec![1; limits::INLINE_BYTES].into()));
    for chunk in 1..=limits::OP_ROWS as u64 / 2 {
        add_pieces(&mut store, ino, chunk, 1);
    }
    check_refused(&mut store, ino);
}

/// A block after another is one piece: large objects are shared.
#[test]
fn a_body_without_holes_is_few_pieces() {
    let (mut store, ino) = one_file(1);
    write(&mut store, ino, 0, Data::Inline(vec![1; limits::INLINE_BYTES].into()));
    for chunk in 1..=10 {
        let extents = (0..500).map(|at| store.block(at * 1000, 1000)).collect();
        write_blocks(&mut store, ino, chunk * limits::CHUNK_BYTES, extents);
    }
    assert!(copies(&mut store, ino).iter().all(Option::is_none));
    write_on(&mut store, ino);
}

#[test]
fn a_move_shares_only_with_other_names() {
    let (mut store, ino) = file_of(4000);
    let top = store.inode(ino).unwrap().bucket.ino();
    let move_to = |from: &str, target: &str| MoveObject {
        bucket: "bucket".into(),
        key: from.into(),
        target: target.into(),
        conditions: Default::default(),
    };
    let moved = store.run(move_to("f", "g")).unwrap().put.ino;
    store.run(Link { ino: moved, parent: top, name: b"other name".to_vec() }).unwrap();
    fails(store.run(move_to("g", "h")), "not_implemented");
    write_on(&mut store, moved);
}
