//! A master, clients of it, and a network between them that can be cut.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cairn_auth::{Caller, Visibility};
use cairn_base::clock::RealClock;
use cairn_base::rng::SeededRng;
use cairn_base::{Clock, Error, Ino, Result, Rng, UserId};
use cairn_meta::engine::{Change, CommitError, Engine, Fence, Lease, Memory, Snapshot};
use cairn_meta::master::host::{Answer, Sender, Sessions};
use cairn_meta::master::{self, Master};
use cairn_meta::ops::buckets::CreateBucket;
use cairn_meta::ops::create::Create;
use cairn_meta::ops::lookup::Lookup;
use cairn_meta::ops::open_object::{OpenObject, OpenedObject};
use cairn_meta::ops::put_object::{NewContent, PutObject, PutReply};
use cairn_meta::ops::sessions::Format;
use cairn_meta::rows::{BucketKind, Content};
use cairn_meta::session::client::{self, Client};
use cairn_meta::session::{Dialed, Dialer, LostCall, MasterLink, Reply, Serving, SessionMethod};
use cairn_meta::wire;
use parking_lot::{Condvar, Mutex};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};

/// The lease of sessions in these tests.
pub const LEASE: Duration = Duration::from_millis(800);

const ATTACHING: [SessionMethod; 3] =
    [SessionMethod::Attach, SessionMethod::AttachToReplay, SessionMethod::AttachHolding];

/// The reachable parts: the master that serves, and whether messages of a peer arrive.
pub struct Net {
    pub engine: Arc<Memory>,
    /// The disk of the master that serves.
    disk: Mutex<Arc<Disk>>,
    serving: Mutex<Arc<Sessions>>,
    /// The serving master, for a session in its process.
    master: Mutex<Serving>,
    cuts: Mutex<HashMap<u64, Arc<Cut>>>,
    /// Number of clients so far.
    clients: AtomicU64,
    /// Set if masters are of a version that does not know that sessions hold rows.
    pub is_old: AtomicBool,
}

#[derive(Default)]
pub struct Cut {
    /// Set if no message passes, in either direction.
    pub silent: AtomicBool,
    /// Set if a client that dials is answered that its credentials are refused.
    pub refused: AtomicBool,
    /// Number of calls of which one loses its answer, and the connection with it; 0 for never.
    pub lose_one_in: AtomicU64,
    /// Set if recalls are held back.
    pub no_recalls: AtomicBool,
    /// Method by which masters were asked to attach the session, each time.
    pub attached: Mutex<Vec<SessionMethod>>,
    /// Holds the next change back until another one was answered, for half a second at most.
    pub overtake: AtomicBool,
    /// Generation of the metadata that the client finds when it dials.
    pub generation: AtomicU64,
    changed: Notify,
    died: DeathSignal,
}

/// Is closed when the client's process dies.
struct DeathSignal(Semaphore);

impl Default for DeathSignal {
    fn default() -> DeathSignal {
        DeathSignal(Semaphore::new(0))
    }
}

impl Cut {
    /// The process of the client dies: the master hears that its connection ends.
    pub fn die(&self) {
        self.silent.store(true, Ordering::SeqCst);
        self.died.0.close();
    }
}

pub fn caller() -> Caller {
    Caller::verified(UserId::ROOT)
}

impl Net {
    pub async fn new() -> Arc<Net> {
        let engine = Arc::new(Memory::new());
        let disk = Disk::of(&engine);
        let (serving, master) = serve(&disk).await;
        let (serving, master) = (Mutex::new(serving), Mutex::new(master));
        let (disk, cuts, is_old) = (Mutex::new(disk), Mutex::default(), AtomicBool::new(false));
        let clients = AtomicU64::default();
        let net = Arc::new(Net { engine, disk, serving, master, cuts, clients, is_old });
        let ticking = Arc::downgrade(&net);
        tokio::spawn(async move {
            while let Some(net) = ticking.upgrade() {
                let sessions = net.sessions();
                // A master that was replaced cannot end sessions any more.
                let _ = sessions.tick().await;
                drop(net);
                sleep(Duration::from_millis(20)).await;
            }
        });
        net
    }

