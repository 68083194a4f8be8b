//! The client's side of a session.

mod posting;

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::{Caller, RelayedCaller};
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Clock, Error, Ino, Result, Rng, SessionId, Timestamp};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout, timeout_at};

use super::kept::{Keeper, Kept};
use super::posted::Posts;
use super::rows::LeasedRows;
use super::slots::{Slots, Taken};
use super::unknown::{Step, Unknown};
use super::{
    Acknowledge, Attach, Attached, Change, Detach, Dialer, Execute, Executed, Flush, Link, Lost,
    Method, Progress, Read, ReadReply, Recall, Renew, Renewed, Replayed, Reply, Run, RunPosted,
};
use crate::erased::{Apply, keeping};
use crate::master::Memo;
use crate::ops::mkdir::Mkdir;
use crate::shown::Rows;
use crate::view::Want;
use crate::{Context, Source, Stop, Verb, View, Watched, WireVerb, keys, wire};

/// Attempts to read from memory while rows are recalled.
const ATTEMPTS: usize = 3;
/// An operation that has found no master for so long is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// A read that takes longer than this share of a lease may wait for a change that waits for the
/// lease of a session that has died.
const SOON_PERCENT: u32 = 3;
/// How long the end of a session may take.
const GOODBYE: Duration = Duration::from_secs(2);
/// Between two attempts to find a master.
const BACKOFF: Duration = Duration::from_millis(100);
/// What of a lease the client uses: clocks do not run at exactly the same rate.
const LEASE_PERCENT: u32 = 90;
/// Why an operation ends whose caller was answered before.
pub const GIVEN_UP: &str = "its caller waits no more";
/// For no longer is an operation kept that is durable.
const FLUSH: Duration = Duration::from_millis(100);

/// Sizes of a client.
#[derive(Clone, Debug)]
pub struct Config {
    /// Memory of leased rows, bytes.
    pub cache_bytes: usize,
    /// How long blocks are written for the session while no master answers: it may have ended.
    pub alone: Duration,
    /// Operations are done when they have run: [`Client::flush`] waits until they are durable. They
    /// are kept until then, and run again in their order after a failure of the master.
    pub hasty: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config { cache_bytes: 64 << 20, alone: Duration::from_secs(600), hasty: false }
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
    /// What is read just now is not leased.
    Unleased,
    All,
}

/// Told of rows that are forgotten, before the master hears that they are. Must not block.
pub type OnForget = Box<dyn Fn(Forgotten<'_>) + Send + Sync>;

/// A session with whatever master serves. Clones are the same session; without the last of them
/// nobody keeps it.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
    _held: Arc<Held>,
}

