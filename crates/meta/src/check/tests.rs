//! A store that holds one of everything is sound; with any one row missing it is not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use cairn_auth::{Caller, Network, Visibility};
use cairn_base::clock::RealClock;
use cairn_base::{BlockId, BodyId, BucketId, GroupId, Ino, Result, SessionId, Timestamp, UserId};

use super::{
    About, Bound, Chunk, Estimate, Piece, Report, check, check_uncounted, check_within,
    chunks_after, is_counted, name_inodes, name_pieces,
};
use crate::engine::{Engine, Memory, Snapshot};
use crate::master::{Config, Master, Once};
use crate::ops::append::Append;
use crate::ops::body::Data;
use crate::ops::buckets::{CreateBucket, FindBucket};
use crate::ops::conditions::Conditions;
use crate::ops::copy_object::CopyObject;
use crate::ops::credentials::{AddAccessKey, AddToken};
use crate::ops::delete_object::DeleteObject;
use crate::ops::exports::AddExport;
use crate::ops::multipart::{
    CompleteUpload, CreateUpload, PutPart, TakeParts, TakenPart, UploadName,
};
use crate::ops::order_directory::OrderDirectory;
use crate::ops::put_object::{NewContent, PutObject};
use crate::ops::sessions::{Format, OpenSession};
use crate::order::hash_of;
use crate::rows::{
    BucketKind, Content, Extent, Extents, MasterEpochs, ObjectAttributes, Part, Place, Row,
    Session, SessionState, Squash, Usage, UserTotals, encode_number,
};
use crate::{Verb, keys};

const SESSION: SessionId = SessionId(77);
const BUCKET: &str = "bucket";
const BLOCK: u64 = 1 << 20;

struct Rig {
    engine: Arc<Memory>,
    master: Master,
    runtime: tokio::runtime::Runtime,
    counter: u64,
}

