//! Rights on buckets, and mode bits.

use cairn_auth::{Caller, Posix};
use cairn_base::{BucketId, Ino, UserId};
use cairn_meta::keys;
use cairn_meta::ops::conditions::Conditions;
use cairn_meta::ops::create::Create;
use cairn_meta::ops::getattr::{Access, Getattr};
use cairn_meta::ops::lookup::Lookup;
use cairn_meta::ops::mkdir::Mkdir;
use cairn_meta::ops::put_object::{NewContent, PutObject};
use cairn_meta::ops::readdir::Readdir;
use cairn_meta::ops::rename::{Rename, RenameMode};
use cairn_meta::ops::setattr::Setattr;
use cairn_meta::ops::unlink::Unlink;
use cairn_meta::ops::write::{Data, Write};
use cairn_meta::ops::xattr::{SetXattr, XattrMode};
use cairn_meta::rows::{Bucket, BucketKind, ObjectAttributes, Row};

use crate::harness::{OWNER, SESSION, Store, fails};

const READER: UserId = UserId(8);

fn store_with_grant() -> (Store, Ino) {
    let mut store = Store::new(1);
    let top = store.bucket("bucket", BucketKind::Posix);
    let key = keys::bucket(BucketId(top.0));
    let mut bucket = Bucket::decode(&store.rows[&key]).unwrap();
    bucket.grants = vec![(READER, cairn_auth::Rights::READ)];
    store.rows.insert(key, bucket.encode());
    (store, top)
}

#[test]
fn rights_on_the_bucket_come_first() {
    let (mut store, parent) = store_with_grant();
    let ino = store.file(parent, "f");
    let name = b"f".to_vec();
    let write = |store: &mut Store| {
        let spare = store.next_body();
        let data = Data::Inline(vec![1].into());
        store.run(Write { ino, session: SESSION, opened: true, spare, offset: 0, data })
    };
    store.caller = Caller::verified(READER);
    store.run(Getattr { ino }).unwrap();
    store.run(Access { ino, wanted: 4 }).unwrap();
    fails(store.run(Access { ino, wanted: 6 }), "denied");
    fails(write(&mut store), "denied");
    fails(store.run(Unlink { parent, name: name.clone() }), "denied");
    fails(store.run(Setattr { ino, mode: Some(0o777), ..Setattr::default() }), "denied");
    for stranger in [Caller::anonymous(), Caller::verified(UserId(99))] {
        store.caller = stranger;
        fails(store.run(Getattr { ino }), "denied");
        fails(store.run(Lookup { parent, name: name.clone() }), "denied");
        fails(store.run(Lookup { parent: Ino::ROOT, name: b"bucket".to_vec() }), "denied");
        let all = Readdir { ino: Ino::ROOT, after: None, limit: 10, attributes: true };
        let page = store.run(all).unwrap();
        assert_eq!((page.entries.len(), page.skipped), (0, 1));
    }
    store.caller = Caller::verified(OWNER);
    write(&mut store).unwrap();
    // Mode bits count for an owner of the bucket with an identity.
    store.caller = Caller::verified(OWNER).with_posix(Posix { uid: 7, gid: 7, groups: vec![] });
    fails(store.run(Access { ino, wanted: 2 }), "denied");
    write(&mut store).unwrap();
}

#[test]
fn the_first_class_that_fits_decides() {
    let mut store = Store::new(2);
    let parent = store.bucket("bucket", BucketKind::Posix);
    store.act_as(1, 10, &[]);
    let create = Create { parent, name: b"f".to_vec(), mode: 0o047, umask: 0, exclusive: true };
    let ino = store.run(create).unwrap().0;
    for (uid, gid, groups, allowed) in [
        (1, 10, &[][..], 0),
        (2, 10, &[], 4),
        (2, 11, &[12, 10], 4),
        (2, 11, &[12], 7),
        (0, 0, &[], 7),
    ] {
        store.act_as(uid, gid, groups);
        for wanted in 0..8 {
            let decided = store.run(Access { ino, wanted }).is_ok();
            assert_eq!(decided, wanted & allowed == wanted, "{uid} {gid} {wanted}");
        }
    }
}

#[test]
fn parents_are_searched_and_written() {
    let mut store = Store::new(3);
    let top = store.bucket("bucket", BucketKind::Posix);
    store.act_as(1, 1, &[]);
    let mut make = |name: &[u8], mode| {
        let ino = store.run(Mkdir { parent: top, name: name.to_vec(), mode, umask: 0 }).unwrap().0;
        store.file(ino, "f");
        ino
    };
    let (closed, fixed) = (make(b"closed", 0o766), make(b"fixed", 0o755));
    store.act_as(2, 2, &[]);
    let name = b"f".to_vec();
    fails(store.run(Lookup { parent: closed, name: name.clone() }), "denied");
    let list = |attributes| Readdir { ino: closed, after: None, limit: 9, attributes };
    assert_eq!(store.run(list(false)).unwrap().entries.len(), 1);
    fails(store.run(list(true)), "denied");
    store.run(Lookup { parent: fixed, name: name.clone() }).unwrap();
    fails(store.run(Unlink { parent: fixed, name: name.clone() }), "denied");
    let open = Create { parent: fixed, name, mode: 0, umask: 0, exclusive: false };
    assert!(!store.run(open.clone()).unwrap().2);
    fails(store.run(Create { name: b"new".to_vec(), ..open }), "denied");
}

