//! One session, with everything that its operations share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{Clock, Error, Result, Rng, SessionId, waits};
use parking_lot::Mutex;

use super::stats::Counters;
use crate::RowWatches;
use crate::session::connection::{Attacher, Connection};
use crate::session::kept_operations::KeptOperations;
use crate::session::lease::Lease;
use crate::session::link::Dialer;
use crate::session::posted_operations::Posts;
use crate::session::rows::LeasedRows;
use crate::session::serving::OwnMaster;
use crate::session::slots::{SessionSlots, SlotGuard};
use crate::session::unknown::Unknown;

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct Config {
    /// Memory of leased rows, bytes.
    pub cache_bytes: usize,
    /// Time that a request waits for a reachable master: [`waits::MASTER`] or more.
    pub patience: Duration,
    /// Time for which blocks are written for the session while no master answers: it may have
    /// ended.
    pub alone: Duration,
    /// Answers operations when they have run, before they are durable:
    /// [`Client::flush`](super::Client::flush) waits until they are. They are kept until then, and
    /// run again in their order after a failure of the master.
    pub hasty: bool,
    /// The master in this process, if it has one.
    pub own: Option<Arc<OwnMaster>>,
    /// Set if this is the only process of its node, as it holds the lock of the node's directory:
    /// sessions of former processes are over.
    pub is_sole: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            cache_bytes: 64 << 20,
            patience: waits::MASTER,
            alone: Duration::from_secs(600),
            hasty: false,
            own: None,
            is_sole: false,
        }
    }
}

/// Function from a settled batch to the oldest batch that a reader still reads.
pub type ReadsFrom = Box<dyn Fn(u64) -> u64 + Send + Sync>;

/// Rows that holders of anything derived from them must not use any more.
#[derive(Clone, Copy, Debug)]
pub enum Forgotten<'a> {
    /// Rows that were recalled.
    Rows(&'a [Bytes]),
    /// Rows that an operation of this session is about to change.
    Changing(&'a [Bytes]),
    /// The operation has changed them, if it ever will: rows read meanwhile may be older.
    Changed,
    /// The rows that are being read are not leased.
    Unleased,
    All,
}

/// Callback for rows that are forgotten, called before the master learns of it. Must not block.
pub type OnForget = Box<dyn Fn(Forgotten<'_>) + Send + Sync>;

pub struct Inner {
    pub dialer: Arc<dyn Dialer>,
    pub clock: Arc<dyn Clock>,
    pub rng: Arc<dyn Rng>,
    pub rows: LeasedRows,
    pub lease: Lease,
    /// Set while the master does not know yet that former processes of this node have ended.
    pub succeeds: AtomicBool,
    /// The master in this process.
    pub own: Option<Arc<OwnMaster>>,
    pub connection: Connection,
    alone: Duration,
    session: AtomicU64,
    /// Generation of the metadata to which the session was attached last.
    generation: Mutex<Option<u64>>,
    slots: Mutex<Arc<SessionSlots>>,
    /// Operations that have run and are not durable, if the session executes.
    pub keeper: Option<KeptOperations>,
    /// Operations that have only run here so far.
    pub posts: Posts,
    pub unknown: Unknown,
    pub reads_from: Mutex<Option<ReadsFrom>>,
    pub on_forget: OnceLock<OnForget>,
    pub watches: Arc<RowWatches>,
    pub counters: Counters,
}

impl Inner {
    pub fn new(
        dialer: Arc<dyn Dialer>,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
        config: &Config,
    ) -> (Inner, Attacher) {
        let (connection, attacher) = Connection::new(config.patience);
        let inner = Inner {
            dialer,
            lease: Lease::new(Arc::clone(&clock)),
            own: config.own.clone(),
            succeeds: AtomicBool::new(config.is_sole),
            clock,
            rows: LeasedRows::new(config.cache_bytes),
            connection,
            alone: config.alone,
            session: AtomicU64::new(SessionId::random(&*rng).0),
            generation: Mutex::default(),
            rng,
            slots: Mutex::new(SessionSlots::new()),
            keeper: config.hasty.then(KeptOperations::default),
            posts: Posts::default(),
            unknown: Unknown::default(),
            reads_from: Mutex::new(None),
            on_forget: OnceLock::new(),
            watches: Arc::default(),
            counters: Counters::default(),
        };
        (inner, attacher)
    }

    /// Returns the session that operations belong to from now on.
    pub fn session(&self) -> SessionId {
        SessionId(self.session.load(Ordering::SeqCst))
    }

    /// Returns the session that blocks belong to that are written now.
    ///
    /// # Errors
    /// `Unavailable` if no master has answered for long.
    pub fn writing_session(&self) -> Result<SessionId> {
        let session = self.session();
        let silent = self.lease.silent();
        if silent > self.alone {
            let text = format!("no master has answered for {} s", silent.as_secs());
            return Err(Error::Unavailable(text));
        }
        Ok(session)
    }

    /// Notes the generation of the metadata to which the session is attached.
    pub fn attached_to(&self, generation: u64) {
        *self.generation.lock() = Some(generation);
    }

    /// Returns whether the session was attached to metadata of another generation.
    pub fn is_of_other_metadata(&self, generation: u64) -> bool {
        self.generation.lock().is_some_and(|known| known != generation)
    }

    /// Continues as another session.
    pub fn start_over(&self, session: SessionId) {
        *self.slots.lock() = SessionSlots::new();
        self.rows.start_over();
        self.lose_what_was_posted();
        self.session.store(session.0, Ordering::SeqCst);
    }

    /// Gives up the operations that only this session has run, since it has ended.
    fn lose_what_was_posted(&self) {
        let lost = self.posts.lose();
        if let Some(keeper) = &self.keeper
            && lost > 0
        {
            tracing::error!(operations = lost, "done, not sent, and LOST with the session");
            keeper.lose(lost);
        }
    }

    /// The slots of the session.
    pub fn slots(&self) -> Arc<SessionSlots> {
        Arc::clone(&self.slots.lock())
    }

    /// Takes a slot, and returns it with the session that it belongs to.
    pub async fn take_slot(&self) -> Result<(SessionId, Arc<SlotGuard>)> {
        loop {
            let session = self.connection.attached().await?.session;
            let slot = self.slots().take().await;
            if session == self.session()
                && let Some(slot) = slot
            {
                return Ok((session, Arc::new(slot)));
            }
        }
    }

    pub fn forgotten(&self, forgotten: Forgotten<'_>) {
        if let Some(on_forget) = self.on_forget.get() {
            on_forget(forgotten);
        }
        match forgotten {
            Forgotten::Rows(keys) => self.watches.wake(keys),
            Forgotten::All => self.watches.wake_all(),
            // Woken when the operation has run: see there.
            Forgotten::Changing(_) | Forgotten::Changed | Forgotten::Unleased => {}
        }
    }

    /// Forgets all rows and ends the lease on them.
    pub fn forget_all(&self) {
        self.lease.end();
        self.rows.clear();
        self.forgotten(Forgotten::All);
    }
}
