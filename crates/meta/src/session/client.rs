//! The client's side of a session.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::{Caller, RelayedCaller};
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Clock, Error, Result, Rng, SessionId};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::rows::LeasedRows;
use super::slots::{Slots, Taken};
use super::{
    Acknowledge, Attach, Attached, Change, Detach, Dialer, Link, Lost, Method, Read, ReadReply,
    Recall, Renew, Renewed, Reply, Run,
};
use crate::master::Memo;
use crate::view::Want;
use crate::{Context, Source, Stop, Verb, View, Watched, WireVerb, wire};

/// Attempts to read from memory while rows are recalled.
const ATTEMPTS: usize = 3;
/// An operation that has found no master for so long is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the end of a session may take.
const GOODBYE: Duration = Duration::from_secs(2);
/// Between two attempts to find a master.
const BACKOFF: Duration = Duration::from_millis(100);
/// What of a lease the client uses: clocks do not run at exactly the same rate.
const LEASE_PERCENT: u32 = 90;

/// Sizes of a client.
#[derive(Clone, Debug)]
pub struct Config {
    /// Memory of leased rows, bytes.
    pub cache_bytes: usize,
    /// How long blocks are written for the session while no master answers: it may have ended.
    pub alone: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config { cache_bytes: 64 << 20, alone: Duration::from_secs(600) }
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
    All,
}

/// Told of rows that are forgotten, before the master hears that they are. Must not block.
pub type OnForget = Box<dyn Fn(Forgotten<'_>) + Send + Sync>;

/// A session with whatever master serves. Clones are the same session.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    dialer: Arc<dyn Dialer>,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    rows: LeasedRows,
    /// Until when rows may be used, by the monotonic clock, nanoseconds.
    valid_until: AtomicU64,
    /// When the last call was sent that showed that the session lives, likewise.
    known_alive: AtomicU64,
    alone: Duration,
    attachment: Watched<Option<Attachment>>,
    /// The session is not attached any more.
    detached: Notify,
    session: AtomicU64,
    slots: Mutex<Arc<Slots>>,
    settled: AtomicU64,
    reads_from: Mutex<Option<ReadsFrom>>,
    on_forget: OnceLock<OnForget>,
    counters: Counters,
}

/// The session and the connection it is attached to.
#[derive(Clone)]
struct Attachment {
    session: SessionId,
    link: Arc<dyn Link>,
}

/// What a session has done.
#[derive(Default)]
struct Counters {
    hits: AtomicU64,
    calls: AtomicU64,
    reads: AtomicU64,
    recalls: AtomicU64,
}

/// What a session has done since its start.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Reads answered from leased rows.
    pub reads_leased: u64,
    /// Calls to a master, but for renewals.
    pub calls: u64,
    /// Of them reads, for rows that were not leased.
    pub reads_asked: u64,
    /// Rows recalled.
    pub recalls: u64,
    pub rows: u64,
    pub bytes: u64,
}

impl Client {
    /// Finds a master and attaches to it; goes on trying until it is dropped.
    ///
    /// # Errors
    /// When there was no master for some time.
    pub async fn start(
        dialer: Arc<dyn Dialer>,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
        config: Config,
    ) -> Result<Client> {
        let inner = Arc::new(Inner {
            dialer,
            clock,
            rows: LeasedRows::new(config.cache_bytes),
            valid_until: AtomicU64::new(0),
            known_alive: AtomicU64::new(0),
            alone: config.alone,
            attachment: Watched::new(None),
            detached: Notify::new(),
            session: AtomicU64::new(rng.next_u64()),
            rng,
            slots: Mutex::new(Slots::new()),
            settled: AtomicU64::new(0),
            reads_from: Mutex::new(None),
            on_forget: OnceLock::new(),
            counters: Counters::default(),
        });
        let kept = Arc::downgrade(&inner);
        tokio::spawn(async move {
            while let Some(inner) = kept.upgrade() {
                inner.keep_attached().await;
            }
        });
        inner.attached().await?;
        Ok(Client { inner })
    }

    /// The session that operations named now belong to.
    pub fn session(&self) -> SessionId {
        SessionId(self.inner.session.load(Ordering::SeqCst))
    }

    /// The session that blocks written now belong to.
    ///
    /// # Errors
    /// `Unavailable` if no master has answered for long.
    pub fn writing_session(&self) -> Result<SessionId> {
        let session = self.session();
        let known_alive = self.inner.known_alive.load(Ordering::SeqCst);
        let silent = Duration::from_nanos(self.inner.now().saturating_sub(known_alive));
        if silent > self.inner.alone {
            let text = format!("no master has answered for {} s", silent.as_secs());
            return Err(Error::Unavailable(text));
        }
        Ok(session)
    }

