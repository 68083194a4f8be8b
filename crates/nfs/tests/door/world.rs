//! A store in memory, with doors to it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::{Caller, HandleKey, Network, Visibility};
use cairn_base::clock::RealClock;
use cairn_base::rng::SeededRng;
use cairn_base::trace::Traces;
use cairn_base::{Clock, Disk, Ino, Secret, Stages, UserId};
use cairn_blocks::Store;
use cairn_fs::ops::buckets::{CreateBucket, UpdateBucket};
use cairn_fs::ops::credentials::{AddAccessKey, DisableUser};
use cairn_fs::ops::exports::{AddExport, RemoveExport};
use cairn_fs::ops::lookup::Lookup;
use cairn_fs::ops::rename::{Rename, RenameMode};
use cairn_fs::ops::sessions::Format;
use cairn_fs::rows::{BucketKind, Squash};
use cairn_fs::{Config, Fs, WireVerb};
use cairn_meta::engine::{Change, CommitError, Engine, Fence, Memory, Snapshot};
use cairn_meta::master::host::Sessions;
use cairn_meta::{Context, Master, Needs, Stop, Verb, VerbNeeds, View};
use cairn_nfs::{Behaviour, CallRecord, Desk, Options, Outcome, PROCEDURES, Ran, Sockets, Watch};
use cairn_sim::SimDisk;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::client::Client;

pub struct World {
    master: Master,
    sessions: Arc<Sessions>,
    store: Store,
    clock: Arc<dyn Clock>,
    pub rows: Arc<Gated>,
    pub door: Door,
}

/// Metadata in memory; nothing is committed while it is held.
#[derive(Default)]
pub struct Gated {
    pub memory: Memory,
    pub is_held: AtomicBool,
    /// The disk is nearly full.
    pub is_low: AtomicBool,
}

impl Engine for Gated {
    fn fence(&self) -> cairn_base::Result<Fence> {
        self.memory.fence()
    }

    fn take_over_at(&self, batch: u64) -> cairn_base::Result<Fence> {
        self.memory.take_over_at(batch)
    }

    fn snapshot(&self) -> cairn_base::Result<Box<dyn Snapshot>> {
        self.memory.snapshot()
    }

    fn is_low_on_space(&self) -> bool {
        self.is_low.load(Ordering::SeqCst)
    }

    fn commit(&self, expected: Fence, changes: Vec<Change>) -> Result<(), CommitError> {
        while self.is_held.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.memory.commit(expected, changes)
    }
}

/// An NFS door, as one of several gateways has it.
pub struct Door {
    pub address: SocketAddr,
    /// Calls of READ that were answered.
    pub reads: Arc<AtomicU64>,
    /// What the audit was told.
    pub ran: Arc<Mutex<Vec<Ran>>>,
    pub desk: Arc<Desk>,
    fs: Fs,
    stop: watch::Sender<bool>,
    served: JoinHandle<()>,
}

/// What most tests want of an export.
pub fn export(bucket: &str, user: &str) -> AddExport {
    AddExport {
        bucket: bucket.into(),
        user: user.into(),
        read_only: false,
        squash: Squash::None,
        uid: 65_534,
        gid: 65_534,
        clients: vec![Network::parse("127.0.0.0/8").unwrap()],
        any_client: false,
    }
}

/// What changes nothing of a bucket.
pub fn update(bucket: &str) -> UpdateBucket {
    UpdateBucket {
        name: bucket.into(),
        visibility: None,
        cache_control: None,
        grant: None,
        tags: None,
        replicas: None,
        redirect: None,
        quota_objects: None,
        quota_bytes: None,
    }
}

/// Puts a row where it is, whatever that row means.
pub struct PutRow(pub Bytes, pub Bytes);

impl VerbNeeds for PutRow {
    const NEEDS: Needs = Needs::Nothing("a test");
}

impl Verb for PutRow {
    type Reply = ();
    const NAME: &'static str = "put_row";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        view.put(self.0.clone(), self.1.clone());
        Ok(())
    }
}

/// Runs a test on a runtime of two threads.
pub fn run<F: Future>(test: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap().block_on(test)
}

/// Runs a test on one thread.
pub fn run_on_one_thread<F: Future>(test: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}

impl World {
    /// With the users root and alice, and alice's buckets `bucket` and `other`, both exported.
    pub async fn new() -> World {
        let clock: Arc<dyn Clock> = Arc::new(RealClock::default());
        let (rows, disk) = (Arc::new(Gated::default()), SimDisk::new(1));
        let engine = Arc::clone(&rows);
        let master = Master::start(engine, Arc::clone(&clock), Default::default()).unwrap();
        master.run(&Caller::system(), Format { cluster: 1 }).await.unwrap();
        let hour = Duration::from_secs(3600);
        let started = Sessions::start(master.clone(), Arc::clone(&clock), hour).await;
        let sessions = started.unwrap();
        let mut config = cairn_blocks::Config::new([1; 16], [2; 16]);
        config.segment_bytes = 32 << 20;
        config.rng = Arc::new(SeededRng::new(1));
        let store = Store::open(disk.sub("blocks").unwrap(), config).unwrap();
        for user in ["root", "alice"] {
            let (id, user, sealed) = (format!("KEY{user}"), user.to_owned(), vec![1]);
            let verb = AddAccessKey { id, sealed, user, replace: false };
            master.run(&Caller::system(), verb).await.unwrap();
        }
        let door = open(&master, &sessions, &store, &clock).await;
        let world = World { master, sessions, store, clock, rows, door };
        for name in ["bucket", "other"] {
            let (name, kind) = (name.to_owned(), BucketKind::Posix);
            let bucket = CreateBucket { name, kind, visibility: Visibility::Private };
            world.master.run(&Caller::verified(UserId(2)), bucket).await.unwrap();
        }
        for bucket in ["bucket", "other"] {
            world.run(export(bucket, "alice")).await;
        }
        world
    }

