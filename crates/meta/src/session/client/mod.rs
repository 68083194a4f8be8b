//! The client's side of a session: one file for what each part of it does.
//!
//! ```text
//!   Client ──► read ──── leased rows, or the master
//!          ──► run ───── the master, once
//!          ──► posting ─ by itself, and the master later
//!   attach ────────────► connection: detached, refused, attached, closed
//!      └──► replay ───── what the next master may not know
//! ```

mod attach;
mod contact;
mod dump;
mod inner;
mod posting;
mod read;
mod replay;
mod run;
mod stats;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::inflight::waiting;
use cairn_base::{Clock, Error, Result, Rng, SessionId};
use tokio::time::{Instant, timeout};

use inner::Inner;
use read::LeasedReply;

use super::connection::Attachment;
use super::kept_operations::KeptOperations;
use super::link::{Dialer, MasterSilence, call};
use super::messages::{Detach, Reply, SessionMethod};
use super::operation::Operation;
use super::step::unanswered;
use crate::memo::Memo;
use crate::{RowWatch, WireVerb, wire};

pub use inner::{Config, Forgotten, OnForget, ReadsFrom};
pub use stats::Stats;

/// Time that the end of a session may take.
const GOODBYE: Duration = Duration::from_secs(2);

/// A session with the serving master, whichever that is. Clones are the same session; once the last
/// of them is dropped, nobody keeps it.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
    _held: Arc<SessionGuard>,
}

/// Ends the tasks that keep a session when its last client is dropped.
struct SessionGuard(Arc<Inner>);

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.0.connection.close();
    }
}

impl Client {
    /// Finds a master and attaches to it. Keeps trying until the client is dropped.
    ///
    /// # Errors
    /// `Unavailable` if there was no master for some time.
    pub async fn start(
        dialer: Arc<dyn Dialer>,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
        config: Config,
    ) -> Result<Client> {
        let (inner, attacher) = Inner::new(dialer, clock, rng, &config);
        let inner = Arc::new(inner);
        let client = Client { _held: Arc::new(SessionGuard(Arc::clone(&inner))), inner };
        let attached = Arc::clone(&client.inner);
        tokio::spawn(async move { attached.keep_attached(attacher).await });
        if config.hasty {
            client.keep(|inner| async move { inner.flush_in_a_while().await });
            client.keep(|inner| async move { inner.send_what_was_posted().await });
        }
        client.inner.connection.attached().await?;
        Ok(client)
    }