impl Rig {
    fn new() -> Rig {
        let engine = Arc::new(Memory::new());
        let shared: Arc<dyn Engine> = engine.clone();
        let master = Master::start(shared, Arc::new(RealClock::default()), Config::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let (master, runtime) = (master.unwrap(), runtime.unwrap());
        Rig { engine, master, runtime, counter: 0 }
    }

    fn system<V: Verb>(&self, verb: V) -> V::Reply {
        self.runtime.block_on(self.master.run(&Caller::system(), verb)).unwrap()
    }

    fn run<V: Verb>(&self, verb: V) -> V::Reply {
        let caller = Caller::verified(UserId::ROOT);
        self.runtime.block_on(self.master.run(&caller, verb)).unwrap()
    }

    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn body(&mut self) -> BodyId {
        BodyId { session: SESSION, counter: self.next() }
    }

    fn blocks(&mut self, count: u64) -> Vec<Extent> {
        let extent = |at: u64, block: BlockId| Extent {
            offset: at * BLOCK,
            len: BLOCK,
            place: Place::Block { group: GroupId::LOCAL, block, offset: 0 },
        };
        (0..count)
            .map(|at| extent(at, BlockId { session: SESSION, counter: self.next() }))
            .collect()
    }

    fn content(&mut self, count: u64) -> NewContent {
        let chunks = vec![(0, Extents { extents: self.blocks(count) })];
        NewContent::Body { body: self.body(), chunks, staged: false }
    }

    fn put(&mut self, key: &str, content: NewContent, size: u64) {
        let object = ObjectAttributes { etag: "e".repeat(32), ..ObjectAttributes::default() };
        let tags = vec![("colour".to_string(), "red".to_string())];
        let (bucket, key, conditions) = (BUCKET.into(), key.into(), Conditions::default());
        let session = SESSION;
        self.run(PutObject { bucket, key, session, content, size, object, tags, conditions });
    }

    fn snapshot(&self) -> Box<dyn Snapshot> {
        self.engine.snapshot().unwrap()
    }
}

/// Returns a store with one of everything except drains and freed blocks.
fn store() -> Rig {
    let mut rig = Rig::new();
    rig.system(Format { cluster: 5 });
    rig.system(OpenSession { session: SESSION });
    keep_reply(&rig);
    let key =
        AddAccessKey { id: "AKEY".into(), sealed: vec![1], user: "root".into(), replace: false };
    rig.system(key);
    let (id, user, expires) = ("TOKEN".into(), "root".into(), Timestamp(0));
    rig.system(AddToken { id, hash: [1; 32], user, expires });
    let (kind, visibility) = (BucketKind::S3, Visibility::Private);
    rig.run(CreateBucket { name: BUCKET.into(), kind, visibility });
    rig.system(export());
    rig.put("inline", NewContent::Inline(Bytes::from_static(b"0123456789")), 10);
    rig.put("deep/er/inline", NewContent::Inline(Bytes::from_static(b"0123456789")), 10);
    let content = rig.content(3);
    rig.put("blocks", content, 3 * BLOCK);
    copy(&rig, "blocks", "copy");
    append(&mut rig);
    multipart(&mut rig, "parts", true);
    multipart(&mut rig, "pending", false);
    rig
}

fn export() -> AddExport {
    AddExport {
        bucket: BUCKET.into(),
        user: "root".into(),
        read_only: true,
        squash: Squash::All,
        uid: 7,
        gid: 8,
        clients: vec![Network::parse("10.0.0.0/8").unwrap()],
        any_client: false,
    }
}

/// Keeps the reply of an operation that came from another machine.
fn keep_reply(rig: &Rig) {
    let (master, caller) = (&rig.master, Caller::system());
    let (released, lease) = (Vec::new(), false);
    let (session, slot, sequence) = (SESSION, 3, 1);
    let (hasty, ino) = (false, None);
    let (posted, is_replay) = (None, false);
    let once = Once {
        master,
        caller,
        session,
        slot,
        sequence,
        released,
        lease,
        hasty,
        ino,
        posted,
        is_replay,
        to_mount: false,
    };
    let other = OpenSession { session: SessionId(78) };
    rig.runtime.block_on(rig.master.run_once(once, Arc::new(other))).reply.unwrap();
}

fn copy(rig: &Rig, source: &str, target: &str) {
    rig.run(CopyObject {
        source_bucket: BUCKET.into(),
        source_key: source.into(),
        source_conditions: Conditions::default(),
        bucket: BUCKET.into(),
        key: target.into(),
        conditions: Conditions::default(),
        object: None,
        tags: None,
    });
}

/// Makes `appended` share the first two blocks of `blocks`, and have one more of its own.
fn append(rig: &mut Rig) {
    copy(rig, "blocks", "appended");
    let ino = names(rig).into_iter().find(|(_, names)| names == &["bucket/appended"]).unwrap().0;
    let spare = rig.body();
    let data = Data::Blocks { body: spare, extents: rig.blocks(1) };
    rig.run(Append { ino, session: SESSION, opened: true, spare, chunk: 0, data });
}

fn multipart(rig: &mut Rig, key: &str, complete: bool) {
    let upload = rig.run(CreateUpload {
        bucket: BUCKET.into(),
        key: key.into(),
        object: ObjectAttributes::default(),
        tags: vec![],
        checksum: None,
    });
    let name = UploadName { bucket: BUCKET.into(), key: key.into(), upload };
    let mut parts = Vec::new();
    for number in 1..=2 {
        let (content, etag) = (rig.content(6), format!("{number:032}"));
        let (name, size, checksums) = (name.clone(), 6 * BLOCK, vec![]);
        let taken = TakenPart { number, etag: etag.clone(), checksum: None };
        parts.push(taken);
        rig.run(PutPart { name, number, session: SESSION, content, size, etag, checksums });
    }
    if !complete {
        return;
    }
    let (session, body, part_count) = (SESSION, rig.body(), 2);
    let take = TakeParts { name, session, body, change: None, offset: 0, parts, last: true };
    let taken = rig.run(take.clone());
    rig.run(CompleteUpload {
        name: take.name,
        session,
        body,
        change: taken.upload.change,
        size: taken.offset,
        etag: "f".repeat(32),
        checksums: vec![],
        part_count,
        conditions: Conditions::default(),
    });
}

/// Rows with changes made by a test.
struct EditedRows {
    rows: BTreeMap<Bytes, Bytes>,
}

impl EditedRows {
    fn of(rig: &Rig) -> EditedRows {
        let rows = rig.snapshot().scan(b"", b"\xff", usize::MAX).unwrap();
        EditedRows { rows: rows.into_iter().collect() }
    }
}

impl Snapshot for EditedRows {
    fn batch(&self) -> u64 {
        1
    }

