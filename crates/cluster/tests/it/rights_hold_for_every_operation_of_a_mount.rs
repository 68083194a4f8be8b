//! Every verb is run by every method of a session, for every sort of user, at a server and at a
//! gateway. No reply and no row has anything that the user may not read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::{Caller, Rights, Visibility};
use cairn_base::{BlockId, BodyId, BucketId, GroupId, Ino, Owner, Result, SessionId, UserId};
use cairn_blocks::Blocks;
use cairn_cluster::mount::{self, MountHost};
use cairn_cluster::wire::{Peer, connect, require_none};
use cairn_meta::mounts::Use;
use cairn_meta::ops::body::Data;
use cairn_meta::ops::buckets::{CreateBucket, FindWritable, GetBucket, ListBuckets, UpdateBucket};
use cairn_meta::ops::conditions::Conditions;
use cairn_meta::ops::create::{Create, Mknod};
use cairn_meta::ops::credentials::{AddAccessKey, FindAccessKey, UserName};
use cairn_meta::ops::getattr::{Access, Getattr};
use cairn_meta::ops::lock::{ReleaseLock, TakeLock, TestLock};
use cairn_meta::ops::open_object::{OpenInode, OpenObject, OpenedObject, ReadExtents};
use cairn_meta::ops::put_object::{NewContent, PutObject};
use cairn_meta::ops::rename::{Rename, RenameMode};
use cairn_meta::ops::retain::{LetGo, Retain};
use cairn_meta::ops::sessions::{OpenSession, ReserveInodes};
use cairn_meta::ops::truncate::{Extend, PunchHole, Truncate};
use cairn_meta::ops::xattr::{GetXattr, ListXattrs, RemoveXattr, SetXattr, XattrMode};
use cairn_meta::ops::{
    append, clone, coalesce, copy_range, link, lookup, mkdir, readdir, readlink, restore, rmdir,
    setattr, statfs, symlink, tags, unlink, write,
};
use cairn_meta::rows::{
    Bucket, BucketKind, Extent, Inode, Kind, Lock, ObjectAttributes, Place, ShareLink, Space,
    Token, UserLimits, UserQuotas,
};
use cairn_meta::session::{
    Acknowledge, Attach, Change, Delegate, Detach, Execute, PostedOperation, ReadReply,
    ReadRequest, Recall, ReplayEnd, Reply, Run, RunPosted, SessionMethod,
};
use cairn_meta::{Meta, WireVerb, wire};
use parking_lot::Mutex;

use crate::mounts_come_in_by_gateways::World;
use crate::support::{denied, ends};

/// No claim is made about time.
const LONG: Duration = Duration::from_secs(60);
/// By which the blocks of the hidden bucket are published.
const PLANTER: SessionId = SessionId(0xfeed);
/// The contents of the hidden bucket, and its name.
const MARKERS: [&str; 5] = ["MARK-INLINE", "MARK-TARGET", "MARK-XATTR", "MARK-META", "mark-bucket"];
const IN_A_BLOCK: &[u8] = b"MARK-BLOCK";

/// A sort of user, the rights in the hidden bucket, and whether they are there when it asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    NoGrant,
    Reader,
    Writer,
    Both,
    Administrator,
    Owner,
    Root,
    /// Everything was granted, used, and withdrawn.
    Revoked,
    /// The bucket was public then.
    OncePublic,
}

const ALL: [Who; 9] = [
    Who::NoGrant,
    Who::Reader,
    Who::Writer,
    Who::Both,
    Who::Administrator,
    Who::Owner,
    Who::Root,
    Who::Revoked,
    Who::OncePublic,
];

impl Who {
    fn grant(self) -> Rights {
        match self {
            Who::NoGrant | Who::Owner | Who::Root | Who::OncePublic => Rights::NONE,
            Who::Reader => Rights::READ,
            Who::Writer => Rights::WRITE,
            Who::Both => Rights::READ.union(Rights::WRITE),
            Who::Administrator => Rights::ADMIN,
            Who::Revoked => Rights::ALL,
        }
    }

    fn reads(self) -> bool {
        matches!(self, Who::Reader | Who::Both | Who::Owner | Who::Root)
    }
}