    pub fn sessions(&self) -> Arc<Sessions> {
        self.serving.lock().clone()
    }

    /// The master that serves, for a session in its process.
    pub fn master(&self) -> Serving {
        self.master.lock().clone()
    }

    /// Another master takes over, once the lease of the former one is over.
    pub async fn fail_over(&self) {
        self.disk().lease.give_up();
        let disk = Disk::of(&self.engine);
        let (sessions, master) = serve(&disk).await;
        *self.disk.lock() = disk;
        *self.serving.lock() = sessions;
        *self.master.lock() = master;
    }

    /// The master ends, and what it has not committed is lost. Another one takes over.
    pub async fn kill_master(&self) {
        self.disk().kill();
        self.fail_over().await;
    }

    /// Its disk waits, and its master ends, by chance and again and again.
    pub async fn disturb(&self, rng: &SeededRng) {
        for _ in 0..12 {
            sleep(Duration::from_millis(20 + rng.next_u64() % 100)).await;
            self.disk().hold();
            sleep(Duration::from_millis(rng.next_u64() % 30)).await;
            match rng.next_u64() % 3 {
                0 => self.disk().go_on(),
                _ => self.kill_master().await,
            }
        }
        self.disk().go_on();
    }

    /// Returns the disk of the serving master.
    pub fn disk(&self) -> Arc<Disk> {
        self.disk.lock().clone()
    }

    pub async fn client(self: &Arc<Net>, peer: u64) -> (Client, Arc<Cut>) {
        self.client_with(peer, client::Config::default()).await
    }

    /// Makes a client that is answered when operations have run, before they are durable.
    pub async fn hasty_client(self: &Arc<Net>, peer: u64) -> (Client, Arc<Cut>) {
        self.client_with(peer, client::Config { hasty: true, ..client::Config::default() }).await
    }

    pub async fn client_with(
        self: &Arc<Net>,
        peer: u64,
        config: client::Config,
    ) -> (Client, Arc<Cut>) {
        let cut = Arc::new(Cut::default());
        self.cuts.lock().insert(peer, cut.clone());
        // Two processes of one peer have sessions of their own.
        let seed = peer + 1000 * self.clients.fetch_add(1, Ordering::SeqCst);
        let rng: Arc<dyn Rng> = Arc::new(SeededRng::new(seed));
        let dialer = PeerDialer { net: self.clone(), cut: cut.clone(), peer, rng: rng.clone() };
        let clock = Arc::new(RealClock::default());
        let client = Client::start(Arc::new(dialer), clock, rng, config).await.unwrap();
        (client, cut)
    }
}

/// The disk that a master commits to.
pub struct Disk {
    engine: Arc<Memory>,
    state: Mutex<DiskState>,
    changed: Condvar,
    /// Lease of the master, which never ends by itself.
    lease: Arc<Lease>,
    is_gone: tokio::sync::watch::Sender<bool>,
}

#[derive(Default)]
struct DiskState {
    /// Commits wait.
    held: bool,
    /// There will be none any more.
    killed: bool,
}

impl Disk {
    fn of(engine: &Arc<Memory>) -> Arc<Disk> {
        let (is_gone, _) = tokio::sync::watch::channel(false);
        let (state, changed) = (Mutex::default(), Condvar::new());
        let clock = Arc::new(RealClock::default());
        let begun = clock.monotonic();
        let lease = Arc::new(Lease::new("test".into(), Duration::from_secs(3600), clock, begun));
        Arc::new(Disk { engine: engine.clone(), state, changed, lease, is_gone })
    }

    pub fn hold(&self) {
        self.state.lock().held = true;
    }

    pub fn go_on(&self) {
        self.state.lock().held = false;
        self.changed.notify_all();
    }

    fn kill(&self) {
        self.state.lock().killed = true;
        self.changed.notify_all();
        self.is_gone.send_replace(true);
    }

    /// Returns when the master is killed.
    async fn gone(&self) {
        let _ = self.is_gone.subscribe().wait_for(|gone| *gone).await;
    }
}

impl Engine for Disk {
    fn fence(&self) -> Result<Fence> {
        self.engine.fence()
    }

