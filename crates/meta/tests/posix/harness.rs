//! Runs operations over rows in memory, as the master would, with rows that are missing at first.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use cairn_auth::{Caller, Posix};
use cairn_base::codec::Writer;
use cairn_base::{BlockId, BodyId, BucketId, Error, GroupId, Ino, SessionId, Timestamp, UserId};
use cairn_meta::ops::create::Create;
use cairn_meta::ops::mkdir::Mkdir;
use cairn_meta::ops::namespace::{add_entry, new_directory, next_ino, store};
use cairn_meta::rows::{
    Bucket, BucketKind, Entry, Extent, Inode, Kind, Place, Row, Session, SessionState,
};
use cairn_meta::{Context, Needs, Source, Stop, Verb, VerbNeeds, View, Want, keys};

pub const SESSION: SessionId = SessionId(77);
pub const OWNER: UserId = UserId(5);
pub const ROWS_PER_MISS: u64 = 8;

/// The rows, and the test's own record of what it wrote.
pub struct Store {
    pub rows: BTreeMap<Bytes, Bytes>,
    pub batch: u64,
    pub now: i64,
    pub caller: Caller,
    /// Set if rows are missing at first.
    pub forgetful: bool,
    pub counter: u64,
    /// Set if a newer version has added fields to every stored row.
    pub has_future: bool,
    random: Cell<u64>,
}

/// The rows, some of which must be asked for first.
struct Forgetful<'a> {
    store: &'a Store,
    known: RefCell<HashSet<Want>>,
}

impl Forgetful<'_> {
    fn misses(&self, want: Want) -> bool {
        if !self.store.forgetful || self.known.borrow().contains(&want) {
            return false;
        }
        self.known.borrow_mut().insert(want.clone());
        let missed = self.store.next_random().is_multiple_of(ROWS_PER_MISS);
        if missed {
            self.known.borrow_mut().remove(&want);
        }
        missed
    }
}

impl Source for Forgetful<'_> {
    fn get(&self, key: &Bytes) -> Option<Option<Bytes>> {
        if self.misses(Want::Row(key.clone())) {
            None
        } else {
            Some(self.store.rows.get(key).cloned())
        }
    }

    fn scan(&self, start: &Bytes, end: &Bytes, limit: usize) -> Option<Vec<(Bytes, Bytes)>> {
        if self.misses(Want::Range { start: start.clone(), end: end.clone(), limit }) {
            return None;
        }
        let rows = self.store.rows.range(start.clone()..end.clone()).take(limit);
        Some(rows.map(|(key, row)| (key.clone(), row.clone())).collect())
    }
}

impl Store {
    /// A store with a root, a live session, and no buckets.
    pub fn new(seed: u64) -> Store {
        let mut store = Store {
            rows: BTreeMap::new(),
            batch: 0,
            now: 1_000_000,
            caller: Caller::system(),
            forgetful: true,
            counter: 0,
            has_future: false,
            random: Cell::new(seed),
        };
        let root = Inode { kind: Kind::Directory, mode: 0o755, nlink: 1, ..Inode::default() };
        store.rows.insert(keys::inode(Ino::ROOT), root.encode());
        store.session(SessionState::Live);
        store
    }

    pub fn session(&mut self, state: SessionState) {
        let row = Session { state, ..Session::default() };
        self.rows.insert(keys::session(SESSION), row.encode());
    }

    pub fn next_random(&self) -> u64 {
        let state = self.random.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.random.set(state);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&self, bound: u64) -> u64 {
        self.next_random() % bound
    }

    pub fn context(&self) -> Context {
        Context { caller: self.caller.clone(), now: Timestamp(self.now), batch: self.batch }
    }

    /// Runs an operation to its end; a failure changes nothing.
    pub fn run<V: Verb>(&mut self, verb: V) -> Result<V::Reply, Error> {
        self.batch += 1;
        self.now += 10;
        let context = self.context();
        let source = Forgetful { store: self, known: RefCell::default() };
        let mut runs = 0;
        let (reply, changes) = loop {
            runs += 1;
            assert!(runs < 10_000, "{} never ends", V::NAME);
            let mut view = View::new(&source);
            match verb.apply(&mut view, &context) {
                Ok(reply) => break (reply, view.into_changes()?),
                Err(Stop::Fail(error)) => return Err(error),
                Err(Stop::Miss) => {
                    let wants = view.into_wants();
                    assert!(!wants.is_empty(), "{} misses nothing", V::NAME);
                    source.known.borrow_mut().extend(wants);
                }
            }
        };
        for (key, change) in changes {
            match change {
                Some(row) => {
                    let row =
                        if self.has_future { self.in_future(V::NAME, &key, row) } else { row };
                    self.rows.insert(key, row)
                }
                None => self.rows.remove(&key),
            };
        }
        Ok(reply)
    }

