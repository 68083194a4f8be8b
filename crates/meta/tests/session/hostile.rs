//! Sessions that renew and do nothing else of what they are asked: nobody waits for one of them for
//! longer than two leases. Time is set here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::{Caller, Visibility};
use cairn_base::{BucketId, Clock, Ino, Result, SessionId, Timestamp, UserId};
use cairn_meta::engine::Memory;
use cairn_meta::master::host::{Answer, Sender, Sessions};
use cairn_meta::master::{Config, Master};
use cairn_meta::ops::buckets::CreateBucket;
use cairn_meta::ops::create::Create;
use cairn_meta::ops::getattr::Getattr;
use cairn_meta::ops::lookup::Lookup;
use cairn_meta::ops::mkdir::Mkdir;
use cairn_meta::ops::readdir::Readdir;
use cairn_meta::ops::sessions::{Format, ReserveInodes};
use cairn_meta::ops::setattr::Setattr;
use cairn_meta::ops::statfs::Statfs;
use cairn_meta::rows::BucketKind;
use cairn_meta::session::{
    Acknowledge, Attach, AttachReply, Change, Delegate, DelegateReply, Execute, ExecuteReply,
    GiveBack, PostedOperation, ReadReply, ReadRequest, Recall, Renew, RenewReply, ReplayEnd, Reply,
    Run, RunPosted, SessionMethod,
};
use cairn_meta::{Verb, WireVerb, keys, wire};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const LEASE: Duration = Duration::from_secs(10);
const STEP_MS: u64 = 250;

#[derive(Default)]
struct SetClock(AtomicU64);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(1_700_000_000)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(1000 + self.0.load(Ordering::SeqCst))
    }
}

pub struct Host {
    clock: Arc<SetClock>,
    pub master: Master,
    pub sessions: Arc<Sessions>,
    pub bucket: Ino,
    pub id: BucketId,
}

pub fn root() -> Caller {
    Caller::verified(UserId::ROOT)
}

impl Host {
    pub async fn new() -> Host {
        let clock = Arc::new(SetClock::default());
        let engine = Arc::new(Memory::new());
        let master = Master::start(engine, clock.clone(), Config::default()).unwrap();
        master.run(&Caller::system(), Format { cluster: 1 }).await.unwrap();
        let (name, kind) = ("bucket".to_owned(), BucketKind::Posix);
        let create = CreateBucket { name, kind, visibility: Visibility::Private };
        let id = master.run(&root(), create).await.unwrap();
        let lookup = Lookup { parent: Ino::ROOT, name: b"bucket".to_vec() };
        let (bucket, _) = master.read(&root(), lookup).await.unwrap();
        let sessions = Sessions::start(master.clone(), clock.clone(), LEASE).await.unwrap();
        Host { clock, master, sessions, bucket, id }
    }

    async fn mount(&self, number: u64, method: SessionMethod) -> Mount {
        self.mount_of(UserId::ROOT, number, method).await
    }

    async fn mount_of(&self, user: UserId, number: u64, method: SessionMethod) -> Mount {
        let (peer, session) = (Sender::mount(user), SessionId(number));
        let mut mount = Mount {
            sessions: Arc::clone(&self.sessions),
            peer,
            session,
            recalls: None,
            lies: false,
        };
        mount.attach(method).await;
        if method == SessionMethod::AttachToReplay {
            mount.ask::<_, ()>(SessionMethod::Replayed, &ReplayEnd { session }).await.unwrap();
        }
        mount
    }

    /// Time goes on.
    pub fn pass_now(&self, time: Duration) {
        self.clock.0.fetch_add(time.as_millis() as u64, Ordering::SeqCst);
    }

    fn change(&self, ino: Ino, mode: u32) -> JoinHandle<()> {
        let master = self.master.clone();
        let verb = Setattr { ino, mode: Some(mode), ..Setattr::default() };
        tokio::spawn(async move { drop(master.run(&root(), verb).await.unwrap()) })
    }

