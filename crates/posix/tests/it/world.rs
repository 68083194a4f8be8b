//! A server in memory, sessions with it, and the shortest ways to use them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cairn_auth::{Caller, Visibility};
use cairn_base::rng::SeededRng;
use cairn_base::{Clock, Disk, Ino, Result, Rng, Timestamp, UserId};
use cairn_blocks::Store;
use cairn_fs::ops::buckets::CreateBucket;
use cairn_fs::ops::sessions::Format;
use cairn_fs::rows::BucketKind;
use cairn_fs::{Config, Fs};
use cairn_meta::engine::Memory;
use cairn_meta::master::host::{Answer, Sender, Sessions};
use cairn_meta::session::client::{self, Client};
use cairn_meta::session::{Dialed, Dialer, LostCall, MasterLink, SessionMethod};
use cairn_meta::{Master, Meta, wire};
use cairn_posix::{
    Attributes, Changes, Descriptor, Entry, Intent, Keeper, LookupReply, Mode, Options, Posix,
    Source, Who, Writing,
};
use cairn_sim::SimDisk;
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// The mode of new files and directories.
pub const MODE: Mode = Mode { bits: 0o777, umask: 0 };

/// Time as it is asked for: no test depends on how long anything takes.
#[derive(Default)]
struct Ticks(AtomicU64);

const TICK_NS: u64 = 1_000;
/// 2026-01-01T00:00:00Z.
const START_NS: i64 = 1_767_225_600_000_000_000;

impl Clock for Ticks {
    fn now(&self) -> Timestamp {
        let ticks = self.0.fetch_add(1, Ordering::SeqCst);
        Timestamp(START_NS + (ticks * TICK_NS) as i64)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.0.fetch_add(1, Ordering::SeqCst) * TICK_NS)
    }
}

/// A server.
pub struct World {
    clock: Arc<Ticks>,
    master: Master,
    sessions: Arc<Sessions>,
    store: Store,
    seed: u64,
    next: AtomicU64,
}

/// A file system over a session with the server, and what is told to its keeper.
pub struct Mount {
    pub posix: Arc<Posix>,
    pub told: Arc<Told>,
    /// The bucket.
    pub top: Ino,
    pub who: Who,
}

/// Remembers what it was told to forget.
#[derive(Default)]
pub struct Told {
    pub attributes: Mutex<Vec<Ino>>,
    pub names: AtomicU64,
}

impl Keeper for Told {
    fn counts(&self) -> bool {
        true
    }

    fn keeps_names(&self) -> bool {
        true
    }

    fn forget_names(&self) {
        self.names.fetch_add(1, Ordering::SeqCst);
    }

    fn forget_attributes(&self, ino: Ino) -> bool {
        self.attributes.lock().push(ino);
        true
    }
}

/// Runs a test on a runtime of two threads, as a mount has.
pub fn run<F: Future>(test: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap().block_on(test)
}

/// Runs a test once for each of some seeds: more of them in the long form.
pub fn run_seeds<F: Future<Output = ()>>(count: u64, test: impl Fn(u64) -> F) {
    struct Shows(u64);
    impl Drop for Shows {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("seed {}", self.0);
            }
        }
    }
    for seed in 1..=count * cairn_sim::scale() {
        let _shows = Shows(seed);
        run(test(seed));
    }
}

pub fn user() -> Caller {
    Caller::verified(UserId::ROOT)
}

/// Reproducible bytes.
pub fn data(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    SeededRng::new(seed).fill(&mut bytes);
    bytes
}