/// A world with a hidden bucket.
struct Hidden {
    world: World,
    owner: Caller,
    bucket: BucketId,
    /// A file in a block, a symbolic link, a file with an attribute.
    big: Ino,
    body: BodyId,
    block: BlockId,
    link: Ino,
    tagged: Ino,
    counter: AtomicU64,
}

/// A file that an operation may change or remove, and the directory it is in.
#[derive(Clone, Copy)]
struct Planted {
    directory: Ino,
    file: Ino,
}

const FILE: &[u8] = b"file";

impl Hidden {
    async fn new() -> Hidden {
        let world = World::with_lease(60 * LONG).await;
        let owner = Caller::verified(user(&world, "owner").await);
        let bucket = make(&world, &owner, "mark-bucket").await;
        world.master.run(&Caller::system(), OpenSession { session: PLANTER }).await.unwrap();
        let (block, body) =
            (BlockId { session: PLANTER, counter: 1 }, BodyId { session: PLANTER, counter: 1 });
        let data = Bytes::from_static(IN_A_BLOCK);
        let to = Owner { body, chunk: 0 };
        world.blocks.write(Default::default(), block, to, data).await.unwrap();
        let master = &world.master;
        let parent = bucket.ino();
        let made = |name: &str| Create {
            parent,
            name: name.into(),
            mode: 0o666,
            umask: 0,
            exclusive: true,
        };
        let (big, ..) = master.run(&owner, made("big")).await.unwrap();
        let place = Place::Block { group: GroupId(5), block, offset: 0 };
        let extents = vec![Extent { offset: 0, len: IN_A_BLOCK.len() as u64, place }];
        let data = Data::Blocks { body, extents };
        let (session, spare) = (PLANTER, body);
        let write = write::Write { ino: big, session, opened: true, spare, offset: 0, data };
        master.run(&owner, write).await.unwrap();
        let (name, target) = (b"link".to_vec(), Bytes::from_static(b"MARK-TARGET"));
        let (link, _) =
            master.run(&owner, symlink::Symlink { parent, name, target }).await.unwrap();
        let (tagged, ..) = master.run(&owner, made("tagged")).await.unwrap();
        let value = Bytes::from_static(b"MARK-XATTR");
        let (name, mode) = (b"user.a".to_vec(), XattrMode::Set);
        master.run(&owner, SetXattr { ino: tagged, name, value, mode }).await.unwrap();
        let counter = AtomicU64::new(1);
        Hidden { world, owner, bucket, big, body, block, link, tagged, counter }
    }

    async fn plant(&self) -> Planted {
        let number = self.counter.fetch_add(1, Ordering::Relaxed);
        let name = format!("d{number}");
        let content = NewContent::Inline(Bytes::from_static(b"MARK-INLINE"));
        let user_metadata = vec![("a".to_owned(), "MARK-META".to_owned())];
        let put = PutObject {
            bucket: "mark-bucket".into(),
            key: format!("{name}/file"),
            session: PLANTER,
            content,
            size: 11,
            object: ObjectAttributes { user_metadata, ..ObjectAttributes::default() },
            tags: Vec::new(),
            conditions: Conditions::default(),
        };
        let master = &self.world.master;
        let file = master.run(&self.owner, put).await.unwrap().ino;
        let named = lookup::Lookup { parent: self.bucket.ino(), name: name.into_bytes() };
        let (directory, _) = master.read(&self.owner, named).await.unwrap();
        Planted { directory, file }
    }

    async fn change(&self, change: UpdateBucket) {
        let change = UpdateBucket { name: "mark-bucket".into(), ..change };
        self.world.master.run(&self.owner, change).await.unwrap();
    }

    /// A user of this sort, as the rights are in the beginning.
    async fn user(&self, who: Who, door: &str) -> UserId {
        match who {
            Who::Owner => return self.owner.user(),
            Who::Root => return UserId::ROOT,
            _ => {}
        }
        let name = format!("{who:?}-{door}").to_lowercase();
        let id = user(&self.world, &name).await;
        if who.grant() != Rights::NONE {
            self.change(UpdateBucket { grant: Some((name, who.grant())), ..Default::default() })
                .await;
        }
        if who == Who::OncePublic {
            let visibility = Some(Visibility::Public);
            self.change(UpdateBucket { visibility, ..Default::default() }).await;
        }
        make(&self.world, &Caller::verified(id), &format!("own-{}", id.0)).await;
        id
    }