    fn take_over_at(&self, batch: u64) -> Result<Fence> {
        self.engine.take_over_at(batch)
    }

    fn lease(&self) -> Option<Arc<Lease>> {
        Some(Arc::clone(&self.lease))
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.engine.snapshot()
    }

    fn commit(&self, expected: Fence, changes: Vec<Change>) -> Result<(), CommitError> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.held && !state.killed);
        if state.killed {
            Err(CommitError::Poisoned(Error::Unavailable("killed".into())))
        } else {
            self.engine.commit(expected, changes)
        }
    }
}

async fn serve(disk: &Arc<Disk>) -> (Arc<Sessions>, Serving) {
    let clock = Arc::new(RealClock::default());
    let master = Master::start(disk.clone(), clock.clone(), master::Config::default()).unwrap();
    let system = Caller::system();
    master.run(&system, Format { cluster: 1 }).await.unwrap();
    let sessions = Sessions::start(master.clone(), clock, LEASE).await.unwrap();
    let bucket = CreateBucket {
        name: "bucket".into(),
        kind: BucketKind::S3,
        visibility: Visibility::Private,
    };
    if sessions.opened_now() {
        match master.run(&caller(), bucket).await {
            Ok(_) | Err(Error::Exists(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    (sessions, master.serving())
}

struct PeerDialer {
    net: Arc<Net>,
    cut: Arc<Cut>,
    peer: u64,
    rng: Arc<dyn Rng>,
}

struct PeerLink {
    sessions: Arc<Sessions>,
    disk: Arc<Disk>,
    cut: Arc<Cut>,
    peer: Sender,
    rng: Arc<dyn Rng>,
    is_old: bool,
    broken: Arc<AtomicBool>,
    recalls: Mutex<Option<tokio::sync::mpsc::UnboundedSender<Bytes>>>,
}

#[async_trait]
impl Dialer for PeerDialer {
    async fn dial(&self) -> Result<Dialed> {
        if self.cut.refused.load(Ordering::SeqCst) {
            return Err(Error::Denied("the credentials are refused".into()));
        }
        if self.cut.silent.load(Ordering::SeqCst) {
            return Err(Error::Unavailable("no route".into()));
        }
        let (sender, recalls) = unbounded_channel();
        let link = PeerLink {
            sessions: self.net.sessions(),
            disk: self.net.disk(),
            cut: self.cut.clone(),
            peer: Sender::node(self.peer),
            rng: self.rng.clone(),
            is_old: self.net.is_old.load(Ordering::SeqCst),
            broken: Arc::default(),
            recalls: Mutex::new(Some(sender)),
        };
        Ok((Arc::new(link), recalls))
    }

    fn generation(&self) -> u64 {
        self.cut.generation.load(Ordering::SeqCst)
    }
}

impl PeerLink {
    fn check(&self) -> Result<(), LostCall> {
        if self.broken.load(Ordering::SeqCst) { Err(LostCall("broken".into())) } else { Ok(()) }
    }

    async fn answer(&self, method: SessionMethod, message: &[u8]) -> Result<Answer> {
        if ATTACHING.contains(&method) {
            self.cut.attached.lock().push(method);
        }
        if method == SessionMethod::AttachHolding && self.is_old {
            let text = "masters of this version do not know method 29";
            let failed = Reply::<()>::Failed(Error::NotImplemented(text.into()));
            return wire::encode(&failed).map(Answer::Bytes);
        }
        self.sessions.handle(&self.peer, method, message).await
    }

    /// A network that is cut does not say so: who waits finds out by a timeout.
    async fn pass(&self) -> Result<(), LostCall> {
        if self.cut.silent.load(Ordering::SeqCst) {
            sleep(LEASE / 8).await;
            self.broken.store(true, Ordering::SeqCst);
        }
        self.check()
    }
}

#[async_trait]
impl MasterLink for PeerLink {
    async fn call(&self, method: SessionMethod, message: Bytes) -> Result<Bytes, LostCall> {
        self.pass().await?;
        if method == SessionMethod::Change && self.cut.overtake.swap(false, Ordering::SeqCst) {
            let _ = timeout(Duration::from_millis(500), self.cut.changed.notified()).await;
        }
        let answer = tokio::select! {
            biased;
            () = self.disk.gone() => return Err(LostCall("the master was killed".into())),
            answer = self.answer(method, &message) => answer,
        };
        let answer = match answer.map_err(|error| LostCall(error.to_string()))? {
            Answer::Bytes(bytes) => bytes,
            Answer::Attached(bytes, mut recalls) => {
                let Some(sender) = self.recalls.lock().take() else { return Ok(bytes) };
                let (cut, broken) = (self.cut.clone(), self.broken.clone());
                tokio::spawn(async move {
                    loop {
                        let recall = tokio::select! {
                            biased;
                            _ = cut.died.0.acquire() => return,
                            recall = recalls.recv() => recall,
                        };
                        let Some(recall) = recall else { return };
                        while cut.no_recalls.load(Ordering::SeqCst)
                            || cut.silent.load(Ordering::SeqCst)
                        {
                            sleep(Duration::from_millis(5)).await;
                        }
                        let sent = wire::encode(&recall).unwrap();
                        if broken.load(Ordering::SeqCst) || sender.send(sent).is_err() {
                            return;
                        }
                    }
                });
                bytes
            }
        };
        let one_in = self.cut.lose_one_in.load(Ordering::SeqCst);
        if one_in > 0 && self.rng.next_u64().is_multiple_of(one_in) {
            self.broken.store(true, Ordering::SeqCst);
            // The other end finds out as well.
            self.recalls.lock().take();
        }
        self.pass().await?;
        if method == SessionMethod::Change {
            self.cut.changed.notify_waiters();
        }
        Ok(answer)
    }
}

/// Puts a number into an object.
pub async fn put(client: &Client, key: &str, number: u64) -> Result<PutReply> {
    let verb = PutObject {
        bucket: "bucket".into(),
        key: key.into(),
        session: client.session(),
        content: NewContent::Inline(Bytes::copy_from_slice(&number.to_be_bytes())),
        size: 8,
        object: Default::default(),
        tags: Vec::new(),
        conditions: Default::default(),
    };
    client.run(&caller(), verb).await
}

/// The number in an object, 0 if there is none.
pub async fn get(client: &Client, key: &str) -> Result<u64> {
    let verb = OpenObject { bucket: "bucket".into(), key: key.into() };
    match client.read(&caller(), verb).await {
        Ok(OpenedObject { inode, .. }) => match inode.content {
            Content::Inline(bytes) => Ok(u64::from_be_bytes(bytes[..].try_into().unwrap())),
            other => panic!("{other:?}"),
        },
        Err(Error::NotFound(_)) => Ok(0),
        Err(error) => Err(error),
    }
}

/// Makes a file of that number, in the directory of the bucket; it may be there.
pub async fn make(client: &Client, number: u64) -> Result<()> {
    let parent = bucket(client).await?;
    make_in(client, parent, number).await.map(drop)
}

/// Makes a file like [`make`], in a directory.
pub async fn make_in(client: &Client, parent: Ino, number: u64) -> Result<Ino> {
    let name = number.to_string().into_bytes();
    let verb = Create { parent, name, mode: 0o644, umask: 0, exclusive: false };
    client.run(&caller(), verb).await.map(|(ino, ..)| ino)
}

/// Returns whether the file exists.
pub async fn is_made(client: &Client, number: u64) -> Result<bool> {
    let parent = bucket(client).await?;
    find_in(client, parent, number).await.map(|found| found.is_some())
}

/// The file of that number in a directory.
pub async fn find_in(client: &Client, parent: Ino, number: u64) -> Result<Option<Ino>> {
    let name = number.to_string().into_bytes();
    match client.read(&caller(), Lookup { parent, name }).await {
        Ok((ino, _)) => Ok(Some(ino)),
        Err(Error::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

pub async fn bucket(client: &Client) -> Result<Ino> {
    let name = b"bucket".to_vec();
    client.read(&caller(), Lookup { parent: Ino::ROOT, name }).await.map(|(ino, _)| ino)
}