    /// To be asked at each renewal.
    pub fn set_reads_from(&self, reads_from: ReadsFrom) {
        *self.inner.reads_from.lock() = Some(reads_from);
    }

    /// To be told of rows that are forgotten. The first one stays.
    pub fn set_on_forget(&self, on_forget: OnForget) {
        let _ = self.inner.on_forget.set(on_forget);
    }

    /// How long rows that are leased now stay so without a renewal.
    pub fn lease_left(&self) -> Duration {
        let until = Duration::from_nanos(self.inner.valid_until.load(Ordering::SeqCst));
        until.saturating_sub(self.inner.clock.monotonic())
    }

    /// A batch that all reads see which begin now.
    pub fn settled_batch(&self) -> u64 {
        self.inner.settled.load(Ordering::SeqCst)
    }

    /// As [`crate::Master::run`]. When the outcome is not known, the error says so.
    pub async fn run<V: WireVerb>(&self, caller: &Caller, verb: V) -> Result<V::Reply> {
        let (fields, caller) = (wire::encode(&verb)?, caller.to_relayed());
        let operation = Operation { caller, verb: V::NUMBER, fields, changes: verb.changes() };
        // It goes on until it is known what became of it, whether somebody waits or not.
        let inner = Arc::clone(&self.inner);
        let run = async move { inner.run(&operation).await };
        let ran = match verb.changes().is_empty() {
            true => timeout(PATIENCE, run).await,
            false => timeout(PATIENCE, tokio::spawn(run)).await.map(|ran| {
                ran.unwrap_or_else(|_| Err(Error::Unavailable("outcome unknown: stopped".into())))
            }),
        };
        match ran {
            Ok(reply) => wire::decode(&reply?),
            Err(_) => {
                let text = format!("outcome unknown: no master answered in {PATIENCE:?}");
                Err(Error::Unavailable(text))
            }
        }
    }

    /// As [`crate::Master::read`].
    pub async fn read<V: WireVerb>(&self, caller: &Caller, verb: V) -> Result<V::Reply> {
        let lease = match self.inner.read_leased(caller, &verb) {
            Leased::Reply(reply) => return reply,
            Leased::Miss => true,
            Leased::Range => V::LEASES_RANGES,
        };
        let fields = wire::encode(&verb)?;
        let read = self.inner.read(caller, V::NUMBER, fields, lease);
        match timeout(PATIENCE, read).await {
            Ok(reply) => wire::decode(&reply?),
            Err(_) => Err(Error::Unavailable(format!("no master answered in {PATIENCE:?}"))),
        }
    }

    /// As [`Client::read`] if all it needs is leased; `None` otherwise. Never blocks.
    pub fn read_now<V: WireVerb>(&self, caller: &Caller, verb: &V) -> Option<Result<V::Reply>> {
        match self.inner.read_leased(caller, verb) {
            Leased::Reply(reply) => Some(reply),
            Leased::Miss | Leased::Range => None,
        }
    }

    /// As [`Client::read_now`], with what it takes to use the reply again.
    pub fn read_memo<V: WireVerb>(
        &self,
        caller: &Caller,
        verb: &V,
    ) -> Option<Result<Memo<V::Reply>>> {
        match self.inner.memo(caller, verb, true) {
            Leased::Reply(reply) => Some(reply),
            Leased::Miss | Leased::Range => None,
        }
    }

    /// Whether the caller that `memo` was made for would get the same reply now.
    pub fn is_current<R>(&self, memo: &Memo<R>) -> bool {
        let inner = &self.inner;
        let mark = inner.rows.mark();
        let current = memo.is_current(mark.number(), |key| inner.rows.get(key))
            && inner.is_valid()
            && inner.rows.mark() == mark;
        if current {
            inner.counters.hits.fetch_add(1, Ordering::Relaxed);
        }
        current
    }

    /// Ends the session, so that nobody has to wait until it lapses. Nothing is done with it after.
    pub async fn close(&self) {
        let Some(Attachment { session, link }) = self.inner.attachment.get() else { return };
        self.inner.valid_until.store(0, Ordering::SeqCst);
        self.inner.rows.clear();
        self.inner.forgotten(Forgotten::All);
        let detach = Detach { session };
        let detached = call::<_, ()>(&*link, Method::Detach, &detach);
        if !matches!(timeout(GOODBYE, detached).await, Ok(Ok(Reply::Done(())))) {
            tracing::debug!(%session, "the session was not ended, it lapses");
        }
    }