    /// The row with the fields of a newer version, which a row that is changed has kept.
    fn in_future(&self, verb: &str, key: &Bytes, row: Bytes) -> Bytes {
        let has_fields = match key[0] {
            b'l' => key[1] == b'f',
            // Not rows of extents, which refuse what they do not know.
            table => b"itdrbnszfckjup".contains(&table),
        };
        if !has_fields {
            return row;
        }
        let mut newer = Writer::new(1);
        newer.number(90, 7).text(4000, "from the future");
        let fields = newer.finish().slice(1..);
        let is_kept = row.ends_with(&fields);
        let had_them = self.rows.get(key).is_some_and(|former| former.ends_with(&fields));
        assert!(is_kept || !had_them, "{verb} loses fields of the row {key:?}");
        if is_kept { row } else { [&row[..], &fields].concat().into() }
    }

    pub fn bucket(&mut self, name: &str, kind: BucketKind) -> Ino {
        let bucket = Bucket { name: name.into(), kind, owner: OWNER, ..Bucket::default() };
        self.run(MakeBucket { bucket }).unwrap()
    }

    pub fn inode(&self, ino: Ino) -> Option<Inode> {
        self.rows.get(&keys::inode(ino)).map(|row| Inode::decode(row).unwrap())
    }

    pub fn file(&mut self, parent: Ino, name: &str) -> Ino {
        let name = name.as_bytes().to_vec();
        self.run(Create { parent, name, mode: 0o644, umask: 0, exclusive: true }).unwrap().0
    }

    pub fn directory(&mut self, parent: Ino, name: &str) -> Ino {
        self.run(Mkdir { parent, name: name.as_bytes().to_vec(), mode: 0o755, umask: 0 }).unwrap().0
    }

    pub fn next_body(&mut self) -> BodyId {
        self.counter += 1;
        BodyId { session: SESSION, counter: self.counter }
    }

    pub fn next_block(&mut self) -> BlockId {
        self.counter += 1;
        BlockId { session: SESSION, counter: self.counter }
    }

    /// A whole new block at `offset` of whatever it is written to.
    pub fn block(&mut self, offset: u64, len: u64) -> Extent {
        let place = Place::Block { group: GroupId::LOCAL, block: self.next_block(), offset: 0 };
        Extent { offset, len, place }
    }

    /// Acts as `uid` from now on, in group `gid` and `groups`.
    pub fn act_as(&mut self, uid: u32, gid: u32, groups: &[u32]) {
        let posix = Posix { uid, gid, groups: groups.to_vec() };
        self.caller = Caller::system().with_posix(posix);
    }

    pub fn freed(&self) -> usize {
        self.rows.keys().filter(|key| key[0] == b'f').count()
    }
}

struct MakeBucket {
    bucket: Bucket,
}

impl VerbNeeds for MakeBucket {
    const NEEDS: Needs = Needs::Nothing("a test");
}

impl Verb for MakeBucket {
    type Reply = Ino;
    const NAME: &'static str = "make_bucket";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Ino, Stop> {
        let ino = next_ino(view)?;
        let id = BucketId(ino.0);
        let inode = Inode { mode: 0o777, ..new_directory(id, Ino::ROOT, context) };
        store(view, keys::inode(ino), &inode);
        store(view, keys::bucket(id), &self.bucket);
        let entry = Entry::new(ino, Kind::Directory);
        add_entry(view, context, Ino::ROOT, self.bucket.name.as_bytes(), &entry)?;
        Ok(ino)
    }
}

/// The kind of a result, `ok` if it is none of an error.
pub fn kind<T>(result: &Result<T, Error>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(error) => error.kind(),
    }
}

/// Asserts that something fails with an error of this kind.
#[track_caller]
pub fn fails<T>(result: Result<T, Error>, expected: &str) {
    match result {
        Ok(_) => panic!("went well instead of failing as {expected}"),
        Err(error) => assert_eq!(error.kind(), expected, "{error}"),
    }
}
