//! Bodies that several files share: a write leaves the others as they were.

use bytes::Bytes;
use cairn_base::{BodyId, Ino};
use cairn_meta::ops::clone::CloneFile;
use cairn_meta::ops::coalesce::{Coalesce, ReadChunk};
use cairn_meta::ops::conditions::Conditions;
use cairn_meta::ops::copy_range::{CopyRange, CopyRangeReply};
use cairn_meta::ops::create::Create;
use cairn_meta::ops::edit::leaf_extents;
use cairn_meta::ops::getattr::Access;
use cairn_meta::ops::multipart::{CopyPart, CreateUpload, UploadName};
use cairn_meta::ops::namespace::{count_usage, load_inode, retain_body, store};
use cairn_meta::ops::setattr::Setattr;
use cairn_meta::ops::truncate::Truncate;
use cairn_meta::ops::unlink::Unlink;
use cairn_meta::ops::write::Data;
use cairn_meta::rows::{
    BucketKind, Content, Extent, Extents, Inode, ObjectAttributes, Place, Row, Usage,
};
use cairn_meta::{Context, Needs, Stop, Verb, VerbNeeds, View, keys};

use crate::contents::{one_file, write, write_block};
use crate::harness::{SESSION, Store, fails};

/// Makes a file with the body of another, as a copy does.
pub struct Share {
    pub ino: Ino,
    pub parent: Ino,
    pub name: Vec<u8>,
}

impl VerbNeeds for Share {
    const NEEDS: Needs = Needs::Nothing("a test");
}

impl Verb for Share {
    type Reply = Ino;
    const NAME: &'static str = "share";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Ino, Stop> {
        let source = load_inode(view, self.ino)?;
        let create = Create {
            parent: self.parent,
            name: self.name.clone(),
            mode: 0o644,
            umask: 0,
            exclusive: true,
        };
        let (ino, plain, _) = create.apply(view, context)?;
        if let Content::Body(body) = source.content {
            retain_body(view, body, 1)?;
        }
        count_usage(view, plain.bucket, 0, source.size as i64)?;
        let inode = Inode { size: source.size, content: source.content, ..plain };
        store(view, keys::inode(ino), &inode);
        Ok(ino)
    }
}

/// Reads the leaves of a body.
pub struct Leaves {
    pub body: BodyId,
    pub start: u64,
    pub end: u64,
}

impl VerbNeeds for Leaves {
    const NEEDS: Needs = Needs::Nothing("a test");
}

impl Verb for Leaves {
    type Reply = Vec<Extent>;
    const NAME: &'static str = "leaves";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Vec<Extent>, Stop> {
        leaf_extents(view, self.body, self.start, self.end)
    }
}

/// A file of two blocks and some inline bytes, and a copy of it.
fn shared(seed: u64) -> (Store, [Ino; 2], BodyId) {
    let (mut store, ino) = one_file(seed);
    write_block(&mut store, ino, 0, 1 << 20);
    let (_, body) = write_block(&mut store, ino, 1 << 20, 1 << 20);
    write(&mut store, ino, 2 << 20, Data::Inline(Bytes::from_static(b"tail")));
    let parent = store.inode(ino).unwrap().bucket.ino();
    let copy = store.run(Share { ino, parent, name: b"copy".to_vec() }).unwrap();
    (store, [ino, copy], body)
}

fn leaves(store: &mut Store, ino: Ino) -> Vec<Extent> {
    let Content::Body(body) = store.inode(ino).unwrap().content else { panic!() };
    store.run(Leaves { body, start: 0, end: u64::MAX }).unwrap()
}

