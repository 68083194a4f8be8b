//! Operations that bring back a backup.

use cairn_auth::{Caller, Rights};
use cairn_base::{Redundancy, Timestamp, UserId};
use cairn_meta::keys;
use cairn_meta::ops::credentials::AddAccessKey;
use cairn_meta::ops::read_only::SetReadOnly;
use cairn_meta::ops::restore::{
    FindKey, RestoreAttributes, RestoreBucket, RestoreKey, RestoreShareLink, RestoreToken,
    RestoreUser, UNFINISHED_MODE,
};
use cairn_meta::ops::tags::GetTags;
use cairn_meta::rows::{
    Bucket, BucketKind, Inode, Kind, ObjectAttributes, Row, ShareLink, Token, UserLimits,
    UserQuotas,
};

use crate::harness::{Store, fails};

fn object(etag: &str) -> Option<Box<ObjectAttributes>> {
    Some(Box::new(ObjectAttributes { etag: etag.into(), ..ObjectAttributes::default() }))
}

#[test]
fn attributes_are_those_of_the_backup() {
    let mut store = Store::new(1);
    let top = store.bucket("bucket", BucketKind::Posix);
    let ino = store.file(top, "a");
    let from = Inode {
        mode: 0o4750,
        uid: 7,
        gid: 8,
        atime: Timestamp(1),
        mtime: Timestamp(2),
        btime: Timestamp(3),
        size: 1 << 40,
        nlink: 9,
        object: object("e"),
        ..Inode::default()
    };
    let tags = vec![("k".to_owned(), "v".to_owned())];
    let verb = || RestoreAttributes { ino, from: from.clone(), tags: tags.clone() };
    store.run(verb()).unwrap();
    store.run(verb()).unwrap();
    let is = store.inode(ino).unwrap();
    assert_eq!((is.mode, is.uid, is.gid, is.size, is.nlink), (0o4750, 7, 8, 0, 1));
    assert_eq!([is.atime, is.mtime, is.btime], [1, 2, 3].map(Timestamp));
    assert_eq!(is.object.unwrap().tag_count, 1);
    let found = store.run(GetTags { bucket: "bucket".into(), key: "a".into() }).unwrap();
    assert_eq!(found, tags);
    let directory = store.directory(top, "d");
    fails(store.run(RestoreAttributes { ino: directory, ..verb() }), "conflict");
    // Without names it cannot be implicit.
    let from = Inode { kind: Kind::Directory, implicit: true, mode: 0o700, ..Inode::default() };
    let verb = || RestoreAttributes { ino: directory, from: from.clone(), tags: Vec::new() };
    store.run(verb()).unwrap();
    assert!(!store.inode(directory).unwrap().implicit);
    store.file(directory, "f");
    store.run(verb()).unwrap();
    assert!(store.inode(directory).unwrap().implicit);
}

#[test]
fn files_get_keys_that_posix_cannot_show() {
    let mut store = Store::new(2);
    let top = store.bucket("bucket", BucketKind::S3);
    store.directory(top, "a");
    for key in ["a", "a//b", "x/"] {
        let find = || FindKey { bucket: "bucket".into(), key: key.into() };
        assert!(store.run(find()).unwrap().is_none());
        for replace in [false, true] {
            let ino = store.file(top, "made");
            let verb = |replace| RestoreKey {
                parent: top,
                name: b"made".to_vec(),
                bucket: "bucket".into(),
                key: key.into(),
                replace,
            };
            if replace {
                fails(store.run(verb(false)), "exists");
            }
            store.run(verb(replace)).unwrap();
            assert_eq!(store.run(find()).unwrap().unwrap().0, ino, "{key}");
        }
    }
    let files = store.bucket("files", BucketKind::Posix);
    store.file(files, "made");
    let (parent, name, replace) = (files, b"made".to_vec(), false);
    let verb = RestoreKey { parent, name, bucket: "files".into(), key: "a//b".into(), replace };
    fails(store.run(verb), "invalid");
    // There a name is that of a file or of a directory.
    store.directory(files, "d");
    let (name, replace) = (b"made".to_vec(), true);
    let (bucket, key) = ("files".into(), "d".into());
    fails(store.run(RestoreKey { parent: files, name, bucket, key, replace }), "is_directory");
    assert!(store.run(FindKey { bucket: "files".into(), key: "d".into() }).unwrap().is_none());
}

