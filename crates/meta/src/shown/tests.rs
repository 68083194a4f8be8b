//! The rows that each user is shown.

use std::collections::BTreeMap;

use bytes::Bytes;
use cairn_auth::{Caller, Rights, Visibility};
use cairn_base::{BodyId, BucketId, Ino, SessionId, Timestamp, UserId};

use super::{Rows, ShownToMount};
use crate::rows::{Bucket, Content, Entry, Inode, Kind, Row, Tally, Usage};
use crate::{Context, Source, View, keys};

const OWNER: UserId = UserId(2);
const READER: UserId = UserId(3);
const WRITER: UserId = UserId(4);
const STRANGER: UserId = UserId(5);
const FILE: Ino = Ino(20);

struct Map(BTreeMap<Bytes, Bytes>);

impl Source for Map {
    fn get(&self, key: &Bytes) -> Option<Option<Bytes>> {
        Some(self.0.get(key).cloned())
    }

    fn scan(&self, _: &Bytes, _: &Bytes, _: usize) -> Option<Vec<(Bytes, Bytes)>> {
        None
    }
}

fn body() -> BodyId {
    BodyId { session: SessionId(1), counter: 1 }
}

/// Returns a bucket (10) with a file in it, and a row of every table about it.
fn rows(visibility: Visibility) -> BTreeMap<Bytes, Bytes> {
    let id = BucketId(10);
    let grants = vec![(READER, Rights::READ), (WRITER, Rights::WRITE)];
    let name = "hidden".to_owned();
    let bucket = Bucket { name, owner: OWNER, visibility, grants, ..Bucket::default() };
    let content = Content::Inline(Bytes::from_static(b"secret"));
    let file = Inode { bucket: id, content, ..Inode::default() };
    let directory = Inode { kind: Kind::Directory, bucket: id, ..Inode::default() };
    let entry = |ino, kind| Entry { ino, kind, unknown: Vec::new() }.encode();
    BTreeMap::from([
        (keys::bucket(id), bucket.encode()),
        (keys::usage(id), Usage::default().encode()),
        (keys::directory_entry(Ino::ROOT, b"hidden"), entry(id.ino(), Kind::Directory)),
        (keys::inode(id.ino()), directory.encode()),
        (keys::tally(id.ino()), Tally::default().encode()),
        (keys::file_entry(id.ino(), b"file"), entry(FILE, Kind::File)),
        (keys::inode(FILE), file.encode()),
        (keys::attribute(FILE, keys::Attribute::Xattr, b"user.a"), Bytes::from_static(b"v")),
        (keys::locks(FILE), Bytes::from_static(b"\x01")),
        (keys::extents(body(), 0), Bytes::from_static(b"\x01")),
        (keys::session(SessionId(1)), Bytes::from_static(b"\x01")),
        (keys::access_key("id"), Bytes::from_static(b"\x01")),
    ])
}

/// Returns the tables of the rows that a user is shown, in order.
fn shown(user: UserId, visibility: Visibility) -> (String, Rows) {
    let source = Map(rows(visibility));
    let mut rows: Rows = source.0.iter().map(|(k, r)| (k.clone(), Some(r.clone()))).collect();
    let context = Context { caller: Caller::verified(user), now: Timestamp(0), batch: 0 };
    let mut view = View::new(&source);
    ShownToMount::new(&mut view, &context).rows(&mut rows, false).unwrap();
    (rows.iter().map(|(key, _)| char::from(key[0])).collect(), rows)
}

#[test]
fn rows_are_shown_by_the_right_to_read() {
    use Visibility::{Private, Public};
    for (user, visibility, expected) in [
        (OWNER, Private, "bddiilntx"),
        (READER, Private, "bddiilntx"),
        (READER, Public, "bddiilntx"),
        (WRITER, Private, ""),
        (STRANGER, Private, ""),
        (WRITER, Public, "bddiiltx"),
        (STRANGER, Public, "bddiiltx"),
    ] {
        assert_eq!(shown(user, visibility).0, expected, "{user} {visibility:?}");
    }
}