impl World {
    pub async fn new(seed: u64) -> World {
        let clock = Arc::new(Ticks::default());
        let (engine, disk) = (Arc::new(Memory::new()), SimDisk::new(seed));
        let master = Master::start(engine, clock.clone(), Default::default()).unwrap();
        master.run(&Caller::system(), Format { cluster: 1 }).await.unwrap();
        let hour = Duration::from_secs(3600);
        let sessions = Sessions::start(master.clone(), clock.clone(), hour).await.unwrap();
        let (name, kind) = ("bucket".into(), BucketKind::Posix);
        let bucket = CreateBucket { name, kind, visibility: Visibility::Private };
        master.run(&user(), bucket).await.unwrap();
        let mut config = cairn_blocks::Config::new([1; 16], [2; 16]);
        config.segment_bytes = 8 << 20;
        config.reserve_bytes = 64 << 10;
        config.rng = Arc::new(SeededRng::new(seed));
        let store = Store::open(disk.sub("blocks").unwrap(), config).unwrap();
        World { clock, master, sessions, store, seed, next: AtomicU64::new(1) }
    }

    /// A session as a mount has it: its operations are done when they have run.
    pub async fn mount(&self) -> Mount {
        let told = Arc::new(Told::default());
        self.mount_for(true, Arc::clone(&told) as _, told).await
    }

    /// As a server has it whose clients are told that things are durable, and keep nothing.
    pub async fn served(&self) -> Mount {
        self.mount_for(false, Arc::new(cairn_posix::Nobody), Arc::default()).await
    }

    async fn mount_for(&self, hasty: bool, keeper: Arc<dyn Keeper>, told: Arc<Told>) -> Mount {
        let peer = self.next.fetch_add(1, Ordering::SeqCst);
        let rng: Arc<dyn Rng> = Arc::new(SeededRng::new(self.seed << 8 | peer));
        let dialer = InProcess { sessions: self.sessions.clone(), peer };
        let config = client::Config { hasty, ..client::Config::default() };
        let client = Client::start(Arc::new(dialer), self.clock.clone(), rng, config);
        let meta = Meta::Remote(client.await.unwrap());
        let blocks = Arc::new(self.store.clone());
        let fs = Fs::over(meta, blocks, self.clock.clone(), Config::default());
        Mount::over(fs, keeper, told).await
    }

    /// As a server has it that is in one process with the master: nothing is leased.
    pub async fn local(&self) -> Mount {
        let rng = SeededRng::new(self.seed << 8 | self.next.fetch_add(1, Ordering::SeqCst));
        let (sessions, blocks) = (Some(self.sessions.clone()), Arc::new(self.store.clone()));
        let (master, clock) = (self.master.clone(), self.clock.clone());
        let fs = Fs::start_beside(master, sessions, blocks, clock, &rng, Config::default());
        Mount::over(fs.await.unwrap(), Arc::new(cairn_posix::Nobody), Arc::default()).await
    }
}

impl Mount {
    async fn over(fs: Fs, keeper: Arc<dyn Keeper>, told: Arc<Told>) -> Mount {
        let (dirty_bytes, dirty_bytes_each) = (64 << 20, 64 << 20);
        let options = Options { dirty_bytes, dirty_bytes_each, opens_nothing: false };
        let runtime = tokio::runtime::Handle::current();
        let posix = Posix::new(fs, user(), runtime, keeper, options);
        posix.follow_changes();
        let who = Who::root();
        let mut mount = Mount { posix, told, top: Ino::ROOT, who };
        mount.top = mount.find(Ino::ROOT, "bucket").await.unwrap().attributes.ino;
        mount
    }
}

/// The way to the server.
struct InProcess {
    sessions: Arc<Sessions>,
    peer: u64,
}

struct Way {
    sessions: Arc<Sessions>,
    peer: Sender,
    recalls: Mutex<Option<UnboundedSender<Bytes>>>,
}

#[async_trait]
impl Dialer for InProcess {
    async fn dial(&self) -> Result<Dialed> {
        let (sender, recalls) = unbounded_channel();
        let (sessions, peer) = (self.sessions.clone(), Sender::node(self.peer));
        let way = Way { sessions, peer, recalls: Mutex::new(Some(sender)) };
        Ok((Arc::new(way), recalls))
    }
}