    /// Repeats `step` until the session is closed.
    fn keep<F: Future<Output = ()> + Send>(&self, step: impl Fn(Arc<Inner>) -> F + Send + 'static) {
        let inner = Arc::clone(&self.inner);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    () = inner.connection.closed() => return,
                    () = step(Arc::clone(&inner)) => {}
                }
            }
        });
    }

    /// Returns the session that operations belong to from now on.
    pub fn session(&self) -> SessionId {
        self.inner.session()
    }

    /// Returns the session that blocks belong to that are written now.
    ///
    /// # Errors
    /// `Unavailable` if no master has answered for long.
    pub fn writing_session(&self) -> Result<SessionId> {
        self.inner.writing_session()
    }

    /// Sets the function that is called at each renewal.
    pub fn set_reads_from(&self, reads_from: ReadsFrom) {
        *self.inner.reads_from.lock() = Some(reads_from);
    }

    /// Sets the callback for rows that are forgotten. Later calls have no effect.
    pub fn set_on_forget(&self, on_forget: OnForget) {
        let _ = self.inner.on_forget.set(on_forget);
    }

    /// See [`crate::Meta::watch`].
    pub fn watch(&self, key: Bytes) -> RowWatch {
        self.inner.watches.watch(key)
    }

    /// Returns how long rows that are leased now stay leased without a renewal.
    pub fn lease_left(&self) -> Duration {
        self.inner.lease.left()
    }

    /// Returns a batch that all reads see that begin now.
    pub fn settled_batch(&self) -> u64 {
        self.inner.lease.settled()
    }

    /// Waits until all operations that ran before are durable. An operation that failed after all
    /// counts as [lost](Client::lost).
    ///
    /// # Errors
    /// `Unavailable` if that is not known after some time.
    pub async fn flush(&self) -> Result<()> {
        let Some(keeper) = &self.inner.keeper else { return Ok(()) };
        let flushed = async {
            self.inner.posts.drained().await;
            self.inner.flush(keeper, keeper.last_number()).await
        };
        let late = |why| {
            Err(Error::Unavailable(format!("whether all changes are durable is not known: {why}")))
        };
        let flushed = self.inner.connection.in_time(Instant::now(), flushed);
        waiting(|| self.inner.dialer.master(), flushed).await.unwrap_or_else(late)
    }

    /// Returns the number of operations that failed after they had been acknowledged.
    pub fn lost(&self) -> u64 {
        self.inner.keeper.as_ref().map_or(0, KeptOperations::lost)
    }

    /// Runs a verb like [`crate::Master::run`]. If the client is so configured, the operation is
    /// answered when it has run, before it is durable. If the outcome is unknown, the error says
    /// so.
    pub async fn run<V: WireVerb>(&self, caller: &Caller, verb: V) -> Result<V::Reply> {
        let began = Instant::now();
        let running = async {
            let posting = self.inner.post_or_ask(caller, &verb);
            match self.inner.connection.in_time(began, posting).await {
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) => {}
                Err(why) => return Err(unanswered(false, &why)),
            }
            wire::decode(&self.inner.run_in_time(Operation::new(caller, &verb)?, began).await?)
        };
        waiting(|| self.inner.dialer.master(), running).await
    }

    /// Runs a verb like [`Client::run`] if this session may run it on its own. When this returns,
    /// the operation is done for callers that ask this session. For all others it is done when they
    /// ask, since it has run at the master by then. Returns `None` if the caller must use
    /// [`Client::run`]. Never blocks.
    pub fn run_now<V: WireVerb>(&self, caller: &Caller, verb: &V) -> Option<V::Reply> {
        self.inner.post(caller, verb)
    }

    /// Reads like [`crate::Master::read`].
    pub async fn read<V: WireVerb>(&self, caller: &Caller, verb: V) -> Result<V::Reply> {
        let lease = match self.inner.read_leased(caller, &verb) {
            LeasedReply::Reply(reply) => return reply,
            LeasedReply::Miss => true,
            LeasedReply::Range => V::LEASES_RANGES,
        };
        self.ask(caller, verb, lease).await
    }

    /// Reads like [`Client::read`], but asks the master whatever is leased, so that the master
    /// notices.
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
        let reading = self.inner.connection.in_time(Instant::now(), reading);
        let read = waiting(|| self.inner.dialer.master(), reading).await;
        read.unwrap_or_else(|why| Err(Error::Unavailable(why)))
    }

    /// Reads like [`Client::read`] if all rows that it needs are leased; `None` otherwise. Never
    /// blocks.
    pub fn read_now<V: WireVerb>(&self, caller: &Caller, verb: &V) -> Option<Result<V::Reply>> {
        match self.inner.read_leased(caller, verb) {
            LeasedReply::Reply(reply) => Some(reply),
            LeasedReply::Miss | LeasedReply::Range => None,
        }
    }

    /// Reads like [`Client::read_now`], and returns what is needed to use the reply again.
    pub fn read_memo<V: WireVerb>(
        &self,
        caller: &Caller,
        verb: &V,
    ) -> Option<Result<Memo<V::Reply>>> {
        match self.inner.memo(caller, verb, true) {
            LeasedReply::Reply(reply) => Some(reply),
            LeasedReply::Miss | LeasedReply::Range => None,
        }
    }

    /// Returns whether the caller that `memo` was made for would get the same reply now.
    pub fn is_current<R>(&self, memo: &Memo<R>) -> bool {
        self.inner.is_current(memo)
    }

    /// Ends the session when all operations that ran before are durable, so that nobody has to wait
    /// until it lapses. The session must not be used afterwards.
    pub async fn close(&self) {
        if let Err(error) = self.flush().await {
            tracing::error!(%error, "the last changes may be LOST");
        }
        // A session that ends holds nothing that it would have to give back.
        self.inner.posts.begin();
        let attachment = self.inner.connection.close();
        let Some(Attachment { session, link, .. }) = attachment else { return };
        self.inner.forget_all();
        let detach = Detach { session };
        let detached = call::<_, ()>(&*link, SessionMethod::Detach, &detach);
        if !matches!(timeout(GOODBYE, detached).await, Ok(Ok(Reply::Done(())))) {
            tracing::debug!(%session, "the session was not ended, it lapses");
        }
    }

    /// Returns whether the session is attached to a master.
    pub fn is_attached(&self) -> bool {
        self.inner.connection.now().is_some()
    }

    /// Returns how long no master has answered.
    pub fn silence(&self) -> MasterSilence {
        let silence = self.inner.dialer.silence();
        let of_session =
            if self.is_attached() { Duration::ZERO } else { self.inner.lease.silent() };
        MasterSilence { lasts: silence.lasts.max(of_session), ..silence }
    }

    pub fn stats(&self) -> Stats {
        let (rows, bytes) = self.inner.rows.usage();
        let stats = self.inner.counters.stats(rows, bytes);
        let (directories, posted) = self.inner.posts.usage();
        let kept = self.inner.keeper.as_ref().map_or(0, KeptOperations::count);
        Stats { directories, posted, kept, silence: self.silence().lasts, ..stats }
    }
}