#[test]
fn in_a_sticky_directory_owners_remove() {
    let mut store = Store::new(4);
    let top = store.bucket("bucket", BucketKind::Posix);
    store.act_as(1, 1, &[]);
    let sticky = Mkdir { parent: top, name: b"tmp".to_vec(), mode: 0o1777, umask: 0 };
    let parent = store.run(sticky).unwrap().0;
    store.act_as(2, 2, &[]);
    store.file(parent, "two");
    store.act_as(3, 3, &[]);
    store.file(parent, "three");
    let rename = |from: &str, to: &str| Rename {
        source_parent: parent,
        source_name: from.into(),
        target_parent: parent,
        target_name: to.into(),
        mode: RenameMode::Replace,
    };
    fails(store.run(Unlink { parent, name: b"two".to_vec() }), "denied");
    fails(store.run(rename("two", "x")), "denied");
    fails(store.run(rename("three", "two")), "denied");
    store.run(rename("three", "x")).unwrap();
    store.act_as(1, 1, &[]);
    store.run(Unlink { parent, name: b"two".to_vec() }).unwrap();
}

#[test]
fn setgid_is_inherited() {
    let mut store = Store::new(5);
    let top = store.bucket("bucket", BucketKind::Posix);
    store.act_as(1, 10, &[50]);
    let parent =
        store.run(Mkdir { parent: top, name: b"d".to_vec(), mode: 0o777, umask: 0 }).unwrap().0;
    let set = Setattr { ino: parent, gid: Some(50), mode: Some(0o2777), ..Setattr::default() };
    store.run(set).unwrap();
    store.act_as(2, 20, &[]);
    let inner = store.run(Mkdir { parent, name: b"e".to_vec(), mode: 0o755, umask: 0 }).unwrap().1;
    assert_eq!((inner.gid, inner.mode), (50, 0o2755));
    let create = Create { parent, name: b"f".to_vec(), mode: 0o2755, umask: 0, exclusive: true };
    let file = store.run(create).unwrap().1;
    assert_eq!((file.uid, file.gid, file.mode), (2, 50, 0o755));
}

fn put(key: &str) -> PutObject {
    PutObject {
        bucket: "bucket".into(),
        key: key.into(),
        session: SESSION,
        content: NewContent::Inline(b"new".to_vec().into()),
        size: 3,
        object: ObjectAttributes::default(),
        tags: vec![],
        conditions: Conditions::default(),
    }
}

/// The directories of a key are like the one that they are made in, and the file has its owner, so
/// that whoever works there by a mount may go on below.
#[test]
fn directories_of_a_key_are_like_the_one_above() {
    let mut store = Store::new(32);
    let parent = store.bucket("bucket", BucketKind::Posix);
    let set = Setattr {
        ino: parent,
        uid: Some(9),
        gid: Some(90),
        mode: Some(0o2750),
        ..Setattr::default()
    };
    store.run(set).unwrap();
    let file = store.run(put("2026/new/a.jpg")).unwrap().ino;
    let mut at = parent;
    for name in ["2026", "new"] {
        at = store.run(Lookup { parent: at, name: name.into() }).unwrap().0;
        let made = store.inode(at).unwrap();
        assert_eq!((made.uid, made.gid, made.mode), (9, 90, 0o2750), "{name}");
    }
    let file = store.inode(file).unwrap();
    assert_eq!((file.uid, file.gid, file.mode), (9, 90, 0o644));
    store.act_as(9, 90, &[]);
    store.run(Mkdir { parent: at, name: b"mine".to_vec(), mode: 0o755, umask: 0 }).unwrap();
    // The list of a directory goes with its bits: the group has no more below than here.
    store.caller = Caller::verified(OWNER);
    let name = b"system.posix_acl_access".to_vec();
    let value = access_list().into();
    store.run(SetXattr { ino: at, name, value, mode: XattrMode::Set }).unwrap();
    store.run(put("2026/new/below/b.jpg")).unwrap();
    let below = store.run(Lookup { parent: at, name: b"below".to_vec() }).unwrap().0;
    let (above, below) = (store.inode(at).unwrap(), store.inode(below).unwrap());
    assert!(above.acl.is_some());
    assert_eq!((below.mode, below.acl), (above.mode, above.acl));
}

/// Returns a list: the owner all, uid 9 reads and writes, the group nothing, the mask reads and
/// writes.
fn access_list() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, u32::MAX), (2, 6, 9), (4, 0, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)];
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// An object that replaces a file gives nobody more than the file did. The list goes with the bits
/// of the group, which are its mask, and nothing runs as somebody else.
#[test]
fn an_object_in_place_of_a_file_widens_no_right() {
    let mut store = Store::new(31);
    let parent = store.bucket("bucket", BucketKind::Posix);
    let ino = store.file(parent, "f");
    let set = Setattr { ino, mode: Some(0o6750), gid: Some(50), ..Setattr::default() };
    store.run(set).unwrap();
    let name = b"system.posix_acl_access".to_vec();
    store.run(SetXattr { ino, name, value: access_list().into(), mode: XattrMode::Set }).unwrap();
    let before = store.inode(ino).unwrap();
    let ino = store.run(put("f")).unwrap().ino;
    let after = store.inode(ino).unwrap();
    assert_eq!((after.acl, after.mode & 0o777), (before.acl, before.mode & 0o777));
    assert_eq!((after.uid, after.gid, after.mode & 0o4000), (before.uid, before.gid, 0));
    for (uid, gid, allowed) in [(9, 9, true), (8, 50, false), (8, 8, false)] {
        store.act_as(uid, gid, &[]);
        assert_eq!(store.run(Access { ino, wanted: 4 }).is_ok(), allowed, "uid {uid}, gid {gid}");
    }
}