#[async_trait]
impl MasterLink for Way {
    async fn call(&self, method: SessionMethod, message: Bytes) -> Result<Bytes, LostCall> {
        let answer = self.sessions.handle(&self.peer, method, &message).await;
        match answer.map_err(|error| LostCall(error.to_string()))? {
            Answer::Bytes(bytes) => Ok(bytes),
            Answer::Attached(bytes, mut recalls) => {
                let Some(sender) = self.recalls.lock().take() else { return Ok(bytes) };
                tokio::spawn(async move {
                    while let Some(recall) = recalls.recv().await {
                        if sender.send(wire::encode(&recall).unwrap()).is_err() {
                            return;
                        }
                    }
                });
                Ok(bytes)
            }
        }
    }
}

impl Mount {
    pub fn who(&self) -> Who {
        self.who.clone()
    }

    pub async fn find(&self, parent: Ino, name: &str) -> Option<Entry> {
        match self.posix.lookup(self.who(), parent, name.as_bytes()).await.unwrap() {
            LookupReply::Entry(entry) => Some(entry),
            LookupReply::Nothing(_) => None,
        }
    }

    /// Makes a file, and opens it for reading and writing.
    pub async fn create(&self, parent: Ino, name: &str) -> Result<(Ino, Descriptor)> {
        let made = self.posix.create(self.who(), parent, name, MODE, Intent::BOTH, true).await;
        made.map(|(entry, opened)| (entry.attributes.ino, opened.file))
    }

    /// Makes a file with these bytes, written back.
    pub async fn put(&self, parent: Ino, name: &str, bytes: &[u8]) -> Ino {
        let (ino, file) = self.create(parent, name).await.unwrap();
        self.write(file, 0, bytes).await;
        self.close(file).await;
        ino
    }

    pub async fn mkdir(&self, parent: Ino, name: &str) -> Result<Ino> {
        let made = self.posix.make_directory(self.who(), parent, name, MODE).await;
        made.map(|entry| entry.attributes.ino)
    }

    pub async fn open(&self, ino: Ino, intent: Intent) -> Result<Descriptor> {
        self.posix.open(self.who(), ino, intent).await.map(|opened| opened.file)
    }

    pub async fn write(&self, file: Descriptor, offset: u64, bytes: &[u8]) {
        self.posix.write(file, offset, bytes, Writing::default()).await.unwrap();
    }

    pub async fn read(&self, file: Descriptor, offset: u64, size: u32) -> Result<Bytes> {
        self.posix.read(Source::File(file), offset, size).await
    }

    /// All bytes of a file, by opening it.
    pub async fn get(&self, ino: Ino) -> Result<Bytes> {
        let file = self.open(ino, Intent::READING).await?;
        let bytes = self.read(file, 0, u32::MAX).await;
        self.posix.release(file).await;
        bytes
    }

    /// As a program closes it.
    pub async fn close(&self, file: Descriptor) {
        self.posix.flush(file, 0).await.unwrap();
        self.posix.release(file).await;
    }

    pub async fn stat(&self, ino: Ino) -> Result<Attributes> {
        self.posix.attributes(self.who(), ino, true).await.map(|(shown, _)| shown)
    }

    pub async fn cut(&self, ino: Ino, size: u64) -> Result<Attributes> {
        let changes = Changes { size: Some(size), ..Changes::default() };
        self.posix.set_attributes(self.who(), ino, changes, None).await
    }

    pub async fn unlink(&self, parent: Ino, name: &str) -> Result<()> {
        self.posix.remove_file(self.who(), parent, name.as_bytes()).await
    }

    /// The names of a directory by cookies, so many at a time, without dots.
    pub async fn names(&self, ino: Ino, limit: usize) -> Vec<(String, Ino)> {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let listed = self.posix.list_after(self.who(), ino, cookie, limit, false);
            let part = listed.await.unwrap();
            for entry in &part.entries {
                cookie = entry.cookie;
                if entry.name != "." && entry.name != ".." {
                    let name = String::from_utf8(entry.name.to_vec()).unwrap();
                    names.push((name, entry.ino));
                }
            }
            if part.is_end {
                return names;
            }
        }
    }
}