    /// Time goes on, and `each` is done all the while.
    async fn pass(&self, secs: u64, mut each: impl AsyncFnMut()) {
        for _ in 0..secs * 1000 / STEP_MS {
            self.clock.0.fetch_add(STEP_MS, Ordering::SeqCst);
            each().await;
            self.sessions.tick().await.unwrap();
            // The threads of the master go on meanwhile: while they are late, nothing is counted.
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Lets time pass like [`Host::pass`], until the session of a mount has ended.
    async fn pass_until_ended(&self, mount: &mut Mount, mut each: impl AsyncFnMut()) {
        for _ in 0..10_000 {
            self.pass(1, async || each().await).await;
            if !mount.renew(if mount.lies { 0 } else { u64::MAX }).await {
                // It may read what it keeps until its last lease is over.
                return self.pass(LEASE.as_secs() + 1, async || each().await).await;
            }
        }
        panic!("it goes on for ever");
    }
}

struct Mount {
    sessions: Arc<Sessions>,
    peer: Sender,
    session: SessionId,
    recalls: Option<UnboundedReceiver<Recall>>,
    /// It says that it goes on reading from the beginning.
    lies: bool,
}

impl Mount {
    async fn ask<M: Serialize, R: DeserializeOwned>(
        &mut self,
        method: SessionMethod,
        message: &M,
    ) -> Option<R> {
        let message = wire::encode(message).unwrap();
        let bytes = match self.sessions.handle(&self.peer, method, &message).await.unwrap() {
            Answer::Bytes(bytes) => bytes,
            Answer::Attached(bytes, recalls) => {
                self.recalls = Some(recalls);
                bytes
            }
        };
        match wire::decode::<Reply<R>>(&bytes).unwrap() {
            Reply::Done(done) => Some(done),
            Reply::NotAttached => None,
            Reply::Failed(error) => panic!("{error}"),
            Reply::NotServing(why) => panic!("{why}"),
        }
    }

    async fn attach(&mut self, method: SessionMethod) {
        let session = self.session;
        self.ask::<_, AttachReply>(method, &Attach { session }).await.unwrap();
    }

    /// Renews. Returns whether the session is live.
    async fn renew(&mut self, reads_from: u64) -> bool {
        let renew = Renew { session: self.session, reads_from };
        self.ask::<_, RenewReply>(SessionMethod::Renew, &renew).await.is_some()
    }

    async fn read<V: WireVerb>(&mut self, verb: V) -> V::Reply {
        wire::decode(&self.leased(verb).await.reply.unwrap()).unwrap()
    }

    /// The answer to it, which it may keep.
    async fn leased<V: WireVerb>(&mut self, verb: V) -> ReadReply {
        let (session, caller) = (self.session, root().to_relayed());
        let fields = wire::encode(&verb).unwrap();
        let read = ReadRequest { session, caller, verb: V::NUMBER, fields, lease: true };
        self.ask(SessionMethod::Read, &read).await.unwrap()
    }

    /// A directory that it may fill on its own.
    async fn delegated(&mut self, host: &Host, name: &str) -> Ino {
        let session = self.session;
        let verb = Mkdir { parent: host.bucket, name: name.into(), mode: 0o755, umask: 0 };
        let fields = wire::encode(&verb).unwrap();
        let (caller, verb, released) = (root().to_relayed(), Mkdir::NUMBER, verb.changes());
        let run = Run { session, slot: 0, sequence: 1, caller, verb, fields };
        let execute = Execute { change: Change { run, released }, ino: None };
        let made: ExecuteReply = self.ask(SessionMethod::Execute, &execute).await.unwrap();
        let directory = made.ino.unwrap();
        let delegate = Delegate { session, directory, bucket: host.id };
        self.ask::<_, DelegateReply>(SessionMethod::Delegate, &delegate).await.unwrap();
        directory
    }

    fn run<V: WireVerb>(&self, slot: u16, verb: &V) -> Run {
        let (session, caller) = (self.session, root().to_relayed());
        let fields = wire::encode(verb).unwrap();
        Run { session, slot, sequence: 1, caller, verb: V::NUMBER, fields }
    }

    /// A file that it has made on its own, for the master to make.
    async fn posted(&mut self, parent: Ino, name: &str) -> RunPosted {
        let session = self.session;
        let reserve = self.run(1, &ReserveInodes { session, count: 1 });
        let reserved: Bytes = self.ask(SessionMethod::Run, &reserve).await.unwrap();
        let (ino, _): (Ino, Ino) = wire::decode(&reserved).unwrap();
        let name = name.as_bytes().to_vec();
        let verb = Create { parent, name, mode: 0o644, umask: 0, exclusive: false };
        self.post(2, &verb, Some(ino))
    }

    /// The mode of a file, which it has changed on its own.
    fn posted_mode(&self, slot: u16, ino: Ino) -> RunPosted {
        let verb = Setattr { ino, mode: Some(0o600), ..Setattr::default() };
        self.post(slot, &verb, None)
    }

    fn post<V: WireVerb>(&self, slot: u16, verb: &V, ino: Option<Ino>) -> RunPosted {
        let change = Change { run: self.run(slot, verb), released: verb.changes() };
        let time = Timestamp::from_secs(1_700_000_000);
        let operations = vec![PostedOperation { execute: Execute { change, ino }, time }];
        RunPosted { session: self.session, operations }
    }

    /// The outcome of an operation that it has run on its own.
    async fn run_posted(&mut self, posted: &RunPosted) -> Result<ExecuteReply> {
        // Time stands still: no session ends.
        let ran = self.ask::<_, Vec<Result<ExecuteReply>>>(SessionMethod::RunPosted, posted);
        let ran =
            timeout(Duration::from_secs(60), ran).await.expect("it waits for another session");
        ran.unwrap().pop().unwrap()
    }

    async fn give_back(&mut self, recall: &Recall) {
        let recalled = recall.keys.iter().find_map(|key| keys::delegation_parts(key)).unwrap();
        let give_back = GiveBack { session: self.session, directories: vec![recalled] };
        self.ask::<_, ()>(SessionMethod::GiveBack, &give_back).await.unwrap();
    }
}

#[tokio::test]
async fn a_recall_that_is_not_acknowledged_ends_the_session() {
    let host = Host::new().await;
    let mut deaf = host.mount(1, SessionMethod::Attach).await;
    let mut honest = host.mount(2, SessionMethod::Attach).await;
    let ino = host.bucket;
    for mount in [&mut deaf, &mut honest] {
        mount.read(Lookup { parent: Ino::ROOT, name: b"bucket".to_vec() }).await;
    }
    let change = host.change(ino, 0o750);
    let Recall { number, .. } = honest.recalls.as_mut().unwrap().recv().await.unwrap();
    deaf.recalls.as_mut().unwrap().recv().await.unwrap();
    let acknowledge = Acknowledge { session: honest.session, number };
    honest.ask::<_, ()>(SessionMethod::Acknowledge, &acknowledge).await.unwrap();
    host.pass(9, async || assert!(deaf.renew(u64::MAX).await && honest.renew(u64::MAX).await))
        .await;
    assert!(!change.is_finished(), "it may still show what was before");
    host.pass_until_ended(&mut deaf, async || assert!(honest.renew(u64::MAX).await)).await;
    change.await.unwrap();
    assert!(honest.renew(u64::MAX).await);
}

/// The connection is the same, so both attachments have the same sender.
#[tokio::test]
async fn a_recall_of_an_earlier_attachment_counts_for_no_later_one() {
    let host = Host::new().await;
    let mut mount = host.mount(1, SessionMethod::Attach).await;
    let mut numbers = Vec::new();
    for mode in [0o750, 0o700] {
        mount.read(Lookup { parent: Ino::ROOT, name: b"bucket".to_vec() }).await;
        let change = host.change(host.bucket, mode);
        let recall = mount.recalls.as_mut().unwrap().recv().await.unwrap();
        numbers.push(recall.number);
        let session = mount.session;
        let late = Acknowledge { session, number: numbers[0] };
        match mode {
            // It holds nothing from here on.
            0o750 => mount.attach(SessionMethod::Attach).await,
            _ => {
                mount.ask::<_, ()>(SessionMethod::Acknowledge, &late).await.unwrap();
                sleep(Duration::from_millis(50)).await;
                assert!(!change.is_finished(), "recalls {numbers:?}");
                let acknowledge = Acknowledge { session, number: recall.number };
                mount.ask::<_, ()>(SessionMethod::Acknowledge, &acknowledge).await.unwrap();
            }
        }
        change.await.unwrap();
    }
}

/// Clients of a gateway may still read what it opened for them before.
#[tokio::test]
async fn a_session_that_comes_again_reads_from_where_it_did() {
    let host = Host::new().await;
    let mut mount = host.mount(1, SessionMethod::Attach).await;
    let begun = host.sessions.reads_from();
    host.change(host.bucket, 0o750).await.unwrap();
    mount.attach(SessionMethod::Attach).await;
    assert_eq!(host.sessions.reads_from(), begun);
    assert!(mount.renew(u64::MAX).await);
    assert!(host.sessions.reads_from() > begun);
}

#[tokio::test]
async fn a_directory_that_is_not_given_back_ends_the_session() {
    let host = Host::new().await;
    let mut keeping = host.mount(1, SessionMethod::AttachToReplay).await;
    let directory = keeping.delegated(&host, "kept").await;
    let master = host.master.clone();
    let list = Readdir { ino: directory, after: None, limit: 10, attributes: false };
    let listing = tokio::spawn(async move { master.read(&root(), list).await });
    keeping.recalls.as_mut().unwrap().recv().await.unwrap();
    let acknowledge = Acknowledge { session: keeping.session, number: u64::MAX };
    let mut seconds = 0;
    host.pass(9, async || {
        keeping.ask::<_, ()>(SessionMethod::Acknowledge, &acknowledge).await.unwrap();
        // Attached anew it has no more time than it had.
        seconds += 1;
        if seconds % 8 == 0 {
            keeping.attach(SessionMethod::AttachToReplay).await;
        }
        assert!(keeping.renew(u64::MAX).await);
    })
    .await;
    assert!(!listing.is_finished());
    host.pass_until_ended(&mut keeping, async || ()).await;
    assert!(listing.await.unwrap().unwrap().entries.is_empty());
}

/// Every file that is made changes the usage of the bucket, on which a deaf session has a lease.
#[tokio::test]
async fn who_gives_a_directory_back_hangs_on_no_other_session() {
    let host = Host::new().await;
    let mut filler = host.mount(1, SessionMethod::AttachToReplay).await;
    let mut deaf = host.mount(2, SessionMethod::Attach).await;
    let directory = filler.delegated(&host, "directory").await;
    let posted = filler.posted(directory, "file").await;
    deaf.read(Statfs { ino: host.bucket }).await;
    let master = host.master.clone();
    let lookup = Lookup { parent: directory, name: b"file".to_vec() };
    let looking = tokio::spawn(async move { master.read(&root(), lookup).await });
    let recall = filler.recalls.as_mut().unwrap().recv().await.unwrap();
    let acknowledge = Acknowledge { session: filler.session, number: recall.number };
    filler.ask::<_, ()>(SessionMethod::Acknowledge, &acknowledge).await.unwrap();
    assert!(filler.run_posted(&posted).await.is_ok());
    filler.give_back(&recall).await;
    host.pass(9, async || assert!(deaf.renew(u64::MAX).await && filler.renew(u64::MAX).await))
        .await;
    assert!(!looking.is_finished(), "the file was said to be made, and is not to be missed");
    host.pass_until_ended(&mut deaf, async || assert!(filler.renew(u64::MAX).await)).await;
    looking.await.unwrap().unwrap();
    assert!(filler.renew(u64::MAX).await);
}

/// It waits for nobody, and takes no room meanwhile.
#[tokio::test]
async fn what_is_posted_in_a_directory_of_another_session_is_refused() {
    let host = Host::new().await;
    let mut filler = host.mount(1, SessionMethod::AttachToReplay).await;
    let mut hostile = host.mount(2, SessionMethod::AttachToReplay).await;
    let directory = filler.delegated(&host, "directory").await;
    let posted = hostile.posted(directory, "file").await;
    // Whether it says that it sends again what it has kept, or not.
    for number in 0..2 {
        let refused = hostile.run_posted(&posted).await.unwrap_err();
        assert_eq!(refused.kind(), "denied", "{number}: {refused}");
        hostile.attach(SessionMethod::AttachToReplay).await;
    }
    assert!(filler.recalls.as_mut().unwrap().try_recv().is_err(), "nobody wants it back");
    let own = filler.posted(directory, "own").await;
    filler.run_posted(&own).await.unwrap();
}

/// Its readers would wait for whoever has a lease on it and answers nothing.
#[tokio::test]
async fn what_is_posted_of_what_others_may_know_is_refused() {
    let host = Host::new().await;
    let mut hostile = host.mount(1, SessionMethod::AttachToReplay).await;
    let mut deaf = host.mount(2, SessionMethod::Attach).await;
    let (parent, name) = (host.bucket, b"known".to_vec());
    let create = Create { parent, name, mode: 0o644, umask: 0, exclusive: true };
    let (known, ..) = host.master.run(&root(), create).await.unwrap();
    let directory = hostile.delegated(&host, "directory").await;
    let posted = hostile.posted(directory, "own").await;
    let made = hostile.run_posted(&posted).await.unwrap().ino.unwrap();
    for ino in [known, made, host.bucket] {
        deaf.read(Getattr { ino }).await;
    }
    hostile.run_posted(&hostile.posted_mode(3, made)).await.unwrap();
    for (slot, ino) in [(4, known), (5, host.bucket), (6, directory)] {
        let refused = hostile.run_posted(&hostile.posted_mode(slot, ino)).await.unwrap_err();
        assert_eq!(refused.kind(), "denied", "{ino}: {refused}");
    }
    let master = host.master.clone();
    let list = Readdir { ino: directory, after: None, limit: 10, attributes: false };
    let listing = tokio::spawn(async move { master.read(&root(), list).await });
    let recall = hostile.recalls.as_mut().unwrap().recv().await.unwrap();
    hostile.give_back(&recall).await;
    let refused = hostile.run_posted(&hostile.posted_mode(7, made)).await.unwrap_err();
    assert_eq!(refused.kind(), "denied", "others may know it now: {refused}");
    for ino in [known, host.bucket, directory] {
        let (inode, _) = host.master.read(&root(), Getattr { ino }).await.unwrap();
        assert_ne!(inode.mode, 0o600, "{ino}");
    }
    listing.abort();
}

#[tokio::test]
async fn a_mount_that_reads_what_was_before_for_ever_is_ended() {
    let host = Host::new().await;
    let mut lying = host.mount(1, SessionMethod::Attach).await;
    let mut honest = host.mount(2, SessionMethod::Attach).await;
    lying.lies = true;
    let begun = host.master.durable_batch();
    host.change(host.bucket, 0o750).await.unwrap();
    let (mut settled, mut steps) = (0, 0);
    host.pass_until_ended(&mut lying, async || {
        let renew = Renew { session: honest.session, reads_from: settled };
        let renewed: RenewReply = honest.ask(SessionMethod::Renew, &renew).await.unwrap();
        settled = renewed.settled;
        steps += 1;
        if steps % 40 == 0 {
            host.change(host.bucket, 0o700 + steps % 8).await.unwrap();
        }
    })
    .await;
    assert!(steps > 100 * 4, "{steps}");
    assert!(honest.renew(settled).await);
    assert!(host.sessions.reads_from() > begun, "garbage is collected");
}

/// A mount keeps nothing about the root that others change: they would have to wait for it, session
/// after session.
#[tokio::test]
async fn whoever_makes_a_bucket_waits_for_no_mount() {
    let host = Host::new().await;
    let mut deaf = host.mount_of(UserId(7), 1, SessionMethod::Attach).await;
    let list = Readdir { ino: Ino::ROOT, after: None, limit: 10, attributes: true };
    assert!(deaf.read(list).await.entries.is_empty());
    let (root_inode, _) = deaf.read(Getattr { ino: Ino::ROOT }).await;
    assert_eq!(root_inode.nlink, 1, "how many buckets there are is not told");
    deaf.read(Statfs { ino: Ino::ROOT }).await;
    for name in ["bucket", "new"] {
        let found = deaf.leased(Lookup { parent: Ino::ROOT, name: name.into() }).await;
        assert!(found.reply.is_err(), "{name}");
    }
    let (name, kind) = ("new".to_owned(), BucketKind::Posix);
    let create = CreateBucket { name, kind, visibility: Visibility::Private };
    let caller = Caller::verified(UserId(8));
    tokio::select! {
        made = host.master.run(&caller, create) => drop(made.unwrap()),
        recall = deaf.recalls.as_mut().unwrap().recv() => panic!("{recall:?} is waited for"),
    }
}

/// All operations take numbers of inodes from one row, and those in a bucket count in another one.
#[tokio::test]
async fn whoever_changes_something_else_waits_for_no_mount() {
    let host = Host::new().await;
    let mut deaf = host.mount(1, SessionMethod::Attach).await;
    let (name, kind) = ("other".to_owned(), BucketKind::Posix);
    let create = CreateBucket { name, kind, visibility: Visibility::Private };
    let other = host.master.run(&root(), create).await.unwrap().ino();
    let (parent, name) = (host.bucket, b"directory".to_vec());
    let mkdir = Mkdir { parent, name, mode: 0o755, umask: 0 };
    let (directory, _) = host.master.run(&root(), mkdir).await.unwrap();
    let make = |parent: Ino| {
        let (master, name) = (host.master.clone(), b"file".to_vec());
        let verb = Create { parent, name, mode: 0o644, umask: 0, exclusive: false };
        tokio::spawn(async move { drop(master.run(&root(), verb).await.unwrap()) })
    };
    deaf.read(Getattr { ino: host.bucket }).await;
    let waiting = make(host.bucket);
    deaf.recalls.as_mut().unwrap().recv().await.unwrap();
    // Time stands still meanwhile: the deaf session does not end.
    for parent in [other, directory] {
        let made = timeout(Duration::from_secs(60), make(parent));
        made.await.expect("it waits for the deaf session").unwrap();
    }
    assert!(!waiting.is_finished(), "it may still show what was before");
    host.pass_until_ended(&mut deaf, async || ()).await;
    waiting.await.unwrap();
}