    /// Takes away what `who` had.
    async fn withdraw(&self, who: Who, door: &str) {
        if who == Who::Revoked {
            let name = format!("{who:?}-{door}").to_lowercase();
            self.change(UpdateBucket { grant: Some((name, Rights::NONE)), ..Default::default() })
                .await;
        }
        if who == Who::OncePublic {
            let visibility = Some(Visibility::Private);
            self.change(UpdateBucket { visibility, ..Default::default() }).await;
        }
    }
}

async fn user(world: &World, name: &str) -> UserId {
    let (id, user) = (format!("CK{name}"), name.to_owned());
    let key = AddAccessKey { id, sealed: vec![1; 40], user, replace: false };
    world.master.run(&Caller::system(), key).await.unwrap()
}

async fn make(world: &World, owner: &Caller, name: &str) -> BucketId {
    let (name, kind) = (name.to_owned(), BucketKind::S3);
    let bucket = CreateBucket { name, kind, visibility: Visibility::Private };
    world.master.run(owner, bucket).await.unwrap()
}

/// A connection of a mount that sends whatever it likes.
struct Raw {
    peer: Peer,
    session: SessionId,
    caller: Caller,
    sequence: AtomicU64,
    asked: AtomicU64,
}

impl Raw {
    async fn attach(host: &Arc<MountHost>, user: UserId, session: SessionId) -> Raw {
        let ends = ends();
        let from =
            mount::link(Box::new(ends.far), "a mount".into(), require_none(), mount::always());
        tokio::spawn(Arc::clone(host).serve(Caller::verified(user), from, true));
        let to =
            mount::link(Box::new(ends.near), "the door".into(), require_none(), mount::always());
        let recalled = move |peer: &Peer, _: u16, message: Bytes| {
            let peer = peer.clone();
            async move {
                let Recall { number, .. } = wire::decode(&message)?;
                tokio::spawn(async move {
                    let message = wire::encode(&Acknowledge { session, number }).unwrap();
                    let _ = peer.call(SessionMethod::Acknowledge as u16, message, LONG).await;
                });
                Ok(Bytes::new())
            }
        };
        let peer = connect(to, &mount::terms(), recalled).await.unwrap();
        let caller = Caller::verified(user);
        let raw =
            Raw { peer, session, caller, sequence: AtomicU64::new(0), asked: AtomicU64::new(0) };
        raw.call(SessionMethod::AttachToReplay, wire::encode(&Attach { session }).unwrap())
            .await
            .unwrap();
        raw.call(SessionMethod::Replayed, wire::encode(&ReplayEnd { session }).unwrap())
            .await
            .unwrap();
        raw
    }

    /// Its leases would have to be recalled, from nobody.
    async fn detach(self) {
        let detach = wire::encode(&Detach { session: self.session }).unwrap();
        let answer = self.call(SessionMethod::Detach, detach).await.unwrap();
        assert!(matches!(wire::decode(&answer).unwrap(), Reply::Done(())));
    }

    async fn call(&self, method: SessionMethod, message: Bytes) -> Result<Bytes> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.peer.call(method as u16, message, LONG).await
    }

    async fn read(&self, verb: u16, fields: &Bytes, lease: bool) -> Result<Bytes> {
        let (session, fields) = (self.session, fields.clone());
        let read = ReadRequest { session, caller: self.caller.to_relayed(), verb, fields, lease };
        self.call(SessionMethod::Read, wire::encode(&read).unwrap()).await
    }

    async fn change(
        &self,
        method: SessionMethod,
        verb: u16,
        fields: &Bytes,
        at: Planted,
    ) -> Result<Bytes> {
        let (session, fields) = (self.session, fields.clone());
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let caller = self.caller.to_relayed();
        let run = Run { session, slot: 0, sequence, caller, verb, fields };
        if method == SessionMethod::Run {
            return self.call(method, wire::encode(&run).unwrap()).await;
        }
        let released = vec![
            cairn_meta::keys::inode(at.file),
            cairn_meta::keys::tally(at.directory),
            cairn_meta::keys::file_entry(at.directory, FILE),
        ];
        let change = Change { run, released };
        let message = match method {
            SessionMethod::Change => wire::encode(&change),
            SessionMethod::Execute => wire::encode(&Execute { change, ino: None }),
            _ => {
                let execute = Execute { change, ino: None };
                let operations = vec![PostedOperation { execute, time: Default::default() }];
                wire::encode(&RunPosted { session, operations })
            }
        };
        self.call(method, message.unwrap()).await
    }

    async fn block(&self, block: BlockId) -> Result<Bytes> {
        let (start, end) = (0, IN_A_BLOCK.len() as u32);
        let get = cairn_cluster::mount::Get {
            session: self.session,
            group: GroupId(5),
            block,
            start,
            end,
        };
        self.peer.call(cairn_cluster::mount::GET, wire::encode(&get).unwrap(), LONG).await
    }
}

