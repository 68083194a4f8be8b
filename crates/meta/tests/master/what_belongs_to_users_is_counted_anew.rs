//! A master recounts the usage of users if a master that does not count has led before it.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cairn_auth::{Caller, Rights, Visibility};
use cairn_base::clock::RealClock;
use cairn_base::{SessionId, UserId};
use cairn_meta::engine::{Change, Engine, Memory};
use cairn_meta::ops::buckets::{CreateBucket, DeleteBucket, ListBuckets, UpdateBucket};
use cairn_meta::ops::conditions::Conditions;
use cairn_meta::ops::credentials::AddAccessKey;
use cairn_meta::ops::multipart::{AbortUpload, CreateUpload, PutPart, UploadName};
use cairn_meta::ops::put_object::{NewContent, PutObject};
use cairn_meta::ops::sessions::{Format, OpenSession};
use cairn_meta::ops::user_quotas::{ListUserQuotas, SetUserQuotas};
use cairn_meta::rows::{BucketKind, MasterEpochs, ObjectAttributes, Row, encode_number};
use cairn_meta::{Master, Verb, keys};

const SESSION: SessionId = SessionId(7);

struct Store {
    engine: Arc<Memory>,
    master: Master,
}

impl Store {
    async fn new() -> Store {
        let engine = Arc::new(Memory::new());
        let store = Store { master: start(&engine), engine };
        store.by(&Caller::system(), Format { cluster: 5 }).await;
        store.by(&Caller::system(), OpenSession { session: SESSION }).await;
        for name in ["root", "alice", "bob"] {
            let id = format!("key-of-{name}");
            let verb = AddAccessKey { id, sealed: vec![1], user: name.into(), replace: false };
            store.by(&Caller::system(), verb).await;
        }
        store
    }

    async fn by<V: Verb>(&self, caller: &Caller, verb: V) -> V::Reply {
        self.master.run(caller, verb).await.unwrap()
    }

    async fn make(&self, caller: &Caller, name: &str) {
        let (name, kind) = (name.to_owned(), BucketKind::S3);
        self.by(caller, CreateBucket { name, kind, visibility: Visibility::Private }).await;
    }

    async fn put(&self, caller: &Caller, bucket: &str, key: &str, size: usize) {
        let verb = PutObject {
            bucket: bucket.into(),
            key: key.into(),
            session: SESSION,
            content: NewContent::Inline(vec![7; size].into()),
            size: size as u64,
            object: ObjectAttributes::default(),
            tags: Vec::new(),
            conditions: Conditions::default(),
        };
        self.by(caller, verb).await;
    }

    async fn upload(&self, caller: &Caller, bucket: &str, size: usize) -> UploadName {
        let (bucket, key) = (bucket.to_owned(), "upload".to_owned());
        let object = ObjectAttributes::default();
        let (tags, checksum) = (Vec::new(), None);
        let create =
            CreateUpload { bucket: bucket.clone(), key: key.clone(), object, tags, checksum };
        let name = UploadName { bucket, key, upload: self.by(caller, create).await };
        for number in [1, 2, 1] {
            let part = PutPart {
                name: name.clone(),
                number,
                session: SESSION,
                content: NewContent::Inline(vec![7; size].into()),
                size: size as u64,
                etag: "e".repeat(32),
                checksums: Vec::new(),
            };
            self.by(caller, part).await;
        }
        name
    }

    /// All rows of what belongs to users.
    fn counted(&self) -> BTreeMap<Bytes, Bytes> {
        let snapshot = self.engine.snapshot().unwrap();
        let ranges = keys::all_owned();
        let rows = ranges.iter().flat_map(|(from, to)| snapshot.scan(from, to, 1000).unwrap());
        let uploads = snapshot.scan(b"n", b"o", 1000).unwrap();
        rows.chain(uploads).chain(snapshot.scan(b"u", b"v", 1000).unwrap()).collect()
    }

    /// Stops the master, changes rows as one of another version would, and starts a master.
    fn restart(self, epoch: Option<u64>, changes: Vec<Change>) -> Store {
        drop(self.master);
        let mut fence = self.engine.take_over().unwrap();
        let noted = epoch.map(encode_number);
        let noted = vec![(keys::owned_epoch(), noted)];
        for page in [changes, noted] {
            self.engine.commit(fence, page).unwrap();
            fence.batch += 1;
        }
        Store { master: start(&self.engine), engine: self.engine }
    }
}

fn start(engine: &Arc<Memory>) -> Master {
    let clock = Arc::new(RealClock::default());
    Master::start(Arc::clone(engine) as Arc<dyn Engine>, clock, Default::default()).unwrap()
}

async fn filled() -> (Store, [Caller; 2], UploadName) {
    let store = Store::new().await;
    let users = store.by(&Caller::system(), ListUserQuotas).await;
    let id = |name: &str| {
        let snapshot = store.engine.snapshot().unwrap();
        let row = snapshot.get(&[keys::user_name(name)]).unwrap().pop().flatten().unwrap();
        UserId(cairn_meta::rows::decode_number(&row).unwrap())
    };
    assert!(users.len() >= 2);
    let [alice, bob] = ["alice", "bob"].map(|name| Caller::verified(id(name)));
    for name in ["one", "two", "three"] {
        store.make(&alice, name).await;
    }
    store.make(&bob, "bobs").await;
    let grant = Some(("bob".to_owned(), Rights::ALL));
    let name = "one".to_owned();
    store.by(&alice, UpdateBucket { name, grant, ..UpdateBucket::default() }).await;
    store.put(&alice, "one", "a/b/c", 100).await;
    store.put(&bob, "one", "of-bob", 50).await;
    store.put(&bob, "bobs", "x", 7).await;
    store.by(&alice, DeleteBucket { name: "three".into() }).await;
    let upload = store.upload(&bob, "one", 30).await;
    (store, [alice, bob], upload)
}