    /// Whether a master answers.
    pub fn is_attached(&self) -> bool {
        self.inner.attachment.get().is_some()
    }

    pub fn stats(&self) -> Stats {
        let (rows, bytes) = self.inner.rows.usage();
        let counters = &self.inner.counters;
        Stats {
            reads_leased: counters.hits.load(Ordering::Relaxed),
            calls: counters.calls.load(Ordering::Relaxed),
            reads_asked: counters.reads.load(Ordering::Relaxed),
            recalls: counters.recalls.load(Ordering::Relaxed),
            rows,
            bytes,
        }
    }
}

/// An operation that is sent, perhaps more than once.
struct Operation {
    caller: RelayedCaller,
    verb: u16,
    fields: Bytes,
    /// Rows that it is known to change.
    changes: Vec<Bytes>,
}

/// What became of an operation.
struct Ran {
    reply: Result<Bytes>,
    /// What it left, where that is leased.
    rows: Vec<(Bytes, Option<Bytes>)>,
    /// The master has nothing more to do with it.
    is_over: bool,
}

impl Operation {
    fn in_slot(&self, session: SessionId, slot: &Taken) -> Run {
        Run {
            session,
            slot: slot.number(),
            sequence: slot.sequence(),
            caller: self.caller.clone(),
            verb: self.verb,
            fields: self.fields.clone(),
        }
    }

    async fn call(&self, link: &dyn Link, run: Run) -> Result<Reply<ReadReply>, Lost> {
        if !self.changes.is_empty() {
            let change = Change { run, released: self.changes.clone() };
            return call(link, Method::Change, &change).await;
        }
        let reply = call::<_, Bytes>(link, Method::Run, &run).await?;
        Ok(reply.map(|reply| ReadReply { reply: Ok(reply), rows: Vec::new() }))
    }
}

/// What leased rows say.
enum Leased<T> {
    Reply(Result<T>),
    /// Rows are missing.
    Miss,
    /// It needs a range of rows, and these are not leased.
    Range,
}

impl Inner {
    fn now(&self) -> u64 {
        nanos(self.clock.monotonic())
    }

    /// Whether leased rows may be used.
    fn is_valid(&self) -> bool {
        self.now() < self.valid_until.load(Ordering::SeqCst)
    }

    fn read_leased<V: Verb>(&self, caller: &Caller, verb: &V) -> Leased<V::Reply> {
        match self.memo(caller, verb, false) {
            Leased::Reply(memo) => Leased::Reply(memo.map(|memo| memo.reply)),
            Leased::Miss => Leased::Miss,
            Leased::Range => Leased::Range,
        }
    }

    fn memo<V: Verb>(&self, caller: &Caller, verb: &V, trace: bool) -> Leased<Memo<V::Reply>> {
        let batch = self.settled.load(Ordering::SeqCst);
        let context = Context { caller: caller.clone(), now: self.clock.now(), batch };
        for _ in 0..ATTEMPTS {
            let mark = self.rows.mark();
            let mut view = View::new(&self.rows);
            if trace {
                view.trace();
            }
            let read = verb.apply(&mut view, &context);
            let changes = view.has_changes();
            // Before it is known that the rows were good, no reply counts, nor any error.
            if !self.is_valid() {
                return Leased::Miss;
            }
            if self.rows.mark() != mark {
                continue;
            }
            let reply = match read {
                Ok(_) if changes => Err(Error::Invalid(format!("{} is no read", V::NAME))),
                Ok(reply) => Ok(Memo::new(reply, view.take_trace(), mark.number())),
                Err(Stop::Fail(error)) => Err(error),
                Err(Stop::Miss) => {
                    let wants = view.into_wants();
                    let range = wants.iter().any(|want| matches!(want, Want::Range { .. }));
                    return if range { Leased::Range } else { Leased::Miss };
                }
            };
            self.counters.hits.fetch_add(1, Ordering::Relaxed);
            return Leased::Reply(reply);
        }
        Leased::Miss
    }