fn fields<V: WireVerb>(verb: &V) -> (u16, Bytes) {
    (V::NUMBER, wire::encode(verb).unwrap())
}

/// Requests that read, one or more of each verb.
fn reads(hidden: &Hidden, at: Planted, session: SessionId) -> Vec<(u16, Bytes)> {
    let Hidden { bucket, big, link, tagged, body, .. } = *hidden;
    let name = || FILE.to_vec();
    let mut all = vec![
        fields(&OpenInode { ino: at.file, opened: true }),
        fields(&OpenInode { ino: big, opened: false }),
        fields(&ReadExtents { bucket, body, start: 0, end: 1 << 20 }),
        fields(&ReadExtents { bucket: BucketId(2), body, start: 0, end: 1 << 20 }),
        fields(&coalesce::ReadChunk { ino: big, chunk: 0 }),
        fields(&coalesce::ReadChunk { ino: at.file, chunk: 0 }),
        fields(&Getattr { ino: Ino::ROOT }),
        fields(&TestLock { ino: at.file, lock: lock(session) }),
        fields(&lookup::Lookup { parent: at.directory, name: name() }),
        fields(&lookup::Lookup { parent: Ino::ROOT, name: b"mark-bucket".to_vec() }),
        fields(&lookup::Lookup { parent: Ino::ROOT, name: b"none".to_vec() }),
        fields(&readlink::Readlink { ino: link }),
        fields(&statfs::Replicas { ino: at.file }),
        fields(&statfs::Statfs { ino: Ino::ROOT }),
        fields(&statfs::Statfs { ino: at.file }),
        fields(&statfs::Replicas { ino: at.file }),
        fields(&GetXattr { ino: tagged, name: b"user.a".to_vec() }),
        fields(&ListXattrs { ino: tagged }),
        fields(&GetBucket { name: "mark-bucket".into() }),
        fields(&tags::GetTags { bucket: "mark-bucket".into(), key: "tagged".into() }),
        fields(&restore::FindKey { bucket: "mark-bucket".into(), key: "tagged".into() }),
        // For nodes only.
        fields(&OpenObject { bucket: "mark-bucket".into(), key: "big".into() }),
        fields(&ListBuckets { prefix: String::new(), after: String::new(), limit: 100 }),
        fields(&FindAccessKey { id: "CKowner".into() }),
        fields(&UserName { user: hidden.owner.user() }),
        fields(&FindWritable { after: BucketId(0), limit: 100 }),
    ];
    for ino in [at.file, at.directory, big, link, tagged, bucket.ino()] {
        all.extend((0..8).map(|wanted| fields(&Access { ino, wanted })));
        all.push(fields(&Getattr { ino }));
    }
    for ino in [Ino::ROOT, bucket.ino(), at.directory] {
        for attributes in [false, true] {
            for limit in [1, 2, 1000] {
                all.push(fields(&readdir::Readdir { ino, after: None, limit, attributes }));
            }
        }
    }
    all
}

fn lock(session: SessionId) -> Lock {
    let space = Space::Fcntl;
    Lock { session, owner: 1, pid: 1, exclusive: true, start: 0, last: 9, space }
}

