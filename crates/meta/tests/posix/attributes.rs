//! Attributes: mode, owner, times, extended attributes, usage.

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::{Ino, Timestamp, UserId, limits};
use cairn_meta::ops::append::Append;
use cairn_meta::ops::buckets::UpdateBucket;
use cairn_meta::ops::copy_range::CopyRange;
use cairn_meta::ops::create::Create;
use cairn_meta::ops::getattr::Getattr;
use cairn_meta::ops::link::Link;
use cairn_meta::ops::setattr::{SetTime, Setattr};
use cairn_meta::ops::statfs::Statfs;
use cairn_meta::ops::symlink::Symlink;
use cairn_meta::ops::truncate::{Extend, PunchHole, Truncate};
use cairn_meta::ops::unlink::Unlink;
use cairn_meta::ops::write::{Data, Write};
use cairn_meta::ops::xattr::{GetXattr, ListXattrs, RemoveXattr, SetXattr, XattrMode};
use cairn_meta::rows::{BucketKind, ObjectAttributes, Row};

use crate::harness::{OWNER, SESSION, Store, fails};

fn set(ino: Ino) -> Setattr {
    Setattr { ino, ..Setattr::default() }
}

#[test]
fn owners_change_what_is_theirs() {
    let mut store = Store::new(1);
    let top = store.bucket("bucket", BucketKind::Posix);
    store.act_as(1, 10, &[11]);
    let ino = store.file(top, "f");
    store.act_as(2, 20, &[]);
    fails(store.run(Setattr { mode: Some(0o777), ..set(ino) }), "denied");
    fails(store.run(Setattr { mtime: Some(SetTime::Now), ..set(ino) }), "denied");
    store.act_as(1, 10, &[11]);
    fails(store.run(Setattr { uid: Some(2), ..set(ino) }), "denied");
    fails(store.run(Setattr { gid: Some(12), ..set(ino) }), "denied");
    let changed = store.run(Setattr { gid: Some(11), mode: Some(0o6775), ..set(ino) }).unwrap().0;
    assert_eq!((changed.gid, changed.mode), (11, 0o6775));
    let changed = store.run(Setattr { gid: Some(10), ..set(ino) }).unwrap().0;
    assert_eq!(changed.mode, 0o775);
    // Setgid is only for members.
    store.act_as(0, 0, &[]);
    store.run(Setattr { gid: Some(99), mode: Some(0o666), ..set(ino) }).unwrap();
    store.act_as(1, 10, &[11]);
    let changed = store.run(Setattr { mode: Some(0o2755), ..set(ino) }).unwrap().0;
    assert_eq!(changed.mode, 0o755);
    // A user who may write may set the time to now, nothing else.
    store.run(Setattr { mode: Some(0o666), ..set(ino) }).unwrap();
    store.act_as(2, 20, &[]);
    store.run(Setattr { mtime: Some(SetTime::Now), ..set(ino) }).unwrap();
    let past = Some(SetTime::At(Timestamp(5)));
    fails(store.run(Setattr { mtime: past, ..set(ino) }), "denied");
}

#[test]
fn a_write_and_another_owner_take_capabilities_away() {
    let mut store = Store::new(12);
    let top = store.bucket("bucket", BucketKind::Posix);
    let ino = store.file(top, "f");
    let give = |store: &mut Store| {
        let (name, value) = (b"security.capability".to_vec(), Bytes::from_static(b"x"));
        store.run(SetXattr { ino, name, value, mode: XattrMode::Set }).unwrap();
        let value = Bytes::from_static(b"x");
        let name = b"user.stays".to_vec();
        store.run(SetXattr { ino, name, value, mode: XattrMode::Set }).unwrap();
        assert_eq!(store.inode(ino).unwrap().xattr_count, 2);
    };
    let has_lost = |store: &mut Store| {
        let left = store.run(ListXattrs { ino }).unwrap();
        assert_eq!(store.inode(ino).unwrap().xattr_count, 1);
        left == [&b"user.stays"[..]]
    };
    give(&mut store);
    store.run(Setattr { mode: Some(0o755), ..set(ino) }).unwrap();
    assert_eq!(store.inode(ino).unwrap().xattr_count, 2);
    let (spare, data) = (store.next_body(), Data::Inline(Bytes::from_static(b"x")));
    store.run(Write { ino, session: SESSION, opened: true, spare, offset: 0, data }).unwrap();
    assert!(has_lost(&mut store));
    give(&mut store);
    store.run(Setattr { uid: Some(7), ..set(ino) }).unwrap();
    assert!(has_lost(&mut store));
    give(&mut store);
    let spare = store.next_body();
    store.run(Truncate { ino, session: SESSION, opened: true, spare, size: 0 }).unwrap();
    assert!(has_lost(&mut store));
}

