//! The store, as doors see it.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cairn_auth::{Action, Caller, Principal, Resource, is_allowed};
use cairn_base::{BlockId, BodyId, Clock, Error, Ino, Result, Rng, SessionId, Shares};
use cairn_blocks::Blocks;
use cairn_meta::master::host::Sessions;
use cairn_meta::ops::buckets::FindBucket;
use cairn_meta::ops::order_directory::OrderDirectory;
use cairn_meta::ops::public_access::check_is_shown;
use cairn_meta::ops::sessions::{EndSession, ListSessions, OpenSession};
use cairn_meta::rows::SessionState;
use cairn_meta::session::client;
use cairn_meta::{Master, Meta, RowWatch, Verb, WireVerb, keys};
use parking_lot::Mutex;

use crate::account::Throttle;
use crate::cache::{Cache, Stats};
use crate::garbage::{GarbageItem, Looks};
use crate::incoming::Incoming;
use crate::memos::{self, Memos};
use crate::open_objects::{self, OpenedCache};
use crate::readers::Readers;
use crate::sending::Sending;

/// Checks whether a change can be recorded now.
type RecordCheck = Box<dyn Fn() -> Result<()> + Send + Sync>;

/// Operations with which root makes room even if nothing can be recorded.
const DELETIONS: [&str; 8] = [
    "delete_object",
    "delete_objects",
    "unlink",
    "rmdir",
    "delete_bucket",
    "drop_uploads",
    "abort_upload",
    "abort_resumable",
];

/// Limits of the memory and parallelism of the store.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes of blocks kept in memory.
    pub cache_bytes: u64,
    /// Bytes of all uploads that are in memory, on their way to disk.
    pub upload_bytes: usize,
    /// Number of waiting bytes of all clients from which on each body has only one piece wait, and
    /// not two.
    pub sending_bytes: u64,
    /// Number of blocks of one upload that are written at the same time.
    pub parallel_blocks: usize,
    /// Time for which blocks may still arrive from a session of another process that has ended.
    /// That process writes for [`alone`] since it last heard of its master, which was before the
    /// end. Chunkservers then work for less than a minute on the blocks that it has sent. The rest
    /// is for messages that were held up on their way.
    pub late: Duration,
}

impl Default for Config {
    fn default() -> Config {
        let late = client::Config::default().alone + Duration::from_secs(300);
        Config {
            cache_bytes: 64 << 20,
            upload_bytes: 64 << 20,
            sending_bytes: 64 << 20,
            parallel_blocks: 4,
            late,
        }
    }
}

/// The store: cheap to clone, shared by all doors.
#[derive(Clone)]
pub struct Fs {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) meta: Meta,
    pub(crate) blocks: Arc<dyn Blocks>,
    /// True if several pieces of a block may be read at once: not if a disk caches each of them.
    pub(crate) reads_spans: bool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: Config,
    pub(crate) cache: Cache,
    pub(crate) opened: OpenedCache,
    pub(crate) memos: Memos,
    pub(crate) readers: Readers,
    /// Memory for uploads, bytes.
    pub(crate) upload_memory: Arc<Shares>,
    /// Bytes that wait for clients.
    pub(crate) sending: Arc<Sending>,
    /// Bodies that this session wrote and will not publish.
    pub(crate) abandoned: Mutex<Vec<GarbageItem>>,
    /// Files whose inline extents are being moved into blocks.
    pub(crate) coalescing: Mutex<HashSet<Ino>>,
    /// Sessions that have ended and were looked through at least once.
    pub(crate) ended: Mutex<BTreeMap<SessionId, Looks>>,
    /// Returns a batch before which no reader of another process reads.
    pub(crate) reads_floor: OnceLock<Box<dyn Fn() -> u64 + Send + Sync>>,
    /// Accounts of users with limits.
    pub(crate) throttle: Throttle,
    /// Bytes of uploads that quotas have admitted.
    pub(crate) incoming: Arc<Incoming>,
    /// Names that only root gives to buckets.
    pub(crate) reserved: OnceLock<Vec<String>>,
    /// Checks whether a change can be recorded, if it must be.
    pub(crate) records: OnceLock<RecordCheck>,
    counter: AtomicU64,
}