/// A mount may ask for any number. If it kept the fact that there is no such inode, everybody who
/// makes files would have to wait for it.
#[test]
fn that_there_is_no_inode_is_kept_by_no_mount() {
    let source = Map(rows(Visibility::Public));
    for user in [OWNER, READER, WRITER, STRANGER] {
        let context = Context { caller: Caller::verified(user), now: Timestamp(0), batch: 0 };
        let mut view = View::new(&source);
        let entry = (keys::file_entry(BucketId(10).ino(), b"none"), None);
        let mut rows = vec![(keys::inode(Ino(21)), None), entry.clone()];
        ShownToMount::new(&mut view, &context).rows(&mut rows, false).unwrap();
        assert_eq!(rows, [entry], "{user}");
    }
}

/// Clients that make buckets or lock the root do not wait, whatever a mount keeps of it.
#[test]
fn what_buckets_change_of_the_root_is_kept_by_no_mount() {
    let mut all = rows(Visibility::Public);
    let root = Inode { kind: Kind::Directory, ..Inode::default() };
    all.insert(keys::inode(Ino::ROOT), root.encode());
    let source = Map(all);
    for user in [OWNER, READER, WRITER, STRANGER] {
        let context = Context { caller: Caller::verified(user), now: Timestamp(0), batch: 0 };
        let mut view = View::new(&source);
        let inode = (keys::inode(Ino::ROOT), Some(root.encode()));
        let mut rows = vec![
            (keys::tally(Ino::ROOT), Some(Tally::default().encode())),
            (keys::tally(Ino::ROOT), None),
            (keys::directory_entry(Ino::ROOT, b"none"), None),
            (keys::file_entry(Ino::ROOT, b"none"), None),
            (keys::locks(Ino::ROOT), None),
            inode.clone(),
        ];
        ShownToMount::new(&mut view, &context).rows(&mut rows, false).unwrap();
        assert_eq!(rows, [inode], "{user}");
    }
}

#[test]
fn readers_of_a_public_bucket_see_none_of_its_grants() {
    for (user, grants) in [(STRANGER, vec![]), (WRITER, vec![(WRITER, Rights::WRITE)])] {
        let (_, rows) = shown(user, Visibility::Public);
        let (_, row) = rows.iter().find(|(key, _)| key[0] == b'b').unwrap();
        let bucket = Bucket::decode(row.as_ref().unwrap()).unwrap();
        assert_eq!((bucket.owner, bucket.grants), (UserId::NOBODY, grants));
    }
}

#[test]
fn extents_are_shown_of_the_body_that_was_read() {
    let source = Map(rows(Visibility::Private));
    let context = Context { caller: Caller::verified(READER), now: Timestamp(0), batch: 0 };
    let mut view = View::new(&source);
    let mut shown = ShownToMount::new(&mut view, &context);
    shown.reads(body());
    let extents = |counter| {
        let key = keys::extents(BodyId { counter, ..body() }, 0);
        (key, Some(Bytes::from_static(b"\x01")))
    };
    let mut rows = vec![extents(1), extents(2)];
    shown.rows(&mut rows, false).unwrap();
    assert_eq!(rows, [extents(1)]);
}

#[test]
fn an_inode_has_content_for_readers_only() {
    for (user, visibility, is_shown) in [
        (OWNER, Visibility::Private, true),
        (READER, Visibility::Private, true),
        (WRITER, Visibility::Private, false),
        (STRANGER, Visibility::Private, false),
        (STRANGER, Visibility::Public, true),
    ] {
        let source = Map(rows(visibility));
        let context = Context { caller: Caller::verified(user), now: Timestamp(0), batch: 0 };
        let mut inode = Inode::decode(&source.0[&keys::inode(FILE)]).unwrap();
        inode.object = Some(Box::default());
        let mut view = View::new(&source);
        ShownToMount::new(&mut view, &context).inode(&mut inode).unwrap();
        assert_eq!(inode.content != Content::Empty, is_shown, "{user} {visibility:?}");
        assert_eq!(inode.object.is_some(), is_shown);
        // Blocks are written for it, and it gives access to nothing.
        inode.content = Content::Body(body());
        ShownToMount::new(&mut view, &context).inode(&mut inode).unwrap();
        assert_eq!(inode.content, Content::Body(body()));
    }
}