#[tokio::test]
async fn what_is_counted_as_it_comes_is_what_is_counted_at_once() {
    let (store, [alice, bob], upload) = filled().await;
    let counted = store.counted();
    let listed = store.by(&Caller::system(), ListUserQuotas).await;
    let of = |name: &str| listed.iter().find(|one| one.name == name).unwrap().clone();
    let (a, b) = (of("alice"), of("bob"));
    assert_eq!((a.buckets, a.objects, a.bytes, a.upload_bytes, a.uploads), (2, 2, 150, 60, 0));
    assert_eq!((b.buckets, b.objects, b.bytes, b.upload_bytes, b.uploads), (1, 1, 7, 0, 1));
    // A master that does not count has lost, changed and left behind what it does not know.
    let mut changes: Vec<Change> = counted
        .keys()
        .filter(|key| key.first() == Some(&b'c'))
        .map(|key| (key.clone(), None))
        .collect();
    changes.push((keys::bucket_of(UserId(77), b"gone"), Some(encode_number(99))));
    let store = store.restart(None, changes);
    assert_eq!(store.counted(), counted);
    let store = store.restart(Some(1), vec![(keys::owned(alice.user()), None)]);
    assert_eq!(store.counted(), counted);
    store.by(&bob, AbortUpload { name: upload }).await;
    let listed = store.by(&Caller::system(), ListUserQuotas).await;
    let of = |name: &str| listed.iter().find(|one| one.name == name).unwrap().clone();
    assert_eq!((of("alice").upload_bytes, of("bob").uploads), (0, 0));
}

#[tokio::test]
async fn nothing_is_counted_anew_where_the_master_before_counted() {
    let (store, [alice, _], _) = filled().await;
    drop(store.master);
    let store = Store { master: start(&store.engine), engine: store.engine };
    let fence = store.engine.fence().unwrap();
    // As that master left it, right or wrong.
    let Store { master, engine } = store;
    drop(master);
    engine.commit(engine.fence().unwrap(), vec![(keys::owned(alice.user()), None)]).unwrap();
    let store = Store { master: start(&engine), engine };
    assert_eq!(store.engine.fence().unwrap().epoch, fence.epoch + 1);
    assert!(!store.counted().contains_key(&keys::owned(alice.user())));
}

#[tokio::test]
async fn a_user_lists_what_it_may_see_page_by_page() {
    let (store, [alice, bob], _) = filled().await;
    let list = |after: &str, prefix: &str| ListBuckets {
        prefix: prefix.into(),
        after: after.into(),
        limit: 1,
    };
    for (caller, prefix, names) in [
        (&alice, "", &["one", "two"][..]),
        (&bob, "", &["bobs", "one"]),
        (&bob, "o", &["one"]),
        (&bob, "t", &[]),
    ] {
        let (mut after, mut found) = (String::new(), Vec::new());
        loop {
            let (page, next) = store.by(caller, list(&after, prefix)).await;
            found.extend(page.into_iter().map(|(opened, _)| opened.bucket.name));
            match next {
                Some(next) => after = next,
                None => break,
            }
        }
        assert_eq!(found, names);
    }
}

#[tokio::test]
async fn quotas_of_a_user_are_over_all_its_buckets() {
    let (store, [alice, bob], _) = filled().await;
    // 150 bytes of objects, and 60 of parts.
    let set = |bytes| SetUserQuotas {
        name: "alice".into(),
        bytes: Some(bytes),
        ..SetUserQuotas::default()
    };
    store.by(&Caller::system(), set(220)).await;
    let put = |bucket: &str, size: usize| PutObject {
        bucket: bucket.into(),
        key: "more".into(),
        session: SESSION,
        content: NewContent::Inline(vec![7; size].into()),
        size: size as u64,
        object: ObjectAttributes::default(),
        tags: Vec::new(),
        conditions: Conditions::default(),
    };
    let refused = store.master.run(&alice, put("two", 11)).await.unwrap_err();
    assert!(refused.to_string().contains("quota of user alice"), "{refused}");
    // The owner pays, whoever writes.
    store.master.run(&bob, put("one", 11)).await.unwrap_err();
    store.by(&bob, put("one", 10)).await;
    store.master.run(&alice, put("two", 1)).await.unwrap_err();
    store.by(&Caller::system(), set(0)).await;
    store.by(&alice, put("two", 1000)).await;
}

#[tokio::test]
async fn orders_of_entries_are_void_after_a_master_that_keeps_none() {
    let (store, _, _) = filled().await;
    let since = |store: &Store| {
        let snapshot = store.engine.snapshot().unwrap();
        let row = snapshot.get(&[keys::owned_epoch()]).unwrap().pop().flatten().unwrap();
        MasterEpochs::decode(&row).unwrap().ordered_since
    };
    let restarted = |store: Store| {
        drop(store.master);
        Store { master: start(&store.engine), engine: store.engine }
    };
    let store = restarted(store);
    let first = since(&store);
    assert_eq!(first, store.engine.fence().unwrap().epoch);
    let store = restarted(store);
    assert_eq!(since(&store), first, "all masters keep them");
    // A master that counts what belongs to users, and knows of no order.
    let epoch = store.engine.fence().unwrap().epoch + 1;
    let store = store.restart(Some(epoch), Vec::new());
    let next = since(&store);
    assert_eq!(next, epoch + 1);
    assert_eq!(since(&restarted(store)), next);
}