/// Has what keeps a session end when nobody has a client of it any more.
struct Held(Arc<Inner>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.closed.set(true);
    }
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
    /// Why no master is reached before somebody does something about it: nobody waits for that.
    refused: Watched<Option<String>>,
    /// It is not attached again.
    closed: Watched<bool>,
    /// The session is not attached any more.
    detached: Notify,
    session: AtomicU64,
    slots: Mutex<Arc<Slots>>,
    /// Where operations are done when they have run.
    keeper: Option<Keeper>,
    /// There, too: those that have run nowhere but here.
    posts: Posts,
    unknown: Unknown,
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
    lease: Duration,
    /// Its number, as the keeper counts.
    number: u64,
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
            refused: Watched::new(None),
            closed: Watched::new(false),
            detached: Notify::new(),
            session: AtomicU64::new(rng.next_u64()),
            rng,
            slots: Mutex::new(Slots::new()),
            keeper: config.hasty.then(Keeper::default),
            posts: Posts::default(),
            unknown: Unknown::default(),
            settled: AtomicU64::new(0),
            reads_from: Mutex::new(None),
            on_forget: OnceLock::new(),
            counters: Counters::default(),
        });
        let client = Client { _held: Arc::new(Held(Arc::clone(&inner))), inner };
        client.keep(|inner| async move { inner.keep_attached().await });
        if config.hasty {
            client.keep(|inner| async move { inner.flush_in_a_while().await });
            client.keep(|inner| async move { inner.send_what_was_posted().await });
        }
        client.inner.attached().await?;
        Ok(client)
    }

    /// Does something again and again, until the session is closed.
    fn keep<F: Future<Output = ()> + Send>(&self, step: impl Fn(Arc<Inner>) -> F + Send + 'static) {
        let inner = Arc::clone(&self.inner);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    () = inner.closed() => return,
                    () = step(Arc::clone(&inner)) => {}
                }
            }
        });
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

    /// Waits until all that was run before is durable. What came to nothing after all counts as
    /// [lost](Client::lost).
    ///
    /// # Errors
    /// `Unavailable` if that is not known after some time.
    pub async fn flush(&self) -> Result<()> {
        let Some(keeper) = &self.inner.keeper else { return Ok(()) };
        let flushed = async {
            self.inner.posts.drained().await;
            self.inner.flush(keeper, keeper.last_number()).await
        };
        let late = |why| Err(Error::Unavailable(format!("not known to be durable: {why}")));
        self.inner.in_time(Instant::now() + PATIENCE, flushed).await.unwrap_or_else(late)
    }

    /// How many operations came to nothing that had been said to be done.
    pub fn lost(&self) -> u64 {
        self.inner.keeper.as_ref().map_or(0, Keeper::lost)
    }

    /// As [`crate::Master::run`], or where this is so configured, when it has run, before it is
    /// durable. When the outcome is not known, the error says so.
    pub async fn run<V: WireVerb>(&self, caller: &Caller, verb: V) -> Result<V::Reply> {
        let until = Instant::now() + PATIENCE;
        let posting = self.inner.post_or_ask(caller, &verb);
        match self.inner.in_time(until, posting).await {
            Ok(Some(reply)) => return Ok(reply),
            Ok(None) => {}
            Err(why) => return Err(unanswered(false, &why)),
        }
        wire::decode(&self.run_operation(Operation::new(caller, &verb)?, until).await?)
    }

    async fn run_operation(&self, operation: Operation, until: Instant) -> Result<Bytes> {
        let operation = Arc::new(operation);
        let run = {
            let (inner, operation) = (Arc::clone(&self.inner), Arc::clone(&operation));
            async move { inner.run(&operation).await }
        };
        if operation.changes.is_empty() {
            return match self.inner.in_time(until, run).await {
                Ok(reply) => reply,
                Err(why) => Err(unanswered(operation.step.is_sent(), &why)),
            };
        }
        // Once sent, it goes on until it is known what became of it, whether somebody waits or not.
        let mut running = tokio::spawn(run);
        let ran = match self.inner.in_time(until, &mut running).await {
            Ok(ran) => ran,
            Err(why) if operation.step.give_up() => return Err(unanswered(false, &why)),
            Err(why) if self.inner.unknown.add(&operation) => return Err(unanswered(true, &why)),
            Err(_) => running.await,
        };
        let stopped = |_| Error::Unavailable("outcome unknown: stopped".into());
        ran.map_err(stopped)?
    }

    /// As [`Client::run`] if this session may do it by itself: it is done when this returns, for
    /// whoever asks this session; for everybody else when they ask, and it has run by then. `None`:
    /// use that. Never blocks.
    pub fn run_now<V: WireVerb>(&self, caller: &Caller, verb: &V) -> Option<V::Reply> {
        self.inner.post(caller, verb)
    }

    /// As [`crate::Master::read`].
    pub async fn read<V: WireVerb>(&self, caller: &Caller, verb: V) -> Result<V::Reply> {
        let lease = match self.inner.read_leased(caller, &verb) {
            Leased::Reply(reply) => return reply,
            Leased::Miss => true,
            Leased::Range => V::LEASES_RANGES,
        };
        self.ask(caller, verb, lease).await
    }

    /// As [`Client::read`], of the master, whatever is leased: it then knows that it was asked.
    pub async fn read_anew<V: WireVerb>(&self, caller: &Caller, verb: V) -> Result<V::Reply> {
        self.ask(caller, verb, true).await
    }

    async fn ask<V: WireVerb>(&self, caller: &Caller, verb: V, lease: bool) -> Result<V::Reply> {
        wire::decode(&self.ask_bytes(caller, V::NUMBER, wire::encode(&verb)?, lease).await?)
    }

    async fn ask_bytes(
        &self,
        caller: &Caller,
        verb: u16,
        fields: Bytes,
        lease: bool,
    ) -> Result<Bytes> {
        let reading = self.inner.read(caller, verb, fields, lease);
        let read = self.inner.in_time(Instant::now() + PATIENCE, reading).await;
        read.unwrap_or_else(|why| Err(Error::Unavailable(why)))
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
        let same = |rows: &dyn Source| memo.is_current(mark.number(), |key| rows.get(key));
        let current =
            inner.posts.over(&inner.rows, same) && inner.is_valid() && inner.rows.mark() == mark;
        if current {
            inner.counters.hits.fetch_add(1, Ordering::Relaxed);
        }
        current
    }

    /// Ends the session when what was run before is durable, so that nobody has to wait until it
    /// lapses. Nothing is done with it after.
    pub async fn close(&self) {
        if let Err(error) = self.flush().await {
            tracing::error!(%error, "what was done last may be LOST");
        }
        // Who ends holds nothing that it would have to give back.
        self.inner.posts.begin();
        let attachment = self.inner.attachment.get();
        self.inner.closed.set(true);
        self.inner.attachment.set(None);
        let Some(Attachment { session, link, .. }) = attachment else { return };
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
pub struct Operation {
    caller: RelayedCaller,
    verb: u16,
    fields: Bytes,
    /// Rows that it is known to change.
    changes: Vec<Bytes>,
    /// It is done when it is durable, whatever is so for others.
    is_durable: bool,
    step: Step,
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
    pub fn new<V: WireVerb>(caller: &Caller, verb: &V) -> Result<Operation> {
        let (fields, caller) = (wire::encode(verb)?, caller.to_relayed());
        let changes = verb.changes();
        let (verb, step) = (V::NUMBER, Step::default());
        Ok(Operation { caller, verb, fields, changes, is_durable: false, step })
    }

    pub fn changes(&self) -> &[Bytes] {
        &self.changes
    }

    pub fn step(&self) -> &Step {
        &self.step
    }

    /// Bytes, about.
    pub fn weight(&self) -> usize {
        self.fields.len() + self.changes.iter().map(Bytes::len).sum::<usize>()
    }

    pub fn name(&self) -> &'static str {
        wire::name(self.verb)
    }

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

    async fn execute(
        &self,
        link: &dyn Link,
        run: Run,
        ino: Option<Ino>,
    ) -> Result<Reply<Executed>, Lost> {
        call(link, Method::Execute, &self.to_execute(run, ino)).await
    }

    fn to_execute(&self, run: Run, ino: Option<Ino>) -> Execute {
        Execute { change: Change { run, released: self.changes.clone() }, ino }
    }

    fn to_post(&self, run: Run, ino: Option<Ino>, time: Timestamp) -> super::Posted {
        super::Posted { execute: self.to_execute(run, ino), time }
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
        let mut reply = None;
        let ran = self.on_leased(caller, V::NAME, trace, &mut keeping(verb, &mut reply));
        match (ran, reply) {
            (Leased::Reply(Ok((rows, mark))), Some(reply)) => {
                Leased::Reply(Ok(Memo::new(reply, rows, mark)))
            }
            (Leased::Reply(Err(error)), _) => Leased::Reply(Err(error)),
            (Leased::Range, _) => Leased::Range,
            (Leased::Miss | Leased::Reply(Ok(_)), _) => Leased::Miss,
        }
    }

    /// Reads leased rows; returns which, if they are traced, and as of which mark.
    fn on_leased(
        &self,
        caller: &Caller,
        name: &str,
        trace: bool,
        apply: Apply<'_>,
    ) -> Leased<(Rows, u64)> {
        let batch = self.settled.load(Ordering::SeqCst);
        let context = Context { caller: caller.clone(), now: self.clock.now(), batch };
        for _ in 0..ATTEMPTS {
            let attempt =
                |rows: &dyn Source| self.on_rows(rows, &context, name, trace, &mut *apply);
            if let Some(leased) = self.posts.over(&self.rows, attempt) {
                return leased;
            }
        }
        Leased::Miss
    }

    /// `None` if rows were recalled meanwhile.
    fn on_rows(
        &self,
        rows: &dyn Source,
        context: &Context,
        name: &str,
        trace: bool,
        apply: Apply<'_>,
    ) -> Option<Leased<(Rows, u64)>> {
        let mark = self.rows.mark();
        let mut view = View::new(rows);
        if trace {
            view.trace();
        }
        let read = apply(&mut view, context);
        let changes = view.has_changes();
        // Before it is known that the rows were good, no reply counts, nor any error.
        if !self.is_valid() {
            return Some(Leased::Miss);
        }
        if self.rows.mark() != mark {
            return None;
        }
        let reply = match read {
            Ok(_) if changes => Err(Error::Invalid(format!("{name} is no read"))),
            Ok(()) => Ok((view.take_trace(), mark.number())),
            Err(Stop::Fail(error)) => Err(error),
            Err(Stop::Miss) => {
                let wants = view.into_wants();
                let range = wants.iter().any(|want| matches!(want, Want::Range { .. }));
                return Some(if range { Leased::Range } else { Leased::Miss });
            }
        };
        self.counters.hits.fetch_add(1, Ordering::Relaxed);
        Some(Leased::Reply(reply))
    }

    async fn read(&self, caller: &Caller, verb: u16, fields: Bytes, lease: bool) -> Result<Bytes> {
        if self.keeper.is_some() {
            self.posts.drained().await;
        }
        loop {
            // First, so that rows from before the session was attached again are not kept.
            let mark = self.rows.mark();
            let Attachment { session, link, lease: time, .. } = self.attached().await?;
            let caller = caller.to_relayed();
            let read = Read { session, caller, verb, fields: fields.clone(), lease };
            self.counters.calls.fetch_add(1, Ordering::Relaxed);
            self.counters.reads.fetch_add(1, Ordering::Relaxed);
            match self.ask(&*link, read, time).await {
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

    /// Asks for rows and leases on them; where the leases take long, without them: then the reply
    /// is what was true before changes that wait for somebody.
    async fn ask(
        &self,
        link: &dyn Link,
        read: Read,
        lease: Duration,
    ) -> Result<Reply<ReadReply>, Lost> {
        let mut leased = pin!(call(link, Method::Read, &read));
        if !read.lease {
            return leased.await;
        }
        if let Ok(answer) = timeout(lease * SOON_PERCENT / 100, &mut leased).await {
            return answer;
        }
        let read = Read { lease: false, ..read.clone() };
        let unleased = tokio::select! {
            biased;
            answer = leased => return answer,
            answer = call(link, Method::Read, &read) => answer,
        };
        self.forgotten(Forgotten::Unleased);
        unleased
    }

    async fn run(&self, operation: &Arc<Operation>) -> Result<Bytes> {
        let changes = &operation.changes;
        // What its caller does next is not to be overtaken by it.
        let _over = self.unknown.until_over(operation);
        operation.step.unless_given_up(self.unknown.before(changes)).await?;
        let _barring = self.keeper.as_ref().map(|_| self.posts.bar(changes));
        if self.keeper.is_some() {
            operation.step.unless_given_up(self.posts.drained()).await?;
        }
        if changes.is_empty() {
            return self.send(operation).await.reply;
        }
        let changing = self.rows.change(changes);
        self.forgotten(Forgotten::Changing(changes));
        let Ran { reply, rows, is_over } = self.send(operation).await;
        if is_over {
            changing.done(rows);
        }
        self.forgotten(Forgotten::Changed);
        reply
    }

    async fn send(&self, operation: &Arc<Operation>) -> Ran {
        let mut sent = false;
        let known = operation.step.unless_given_up(self.send_until_known(operation, &mut sent));
        match known.await.and_then(|known| known) {
            Ok(ReadReply { reply, rows }) => Ran { is_over: reply.is_ok() || !sent, reply, rows },
            Err(error) => Ran { reply: Err(error), rows: Vec::new(), is_over: !sent },
        }
    }

    /// `sent` says whether it may be under way more than once, or still.
    async fn send_until_known(
        &self,
        operation: &Arc<Operation>,
        sent: &mut bool,
    ) -> Result<ReadReply> {
        let (mut session, mut slot) = self.take_slot().await?;
        loop {
            // What was sent may have been done: nothing of it is known before there is a master.
            let attachment = match *sent {
                true => self.attached_at_last().await?,
                false => self.attached().await?,
            };
            if attachment.session != session {
                if *sent {
                    let text = format!("outcome unknown: session {session} was lost");
                    return Err(Error::Unavailable(text));
                }
                (session, slot) = self.take_slot().await?;
                continue;
            }
            if !operation.step.send() {
                return Err(unanswered(false, GIVEN_UP));
            }
            let run = operation.in_slot(session, &slot);
            self.counters.calls.fetch_add(1, Ordering::Relaxed);
            let answer = match &self.keeper {
                Some(keeper) if !operation.is_durable => {
                    let answer = operation.execute(&*attachment.link, run, None).await;
                    if let Ok(Reply::Done(Executed { ino: Some(ino), .. })) = &answer
                        && operation.verb == Mkdir::NUMBER
                    {
                        self.posts.made(*ino);
                    }
                    let ran = (operation, &slot);
                    answer.and_then(|answer| keeper.kept(attachment.number, ran, answer))
                }
                _ => operation.call(&*attachment.link, run).await,
            };
            match answer {
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

    async fn take_slot(&self) -> Result<(SessionId, Arc<Taken>)> {
        loop {
            let session = self.attached().await?.session;
            let slots = Arc::clone(&self.slots.lock());
            let slot = slots.take().await;
            if session.0 == self.session.load(Ordering::SeqCst)
                && let Some(slot) = slot
            {
                return Ok((session, Arc::new(slot)));
            }
        }
    }

    /// Waits for a connection with the session attached.
    async fn attached(&self) -> Result<Attachment> {
        if let Some(attachment) = self.attachment.get() {
            return Ok(attachment);
        }
        let found = self.in_time(Instant::now() + PATIENCE, self.attached_at_last()).await;
        found.unwrap_or_else(|why| Err(Error::Unavailable(why)))
    }

    /// What comes of `work`, or why whoever waits for it is to wait no longer.
    async fn in_time<R>(&self, until: Instant, work: impl Future<Output = R>) -> Result<R, String> {
        let done = timeout_at(until, work);
        tokio::select! {
            biased;
            done = done => done.map_err(|_| format!("no master answered in {PATIENCE:?}")),
            why = self.refused.wait_for(Option::clone) => Err(why),
        }
    }

    /// As [`Inner::attached`], however long that takes.
    async fn attached_at_last(&self) -> Result<Attachment> {
        tokio::select! {
            biased;
            () = self.closed() => Err(Error::Unavailable("the session was closed".into())),
            attachment = self.attachment.wait_for(Option::clone) => Ok(attachment),
        }
    }

    async fn closed(&self) {
        self.closed.wait_for(|closed| closed.then_some(())).await;
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
                self.refused.set(match error {
                    Error::Denied(why) => Some(why),
                    _ => None,
                });
                sleep(BACKOFF).await;
            }
        }
    }

    async fn attach(&self) -> Result<(Arc<dyn Link>, UnboundedReceiver<Bytes>, Duration)> {
        let (link, recalls) = self.dialer.dial().await?;
        self.posts.begin();
        // The master takes it that nothing is held.
        self.valid_until.store(0, Ordering::SeqCst);
        self.rows.clear();
        self.forgotten(Forgotten::All);
        let former = SessionId(self.session.load(Ordering::SeqCst));
        let mut session = former;
        loop {
            let sent = self.clock.monotonic();
            let attach = Attach { session };
            let method = match self.keeper {
                None => Method::Attach,
                Some(_) => Method::AttachToReplay,
            };
            match call::<_, Attached>(&*link, method, &attach).await {
                Ok(Reply::Done(attached)) => {
                    // Not before the metadata know it: blocks of no known session stay for ever.
                    if session != former {
                        *self.slots.lock() = Slots::new();
                        self.rows.start_over();
                        self.lose_what_was_posted();
                        self.session.store(session.0, Ordering::SeqCst);
                    }
                    let lease = Duration::from_millis(attached.lease_ms);
                    self.settled.fetch_max(attached.batch, Ordering::SeqCst);
                    self.extend(sent, lease);
                    let number = match &self.keeper {
                        None => 0,
                        Some(keeper) => {
                            self.replay(keeper, &*link, session, session == former).await?
                        }
                    };
                    let attachment = Attachment { session, link: Arc::clone(&link), lease, number };
                    self.refused.set(None);
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

    /// Waits until nothing is kept that is numbered `number` or less.
    async fn flush(&self, keeper: &Keeper, number: u64) -> Result<()> {
        loop {
            let Attachment { session, link, number: attached, .. } = self.attached().await?;
            let (attachment, serial) = keeper.serial_of(number);
            if attachment != attached {
                continue;
            }
            let Some(serial) = serial else { return Ok(()) };
            match call::<_, Progress>(&*link, Method::Flush, &Flush { session, serial }).await {
                Ok(Reply::Done(progress)) => keeper.note(attachment, progress),
                Ok(Reply::Failed(error)) => return Err(error),
                Ok(Reply::NotAttached | Reply::NotServing(_)) | Err(_) => self.lost(&link).await,
            }
        }
    }

    /// Has what is durable not be kept for long.
    async fn flush_in_a_while(&self) {
        let Some(keeper) = &self.keeper else { return };
        let _ = timeout(FLUSH, keeper.many()).await;
        if let Err(error) = self.flush(keeper, keeper.last_number()).await {
            tracing::debug!(%error, "operations are kept");
            sleep(FLUSH).await;
        }
    }

    /// Sends again what is kept, and what was posted, before anything else is asked of the master
    /// of a new attachment, and returns its number. Of a session that was lost nothing is sent
    /// again.
    async fn replay(
        &self,
        keeper: &Keeper,
        link: &dyn Link,
        session: SessionId,
        is_known: bool,
    ) -> Result<u64> {
        let (attachment, kept) = keeper.begin();
        if !is_known && !kept.is_empty() {
            tracing::error!(
                operations = kept.len(),
                "done, not durable, and LOST with the session"
            );
            keeper.lose(kept.len());
        }
        let is_sent = is_known && !is_planted(Bug::ReplaysForgotten);
        let mut kept = kept.into_iter().filter(|_| is_sent).peekable();
        while let Some(one) = kept.peek() {
            match one.execute(link, session).await {
                Ok(Reply::Done(Ok(Executed { serial, progress, .. }))) => {
                    keeper.keep_again(serial, Arc::clone(one));
                    keeper.note(attachment, progress);
                }
                Ok(Reply::Done(Err(error)) | Reply::Failed(error)) => {
                    let verb = one.operation.name();
                    tracing::error!(verb, %error, "done, not durable, and LOST: it could not be done again");
                    keeper.lose(1);
                }
                Ok(Reply::NotAttached | Reply::NotServing(_)) | Err(_) => {
                    keeper.put_back(kept);
                    return Err(unserved("it was lost while operations were sent again"));
                }
            }
            kept.next();
        }
        loop {
            let batch = self.posts.batch();
            if batch.is_empty() {
                break;
            }
            if self.send_batch(keeper, (session, attachment, link), batch).await.is_err() {
                keeper.put_back(std::iter::empty());
                return Err(unserved("it was lost while operations were sent for the first time"));
            }
        }
        match call::<_, ()>(link, Method::Replayed, &Replayed { session }).await {
            Ok(Reply::Done(())) => Ok(attachment),
            _ => {
                keeper.put_back(std::iter::empty());
                Err(unserved("it was lost after operations were sent again"))
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
            for (directory, of) in recall.keys.iter().filter_map(|key| keys::delegation_parts(key))
            {
                self.posts.recalled(directory, of, self.clock.monotonic());
            }
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

/// What a caller hears that waits no longer for an answer.
pub fn unanswered(is_sent: bool, why: &str) -> Error {
    let what = if is_sent { "outcome unknown" } else { "not done" };
    Error::Unavailable(format!("{what}: {why}"))
}

fn unserved(why: &str) -> Error {
    Error::Unavailable(format!("the master does not serve: {why}"))
}

impl Kept {
    async fn execute(
        &self,
        link: &dyn Link,
        session: SessionId,
    ) -> Result<Reply<Result<Executed>>, Lost> {
        let run = self.operation.in_slot(session, &self.slot);
        let Some(time) = self.posted else {
            let answer = self.operation.execute(link, run, self.ino).await?;
            return Ok(answer.map(Ok));
        };
        let operations = vec![self.operation.to_post(run, self.ino, time)];
        let posted = RunPosted { session, operations };
        let answer = call::<_, Vec<Result<Executed>>>(link, Method::RunPosted, &posted).await?;
        let nothing = || Err(Error::Invalid("an answer to nothing".into()));
        Ok(answer.map(|mut ran| ran.pop().unwrap_or_else(nothing)))
    }
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
