//! Hard and symbolic links.

use bytes::Bytes;
use cairn_base::BodyId;
use cairn_meta::keys;
use cairn_meta::ops::link::Link;
use cairn_meta::ops::readlink::Readlink;
use cairn_meta::ops::symlink::Symlink;
use cairn_meta::ops::unlink::Unlink;
use cairn_meta::ops::write::{Data, Write};
use cairn_meta::rows::{BucketKind, Content};

use crate::harness::{SESSION, Store, fails};

#[test]
fn a_file_lives_as_long_as_it_has_a_name() {
    let mut store = Store::new(1);
    let top = store.bucket("bucket", BucketKind::Posix);
    let ino = store.file(top, "a");
    let spare = store.next_body();
    let data = Data::Blocks { body: spare, extents: vec![store.block(0, 1 << 20)] };
    let write = Write { ino, session: SESSION, opened: true, spare, offset: 0, data };
    assert_eq!(store.run(write).unwrap().content, Content::Body(spare));
    let linked = store.run(Link { ino, parent: top, name: b"b".to_vec() }).unwrap();
    assert_eq!(linked.nlink, 2);
    fails(store.run(Link { ino, parent: top, name: b"b".to_vec() }), "exists");
    let drains = |store: &Store, body: BodyId| store.rows.contains_key(&keys::drain_body(body));
    assert_eq!(store.run(Unlink { parent: top, name: b"a".to_vec() }).unwrap(), ino);
    assert_eq!(store.inode(ino).unwrap().nlink, 1);
    assert!(!drains(&store, spare));
    store.run(Unlink { parent: top, name: b"b".to_vec() }).unwrap();
    assert!(store.inode(ino).is_none());
    assert!(drains(&store, spare));
    fails(store.run(Unlink { parent: top, name: b"b".to_vec() }), "not_found");
    fails(store.run(Link { ino, parent: top, name: b"c".to_vec() }), "not_found");
}

#[test]
fn a_directory_has_one_name() {
    let mut store = Store::new(2);
    let top = store.bucket("bucket", BucketKind::Posix);
    let ino = store.directory(top, "d");
    fails(store.run(Link { ino, parent: top, name: b"e".to_vec() }), "denied");
    fails(store.run(Unlink { parent: top, name: b"d".to_vec() }), "is_directory");
}

#[test]
fn symbolic_links_hold_any_path() {
    let mut store = Store::new(3);
    let parent = store.bucket("bucket", BucketKind::Posix);
    let mut make = |target: Bytes| store.run(Symlink { parent, name: b"l".to_vec(), target });
    fails(make(Bytes::new()), "invalid");
    fails(make(Bytes::from_static(b"a\0b")), "invalid");
    fails(make(vec![b'x'; 4096].into()), "too_large");
    let (ino, inode) = make(Bytes::from_static(b"../any/where")).unwrap();
    assert_eq!((inode.size, inode.mode), (12, 0o777));
    assert_eq!(store.run(Readlink { ino }).unwrap(), &b"../any/where"[..]);
    let file = store.file(parent, "f");
    fails(store.run(Readlink { ino: file }), "invalid");
}