#[test]
fn a_write_to_a_copy_makes_it_a_body_of_references() {
    let (mut store, [ino, copy], body) = shared(1);
    let before = leaves(&mut store, ino);
    assert!(store.run(Access { ino: copy, wanted: 2 }).unwrap().1);
    let inode = write(&mut store, copy, 512 << 10, Data::Inline(Bytes::from_static(b"new")));
    let Content::Body(fork) = inode.content else { panic!() };
    assert_ne!(fork, body);
    assert!(!store.run(Access { ino: copy, wanted: 2 }).unwrap().1);
    assert_eq!(leaves(&mut store, ino), before);
    let (_, extents) = store.run(ReadChunk { ino: copy, chunk: 0 }).unwrap().unwrap();
    let other = |place: &Place| matches!(place, Place::Body { body: to, .. } if *to == body);
    let references = extents.iter().filter(|extent| other(&extent.place)).count();
    assert_eq!((extents.len(), references), (4, 2), "{extents:?}");
    // A copy of the copy refers to the leaf, not to the copy.
    let parent = inode.bucket.ino();
    let third = store.run(Share { ino: copy, parent, name: b"third".to_vec() }).unwrap();
    write(&mut store, third, 0, Data::Inline(Bytes::from_static(b"x")));
    let (_, extents) = store.run(ReadChunk { ino: third, chunk: 0 }).unwrap().unwrap();
    assert!(extents.iter().all(|e| !matches!(e.place, Place::Body { .. }) || other(&e.place)));
    // The first file goes, and its blocks stay as long as a copy has them.
    store.run(Unlink { parent, name: b"f".to_vec() }).unwrap();
    assert!(!store.rows.contains_key(&keys::drain_body(body)));
    for ino in [copy, third] {
        let spare = store.next_body();
        let verb = Truncate { ino, session: SESSION, opened: true, spare, size: 0 };
        store.run(verb).unwrap();
    }
    let drained = store.rows.keys().filter(|key| key[0] == b'z').count();
    assert_eq!(drained, 2, "the bodies of the copies");
}

#[test]
fn a_shared_body_is_not_coalesced() {
    let (mut store, [ino, _], body) = shared(2);
    let replaces = store.run(ReadChunk { ino, chunk: 0 }).unwrap().unwrap().1;
    let with = vec![store.block(0, (2 << 20) + 4)];
    let coalesce = Coalesce { ino, session: SESSION, body, chunk: 0, replaces, with };
    assert!(!store.run(coalesce).unwrap());
}

#[test]
fn a_chain_of_bodies_without_end_is_corrupt() {
    let (mut store, _, body) = shared(3);
    let place = Place::Body { body, offset: 0 };
    let extents = Extents { extents: vec![Extent { offset: 0, len: 9, place }] };
    store.rows.insert(keys::extents(body, 0), extents.encode());
    fails(store.run(Leaves { body, start: 0, end: 9 }), "corrupt");
}

/// Also where a part of an upload is copied out of it: nothing on disk is trusted.
#[test]
fn a_part_of_a_chain_without_end_is_corrupt() {
    let mut store = Store::new(9);
    let top = store.bucket("bucket", BucketKind::S3);
    let (ino, body) = (store.file(top, "f"), store.next_body());
    let mut inode = store.inode(ino).unwrap();
    (inode.size, inode.content) = (9, Content::Body(body));
    store.rows.insert(keys::inode(ino), inode.encode());
    for offset in [0, u64::MAX - 4] {
        let extent = Extent { offset: 0, len: 9, place: Place::Body { body, offset } };
        let row = Extents { extents: vec![extent] };
        store.rows.insert(keys::extents(body, 0), row.encode());
        let (object, tags) = (ObjectAttributes::default(), Vec::new());
        let (bucket, key) = ("bucket".to_owned(), "new".to_owned());
        let begun = CreateUpload { bucket, key, object, tags, checksum: None };
        let upload = store.run(begun.clone()).unwrap();
        let name = UploadName { bucket: begun.bucket, key: begun.key, upload };
        let body = store.next_body();
        let copied = store.run(CopyPart {
            name,
            number: 1,
            source_bucket: "bucket".into(),
            source_key: "f".into(),
            source_conditions: Conditions::default(),
            range: None,
            session: SESSION,
            body,
        });
        match offset {
            0 => fails(copied, "corrupt"),
            _ => drop(copied),
        }
    }
}

#[test]
fn a_clone_is_a_file_of_its_own() {
    let (mut store, source) = one_file(9);
    write_block(&mut store, source, 0, 100);
    let parent = store.inode(source).unwrap().bucket;
    let ino = store.file(Ino(parent.0), "clone");
    let clone = |size| CloneFile { source, ino, session: SESSION, size };
    fails(store.run(clone(99)), "conflict");
    let body = store.run(clone(100)).unwrap().content;
    assert_eq!(body, store.inode(source).unwrap().content);
    fails(store.run(clone(100)), "conflict");
    write(&mut store, ino, 0, Data::Inline(Bytes::from_static(b"other")));
    assert_eq!(store.inode(source).unwrap().content, body);
    assert_ne!(store.inode(ino).unwrap().content, body);
}

