//! The entries that rename replaces, exchanges and refuses.

use cairn_base::{BucketId, Ino};
use cairn_meta::ops::getattr::Getattr;
use cairn_meta::ops::link::Link;
use cairn_meta::ops::lookup::Lookup;
use cairn_meta::ops::rename::{Rename, RenameMode};
use cairn_meta::rows::BucketKind;

use crate::harness::{Store, fails};
use crate::listing::PutObject;

use RenameMode::{Exchange, NoReplace, Replace};

fn rename(from: (Ino, &str), to: (Ino, &str), mode: RenameMode) -> Rename {
    Rename {
        source_parent: from.0,
        source_name: from.1.into(),
        target_parent: to.0,
        target_name: to.1.into(),
        mode,
    }
}

fn look(store: &mut Store, parent: Ino, name: &str) -> Option<Ino> {
    store.run(Lookup { parent, name: name.into() }).ok().map(|found| found.0)
}

#[test]
fn files_replace_files_and_empty_directories_give_way_to_directories() {
    let mut store = Store::new(1);
    let top = store.bucket("bucket", BucketKind::Posix);
    let (file, other) = (store.file(top, "f"), store.file(top, "g"));
    let (full, empty) = (store.directory(top, "full"), store.directory(top, "empty"));
    let inside = store.directory(full, "inside");
    fails(store.run(rename((top, "f"), (top, "empty"), Replace)), "is_directory");
    fails(store.run(rename((top, "empty"), (top, "f"), Replace)), "not_directory");
    fails(store.run(rename((top, "empty"), (top, "full"), Replace)), "not_empty");
    fails(store.run(rename((top, "f"), (top, "g"), NoReplace)), "exists");
    fails(store.run(rename((top, "none"), (top, "g"), Replace)), "not_found");
    store.run(rename((top, "f"), (top, "g"), Replace)).unwrap();
    assert_eq!((look(&mut store, top, "g"), look(&mut store, top, "f")), (Some(file), None));
    assert!(store.inode(other).is_none());
    store.run(rename((top, "full"), (top, "empty"), Replace)).unwrap();
    assert_eq!(look(&mut store, top, "empty"), Some(full));
    assert!(store.inode(empty).is_none());
    store.run(rename((full, "inside"), (top, "outside"), NoReplace)).unwrap();
    assert_eq!(store.inode(inside).unwrap().parent, top);
    assert_eq!(store.run(Getattr { ino: full }).unwrap().0.nlink, 2);
    assert_eq!(store.run(Getattr { ino: top }).unwrap().0.nlink, 4);
}

#[test]
fn a_directory_never_moves_below_itself() {
    let mut store = Store::new(2);
    let top = store.bucket("bucket", BucketKind::Posix);
    let a = store.directory(top, "a");
    let b = store.directory(a, "b");
    let c = store.directory(b, "c");
    for to in [a, b, c] {
        fails(store.run(rename((top, "a"), (to, "x"), Replace)), "invalid");
    }
    // Neither does what it is exchanged with.
    fails(store.run(rename((b, "c"), (top, "a"), Exchange)), "invalid");
    fails(store.run(rename((top, "a"), (b, "c"), Exchange)), "invalid");
    store.file(b, "file");
    fails(store.run(rename((b, "file"), (top, "a"), Exchange)), "invalid");
    // Onto its own ancestor: that one is not empty.
    fails(store.run(rename((b, "c"), (top, "a"), Replace)), "not_empty");
    store.run(rename((b, "c"), (top, "c"), Replace)).unwrap();
    store.run(rename((top, "a"), (c, "a"), Replace)).unwrap();
    fails(store.run(rename((top, "c"), (b, "c"), Replace)), "invalid");
}

#[test]
fn names_of_one_inode_are_left_alone() {
    let mut store = Store::new(3);
    let top = store.bucket("bucket", BucketKind::Posix);
    let ino = store.file(top, "a");
    store.run(Link { ino, parent: top, name: b"b".to_vec() }).unwrap();
    for mode in [Replace, Exchange] {
        store.run(rename((top, "a"), (top, "b"), mode)).unwrap();
        store.run(rename((top, "a"), (top, "a"), mode)).unwrap();
    }
    assert_eq!(store.inode(ino).unwrap().nlink, 2);
    assert_eq!(look(&mut store, top, "a"), look(&mut store, top, "b"));
    fails(store.run(rename((top, "a"), (top, "a"), NoReplace)), "exists");
}

#[test]
fn exchange_takes_any_two_kinds() {
    let mut store = Store::new(4);
    let top = store.bucket("bucket", BucketKind::Posix);
    let (file, directory) = (store.file(top, "f"), store.directory(top, "d"));
    let inner = store.file(directory, "inner");
    fails(store.run(rename((top, "f"), (top, "none"), Exchange)), "not_found");
    store.run(rename((top, "f"), (top, "d"), Exchange)).unwrap();
    assert_eq!(look(&mut store, top, "f"), Some(directory));
    assert_eq!(look(&mut store, top, "d"), Some(file));
    store.run(rename((directory, "inner"), (top, "d"), Exchange)).unwrap();
    assert_eq!(look(&mut store, directory, "inner"), Some(file));
    assert_eq!(look(&mut store, top, "d"), Some(inner));
}

#[test]
fn a_file_does_not_take_the_place_of_a_hidden_object() {
    let mut store = Store::new(5);
    let top = store.bucket("bucket", BucketKind::S3);
    let bucket = BucketId(top.0);
    let hidden = store.run(PutObject { bucket, path: vec![b"a".to_vec()] }).unwrap()[0];
    store.run(PutObject { bucket, path: vec![b"a".to_vec(), b"b".to_vec()] }).unwrap();
    store.file(top, "file");
    fails(store.run(rename((top, "file"), (top, "a"), Exchange)), "exists");
    // Moving the directory away shows it.
    store.run(rename((top, "a"), (top, "moved"), NoReplace)).unwrap();
    assert_eq!(look(&mut store, top, "a"), Some(hidden));
}

#[test]
fn buckets_are_not_crossed() {
    let mut store = Store::new(6);
    let one = store.bucket("one", BucketKind::Posix);
    let two = store.bucket("two", BucketKind::Posix);
    let ino = store.file(one, "f");
    fails(store.run(rename((one, "f"), (two, "f"), Replace)), "cross_bucket");
    fails(store.run(Link { ino, parent: two, name: b"f".to_vec() }), "cross_bucket");
}
