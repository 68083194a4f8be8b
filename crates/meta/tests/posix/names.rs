//! Names, the root, and what S3 and POSIX see differently.

use cairn_base::{BucketId, Ino};
use cairn_meta::ops::create::{Create, Mknod};
use cairn_meta::ops::link::Link;
use cairn_meta::ops::list_objects::ListObjects;
use cairn_meta::ops::lookup::Lookup;
use cairn_meta::ops::mkdir::Mkdir;
use cairn_meta::ops::rename::{Rename, RenameMode};
use cairn_meta::ops::rmdir::Rmdir;
use cairn_meta::ops::symlink::Symlink;
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
    // Any other text is a name.
    let name = "\u{7}\n ... \u{10ffff}".as_bytes().to_vec();
    let made = store.run(Mkdir { parent, name: name.clone(), mode: 0o755, umask: 0 }).unwrap();
    assert_eq!(store.run(Lookup { parent, name }).unwrap().0, made.0);
}

/// S3 and HTTP could not show it, and would leave it out.
#[test]
fn no_name_is_made_that_other_doors_cannot_show() {
    let mut store = Store::new(2);
    let parent = store.bucket("bucket", BucketKind::Posix);
    let made = |name: &[u8]| Create {
        parent,
        name: name.to_vec(),
        mode: 0o644,
        umask: 0,
        exclusive: true,
    };
    let (ino, ..) = store.run(made(b"plain")).unwrap();
    let name = b"a\xffb".to_vec();
    fails(store.run(made(&name)), "invalid");
    fails(store.run(Mkdir { parent, name: name.clone(), mode: 0o755, umask: 0 }), "invalid");
    fails(store.run(Link { ino, parent, name: name.clone() }), "invalid");
    let target = bytes::Bytes::from_static(b"any \xff bytes");
    let symlink = Symlink { parent, name: name.clone(), target: target.clone() };
    fails(store.run(symlink.clone()), "invalid");
    let rename = Rename {
        source_parent: parent,
        source_name: b"plain".to_vec(),
        target_parent: parent,
        target_name: name.clone(),
        mode: RenameMode::Replace,
    };
    fails(store.run(rename), "invalid");
    // It may be asked for, and there is none. Where a link leads to is no name.
    fails(store.run(Lookup { parent, name }), "not_found");
    store.run(Symlink { name: b"link".to_vec(), ..symlink }).unwrap();
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

/// A farm of links, a `node_modules`: no page of a listing is too much work.
#[test]
fn a_listing_passes_over_any_number_of_links_by_pages() {
    let mut store = Store::new(5);
    let top = store.bucket("bucket", BucketKind::Posix);
    let links = store.directory(top, "links");
    for number in 0..20_000 {
        let name = format!("{number:05}").into_bytes();
        let target = bytes::Bytes::from_static(b"nowhere");
        store.run(Symlink { parent: links, name, target }).unwrap();
    }
    store.file(top, "zz");
    for (prefix, delimiter, expected) in
        [("", "", &["links/", "zz"][..]), ("links/", "/", &["links/"]), ("links/1", "", &[])]
    {
        let (mut found, mut pages, mut after) = (Vec::new(), 0, String::new());
        loop {
            let page = store
                .run(ListObjects {
                    bucket: "bucket".into(),
                    prefix: prefix.into(),
                    delimiter: delimiter.into(),
                    after: after.clone(),
                    max_keys: 1000,
                })
                .unwrap();
            found.extend(page.objects.into_iter().map(|object| object.key));
            pages += 1;
            let Some(next) = page.next else { break };
            assert!(next > after && pages < 10, "{next} after {after}");
            after = next;
        }
        assert_eq!(found, expected, "{prefix:?}");
    }
}