/// Requests that bring back a backup, which only root may.
fn restores(hidden: &Hidden, at: Planted) -> Vec<(u16, Bytes)> {
    let Planted { directory: parent, file: ino } = at;
    let (number, user) = (hidden.owner.user(), || "owner".to_owned());
    let owned = Bucket { name: "restored".into(), owner: number, ..Bucket::default() };
    vec![
        fields(&restore::RestoreAttributes { ino, from: Inode::default(), tags: Vec::new() }),
        fields(&restore::RestoreUser {
            number,
            name: "restored".into(),
            disabled: false,
            limits: UserLimits::default(),
            quotas: UserQuotas::default(),
        }),
        fields(&restore::RestoreToken {
            id: "restored".into(),
            user: user(),
            token: Token { user: number, ..Token::default() },
        }),
        fields(&restore::RestoreBucket {
            bucket: owned,
            owner: user(),
            grants: Vec::new(),
            quota_objects: 0,
            quota_bytes: 0,
            replace: false,
        }),
        fields(&restore::RestoreKey {
            parent,
            name: FILE.to_vec(),
            bucket: "mark-bucket".into(),
            key: "a//b".into(),
            replace: true,
        }),
        fields(&restore::RestoreShareLink {
            user: user(),
            number,
            id: "AAAAAAAAAAAA".into(),
            bucket: "mark-bucket".into(),
            link: ShareLink { credential: "CKowner".into(), ..ShareLink::default() },
        }),
    ]
}

/// Requests that change something, one of each verb.
fn changes(hidden: &Hidden, at: Planted, session: SessionId) -> Vec<(u16, Bytes)> {
    let Planted { directory: parent, file: ino } = at;
    let spare = BodyId { session, counter: 1000 + hidden.counter.fetch_add(1, Ordering::Relaxed) };
    let (name, new) = (|| FILE.to_vec(), || b"new".to_vec());
    let (opened, mode, umask) = (true, 0o666, 0);
    let data = || Data::Inline(Bytes::from_static(b"x"));
    let (source, offset) = (ino, 20);
    let mut all = vec![
        fields(&append::Append { ino, session, opened, spare, chunk: 0, data: data() }),
        fields(&clone::CloneFile { source, ino: hidden.tagged, session, size: 11 }),
        fields(&coalesce::Coalesce {
            ino: hidden.big,
            session,
            body: hidden.body,
            chunk: 0,
            replaces: Vec::new(),
            with: Vec::new(),
        }),
        fields(&copy_range::CopyRange {
            source,
            source_offset: 0,
            ino,
            offset,
            len: 5,
            session,
            opened,
            spare,
        }),
        fields(&Create { parent, name: name(), mode, umask, exclusive: false }),
        fields(&Mknod { parent, name: new(), kind: Kind::Fifo, mode, umask }),
        fields(&link::Link { ino, parent, name: new() }),
        fields(&TakeLock { ino, lock: lock(session) }),
        fields(&ReleaseLock { ino, lock: lock(session) }),
        fields(&mkdir::Mkdir { parent, name: new(), mode, umask }),
        fields(&Rename {
            source_parent: parent,
            source_name: name(),
            target_parent: parent,
            target_name: new(),
            mode: RenameMode::Replace,
        }),
        fields(&Retain { ino, session }),
        fields(&LetGo { ino, session }),
        fields(&rmdir::Rmdir { parent: hidden.bucket.ino(), name: name() }),
        fields(&ReserveInodes { session, count: 4 }),
        fields(&setattr::Setattr { ino, ..Default::default() }),
        fields(&setattr::Setattr { ino, mode: Some(0o600), ..Default::default() }),
        fields(&symlink::Symlink { parent, name: new(), target: Bytes::from_static(b"t") }),
        fields(&Extend { ino, session, opened, end: 11 }),
        fields(&PunchHole { ino, session, opened, spare, offset: 20, len: 5 }),
        fields(&Extend { ino, session, opened, end: 30 }),
        fields(&Truncate { ino, session, opened, spare, size: 11 }),
        fields(&unlink::Unlink { parent, name: name() }),
        fields(&write::Write { ino, session, opened, spare, offset, data: data() }),
        fields(&RemoveXattr { ino, name: b"user.none".to_vec() }),
        fields(&SetXattr { ino, name: new(), value: Bytes::new(), mode: XattrMode::Set }),
    ];
    all.extend(restores(hidden, at));
    all
}