    fn get(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        Ok(keys.iter().map(|key| self.rows.get(key).cloned()).collect())
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        let found = self.rows.iter().filter(|(key, _)| start <= &key[..] && &key[..] < end);
        Ok(found.take(limit).map(|(key, row)| (key.clone(), row.clone())).collect())
    }
}

fn findings(snapshot: &dyn Snapshot) -> Report {
    check(snapshot, &mut |_| {}).unwrap()
}

fn names(rig: &Rig) -> BTreeMap<Ino, Vec<String>> {
    name_inodes(&*rig.snapshot(), &(1..100).map(Ino).collect(), &mut Bound::none()).unwrap()
}

#[test]
fn a_sound_store_has_no_findings() {
    let rig = store();
    let report = findings(&*rig.snapshot());
    assert_eq!(report.findings, [], "{report:?}");
    assert_eq!((report.buckets, report.files, report.uploads), (1, 6, 1));
    let all: BTreeSet<String> = names(&rig).into_values().flatten().collect();
    assert!(all.contains("bucket/deep/er/inline"), "{all:?}");
}

#[test]
fn a_store_with_garbage_has_no_findings() {
    let mut rig = store();
    let content = rig.content(2);
    rig.put("blocks", content, 2 * BLOCK);
    for key in ["appended", "parts", "copy", "deep/er/inline"] {
        let (bucket, key, conditions) = (BUCKET.into(), key.into(), Conditions::default());
        assert!(rig.run(DeleteObject { bucket, key, conditions }));
        let report = findings(&*rig.snapshot());
        assert_eq!(report.findings, [], "{report:?}");
    }
    assert!(findings(&*rig.snapshot()).drains > 2);
}

#[test]
fn any_missing_row_is_found() {
    let rig = store();
    let edited = EditedRows::of(&rig);
    for missing in edited.rows.keys() {
        // No other row tells that a credential, an export, a reply or a session existed.
        let tables: [&[u8]; 4] = [b"ka", b"kt", b"ke", b"q"];
        let unused = keys::session(SessionId(78));
        if tables.iter().any(|table| missing.starts_with(table)) || *missing == unused {
            continue;
        }
        let mut rows = edited.rows.clone();
        rows.remove(missing);
        let report = findings(&EditedRows { rows });
        let row = &edited.rows[missing];
        assert!(report.finding_count > 0, "{missing:?} {row:?} is not missed");
    }
}

#[test]
fn several_passes_find_the_same_as_one() {
    let edited = EditedRows::of(&store());
    let found = |rows: &BTreeMap<Bytes, Bytes>, portions, most| {
        let snapshot = EditedRows { rows: rows.clone() };
        let mut read = 0;
        let mut note = |rows| {
            assert!(rows >= read, "{rows} after {read}");
            read = rows;
        };
        let mut report = check_within(&snapshot, portions, most, &mut note).unwrap();
        assert!(read >= report.rows, "{read}");
        report.findings.sort_by_key(|finding| (finding.about.to_string(), finding.what.clone()));
        report
    };
    let compare = |rows: &BTreeMap<Bytes, Bytes>| {
        let whole = found(rows, 1, usize::MAX);
        for (portions, most) in [(2, usize::MAX), (5, usize::MAX), (1, 9)] {
            assert_eq!(found(rows, portions, most), whole, "{portions} portions of {most}");
        }
    };
    compare(&edited.rows);
    for key in edited.rows.keys() {
        let mut rows = edited.rows.clone();
        rows.insert(key.clone(), Bytes::from_static(b"\x01\x01\x09x"));
        compare(&rows);
        rows.remove(key);
        compare(&rows);
    }
}

#[test]
fn a_check_that_needs_more_memory_than_guessed_takes_more_passes() {
    let snapshot = EditedRows::of(&store());
    let read = |most| {
        let mut read = 0;
        let report = check_within(&snapshot, 1, most, &mut |rows| read = rows).unwrap();
        assert_eq!(report.finding_count, 0, "{:?}", report.findings);
        read / report.rows
    };
    assert_eq!(read(usize::MAX), 1);
    let (few, some) = (read(6), read(16));
    assert!(few > some && some > 1, "{few} {some}");
}

#[test]
fn rows_are_estimated_from_what_buckets_count() {
    let snapshot = EditedRows::of(&store());
    let estimate = Estimate::of(&snapshot).unwrap();
    let files = findings(&snapshot).files;
    assert!(estimate.rows >= files * 2 && estimate.kept >= files, "{estimate:?}");
    assert!(estimate.chunks <= estimate.rows);
    let many = Estimate { kept: 10, ..estimate };
    assert_eq!([1, 3, 10, 20].map(|most| many.portions(most)), [10, 4, 1, 1]);
    assert_eq!(Estimate::default().portions(1), 1);
}

#[test]
fn rows_of_extents_are_read_on_after_any_of_them() {
    let snapshot = EditedRows::of(&store());
    let all: Vec<Chunk> = chunks_after(&snapshot, None).map(|chunk| chunk.unwrap()).collect();
    assert!(all.len() > 3);
    for (at, one) in all.iter().enumerate() {
        let rest = chunks_after(&snapshot, Some((one.body, one.chunk)));
        assert_eq!(rest.map(|chunk| chunk.unwrap()).collect::<Vec<_>>(), all[at + 1..]);
    }
}

#[test]
fn any_unreadable_row_is_found() {
    let edited = EditedRows::of(&store());
    let is_checked =
        |key: &Bytes| !key.starts_with(b"c") || keys::is_owned(key) || key.starts_with(b"cbucket/");
    for bad in edited.rows.keys().filter(|key| is_checked(key)) {
        let mut rows = edited.rows.clone();
        rows.insert(bad.clone(), Bytes::from_static(b"\x01\x01\x09x"));
        // The contents of the other attributes concern only users.
        let report = findings(&EditedRows { rows });
        assert!(report.finding_count > 0 || bad[0] == b'x', "{bad:?}");
    }
}

#[test]
fn replies_are_of_sessions_that_live() {
    let edited = EditedRows::of(&store());
    let slot_key = keys::slot(SESSION, 3);
    let reply = edited.rows[&slot_key].clone();
    let expect = |key: Bytes, row: Bytes, text: &str| {
        let mut rows = edited.rows.clone();
        rows.insert(key, row);
        let report = findings(&EditedRows { rows });
        assert_eq!(report.finding_count, 1, "{text}: {:?}", report.findings);
        assert!(report.findings[0].what.contains(text), "{:?}", report.findings);
    };
    let ended = Session { state: SessionState::Ended, ..Session::default() };
    expect(keys::session(SESSION), ended.encode(), "slot 3 is of session");
    expect(keys::slot(SessionId(79), 0), reply.clone(), "which does not exist");
    expect(keys::slot(SESSION, u16::MAX), reply.clone(), "unknown form");
    expect([&slot_key[..], b"x"].concat().into(), reply, "unknown form");
    let mut rows = edited.rows.clone();
    rows.insert(slot_key.clone(), Bytes::from_static(b"\x09"));
    assert_eq!(findings(&EditedRows { rows }).findings[0].about, About::Row(slot_key));
}

#[test]
fn what_would_lose_data_is_found() {
    let rig = store();
    let edited = EditedRows::of(&rig);
    let (key, row) = edited.rows.iter().find(|(key, _)| key[0] == b'e').unwrap();
    let extents = Extents::decode(row).unwrap().extents;
    let Place::Block { block, .. } = extents[0].place else { panic!("no block") };
    let (body, _) = super::tables::chunk_key(key).unwrap();
    let expect = |key: Bytes, row: Bytes, text: &str| {
        let mut rows = edited.rows.clone();
        rows.insert(key, row);
        let report = findings(&EditedRows { rows });
        let found = report.findings.iter().any(|finding| finding.what.contains(text));
        assert!(found, "{text}: {:?}", report.findings);
    };
    let freed = crate::rows::BlockToFree::new(GroupId::LOCAL);
    expect(keys::freed(1, block), freed.encode(), "up for freeing");
    expect(
        keys::drain_body(body),
        crate::rows::Draining::from(crate::rows::Drain::Body).encode(),
        "up for draining",
    );
    expect(keys::references(body), encode_number(9), "counts 9 references");
    let shorter = Extents { extents: extents[1..].to_vec() };
    expect(key.clone(), shorter.encode(), "bytes from 0 on are missing");
}

type Changed = (Bytes, Option<Bytes>);

impl EditedRows {
    fn with(&self, changes: &[Changed]) -> EditedRows {
        let mut rows = self.rows.clone();
        for (key, row) in changes {
            match row {
                Some(row) => drop(rows.insert(key.clone(), row.clone())),
                None => drop(rows.remove(key)),
            }
        }
        EditedRows { rows }
    }