fn copy(
    store: &mut Store,
    (source, source_offset): (Ino, u64),
    (ino, offset): (Ino, u64),
    len: u64,
) -> Result<CopyRangeReply, cairn_base::Error> {
    let (session, spare) = (SESSION, store.next_body());
    let opened = true;
    store.run(CopyRange { source, source_offset, ino, offset, len, session, opened, spare })
}

#[test]
fn a_part_of_a_file_is_a_part_of_its_body() {
    let (mut store, source) = one_file(11);
    let mib = 1 << 20;
    let (_, body) = write_block(&mut store, source, 0, 4 * mib);
    write_block(&mut store, source, 4 * mib, 4 * mib);
    let ino = store.file(store.inode(source).unwrap().bucket.ino(), "part");
    write(&mut store, ino, 0, Data::Inline(Bytes::from_static(b"0123456789")));
    // Across both blocks, from and to odd places: one extent all the same.
    let copied = copy(&mut store, (source, mib + 1), (ino, 3), 5 * mib).unwrap();
    assert_eq!((copied.len, copied.inode.size), (5 * mib, 5 * mib + 3));
    let (_, extents) = store.run(ReadChunk { ino, chunk: 0 }).unwrap().unwrap();
    let place = Place::Body { body, offset: mib + 1 };
    assert_eq!(extents[1..], [Extent { offset: 3, len: 5 * mib, place }]);
    assert_eq!(extents[0].place, Place::Inline(Bytes::from_static(b"012")));
    // Both can be written to, and neither sees it in the other.
    let before = leaves(&mut store, ino);
    let inode = write(&mut store, source, 2 * mib, Data::Inline(Bytes::from_static(b"new")));
    assert_ne!(inode.content, Content::Body(body));
    assert_eq!(leaves(&mut store, ino), before);
    // No more than there is, and nothing behind the end.
    assert_eq!(copy(&mut store, (source, 8 * mib - 5), (ino, 0), 100).unwrap().len, 5);
    let inode = store.inode(ino);
    assert_eq!(copy(&mut store, (source, 8 * mib), (ino, 0), 100).unwrap().len, 0);
    assert_eq!(store.inode(ino), inode);
}

#[test]
fn a_file_takes_parts_of_itself_where_they_do_not_overlap() {
    let (mut store, ino) = one_file(12);
    let mib = 1 << 20;
    let (_, body) = write_block(&mut store, ino, 0, 4 * mib);
    fails(copy(&mut store, (ino, 0), (ino, mib), mib + 1), "invalid");
    fails(copy(&mut store, (ino, mib), (ino, 0), mib + 1), "invalid");
    copy(&mut store, (ino, 0), (ino, mib), mib).unwrap();
    let inode = copy(&mut store, (ino, 3 * mib), (ino, 0), mib).unwrap().inode;
    // Its former contents are a body of its own now, which nothing refers to but this file.
    let Content::Body(own) = inode.content else { panic!() };
    assert_ne!(own, body);
    let (_, extents) = store.run(ReadChunk { ino, chunk: 0 }).unwrap().unwrap();
    let parts: Vec<_> =
        extents.iter().map(|extent| (extent.offset, extent.place.clone())).collect();
    let part = |offset| Place::Body { body, offset };
    assert_eq!(parts, [(0, part(3 * mib)), (mib, part(0)), (2 * mib, part(2 * mib))]);
    assert!(!store.run(Access { ino, wanted: 2 }).unwrap().1);
    let parent = inode.bucket.ino();
    store.run(Unlink { parent, name: b"f".to_vec() }).unwrap();
    assert!(store.rows.contains_key(&keys::drain_body(own)));
}