/// Markers found where they must not be, and markers found at all.
#[derive(Default)]
struct Findings {
    rows: usize,
    open: Vec<String>,
    seen: std::collections::BTreeSet<&'static str>,
}

impl Findings {
    fn look(&mut self, what: impl FnOnce() -> String, may: bool, asked: &[u8], got: Result<Bytes>) {
        self.rows += 1;
        let got = match got {
            Ok(bytes) => bytes,
            Err(error) => Bytes::from(error.to_string()),
        };
        let has = |bytes: &[u8], marker: &str| {
            bytes.windows(marker.len()).any(|window| window == marker.as_bytes())
        };
        let found = |marker: &&&str| has(&got, marker) && !has(asked, marker);
        let found: Vec<&'static str> = MARKERS.iter().filter(found).copied().collect();
        if !may && !found.is_empty() {
            self.open.push(format!("{}: {found:?}", what()));
        }
        self.seen.extend(found);
    }
}

const RUNS: [SessionMethod; 4] =
    [SessionMethod::Run, SessionMethod::Change, SessionMethod::Execute, SessionMethod::RunPosted];

/// Everything, by one user.
async fn ask_all(hidden: &Hidden, raw: &Raw, who: Who, door: &str) -> Findings {
    let mut found = Findings::default();
    let at = hidden.plant().await;
    for (verb, fields) in reads(hidden, at, raw.session) {
        for lease in [true, false] {
            let got = raw.read(verb, &fields, lease).await;
            let what = || format!("{who:?} at {door}: read {}, lease {lease}", wire::name(verb));
            found.look(what, who.reads(), &fields, got);
        }
        for method in RUNS {
            let got = raw.change(method, verb, &fields, at).await;
            let what = || format!("{who:?} at {door}: {method:?} {}", wire::name(verb));
            found.look(what, who.reads(), &fields, got);
        }
    }
    for nth in 0..changes(hidden, at, raw.session).len() {
        for method in RUNS {
            let at = hidden.plant().await;
            let (verb, fields) = changes(hidden, at, raw.session).swap_remove(nth);
            let got = raw.change(method, verb, &fields, at).await;
            let what = || format!("{who:?} at {door}: {method:?} {}", wire::name(verb));
            found.look(what, who.reads(), &fields, got);
        }
        let (verb, fields) = changes(hidden, at, raw.session).swap_remove(nth);
        let got = raw.read(verb, &fields, true).await;
        found.look(|| format!("{who:?}: read {}", wire::name(verb)), who.reads(), &fields, got);
    }
    let (session, directory, bucket) = (raw.session, hidden.plant().await.directory, hidden.bucket);
    let delegate = wire::encode(&Delegate { session, directory, bucket }).unwrap();
    let got = raw.call(SessionMethod::Delegate, delegate.clone()).await;
    found.look(|| format!("{who:?} at {door}: delegate"), who.reads(), &delegate, got);
    found
}

/// Blocks, and extents of a body whose id the session may know from before.
async fn ask_blocks(hidden: &Hidden, raw: &Raw, who: Who, own: BucketId) {
    for bucket in [hidden.bucket, own] {
        let (body, start, end) = (hidden.body, 0, 1 << 20);
        let (verb, fields) = fields(&ReadExtents { bucket, body, start, end });
        let reply: Reply<ReadReply> =
            wire::decode(&raw.read(verb, &fields, false).await.unwrap()).unwrap();
        let is_told = matches!(reply, Reply::Done(ReadReply { reply: Ok(_), .. }));
        assert_eq!(is_told, who.reads() && bucket == hidden.bucket, "{who:?} {bucket} {reply:?}");
    }
    let got = raw.block(hidden.block).await;
    if who.reads() {
        assert_eq!(got.unwrap(), IN_A_BLOCK, "{who:?}")
    } else {
        denied(got, "open the file again")
    }
}

/// Opens the file that is in a block.
async fn open_big(hidden: &Hidden, raw: &Raw) -> bool {
    let (verb, fields) = fields(&OpenInode { ino: hidden.big, opened: true });
    let answer = raw.read(verb, &fields, true).await.unwrap();
    match wire::decode::<Reply<ReadReply>>(&answer).unwrap() {
        Reply::Done(ReadReply { reply: Ok(opened), .. }) => {
            wire::decode::<OpenedObject>(&opened).unwrap();
            true
        }
        _ => false,
    }
}