#[test]
fn what_is_read_only_takes_nothing_from_a_backup() {
    let mut store = Store::new(4);
    let root =
        AddAccessKey { id: "CKA".into(), sealed: vec![1], user: "root".into(), replace: false };
    store.run(root).unwrap();
    let top = store.bucket("bucket", BucketKind::S3);
    let ino = store.file(top, "made");
    let set = |store: &mut Store, bucket: Option<&str>, read_only| {
        store.caller = Caller::system();
        let bucket = bucket.map(str::to_owned);
        store.run(SetReadOnly { bucket, read_only }).unwrap();
        store.caller = Caller::verified(UserId::ROOT);
    };
    let place = || RestoreKey {
        parent: top,
        name: b"made".to_vec(),
        bucket: "bucket".into(),
        key: "a//b".into(),
        replace: false,
    };
    let attributes = |ino, kind| RestoreAttributes {
        ino,
        from: Inode { kind, mode: 0o700, ..Inode::default() },
        tags: Vec::new(),
    };
    let make = || RestoreBucket {
        bucket: Bucket { name: "new".into(), ..Bucket::default() },
        owner: "root".into(),
        grants: Vec::new(),
        quota_objects: 0,
        quota_bytes: 0,
        replace: false,
    };
    set(&mut store, Some("bucket"), true);
    fails(store.run(place()), "read_only");
    fails(store.run(attributes(ino, Kind::File)), "read_only");
    // The bucket has been made read-only before its own directory gets its attributes.
    store.run(attributes(top, Kind::Directory)).unwrap();
    set(&mut store, Some("bucket"), false);
    set(&mut store, None, true);
    fails(store.run(place()), "read_only");
    fails(store.run(attributes(top, Kind::Directory)), "read_only");
    fails(store.run(make()), "read_only");
    set(&mut store, None, false);
    store.run(attributes(ino, Kind::File)).unwrap();
    store.run(place()).unwrap();
    store.run(make()).unwrap();
}

#[test]
fn users_buckets_and_links_come_back() {
    let mut store = Store::new(3);
    let root =
        AddAccessKey { id: "CKA".into(), sealed: vec![1], user: "root".into(), replace: false };
    assert_eq!(store.run(root).unwrap(), UserId::ROOT);
    let user = |number, name: &str| RestoreUser {
        number: UserId(number),
        name: name.into(),
        disabled: true,
        limits: UserLimits { requests: 3, bytes: 4 },
        quotas: UserQuotas::default(),
    };
    assert_eq!(store.run(user(7, "alice")).unwrap(), UserId(7));
    // The number was passed over, so it is not given any more.
    assert_eq!(store.run(user(3, "bob")).unwrap(), UserId(8));
    fails(store.run(user(9, "alice")), "exists");
    let token = Token { user: UserId(99), created: Timestamp(50), ..Token::default() };
    let token = || RestoreToken { id: "T".into(), user: "alice".into(), token: token.clone() };
    store.run(token()).unwrap();
    fails(store.run(token()), "exists");

    let bucket = Bucket {
        name: "bucket".into(),
        kind: BucketKind::Posix,
        owner: UserId(99),
        cache_control: "no-store".into(),
        redundancy: Redundancy::from_number(3),
        created: Timestamp(5),
        ..Bucket::default()
    };
    let restore = |replace| RestoreBucket {
        bucket: bucket.clone(),
        owner: "alice".into(),
        grants: vec![("bob".into(), Rights::READ)],
        quota_objects: 10,
        quota_bytes: 20,
        replace,
    };
    let id = store.run(restore(false)).unwrap();
    fails(store.run(restore(false)), "exists");
    assert_eq!(store.run(restore(true)).unwrap(), id);
    let is = Bucket::decode(&store.rows[&keys::bucket(id)]).unwrap();
    assert_eq!((is.owner, is.grants), (UserId(7), vec![(UserId(8), Rights::READ)]));
    // One machine keeps one replica.
    assert_eq!((is.cache_control.as_str(), is.redundancy), ("no-store", None));
    assert_eq!(store.inode(id.ino()).unwrap().mode, UNFINISHED_MODE);

    let link = ShareLink { credential: "T".into(), key: String::new(), ..ShareLink::default() };
    let restore = |number| RestoreShareLink {
        user: "alice".into(),
        number: UserId(number),
        id: "L".into(),
        bucket: "bucket".into(),
        link: link.clone(),
    };
    fails(store.run(restore(8)), "conflict");
    store.run(restore(7)).unwrap();
    let is = ShareLink::decode(&store.rows[&keys::share_link(UserId(7), "L")]).unwrap();
    // It is no older than its credential.
    assert_eq!((is.bucket, is.created), (id, Timestamp(50)));
    fails(store.run(restore(7)), "exists");
}