    async fn read(&self, caller: &Caller, verb: u16, fields: Bytes, lease: bool) -> Result<Bytes> {
        loop {
            // First, so that rows from before the session was attached again are not kept.
            let mark = self.rows.mark();
            let Attachment { session, link } = self.attached().await?;
            let caller = caller.to_relayed();
            let read = Read { session, caller, verb, fields: fields.clone(), lease };
            self.counters.calls.fetch_add(1, Ordering::Relaxed);
            self.counters.reads.fetch_add(1, Ordering::Relaxed);
            match call::<_, ReadReply>(&*link, Method::Read, &read).await {
                Ok(Reply::Done(ReadReply { reply, rows })) => {
                    for (key, row) in rows {
                        self.rows.offer(mark, key, row);
                    }
                    return reply;
                }
                Ok(Reply::Failed(error)) => return Err(error),
                Ok(Reply::NotAttached | Reply::NotServing(_)) | Err(_) => self.lost(&link).await,
            }
        }
    }

    async fn run(&self, operation: &Operation) -> Result<Bytes> {
        let changes = &operation.changes;
        if changes.is_empty() {
            return self.send(operation).await.reply;
        }
        let changing = self.rows.change(changes);
        self.forgotten(Forgotten::Changing(changes));
        let Ran { reply, rows, is_over } = self.send(operation).await;
        if is_over {
            changing.done(rows);
        }
        reply
    }

    async fn send(&self, operation: &Operation) -> Ran {
        let mut sent = false;
        match self.send_until_known(operation, &mut sent).await {
            Ok(ReadReply { reply, rows }) => Ran { is_over: reply.is_ok() || !sent, reply, rows },
            Err(error) => Ran { reply: Err(error), rows: Vec::new(), is_over: !sent },
        }
    }

    /// `sent` says whether it may be under way more than once, or still.
    async fn send_until_known(&self, operation: &Operation, sent: &mut bool) -> Result<ReadReply> {
        let (mut session, mut slot) = self.take_slot().await?;
        loop {
            let attachment = self.attached().await?;
            if attachment.session != session {
                if *sent {
                    let text = format!("outcome unknown: session {session} was lost");
                    return Err(Error::Unavailable(text));
                }
                (session, slot) = self.take_slot().await?;
                continue;
            }
            let run = operation.in_slot(session, &slot);
            self.counters.calls.fetch_add(1, Ordering::Relaxed);
            match operation.call(&*attachment.link, run).await {
                Ok(Reply::Done(done)) => return Ok(done),
                Ok(Reply::Failed(error)) => {
                    return Ok(ReadReply { reply: Err(error), rows: Vec::new() });
                }
                Ok(Reply::NotAttached) => {}
                Ok(Reply::NotServing(_)) | Err(_) => *sent = true,
            }
            self.lost(&attachment.link).await;
        }
    }

    async fn take_slot(&self) -> Result<(SessionId, Taken)> {
        loop {
            let session = self.attached().await?.session;
            let slots = Arc::clone(&self.slots.lock());
            let slot = slots.take().await;
            if session.0 == self.session.load(Ordering::SeqCst)
                && let Some(slot) = slot
            {
                return Ok((session, slot));
            }
        }
    }

    /// Waits for a connection with the session attached.
    async fn attached(&self) -> Result<Attachment> {
        if let Some(attachment) = self.attachment.get() {
            return Ok(attachment);
        }
        let found = timeout(PATIENCE, self.attachment.wait_for(Option::clone)).await;
        found.map_err(|_| Error::Unavailable("no master answers".into()))
    }

    /// The connection is no good: the next attempt waits for another one.
    async fn lost(&self, link: &Arc<dyn Link>) {
        let was = self.attachment.modify(|attachment| {
            let same = attachment.as_ref().is_some_and(|one| Arc::ptr_eq(&one.link, link));
            if same {
                *attachment = None;
            }
            same
        });
        if was {
            self.detached.notify_one();
        }
    }

    /// Attaches, and stays so for as long as that goes.
    async fn keep_attached(&self) {
        match self.attach().await {
            Ok((link, recalls, lease)) => {
                self.stay(&link, recalls, lease).await;
                self.attachment.set(None);
            }
            Err(error) => {
                tracing::debug!(%error, "no master");
                sleep(BACKOFF).await;
            }
        }
    }