#[test]
fn holes_and_small_files_are_copied_as_they_are() {
    let (mut store, source) = one_file(13);
    write(&mut store, source, 2, Data::Inline(Bytes::from_static(b"abc")));
    let parent = store.inode(source).unwrap().bucket.ino();
    let ino = store.file(parent, "small");
    let size = 1 << 30;
    let spare = store.next_body();
    let grow = Truncate { ino: source, session: SESSION, opened: true, spare, size };
    store.run(grow).unwrap();
    let inode = copy(&mut store, (source, 1), (ino, 5), size).unwrap().inode;
    assert_eq!(inode.content, Content::Inline(Bytes::from_static(b"\0\0\0\0\0\0abc")));
    assert_eq!(inode.size, size - 1 + 5);
    // A hole takes the place of what is there.
    let inode = copy(&mut store, (source, 100), (ino, 7), 100).unwrap().inode;
    assert_eq!(inode.content, Content::Inline(Bytes::from_static(b"\0\0\0\0\0\0a\0\0")));
    write_block(&mut store, ino, 0, 1 << 20);
    let inode = copy(&mut store, (source, 4), (ino, 100), 1000).unwrap().inode;
    let found = leaves(&mut store, ino);
    let places: Vec<_> = found.iter().map(|leaf| (leaf.offset, leaf.len)).collect();
    assert_eq!(places, [(0, 100), (100, 1), (1100, (1 << 20) - 1100)], "{inode:?}");
    assert_eq!(store.freed(), 0);
}

#[test]
fn long_ranges_are_copied_in_steps() {
    let (mut store, source) = one_file(14);
    store.forgetful = false;
    let (step, many) = (64 << 10, 3000);
    for number in 0..many {
        write_block(&mut store, source, 2 * number * step, step);
    }
    let ino = store.file(store.inode(source).unwrap().bucket.ino(), "copy");
    let (mut at, mut steps, end) = (0, 0, store.inode(source).unwrap().size);
    while at < end {
        at += copy(&mut store, (source, at), (ino, at), end - at).unwrap().len;
        steps += 1;
    }
    assert!((5..8).contains(&steps), "{steps} steps");
    assert_eq!(leaves(&mut store, ino), leaves(&mut store, source));
}

#[test]
fn parts_of_files_stay_in_their_bucket_and_its_quota() {
    let (mut store, source) = one_file(15);
    write_block(&mut store, source, 0, 1000);
    let other = store.bucket("other", BucketKind::Posix);
    let ino = store.file(other, "f");
    fails(copy(&mut store, (source, 0), (ino, 0), 10), "cross_bucket");
    let bucket = store.inode(source).unwrap().bucket;
    let ino = store.file(bucket.ino(), "g");
    let key = keys::usage(bucket);
    let usage = Usage::decode(&store.rows[&key]).unwrap();
    let limited = Usage { quota_bytes: 1500, ..usage };
    store.rows.insert(key, limited.encode());
    fails(copy(&mut store, (source, 0), (ino, 0), 501), "full");
    copy(&mut store, (source, 0), (ino, 0), 500).unwrap();
    copy(&mut store, (source, 100), (ino, 0), 500).unwrap();
}

#[test]
fn who_may_not_read_or_write_copies_nothing() {
    let (mut store, source) = one_file(16);
    write_block(&mut store, source, 0, 1000);
    let ino = store.file(store.inode(source).unwrap().bucket.ino(), "g");
    let set = |store: &mut Store, ino: Ino, mode: u32| {
        let mode = Some(mode);
        let (uid, gid, atime, mtime) = (None, None, None, None);
        store.run(Setattr { ino, mode, uid, gid, atime, mtime }).unwrap();
    };
    let try_as_other = |store: &mut Store, opened: bool| {
        store.act_as(7, 7, &[]);
        let (session, spare) = (SESSION, store.next_body());
        let (source_offset, offset, len) = (0, 0, 10);
        let copy = CopyRange { source, source_offset, ino, offset, len, session, opened, spare };
        let copied = store.run(copy);
        store.caller = cairn_auth::Caller::system();
        copied
    };
    set(&mut store, ino, 0o6755);
    fails(try_as_other(&mut store, false), "denied");
    set(&mut store, source, 0o600);
    set(&mut store, ino, 0o6777);
    fails(try_as_other(&mut store, false), "denied");
    set(&mut store, source, 0o644);
    // As a write does, it takes the privileges of the file away, and its times change.
    let inode = try_as_other(&mut store, false).unwrap().inode;
    assert_eq!((inode.mode, inode.mtime.0, inode.ctime.0), (0o777, store.now, store.now));
    set(&mut store, source, 0o000);
    try_as_other(&mut store, true).unwrap();
}
