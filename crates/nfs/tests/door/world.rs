//! A store in memory, with doors to it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cairn_auth::{Caller, HandleKey, Network, Visibility};
use cairn_base::clock::RealClock;
use cairn_base::rng::SeededRng;
use cairn_base::{Clock, Disk, Secret, UserId};
use cairn_blocks::Store;
use cairn_fs::ops::buckets::{CreateBucket, UpdateBucket};
use cairn_fs::ops::credentials::{AddAccessKey, DisableUser};
use cairn_fs::ops::exports::{AddExport, RemoveExport};
use cairn_fs::ops::sessions::Format;
use cairn_fs::rows::{BucketKind, Squash};
use cairn_fs::{Config, Fs, WireVerb};
use cairn_meta::Master;
use cairn_meta::engine::Memory;
use cairn_meta::master::host::Sessions;
use cairn_nfs::{Desk, Options};
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
    pub door: Door,
}

/// An NFS door, as one of several gateways has it.
pub struct Door {
    pub address: SocketAddr,
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

/// Runs a test on a runtime of two threads.
pub fn run<F: Future>(test: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap().block_on(test)
}

impl World {
    /// With the users root and alice, and alice's buckets `bucket` and `other`, both exported.
    pub async fn new() -> World {
        let clock: Arc<dyn Clock> = Arc::new(RealClock::default());
        let (engine, disk) = (Arc::new(Memory::new()), SimDisk::new(1));
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
        let world = World { master, sessions, store, clock, door };
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

    /// Another door to the same store.
    pub async fn another_door(&self) -> Door {
        open(&self.master, &self.sessions, &self.store, &self.clock).await
    }

    /// As root.
    pub async fn run<V: WireVerb>(&self, verb: V) -> V::Reply {
        self.master.run(&Caller::verified(UserId::ROOT), verb).await.unwrap()
    }

    /// As a duty of the store.
    pub async fn system<V: WireVerb>(&self, verb: V) -> V::Reply {
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
    let key = HandleKey::derive(&Secret::new([7; 32]));
    let desk = Desk::new(fs.unwrap(), key, &rng, tokio::runtime::Handle::current());
    let (stop, stopped) = watch::channel(false);
    let clients = [Network::parse("127.0.0.0/8").unwrap()].into();
    let options = Options { clients, connections: 64 };
    let serving = cairn_nfs::serve(listener, Some(socket), desk, options, stopped);
    Door { address, stop, served: tokio::spawn(serving) }
}