impl Fs {
    /// Ends the sessions that a former process left behind, and opens a new one.
    pub async fn start(
        master: Master,
        blocks: Arc<dyn Blocks>,
        clock: Arc<dyn Clock>,
        rng: &dyn Rng,
        config: Config,
    ) -> Result<Fs> {
        end_own_sessions(&master).await?;
        Fs::start_beside(master, None, blocks, clock, rng, config).await
    }

    /// Starts like [`Fs::start`], with sessions of other processes in addition to its own. The
    /// sessions that a former process left behind were ended before.
    pub async fn start_beside(
        master: Master,
        sessions: Option<Arc<Sessions>>,
        blocks: Arc<dyn Blocks>,
        clock: Arc<dyn Clock>,
        rng: &dyn Rng,
        config: Config,
    ) -> Result<Fs> {
        let session = SessionId::random(rng);
        master.run(&Caller::system(), OpenSession { session }).await?;
        let meta = Meta::Local { master, session, sessions: sessions.clone() };
        let fs = Fs::over(meta, blocks, clock, config);
        if let Some(sessions) = sessions {
            fs.set_reads_floor(move || sessions.reads_from());
        }
        Ok(fs)
    }

    /// Continues a session that was opened elsewhere, over local or remote blocks.
    pub fn over(meta: Meta, blocks: Arc<dyn Blocks>, clock: Arc<dyn Clock>, config: Config) -> Fs {
        let inner = Inner {
            reads_floor: OnceLock::new(),
            upload_memory: Shares::new(config.upload_bytes as u64),
            sending: Sending::new(config.sending_bytes),
            cache: Cache::new(config.cache_bytes),
            opened: open_objects::new(),
            memos: memos::new(),
            readers: Readers::default(),
            abandoned: Mutex::new(Vec::new()),
            coalescing: Mutex::default(),
            ended: Mutex::new(BTreeMap::new()),
            throttle: Throttle::default(),
            incoming: Arc::default(),
            reserved: OnceLock::new(),
            records: OnceLock::new(),
            counter: AtomicU64::new(1),
            reads_spans: blocks.counted().kept.is_none(),
            meta,
            blocks,
            clock,
            config,
        };
        let fs = Fs { inner: Arc::new(inner) };
        if let Meta::Remote(client) = &fs.inner.meta {
            let reading = Arc::downgrade(&fs.inner);
            client.set_reads_from(Box::new(move |settled| match reading.upgrade() {
                Some(inner) => {
                    inner.readers.advance(settled);
                    inner.readers.let_go(inner.clock.monotonic());
                    inner.readers.settled()
                }
                None => settled,
            }));
        }
        fs
    }

    /// Sets the function that returns the batch which the oldest reader elsewhere reads, for the
    /// garbage collector.
    pub fn set_reads_floor(&self, floor: impl Fn() -> u64 + Send + Sync + 'static) {
        // The first function stays.
        let _ = self.inner.reads_floor.set(Box::new(floor));
    }

    /// From here on only root makes buckets of these names, such as the host names of the store:
    /// each bucket is shown at the host of its name.
    pub fn reserve_names(&self, names: Vec<String>) {
        // The first names stay.
        let _ = self.inner.reserved.set(names);
    }

    /// Checks whether the caller may make a bucket of this name, as far as this process knows.
    ///
    /// # Errors
    /// `Denied` if the name is reserved.
    pub fn check_new_bucket(&self, caller: &Caller, name: &str) -> Result<()> {
        let reserved = self.inner.reserved.get().map_or(&[][..], Vec::as_slice);
        if !caller.is_root() && reserved.iter().any(|one| one == name) {
            Err(Error::Denied(format!(
                "bucket name {name:?} is reserved for the store: only root may use it"
            )))
        } else {
            Ok(())
        }
    }

    /// Checks that a bucket that is made public is public at once, and not hidden by its public
    /// access block. Callers that may not make it public learn nothing here.
    ///
    /// # Errors
    /// `Denied` if it is hidden.
    pub async fn check_is_shown(&self, caller: &Caller, bucket: &str) -> Result<()> {
        let verb = FindBucket { name: bucket.to_owned() };
        let Some(opened) = self.read(&Caller::system(), verb).await? else { return Ok(()) };
        let (context, access) = (caller.context(self.clock().now()), opened.bucket.access());
        if is_allowed(caller, Action::PutBucketAcl, Resource::Bucket(access), &context) {
            check_is_shown(&opened.bucket)
        } else {
            Ok(())
        }
    }