async fn matrix(door: &'static str, hidden: &Hidden, host: &Arc<MountHost>) -> usize {
    let mut rows = 0;
    for (number, who) in ALL.into_iter().enumerate() {
        let id = hidden.user(who, door).await;
        let session = SessionId(0x1000 + number as u64 + if door == "server" { 0 } else { 0x100 });
        let raw = Raw::attach(host, id, session).await;
        let before = who.reads() || matches!(who, Who::Revoked | Who::OncePublic);
        assert_eq!(open_big(hidden, &raw).await, before, "{who:?}");
        if before {
            assert_eq!(raw.block(hidden.block).await.unwrap(), IN_A_BLOCK);
        }
        hidden.withdraw(who, door).await;
        ask_blocks(hidden, &raw, who, BucketId(2)).await;
        let found = ask_all(hidden, &raw, who, door).await;
        assert!(found.open.is_empty(), "{} open: {:#?}", found.open.len(), found.open);
        let expected = if who.reads() { MARKERS.len() } else { 0 };
        assert_eq!(found.seen.len(), expected, "{who:?} at {door} has seen {:?}", found.seen);
        rows += found.rows;
        raw.detach().await;
    }
    rows
}

fn at_server(hidden: &Hidden) -> Arc<MountHost> {
    let World { master, sessions, blocks, .. } = &hidden.world;
    let (master, sessions) = (master.clone(), Arc::clone(sessions));
    let meta = Meta::Local { master, session: PLANTER, sessions: Some(Arc::clone(&sessions)) };
    MountHost::new(sessions, meta, Arc::clone(blocks) as Arc<dyn Blocks>, None)
}

#[tokio::test]
async fn at_a_server() {
    let hidden = Hidden::new().await;
    let rows = matrix("server", &hidden, &at_server(&hidden)).await;
    assert!(rows >= 2000, "{rows} rows");
}

#[tokio::test]
async fn at_a_gateway() {
    let hidden = Hidden::new().await;
    let host = Arc::clone(&hidden.world.gateways["g1"].host);
    let rows = matrix("gateway", &hidden, &host).await;
    assert!(rows >= 2000, "{rows} rows");
}

/// The matrix is of every verb that a mount may use.
#[tokio::test]
async fn every_verb_of_mounts_is_asked_for() {
    let hidden = Hidden::new().await;
    let at = hidden.plant().await;
    let mut asked = reads(&hidden, at, PLANTER);
    asked.extend(changes(&hidden, at, PLANTER));
    for (number, name, of) in wire::USES {
        let is_asked = asked.iter().any(|(verb, _)| verb == number);
        assert!(is_asked || *of == Use::Never, "{name} is not in the matrix");
    }
}

/// The markers are found where nothing is filtered: a node, which verifies its callers on its own,
/// is sent whatever rows an operation has looked at.
#[tokio::test]
async fn the_markers_are_found_without_the_filter() {
    use cairn_meta::master::host;
    let hidden = Hidden::new().await;
    let at = hidden.plant().await;
    let writer = Caller::verified(hidden.user(Who::Writer, "server").await);
    let (peer, session) = (host::Sender::node(2), SessionId(0x2000));
    let sessions = &hidden.world.sessions;
    let attach = wire::encode(&Attach { session }).unwrap();
    let _attached = sessions.handle(&peer, SessionMethod::Attach, &attach).await.unwrap();
    let mut found = Findings::default();
    for (verb, fields) in reads(&hidden, at, session) {
        let (caller, asked) = (writer.to_relayed(), fields.clone());
        let read = ReadRequest { session, caller, verb, fields, lease: true };
        let message = wire::encode(&read).unwrap();
        let got = match sessions.handle(&peer, SessionMethod::Read, &message).await.unwrap() {
            host::Answer::Bytes(bytes) => bytes,
            host::Answer::Attached(..) => unreachable!("it is attached"),
        };
        found.look(|| wire::name(verb).to_owned(), false, &asked, Ok(got));
    }
    assert!(found.seen.contains("MARK-INLINE"), "{:?}", found.open);
    assert!(found.seen.contains("mark-bucket"), "{:?}", found.open);
}

