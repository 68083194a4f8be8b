//! One session, with all that its operations share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{Clock, Error, Result, Rng, SessionId, waits};
use parking_lot::Mutex;

use super::stats::Counters;
use crate::RowWatches;
use crate::session::connection::{Attacher, Connection};
use crate::session::kept::KeptOperations;
use crate::session::lease::Lease;
use crate::session::link::Dialer;
use crate::session::posted::Posts;
use crate::session::rows::LeasedRows;
use crate::session::serving::OwnMaster;
use crate::session::slots::{SessionSlots, Taken};
use crate::session::unknown::Unknown;

/// Sizes of a client.
#[derive(Clone, Debug)]
pub struct Config {
    /// Memory of leased rows, bytes.
    pub cache_bytes: usize,
    /// How long a request waits for a master that is there: [`waits::MASTER`] or more.
    pub patience: Duration,
    /// How long blocks are written for the session while no master answers: it may have ended.
    pub alone: Duration,
    /// Operations are done when they have run: [`Client::flush`](super::Client::flush) waits until
    /// they are durable. They are kept until then, and run again in their order after a failure of
    /// the master.
    pub hasty: bool,
    /// The master in this process, if it has one.
    pub own: Option<Arc<OwnMaster>>,
    /// This is the only process of its node, as it holds the lock of the node's directory: sessions
    /// of former processes are over.
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

/// Tells what batch the oldest reader reads, given one that has settled.
pub type ReadsFrom = Box<dyn Fn(u64) -> u64 + Send + Sync>;

/// Rows that must not be used any more, by whoever keeps what was made of them.
#[derive(Clone, Copy, Debug)]
pub enum Forgotten<'a> {
    /// They were recalled.
    Rows(&'a [Bytes]),
    /// An operation of this session is about to change them.
    Changing(&'a [Bytes]),
    /// It has, if it ever will: what was read meanwhile may be from before.
    Changed,
    /// The rows that are read just now are not leased.
    Unleased,
    All,
}

/// Told of rows that are forgotten, before the master hears that they are. Must not block.
pub type OnForget = Box<dyn Fn(Forgotten<'_>) + Send + Sync>;

pub struct Inner {
    pub dialer: Arc<dyn Dialer>,
    pub clock: Arc<dyn Clock>,
    pub rng: Arc<dyn Rng>,
    pub rows: LeasedRows,
    pub lease: Lease,
    /// The master is still to hear that former processes of this node have ended.
    pub succeeds: AtomicBool,
    /// The master in this process.
    pub own: Option<Arc<OwnMaster>>,
    pub connection: Connection,
    alone: Duration,
    session: AtomicU64,
    /// Of the metadata to which it was attached last.
    generation: Mutex<Option<u64>>,
    slots: Mutex<Arc<SessionSlots>>,
    /// Where operations are done when they have run.
    pub keeper: Option<KeptOperations>,
    /// There, too: those that have run nowhere but here.
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
            session: AtomicU64::new(rng.next_u64()),
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

    /// The session that operations named now belong to.
    pub fn session(&self) -> SessionId {
        SessionId(self.session.load(Ordering::SeqCst))
    }

    /// The session that blocks written now belong to.
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

    /// Notes to which metadata the session is attached.
    pub fn attached_to(&self, generation: u64) {
        *self.generation.lock() = Some(generation);
    }

    /// Whether the session was attached to other metadata than those of this generation.
    pub fn is_of_other_metadata(&self, generation: u64) -> bool {
        self.generation.lock().is_some_and(|known| known != generation)
    }

    /// Goes on as another session.
    pub fn start_over(&self, session: SessionId) {
        *self.slots.lock() = SessionSlots::new();
        self.rows.start_over();
        self.lose_what_was_posted();
        self.session.store(session.0, Ordering::SeqCst);
    }

    /// The session has ended, and with it what nobody else has heard of.
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

    /// A slot, in the session that it is of.
    pub async fn take_slot(&self) -> Result<(SessionId, Arc<Taken>)> {
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
            // When the operation has run: see there.
            Forgotten::Changing(_) | Forgotten::Changed | Forgotten::Unleased => {}
        }
    }

    /// Forgets all rows: no lease is held on them any more.
    pub fn forget_all(&self) {
        self.lease.end();
        self.rows.clear();
        self.forgotten(Forgotten::All);
    }
}