#[test]
fn a_write_takes_setuid_away() {
    let mut store = Store::new(2);
    let top = store.bucket("bucket", BucketKind::Posix);
    let ino = store.file(top, "f");
    // Without permission to execute, setgid stays if a member of the group writes.
    for (uid, mode, after) in [
        (0, 0o6777, 0o6777),
        (1, 0o6777, 0o777),
        (1, 0o2767, 0o767),
        (2, 0o2767, 0o2767),
        (2, 0o6777, 0o777),
    ] {
        store.act_as(0, 0, &[]);
        store.run(Setattr { mode: Some(mode), ..set(ino) }).unwrap();
        store.act_as(uid, 1, if uid == 2 { &[0] } else { &[] });
        let (spare, data) = (store.next_body(), Data::Inline(Bytes::from_static(b"x")));
        let write = Write { ino, session: SESSION, opened: false, spare, offset: 0, data };
        assert_eq!(store.run(write).unwrap().mode, after);
    }
}

/// Each operation on the bytes of a file, by name, and whether it did what it should.
type Change = (&'static str, fn(&mut Store, Ino, Ino) -> bool);

const CHANGES: [Change; 10] = [
    ("write", |store, ino, _| {
        let (spare, data) = (store.next_body(), Data::Inline(Bytes::from_static(b"new")));
        store.run(Write { ino, session: SESSION, opened: true, spare, offset: 0, data }).is_ok()
    }),
    ("append", |store, ino, _| {
        let (spare, data) = (store.next_body(), Data::Inline(Bytes::from_static(b"new")));
        let verb = Append { ino, session: SESSION, opened: true, spare, chunk: 0, data };
        store.run(verb).is_ok()
    }),
    ("cut", |store, ino, _| truncate_to(store, ino, 2)),
    ("grow", |store, ino, _| truncate_to(store, ino, 100)),
    ("set the same size", |store, ino, _| truncate_to(store, ino, 4)),
    ("punch", |store, ino, _| punch(store, ino, 1)),
    ("punch behind the end", |store, ino, _| punch(store, ino, 1000)),
    ("allocate", |store, ino, _| {
        store.run(Extend { ino, session: SESSION, opened: true, end: 200 }).unwrap().size == 200
    }),
    ("allocate what is there", |store, ino, _| {
        store.run(Extend { ino, session: SESSION, opened: true, end: 0 }).unwrap().size == 4
    }),
    ("copy", |store, ino, source| {
        let spare = store.next_body();
        let (source_offset, offset, len, session, opened) = (0, 0, 2, SESSION, true);
        let verb = CopyRange { source, source_offset, ino, offset, len, session, opened, spare };
        store.run(verb).unwrap().len == 2
    }),
];

fn truncate_to(store: &mut Store, ino: Ino, size: u64) -> bool {
    let spare = store.next_body();
    store.run(Truncate { ino, session: SESSION, opened: true, spare, size }).is_ok()
}

fn punch(store: &mut Store, ino: Ino, offset: u64) -> bool {
    let spare = store.next_body();
    let verb = PunchHole { ino, session: SESSION, opened: true, spare, offset, len: 2 };
    store.run(verb).is_ok()
}

/// As capabilities(7) says. A new operation on bytes belongs into the list.
#[test]
fn whatever_changes_bytes_takes_privileges_away() {
    for (name, change) in CHANGES {
        let mut store = Store::new(2);
        let top = store.bucket("bucket", BucketKind::Posix);
        let (ino, source) = (store.file(top, "f"), store.file(top, "source"));
        for (ino, bytes) in [(ino, b"four"), (source, b"more")] {
            let (spare, data) = (store.next_body(), Data::Inline(Bytes::from_static(bytes)));
            let write = Write { ino, session: SESSION, opened: true, spare, offset: 0, data };
            store.run(write).unwrap();
        }
        store.act_as(0, 0, &[]);
        store.run(Setattr { mode: Some(0o6777), ..set(ino) }).unwrap();
        let (xattr, value) = (b"security.capability".to_vec(), Bytes::from_static(b"x"));
        store.run(SetXattr { ino, name: xattr, value, mode: XattrMode::Set }).unwrap();
        let before = store.inode(ino).unwrap();
        store.act_as(1, 1, &[]);
        assert!(change(&mut store, ino, source), "{name}");
        let after = store.inode(ino).unwrap();
        assert_eq!((after.mode, after.xattr_count), (0o777, 0), "{name}");
        assert!(after.change > before.change && after.ctime > before.ctime, "{name}");
    }
}

/// As a kernel does for those who write.
#[test]
fn who_may_not_set_capabilities_may_have_them_taken_away() {
    let mut store = Store::new(2);
    let top = store.bucket("bucket", BucketKind::Posix);
    let ino = store.file(top, "f");
    store.act_as(0, 0, &[]);
    let named = |name: &str| (name.as_bytes().to_vec(), Bytes::from_static(b"x"));
    for name in ["security.capability", "security.other"] {
        let (name, value) = named(name);
        store.run(SetXattr { ino, name, value, mode: XattrMode::Set }).unwrap();
    }
    store.act_as(1, 1, &[]);
    let (name, value) = named("security.capability");
    fails(store.run(SetXattr { ino, name: name.clone(), value, mode: XattrMode::Set }), "denied");
    fails(store.run(RemoveXattr { ino, name: b"security.other".to_vec() }), "denied");
    store.run(RemoveXattr { ino, name: name.clone() }).unwrap();
    fails(store.run(RemoveXattr { ino, name }), "not_found");
}

/// Also if many come in one batch and within one tick, and where the clock was set back.
#[test]
fn each_change_has_its_own_number_etag_and_time() {
    let mut store = Store::new(2);
    let top = store.bucket("bucket", BucketKind::Posix);
    let ino = store.file(top, "f");
    let (batch, mut etags) = (store.batch, std::collections::BTreeSet::new());
    let mut last = store.inode(ino).unwrap();
    etags.insert(last.etag(ino));
    for round in 0..40 {
        store.batch = batch;
        store.now = if round < 20 { last.ctime.0 - 10 } else { 1 };
        let (spare, data) = (store.next_body(), Data::Inline(Bytes::from_static(b"x")));
        let verb = Append { ino, session: SESSION, opened: true, spare, chunk: 0, data };
        let (inode, is_bytes) = match round % 4 {
            0 => (store.run(Setattr { mode: Some(0o600), ..set(ino) }).unwrap().0, false),
            _ => (store.run(verb).unwrap().inode, true),
        };
        assert!(inode.change > last.change && inode.ctime > last.ctime);
        assert_eq!(inode.data_change > last.data_change, is_bytes);
        assert!(etags.insert(inode.etag(ino)), "an ETag came twice");
        last = inode;
    }
}

#[test]
fn the_time_of_a_directory_is_that_of_its_entries_or_as_set() {
    let mut store = Store::new(3);
    let top = store.bucket("bucket", BucketKind::Posix);
    let ino = store.directory(top, "d");
    let mtime = |store: &mut Store| store.run(Getattr { ino }).unwrap().0.mtime.0;
    store.file(ino, "f");
    let made = store.now;
    assert_eq!(mtime(&mut store), made);
    for time in [5, i64::MAX] {
        let at = Some(SetTime::At(Timestamp(time)));
        store.run(Setattr { mtime: at, ..set(ino) }).unwrap();
        let changed = store.now;
        let inode = store.run(Getattr { ino }).unwrap().0;
        assert_eq!((inode.mtime.0, inode.ctime.0), (time, changed));
        store.file(ino, &time.to_string());
        let made = store.now;
        assert_eq!(mtime(&mut store), made);
    }
    store.run(Unlink { parent: ino, name: b"f".to_vec() }).unwrap();
    let removed = store.now;
    assert_eq!(mtime(&mut store), removed);
}

#[test]
fn a_read_time_alone_is_no_new_state_and_changed_bytes_are() {
    let mut store = Store::new(4);
    let top = store.bucket("bucket", BucketKind::Posix);
    let ino = store.file(top, "f");
    let mut inode = store.inode(ino).unwrap();
    let object = ObjectAttributes { etag: "abc".into(), part_count: 3, ..Default::default() };
    inode.object = Some(Box::new(object));
    store.rows.insert(cairn_meta::keys::inode(ino), inode.encode());
    let change = inode.change;
    let inode = store.run(Setattr { atime: Some(SetTime::Now), ..set(ino) }).unwrap().0;
    assert_eq!((inode.change, inode.etag(ino)), (change, "abc".into()));
    let truncate = |store: &mut Store, size| {
        let spare = store.next_body();
        store.run(Truncate { ino, session: SESSION, opened: true, spare, size }).unwrap().inode
    };
    assert_eq!(truncate(&mut store, 0).etag(ino), "abc");
    let inode = truncate(&mut store, 10);
    assert_ne!(inode.etag(ino), "abc");
    assert_eq!(inode.object.unwrap().part_count, 0);
}

#[test]
fn extended_attributes_by_namespace() {
    let mut store = Store::new(5);
    let top = store.bucket("bucket", BucketKind::Posix);
    store.act_as(1, 1, &[]);
    let ino = store.file(top, "f");
    let setter = |name: &str, mode| SetXattr {
        ino,
        name: name.into(),
        value: Bytes::from_static(b"v"),
        mode,
    };
    store.run(setter("user.a", XattrMode::Create)).unwrap();
    fails(store.run(setter("user.a", XattrMode::Create)), "exists");
    fails(store.run(setter("user.b", XattrMode::Replace)), "not_found");
    fails(store.run(setter("trusted.a", XattrMode::Set)), "denied");
    fails(store.run(setter("security.a", XattrMode::Set)), "denied");
    fails(store.run(setter("system.other", XattrMode::Set)), "not_implemented");
    fails(store.run(setter("system.posix_acl_access", XattrMode::Set)), "invalid");
    fails(store.run(setter("user.", XattrMode::Set)), "invalid");
    fails(store.run(setter(&format!("user.{}", "n".repeat(251)), XattrMode::Set)), "too_large");
    let value = Bytes::from(vec![0; limits::XATTR_BYTES + 1]);
    let big = SetXattr { value: value.clone(), ..setter("user.a", XattrMode::Set) };
    fails(store.run(big.clone()), "too_large");
    store.run(SetXattr { value: value.slice(1..), ..big }).unwrap();
    store.act_as(0, 0, &[]);
    store.run(setter("trusted.a", XattrMode::Set)).unwrap();
    assert_eq!(store.run(ListXattrs { ino }).unwrap(), [&b"trusted.a"[..], b"user.a"]);
    store.act_as(2, 2, &[]);
    assert_eq!(store.run(ListXattrs { ino }).unwrap(), [&b"user.a"[..]]);
    fails(store.run(GetXattr { ino, name: b"trusted.a".to_vec() }), "not_found");
    fails(store.run(RemoveXattr { ino, name: b"user.a".to_vec() }), "denied");
    store.act_as(1, 1, &[]);
    store.run(RemoveXattr { ino, name: b"user.a".to_vec() }).unwrap();
    fails(store.run(RemoveXattr { ino, name: b"user.a".to_vec() }), "not_found");
    assert_eq!(store.inode(ino).unwrap().xattr_count, 1);
    let (name, target) = (b"l".to_vec(), Bytes::from_static(b"t"));
    let ino = store.run(Symlink { parent: top, name, target }).unwrap().0;
    fails(store.run(SetXattr { ino, ..setter("user.a", XattrMode::Set) }), "denied");
}

#[test]
fn a_file_with_all_its_attributes_goes_at_once() {
    let mut store = Store::new(6);
    let parent = store.bucket("bucket", BucketKind::Posix);
    let ino = store.file(parent, "f");
    let (value, mode) = (Bytes::new(), XattrMode::Set);
    for number in 0..1024 {
        let name = format!("user.{number}").into_bytes();
        store.run(SetXattr { ino, name, value: value.clone(), mode }).unwrap();
    }
    fails(store.run(SetXattr { ino, name: b"user.more".to_vec(), value, mode }), "full");
    assert_eq!(store.run(ListXattrs { ino }).unwrap().len(), 1024);
    store.run(Unlink { parent, name: b"f".to_vec() }).unwrap();
    assert!(!store.rows.keys().any(|key| key[0] == b'x'));
}

#[test]
fn usage_is_of_a_bucket_or_of_all() {
    let mut store = Store::new(7);
    let (one, two) =
        (store.bucket("one", BucketKind::Posix), store.bucket("two", BucketKind::Posix));
    for (bucket, size) in [(one, 100), (two, 1 << 40)] {
        let (ino, spare) = (store.file(bucket, "f"), store.next_body());
        store.run(Truncate { ino, session: SESSION, opened: true, spare, size }).unwrap();
    }
    let mut usage = |ino| store.run(Statfs { ino }).map(|usage| (usage.objects, usage.bytes));
    assert_eq!(usage(one).unwrap(), (1, 100));
    assert_eq!(usage(Ino::ROOT).unwrap(), (2, (1 << 40) + 100));
}

fn quotas(objects: Option<u64>, bytes: Option<u64>) -> UpdateBucket {
    let name = "one".to_owned();
    UpdateBucket { name, quota_objects: objects, quota_bytes: bytes, ..UpdateBucket::default() }
}

#[test]
fn what_grows_stays_within_the_quotas_of_its_bucket() {
    let mut store = Store::new(8);
    let (one, two) =
        (store.bucket("one", BucketKind::Posix), store.bucket("two", BucketKind::Posix));
    let truncate = |store: &mut Store, ino, size| {
        let spare = store.next_body();
        store.run(Truncate { ino, session: SESSION, opened: true, spare, size }).map(drop)
    };
    let create = |store: &mut Store, parent, name: &str| {
        let name = name.as_bytes().to_vec();
        let create = Create { parent, name, mode: 0o644, umask: 0, exclusive: true };
        store.run(create).map(drop)
    };
    store.run(quotas(Some(2), Some(1000))).unwrap();
    let (ino, other) = (store.file(one, "f"), store.file(one, "g"));
    truncate(&mut store, ino, 600).unwrap();
    let before = store.rows.clone();
    fails(truncate(&mut store, other, 401), "full");
    fails(create(&mut store, one, "h"), "full");
    let link = Symlink { parent: one, name: b"l".to_vec(), target: b"f"[..].into() };
    fails(store.run(link), "full");
    let write = Data::Inline(Bytes::from_static(&[1; 500]));
    let spare = store.next_body();
    let write = Write { ino, session: SESSION, opened: true, spare, offset: 600, data: write };
    fails(store.run(write), "full");
    assert!(store.rows == before, "what is refused changes nothing");
    truncate(&mut store, other, 400).unwrap();
    // Other buckets, directories, and what does not grow are free.
    let far = store.file(two, "f");
    truncate(&mut store, far, 1 << 30).unwrap();
    store.directory(one, "d");
    let link = Link { ino, parent: one, name: b"f2".to_vec() };
    store.run(link).unwrap();
    // A quota below what is there: it stays, and may only shrink.
    store.run(quotas(Some(1), Some(10))).unwrap();
    fails(truncate(&mut store, ino, 601), "full");
    truncate(&mut store, ino, 599).unwrap();
    store.run(Unlink { parent: one, name: b"g".to_vec() }).unwrap();
    let found = store.run(Statfs { ino }).unwrap();
    assert_eq!((found.objects, found.bytes), (1, 599));
    assert_eq!((found.quota_objects, found.quota_bytes), (1, 10));
    // One quota alone; then none.
    store.run(quotas(Some(0), None)).unwrap();
    create(&mut store, one, "g").unwrap();
    fails(truncate(&mut store, ino, 600), "full");
    store.run(quotas(None, Some(0))).unwrap();
    truncate(&mut store, ino, 1 << 40).unwrap();
}

#[test]
fn quotas_are_set_by_root() {
    let mut store = Store::new(9);
    store.bucket("one", BucketKind::Posix);
    store.caller = Caller::verified(OWNER);
    fails(store.run(quotas(Some(1), None)), "denied");
    store.caller = Caller::verified(UserId::ROOT);
    store.run(quotas(Some(1), None)).unwrap();
}