    /// With a client that has mounted the first bucket.
    pub async fn mounted() -> (World, Client, Vec<u8>) {
        let world = World::new().await;
        let mut client = world.client().await;
        let top = client.mount("/bucket").await.unwrap();
        (world, client, top)
    }

    /// Another door to the same store.
    pub async fn another_door(&self) -> Door {
        open(&self.master, &self.sessions, &self.store, &self.clock).await
    }

    /// As root.
    pub async fn run<V: WireVerb>(&self, verb: V) -> V::Reply {
        self.master.run(&Caller::verified(UserId::ROOT), verb).await.unwrap()
    }

    pub async fn try_run<V: WireVerb>(&self, verb: V) -> cairn_base::Result<V::Reply> {
        self.master.run(&Caller::verified(UserId::ROOT), verb).await
    }

    /// Moves a directory, as another door would.
    pub async fn rename(&self, bucket: &str, from: &str, to: &str) {
        let root = Caller::verified(UserId::ROOT);
        let find = async |path: &str| {
            let mut at = Ino::ROOT;
            for name in [bucket].into_iter().chain(path.split('/').filter(|name| !name.is_empty()))
            {
                let lookup = Lookup { parent: at, name: name.as_bytes().to_vec() };
                at = self.master.read(&root, lookup).await.unwrap().0;
            }
            at
        };
        let split = |path: &str| {
            let (directory, name) = path.rsplit_once('/').unwrap();
            (directory.to_owned(), name.as_bytes().to_vec())
        };
        let ((source, source_name), (target, target_name)) = (split(from), split(to));
        let (source_parent, target_parent) = (find(&source).await, find(&target).await);
        let mode = RenameMode::Replace;
        let rename = Rename { source_parent, source_name, target_parent, target_name, mode };
        self.run(rename).await;
    }

    /// As a duty of the store.
    pub async fn system<V: Verb>(&self, verb: V) -> V::Reply {
        self.master.run(&Caller::system(), verb).await.unwrap()
    }

    pub async fn unexport(&self, bucket: &str) {
        self.run(RemoveExport { bucket: bucket.into() }).await;
    }

    /// Exports a bucket in another way.
    pub async fn export_again(&self, export: AddExport) {
        self.unexport(&export.bucket).await;
        self.run(export).await;
    }

    pub async fn disable(&self, name: &str, disabled: bool) {
        self.run(DisableUser { name: name.into(), disabled }).await;
    }

    pub async fn quota(&self, bucket: &str, bytes: u64) {
        let update = UpdateBucket { quota_bytes: Some(bytes), ..update(bucket) };
        self.run(update).await;
    }

    pub async fn client(&self) -> Client {
        self.door.client().await
    }

    /// Removes what nothing names any more, as a server does from time to time.
    pub async fn collect(&self) {
        self.door.fs.collect_known_garbage(&Caller::system(), true).await.unwrap();
        let store = self.store.clone();
        tokio::task::spawn_blocking(move || store.compact(false)).await.unwrap().unwrap();
    }
}

impl Door {
    pub async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    /// Ends it in order.
    pub async fn stop(self) {
        self.stop.send(true).unwrap();
        self.served.await.unwrap();
    }
}

async fn open(
    master: &Master,
    sessions: &Arc<Sessions>,
    store: &Store,
    clock: &Arc<dyn Clock>,
) -> Door {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let socket = UdpSocket::bind(address).await.unwrap();
    let rng = SeededRng::new(address.port().into());
    let (beside, blocks) = (Some(Arc::clone(sessions)), Arc::new(store.clone()));
    let (master, clock) = (master.clone(), Arc::clone(clock));
    let fs = Fs::start_beside(master, beside, blocks, clock, &rng, Config::default()).await;
    let fs = fs.unwrap();
    let reads = Arc::new(AtomicU64::new(0));
    let ran: Arc<Mutex<Vec<Ran>>> = Arc::default();
    let watch = counting(&reads, &ran);
    let key = HandleKey::derive(&Secret::new([7; 32]));
    let desk = Desk::new(
        fs.clone(),
        key,
        &rng,
        tokio::runtime::Handle::current(),
        Behaviour { port: address.port(), watch, looks_up_groups: false },
    );
    let (stop, stopped) = watch::channel(false);
    let clients = [Network::parse("127.0.0.0/8").unwrap()].into();
    let options = Options { clients, connections: 256 };
    let sockets = Sockets { listeners: vec![listener], datagrams: vec![socket] };
    let serving = cairn_nfs::serve(sockets, Arc::clone(&desk), options, stopped);
    Door { address, reads, ran, desk, fs, stop, served: tokio::spawn(serving) }
}

fn counting(reads: &Arc<AtomicU64>, ran: &Arc<Mutex<Vec<Ran>>>) -> Watch {
    let ran = Arc::clone(ran);
    let reads = Arc::clone(reads);
    let end = move |ended: CallRecord| {
        if PROCEDURES[ended.procedure] == "read" && ended.outcome == Outcome::Fine {
            reads.fetch_add(1, Ordering::SeqCst);
        }
    };
    let traces = Traces::new([1, 2], 0.0);
    Watch {
        begin: Arc::new(move || Stages::start(traces.next(None))),
        end: Arc::new(end),
        audit: Some(Arc::new(move |one| ran.lock().unwrap().push(one))),
    }
}