    /// From here on users change nothing if `check` fails. Root may delete all the same, and
    /// operations of the store itself are not checked.
    pub fn require_records(&self, check: impl Fn() -> Result<()> + Send + Sync + 'static) {
        // The first check stays.
        let _ = self.inner.records.set(Box::new(check));
    }

    fn check_records(&self, caller: &Caller, verb: &str) -> Result<()> {
        let Some(check) = self.inner.records.get() else { return Ok(()) };
        let is_own = caller.principal() == Principal::System;
        // A directory is ordered by whoever lists it: nobody sees a change.
        let is_listing = verb == OrderDirectory::NAME;
        if is_own || is_listing || caller.is_root() && DELETIONS.contains(&verb) {
            return Ok(());
        }
        check()
    }

    /// Runs an operation that may change the metadata; the change is durable when this returns.
    pub async fn run<V: WireVerb>(&self, caller: &Caller, verb: V) -> Result<V::Reply> {
        self.check_records(caller, V::NAME)?;
        self.inner.meta.run(caller, verb).await
    }

    /// Does the same as [`Fs::run`] if this process may do it on its own; otherwise returns `None`.
    pub fn run_now<V: WireVerb>(&self, caller: &Caller, verb: &V) -> Option<V::Reply> {
        // A refused operation gets its error from the call that waits.
        self.check_records(caller, V::NAME).ok()?;
        self.inner.meta.run_now(caller, verb)
    }

    /// Runs an operation that only reads.
    pub async fn read<V: WireVerb>(&self, caller: &Caller, verb: V) -> Result<V::Reply> {
        self.inner.meta.read(caller, verb).await
    }

    /// Does the same as [`Fs::read`] if everything is in memory; otherwise returns `None`.
    pub fn read_now<V: WireVerb>(&self, caller: &Caller, verb: &V) -> Option<Result<V::Reply>> {
        self.inner.meta.read_now(caller, verb)
    }

    /// Returns a watch for changes of an inode that was opened here.
    pub fn watch(&self, ino: Ino) -> RowWatch {
        self.inner.meta.watch(keys::inode(ino))
    }

    /// Returns the session of this process, which operations that publish blocks must name.
    pub fn session(&self) -> SessionId {
        self.inner.meta.session()
    }

    /// Returns the memory that all uploads share, bytes.
    pub fn upload_memory(&self) -> &Arc<Shares> {
        &self.inner.upload_memory
    }

    /// Returns the bytes of bodies that wait for clients to take them.
    pub fn sending(&self) -> &Arc<Sending> {
        &self.inner.sending
    }

    pub fn blocks(&self) -> &Arc<dyn Blocks> {
        &self.inner.blocks
    }

    pub fn meta(&self) -> &Meta {
        &self.inner.meta
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    pub fn stats(&self) -> Stats {
        self.inner.cache.stats()
    }

    /// Returns the memory, in bytes, of replies and opened objects that are used again.
    pub fn memo_bytes(&self) -> u64 {
        self.inner.memos.weight() + self.inner.opened.weight()
    }
}

impl Inner {
    fn next(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the id of a new block.
    ///
    /// # Errors
    /// `Unavailable` if no master has answered for a long time.
    pub(crate) fn new_block(&self) -> Result<BlockId> {
        Ok(BlockId { session: self.meta.writing_session()?, counter: self.next() })
    }

    pub(crate) fn new_body(&self) -> BodyId {
        BodyId { session: self.meta.session(), counter: self.next() }
    }
}

/// Ends the sessions that former processes in addition to this master left behind.
pub async fn end_own_sessions(master: &Master) -> Result<()> {
    const PAGE: usize = 1000;
    let caller = &Caller::system();
    let mut after = None;
    loop {
        let page = master.read(caller, ListSessions { after, limit: PAGE }).await?;
        for (session, row) in &page {
            if row.state == SessionState::Live && row.owner == 0 {
                let ended = EndSession { session: *session, reaped: false };
                master.run(caller, ended).await?;
            }
        }
        if page.len() < PAGE {
            return Ok(());
        }
        after = page.last().map(|(session, _)| *session);
    }
}
