//! Bodies that several files share: a write leaves the others as they were.

use bytes::Bytes;
use cairn_base::{BodyId, Ino};
use cairn_meta::ops::clone::CloneFile;
use cairn_meta::ops::coalesce::{Coalesce, ReadChunk};
use cairn_meta::ops::create::Create;
use cairn_meta::ops::edit::leaf_extents;
use cairn_meta::ops::getattr::Access;
use cairn_meta::ops::namespace::{count_usage, load_inode, retain_body, store};
use cairn_meta::ops::truncate::Truncate;
use cairn_meta::ops::unlink::Unlink;
use cairn_meta::ops::write::Data;
use cairn_meta::rows::{Content, Extent, Extents, Inode, Place, Row};
use cairn_meta::{Context, Stop, Verb, View, keys};

use crate::contents::{one_file, write, write_block};
use crate::harness::{SESSION, Store, fails};

/// Makes a file with the body of another, as a copy does.
pub struct Share {
    pub ino: Ino,
    pub parent: Ino,
    pub name: Vec<u8>,
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
    let extents = Extents { extents: vec![Extent { offset: 0, len: 9, place }], unknown: vec![] };
    store.rows.insert(keys::extents(body, 0), extents.encode());
    fails(store.run(Leaves { body, start: 0, end: 9 }), "corrupt");
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