    async fn attach(&self) -> Result<(Arc<dyn Link>, UnboundedReceiver<Bytes>, Duration)> {
        let (link, recalls) = self.dialer.dial().await?;
        // The master takes it that nothing is held.
        self.valid_until.store(0, Ordering::SeqCst);
        self.rows.clear();
        self.forgotten(Forgotten::All);
        let former = SessionId(self.session.load(Ordering::SeqCst));
        let mut session = former;
        loop {
            let sent = self.clock.monotonic();
            let attach = Attach { session };
            match call::<_, Attached>(&*link, Method::Attach, &attach).await {
                Ok(Reply::Done(attached)) => {
                    // Not before the metadata know it: blocks of no known session stay for ever.
                    if session != former {
                        *self.slots.lock() = Slots::new();
                        self.rows.start_over();
                        self.session.store(session.0, Ordering::SeqCst);
                    }
                    let lease = Duration::from_millis(attached.lease_ms);
                    self.settled.fetch_max(attached.batch, Ordering::SeqCst);
                    self.extend(sent, lease);
                    let attachment = Attachment { session, link: Arc::clone(&link) };
                    self.attachment.set(Some(attachment));
                    return Ok((link, recalls, lease));
                }
                Ok(Reply::Failed(error @ Error::Unavailable(_))) => {
                    tracing::warn!(%error, "a new session begins");
                    session = SessionId(self.rng.next_u64());
                }
                Ok(Reply::Failed(error)) => return Err(error),
                Ok(Reply::NotAttached) => return Err(unserved("it attaches nobody")),
                Ok(Reply::NotServing(why)) => return Err(unserved(&why)),
                Err(Lost(why)) => return Err(unserved(&why)),
            }
        }
    }

    fn forgotten(&self, forgotten: Forgotten<'_>) {
        if let Some(on_forget) = self.on_forget.get() {
            on_forget(forgotten);
        }
    }

    fn extend(&self, sent: Duration, lease: Duration) {
        let until = match is_planted(Bug::LeaseStretched) {
            true => self.clock.monotonic() + lease * 3,
            false => sent + lease * LEASE_PERCENT / 100,
        };
        self.valid_until.fetch_max(nanos(until), Ordering::SeqCst);
        self.known_alive.fetch_max(nanos(sent), Ordering::SeqCst);
    }

    /// Renews, and takes recalls, until the connection is no good.
    async fn stay(
        &self,
        link: &Arc<dyn Link>,
        mut recalls: UnboundedReceiver<Bytes>,
        lease: Duration,
    ) {
        let mut renewals = interval(lease / 3);
        renewals.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let renew = async {
            loop {
                renewals.tick().await;
                if !self.renew(link, lease).await {
                    return;
                }
            }
        };
        let take = async {
            while let Some(recall) = recalls.recv().await {
                if !self.recalled(link, recall, &mut recalls).await {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = self.detached.notified() => {}
            () = take => {}
            () = renew => {}
        }
    }

    async fn renew(&self, link: &Arc<dyn Link>, lease: Duration) -> bool {
        let settled = self.settled.load(Ordering::SeqCst);
        let reads_from = self.reads_from.lock().as_ref().map_or(0, |from| from(settled));
        let session = SessionId(self.session.load(Ordering::SeqCst));
        let sent = self.clock.monotonic();
        match call::<_, Renewed>(&**link, Method::Renew, &Renew { session, reads_from }).await {
            Ok(Reply::Done(Renewed { settled })) => {
                self.settled.fetch_max(settled, Ordering::SeqCst);
                self.extend(sent, lease);
                true
            }
            _ => false,
        }
    }

    /// Forgets what is recalled, and says so. All that has come is taken at once.
    async fn recalled(
        &self,
        link: &Arc<dyn Link>,
        first: Bytes,
        further: &mut UnboundedReceiver<Bytes>,
    ) -> bool {
        let (mut next, mut number) = (Some(first), 0);
        while let Some(message) = next {
            let Ok(recall) = wire::decode::<Recall>(&message) else { return false };
            self.counters.recalls.fetch_add(recall.keys.len() as u64, Ordering::Relaxed);
            self.rows.recall(&recall.keys);
            self.forgotten(Forgotten::Rows(&recall.keys));
            number = recall.number;
            next = further.try_recv().ok();
        }
        let session = SessionId(self.session.load(Ordering::SeqCst));
        let acknowledge = Acknowledge { session, number };
        let reply = call::<_, ()>(&**link, Method::Acknowledge, &acknowledge).await;
        matches!(reply, Ok(Reply::Done(())))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn unserved(why: &str) -> Error {
    Error::Unavailable(format!("the master does not serve: {why}"))
}

async fn call<M: Serialize, R: DeserializeOwned>(
    link: &dyn Link,
    method: Method,
    message: &M,
) -> Result<Reply<R>, Lost> {
    let lost = |error: Error| Lost(error.to_string());
    let answer = link.call(method, wire::encode(message).map_err(lost)?).await?;
    wire::decode(&answer).map_err(lost)
}