/// Blocks are not for users who could not publish them; whose bucket it is, nobody is told.
#[tokio::test]
async fn blocks_are_written_by_users_who_may_write() {
    let hidden = Hidden::new().await;
    let host = at_server(&hidden);
    let stranger = user(&hidden.world, "stranger").await;
    let writer = hidden.user(Who::Writer, "server").await;
    for (id, session, is_taken) in
        [(stranger, SessionId(0x3000), false), (writer, SessionId(0x3001), true)]
    {
        let raw = Raw::attach(&host, id, session).await;
        let (block, body) = (BlockId { session, counter: 1 }, BodyId { session, counter: 1 });
        let (group, replicas, owner) = (None, 0, Owner { body, chunk: 0 });
        let put = cairn_cluster::mount::Put { session, group, replicas, block, owner };
        let message = cairn_cluster::control::join(&put, Bytes::from_static(b"data")).unwrap();
        let got = raw.peer.attempt(cairn_cluster::mount::PUT, message, LONG).await;
        assert_eq!(got.is_ok(), is_taken, "{got:?}");
        let error = got.err().map(|failed| cairn_base::Error::from(failed).to_string());
        assert!(error.is_none_or(|error| error.contains("in no bucket")));
    }
}

/// Each session leaves a row, so a user has some and no more.
#[tokio::test]
async fn sessions_of_a_user_are_limited() {
    use cairn_meta::master::host::{self, SESSIONS_OF_A_USER};
    let world = World::with_lease(60 * LONG).await;
    let sessions = &world.sessions;
    let peer = host::Sender::mount(UserId(9));
    let kept = Mutex::new(Vec::new());
    let attach = async |peer: &host::Sender, number: u64| {
        let message = wire::encode(&Attach { session: SessionId(0x4000 + number) }).unwrap();
        let answer = sessions.handle(peer, SessionMethod::Attach, &message).await.unwrap();
        let is_attached = matches!(answer, host::Answer::Attached(..));
        kept.lock().push(answer);
        is_attached
    };
    for number in 0..SESSIONS_OF_A_USER as u64 {
        assert!(attach(&peer, number).await);
    }
    let one_more = SESSIONS_OF_A_USER as u64;
    assert!(!attach(&peer, one_more).await);
    // A session that attaches again is the same one.
    assert!(attach(&peer, 0).await);
    assert!(attach(&host::Sender::mount(UserId(10)), one_more).await);
    let detach = Detach { session: SessionId(0x4000) };
    let message = wire::encode(&detach).unwrap();
    sessions.handle(&peer, SessionMethod::Detach, &message).await.unwrap();
    assert!(attach(&peer, one_more + 1).await);
}

/// Pages may end at a bucket that is hidden. Where they go on does not name it.
#[tokio::test]
async fn listings_go_on_past_hidden_buckets() {
    let hidden = Hidden::new().await;
    let world = &hidden.world;
    let caller = Caller::verified(user(world, "lister").await);
    for name in ["a-mine", "mark-bucket-2", "mark-bucket-3", "z-mine"] {
        let owner = if name.starts_with("mark") { &hidden.owner } else { &caller };
        make(world, owner, name).await;
    }
    for limit in 1..6 {
        let mut names = Vec::new();
        let mut after = String::new();
        loop {
            let list = ListBuckets { prefix: String::new(), after, limit };
            let (page, next) = world.master.read(&caller, list).await.unwrap();
            names.extend(page.into_iter().map(|(opened, _)| opened.bucket.name));
            let Some(next) = next else { break };
            assert!(!next.contains("mark"), "{next}");
            after = next;
        }
        assert_eq!(names, ["a-mine", "z-mine"], "pages of {limit}");
        let (mut names, mut after) = (Vec::new(), None);
        loop {
            let list = readdir::Readdir { ino: Ino::ROOT, after, limit, attributes: true };
            let page = world.master.read(&caller, list).await.unwrap();
            names.extend(page.entries.iter().map(|entry| entry.name.clone()));
            // A reader may stop at any entry.
            after = page.next;
            let Some(next) = &after else { break };
            assert!(!next.windows(4).any(|part| part == b"mark"), "{next:?}");
        }
        assert_eq!(names, ["a-mine", "z-mine"], "pages of {limit}");
    }
}
