//! Names, the root, and what S3 and POSIX see differently.

use cairn_base::{BucketId, Ino};
use cairn_meta::ops::create::{Create, Mknod};
use cairn_meta::ops::lookup::Lookup;
use cairn_meta::ops::mkdir::Mkdir;
use cairn_meta::ops::rename::{Rename, RenameMode};
use cairn_meta::ops::rmdir::Rmdir;
use cairn_meta::ops::unlink::Unlink;
use cairn_meta::rows::{BucketKind, Kind};

use crate::harness::{Store, fails};
use crate::listing::PutObject;

#[test]
fn what_is_no_name_is_refused() {
    let mut store = Store::new(1);
    let parent = store.bucket("bucket", BucketKind::Posix);
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
        let name = name.to_vec();
        fails(store.run(Lookup { parent, name: name.clone() }), "invalid");
        fails(store.run(Mkdir { parent, name: name.clone(), mode: 0o755, umask: 0 }), "invalid");
        fails(store.run(Unlink { parent, name }), "invalid");
    }
    let name = vec![b'n'; 256];
    fails(store.run(Lookup { parent, name: name.clone() }), "too_large");
    fails(store.run(Create { parent, name, mode: 0, umask: 0, exclusive: true }), "too_large");
    // Any other bytes are a name.
    let name = b"\xff\n ...".to_vec();
    let made = store.run(Mkdir { parent, name: name.clone(), mode: 0o755, umask: 0 }).unwrap();
    assert_eq!(store.run(Lookup { parent, name }).unwrap().0, made.0);
}

#[test]
fn the_root_shows_buckets_and_is_not_changed() {
    let mut store = Store::new(2);
    let bucket = store.bucket("bucket", BucketKind::Posix);
    let (parent, name) = (Ino::ROOT, b"bucket".to_vec());
    let (ino, inode) = store.run(Lookup { parent, name: name.clone() }).unwrap();
    assert_eq!((ino, inode.nlink, inode.parent), (bucket, 2, Ino::ROOT));
    fails(store.run(Mkdir { parent, name: b"other".to_vec(), mode: 0o755, umask: 0 }), "denied");
    fails(store.run(Rmdir { parent, name: name.clone() }), "denied");
    let rename = Rename {
        source_parent: parent,
        source_name: name,
        target_parent: bucket,
        target_name: b"x".to_vec(),
        mode: RenameMode::Replace,
    };
    fails(store.run(rename), "denied");
}

#[test]
fn a_directory_hides_the_object_beside_it() {
    let mut store = Store::new(3);
    let parent = store.bucket("bucket", BucketKind::S3);
    let bucket = BucketId(parent.0);
    let path = |path: &[&[u8]]| path.iter().map(|name| name.to_vec()).collect();
    let object = store.run(PutObject { bucket, path: path(&[b"a"]) }).unwrap()[0];
    let deeper = store.run(PutObject { bucket, path: path(&[b"a", b"b"]) }).unwrap();
    let look = |store: &mut Store| store.run(Lookup { parent, name: b"a".to_vec() }).unwrap().0;
    assert_eq!(look(&mut store), deeper[0]);
    fails(store.run(Unlink { parent, name: b"a".to_vec() }), "is_directory");
    fails(store.run(Mkdir { parent, name: b"a".to_vec(), mode: 0o755, umask: 0 }), "exists");
    store.run(Unlink { parent: deeper[0], name: b"b".to_vec() }).unwrap();
    store.run(Rmdir { parent, name: b"a".to_vec() }).unwrap();
    assert_eq!(look(&mut store), object);
}

#[test]
fn a_directory_that_posix_empties_becomes_explicit() {
    let mut store = Store::new(4);
    let parent = store.bucket("bucket", BucketKind::S3);
    let bucket = BucketId(parent.0);
    let put = |store: &mut Store, top: &[u8]| {
        let path = vec![top.to_vec(), b"file".to_vec()];
        store.run(PutObject { bucket, path }).unwrap()[0]
    };
    let (unlinked, renamed) = (put(&mut store, b"u"), put(&mut store, b"r"));
    assert!(store.inode(unlinked).unwrap().implicit);
    store.run(Unlink { parent: unlinked, name: b"file".to_vec() }).unwrap();
    assert!(!store.inode(unlinked).unwrap().implicit);
    let rename = Rename {
        source_parent: renamed,
        source_name: b"file".to_vec(),
        target_parent: unlinked,
        target_name: b"file".to_vec(),
        mode: RenameMode::NoReplace,
    };
    store.run(rename).unwrap();
    assert!(!store.inode(renamed).unwrap().implicit);
}

#[test]
fn nodes_are_made_of_some_kinds_only() {
    let mut store = Store::new(5);
    let parent = store.bucket("bucket", BucketKind::Posix);
    let mut make = |name: &[u8], kind| {
        store.run(Mknod { parent, name: name.to_vec(), kind, mode: 0o600, umask: 0 })
    };
    assert_eq!(make(b"f", Kind::Fifo).unwrap().1.kind, Kind::Fifo);
    assert_eq!(make(b"s", Kind::Socket).unwrap().1.kind, Kind::Socket);
    fails(make(b"f", Kind::File), "exists");
    fails(make(b"d", Kind::Directory), "invalid");
    fails(make(b"l", Kind::Symlink), "invalid");
}

#[test]
fn what_is_gone_is_not_found() {
    let mut store = Store::new(6);
    let parent = store.bucket("bucket", BucketKind::Posix);
    let directory = store.directory(parent, "d");
    store.run(Rmdir { parent, name: b"d".to_vec() }).unwrap();
    let create =
        Create { parent: directory, name: b"f".to_vec(), mode: 0, umask: 0, exclusive: false };
    fails(store.run(create.clone()), "not_found");
    let file = store.file(parent, "f");
    fails(store.run(Create { parent: file, ..create }), "not_directory");
}