    /// With these changes there are as many findings, each of which has one of the texts.
    fn expect(&self, changes: &[Changed], texts: &[&str]) {
        let report = findings(&self.with(changes));
        let whats: Vec<&str> = report.findings.iter().map(|found| found.what.as_str()).collect();
        assert_eq!(whats.len(), texts.len(), "{texts:?}: {whats:?}");
        for text in texts {
            assert!(whats.iter().any(|what| what.contains(text)), "{text}: {whats:?}");
        }
    }
}

#[test]
fn sums_of_users_are_compared_with_what_they_are_of() {
    let edited = EditedRows::of(&store());
    let (key, other) = (keys::owned(UserId::ROOT), UserId(0x77));
    let owned = UserTotals::decode(&edited.rows[&key]).unwrap();
    assert!(owned.objects > 3 && owned.upload_bytes == 12 * BLOCK, "{owned:?}");
    for (wrong, text) in [
        (UserTotals { buckets: 2, ..owned.clone() }, "2 buckets"),
        (UserTotals { objects: owned.objects + 1, ..owned.clone() }, "objects"),
        (UserTotals { bytes: 0, ..owned.clone() }, " 0 bytes"),
        (UserTotals { upload_bytes: 1, ..owned.clone() }, " 1 bytes of parts"),
        (UserTotals { uploads: 9, ..owned.clone() }, "9 uploads"),
    ] {
        edited.expect(&[(key.clone(), Some(wrong.encode()))], &[text]);
    }
    let unknown = UserTotals { unknown: vec![200, 1, 1, 5], ..owned.clone() };
    edited.expect(&[(key.clone(), Some(unknown.encode()))], &[]);
    edited.expect(&[(keys::owned(other), Some(owned.encode()))], &["for user 77 1 buckets"]);
    edited.expect(&[(keys::owned(other), Some(UserTotals::default().encode()))], &[]);
    // A part that the upload, and so the bucket and its owner, did not count.
    let (upload, _) = edited.rows.iter().find(|(key, _)| key[0] == b'u').unwrap();
    let (_, id) = keys::upload_parts(upload).unwrap();
    let bucket = super::tables::number(upload).map(BucketId).unwrap();
    let second = edited.rows[&keys::part(id, 2)].clone();
    let row = Part { content: Content::Inline(Bytes::new()), ..Part::decode(&second).unwrap() };
    let counts = "counts 12582912 bytes of parts";
    edited.expect(&[(keys::part(id, 3), Some(row.encode()))], &[counts]);
    let usage = keys::usage(bucket);
    let counted = Usage::decode(&edited.rows[&usage]).unwrap();
    let wrong = Usage { upload_bytes: 5, ..counted };
    let texts = ["bucket counts 5 bytes of parts of uploads", "for user 1 "];
    edited.expect(&[(usage, Some(wrong.encode()))], &texts);
}

#[test]
fn the_index_of_buckets_has_those_of_owners_and_grants_alone() {
    let edited = EditedRows::of(&store());
    let index = keys::bucket_of(UserId::ROOT, BUCKET.as_bytes());
    let number = edited.rows[&index].clone();
    let missing = "not in the index of the buckets of user 1";
    edited.expect(&[(index.clone(), None)], &[missing]);
    edited.expect(&[(index.clone(), Some(encode_number(9)))], &["which is bucket"]);
    let strange = keys::bucket_of(UserId(0x77), BUCKET.as_bytes());
    edited.expect(&[(strange, Some(number))], &["should not be"]);
    // Nothing was counted yet, or the last master did not count.
    let sum = keys::owned(UserId::ROOT);
    edited.expect(&[(sum.clone(), None), (index, None)], &[]);
    let noted = (keys::owned_epoch(), Some(encode_number(5)));
    let noted = edited.with(&[(sum, None), noted]);
    assert_eq!(findings(&noted).finding_count, 1);
    assert!(is_counted(&noted, 5).unwrap() && !is_counted(&noted, 6).unwrap());
    assert_eq!(check_uncounted(&noted, &mut |_| {}).unwrap().findings, []);
}

#[test]
fn ordered_entries_are_the_entries_unless_they_are_void() {
    let rig = store();
    let top = rig.system(FindBucket { name: BUCKET.into() }).unwrap().id.ino();
    assert!(!rig.run(OrderDirectory { ino: top }) && rig.run(OrderDirectory { ino: top }));
    let edited = EditedRows::of(&rig);
    assert_eq!(findings(&edited).findings, []);
    let (start, end) = keys::ordered_from(top, 0);
    let rows: Vec<_> = edited.rows.range(start..end).map(|(k, v)| (k.clone(), v.clone())).collect();
    assert!(rows.len() > 4);
    let wrong = "its ordered entries";
    edited.expect(&[(rows[0].0.clone(), None)], &[wrong]);
    edited.expect(&[(rows[0].0.clone(), Some(rows[1].1.clone()))], &[wrong]);
    let more = keys::ordered_entry(top, hash_of(b"more"), b"more");
    edited.expect(&[(more, Some(rows[0].1.clone()))], &[wrong]);
    let elsewhere = keys::ordered_entry(top, 7, &keys::ordered_parts(&rows[0].0).unwrap().2);
    let moved = [(rows[0].0.clone(), None), (elsewhere, Some(rows[0].1.clone()))];
    edited.expect(&moved, &["is in a wrong place"]);
    // A master that keeps none has led meanwhile.
    let epochs = MasterEpochs { counted: 9, ordered_since: 9, unknown: Vec::new() };
    let void = (keys::owned_epoch(), Some(epochs.encode()));
    edited.expect(&[void, (rows[0].0.clone(), None)], &[]);
}

#[test]
fn a_damaged_piece_names_what_holds_it_and_nothing_else() {
    let rig = store();
    let rows = EditedRows::of(&rig).rows;
    let mut pieces = Vec::new();
    for (key, row) in rows.iter().filter(|(key, _)| key[0] == b'e') {
        let (body, _) = super::tables::chunk_key(key).unwrap();
        for extent in Extents::decode(row).unwrap().extents {
            if let Place::Block { .. } = extent.place {
                pieces.push(Piece { body, start: extent.offset, end: extent.end() });
            }
        }
    }
    let names = names(&rig);
    let hits = name_pieces(&*rig.snapshot(), &pieces, &mut Bound::none()).unwrap();
    let text = |hit: &super::Hit| -> Vec<String> {
        let files = hit.inodes.iter().flat_map(|ino| names[ino].clone());
        files.chain(hit.parts.iter().map(|(_, key, number)| format!("{key}#{number}"))).collect()
    };
    let found: Vec<Vec<String>> = hits.iter().map(text).collect();
    let all = ["bucket/blocks", "bucket/copy", "bucket/appended"];
    assert_eq!(found.iter().filter(|names| names[..] == all).count(), 3, "{found:?}");
    let count = |name: &str| found.iter().filter(|names| names[..] == [name]).count();
    assert_eq!(count("bucket/appended"), 1);
    assert_eq!(count("bucket/parts"), 12);
    assert_eq!((count("pending#1"), count("pending#2")), (6, 6));
    let mut bound = Bound::new(1000);
    assert_eq!(name_pieces(&*rig.snapshot(), &pieces, &mut bound).unwrap(), hits);
    assert!(!bound.is_cut());
    let mut bound = Bound::new(1);
    let fewer = name_pieces(&*rig.snapshot(), &pieces, &mut bound).unwrap();
    assert!(bound.is_cut(), "some were left out");
    let inodes = |hits: &[super::Hit]| hits.iter().map(|hit| hit.inodes.len()).sum::<usize>();
    assert!(0 < inodes(&fewer) && inodes(&fewer) < inodes(&hits));
    assert_eq!(About::Inode(Ino(16)).to_string(), "inode 10");
}
