//! The master: runs operations one after another, makes them durable in batches, and answers.
//!
//! ```text
//!   run ──► inbox ──► executor ─────────► open batch ──► committer ──► Engine::commit
//!             ▲          │ overlay, cache                    │
//!             │          ▼ missing rows                      ▼ in the order of batches
//!             └────── fetch threads ◄── snapshot          publish: cache, durable batch; answer
//!
//!   read ──► cached rows as of the durable batch, else a snapshot
//! ```
//!
//! While batch N is in the engine, N+1 is executed on top of it. The executor first looks into the
//! overlay: all changes that are not published, and published changes that a waiting operation
//! still needs. Below it are the rows that were fetched for the operation, and below those the row
//! cache. The cache holds published rows only, each with the batch since which it is known. So a
//! reader takes no lock: it meets a row younger than the batch it began with, or it does not.

#![expect(clippy::disallowed_methods, reason = "where no simulation gives threads")]

mod batch;
mod cache;
mod committer;
mod config;
mod delegate;
mod delegations;
mod disk;
mod executor;
mod fetcher;
mod hasty;
pub mod host;
mod inbox;
mod lacking;
mod leases;
mod once;
mod op;
mod operation_clock;
mod overlay;
mod pins;
mod read;
mod reads;
mod recall_deadlines;
mod recount;
mod remote;
mod settle;
mod shared;
mod source;
mod stats;
pub(crate) mod threads;

pub use config::Config;
pub use leases::Event;
pub use once::{Once, OnceOutcome};
pub use reads::Leased;
pub use remote::Reading;
pub use stats::Stats;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::{Clock, Error, Ino, Party, Result, SessionId, Stage, stage};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use committer::Committer;
use executor::Executor;
use op::Job;
use shared::MasterShared;

use crate::engine::{Commit, Engine, Fence, Snapshot};
use crate::erased::{AnyReply, AnyVerb, reply_of};
use crate::memo::Memo;
use crate::session::Serving;
use crate::sights::{Seeing, Seen, Sight};
use crate::{RowWatch, Verb};

/// Time that a dropped master may take to finish the operations that it accepted.
const DROP_TIMEOUT: Duration = Duration::from_secs(5);

/// The owner of the metadata in `engine`. Clones are the same master; it stops with the last one.
#[derive(Clone)]
pub struct Master {
    owner: Arc<Owner>,
}

struct Owner {
    shared: Arc<MasterShared>,
    /// Disconnected when all threads have ended.
    threads: Mutex<Receiver<()>>,
}

impl Master {
    /// Takes the engine over and starts.
    ///
    /// # Errors
    /// Those of the engine; `Io` when a thread cannot be started.
    pub fn start(engine: Arc<dyn Engine>, clock: Arc<dyn Clock>, config: Config) -> Result<Master> {
        let mut fence = engine.take_over()?;
        for page in recount::plan(&*engine, fence)? {
            fence = recount::committed(fence, engine.commit(fence, page))?;
        }
        Master::begin(engine, clock, config, fence)
    }

    /// Starts a master like [`Master::start`], where no thread may wait.
    ///
    /// # Errors
    /// Same errors as [`Master::start`].
    pub async fn start_later(
        engine: Arc<dyn Engine>,
        clock: Arc<dyn Clock>,
        config: Config,
    ) -> Result<Master> {
        let mut fence = engine.take_over()?;
        for page in recount::plan(&*engine, fence)? {
            let outcome = match engine.commit_later(fence, page) {
                Commit::Done(outcome) => outcome,
                Commit::Later(outcome) => outcome.await,
            };
            fence = recount::committed(fence, outcome)?;
        }
        Master::begin(engine, clock, config, fence)
    }

    fn begin(
        engine: Arc<dyn Engine>,
        clock: Arc<dyn Clock>,
        config: Config,
        fence: Fence,
    ) -> Result<Master> {
        let shared = Arc::new(MasterShared::new(engine, clock, config, fence));
        let (alive, threads) = mpsc::channel();
        shared.watch_lease();
        let owner = Owner { shared: Arc::clone(&shared), threads: Mutex::new(threads) };
        let master = Master { owner: Arc::new(owner) };
        let executor = Executor::new(Arc::clone(&shared));
        let ended = Arc::clone(&shared);
        spawn(&shared, &alive, "meta-execute", async move {
            executor.run().await;
            ended.fetches.close();
            ended.pipe.stop();
        })?;
        let committer = Committer::new(Arc::clone(&shared), fence);
        spawn(&shared, &alive, "meta-commit", committer.run())?;
        for _ in 0..shared.config.fetch_threads.max(1) {
            spawn(&shared, &alive, "meta-fetch", fetcher::run(Arc::clone(&shared)))?;
        }
        Ok(master)
    }

    /// Runs an operation that may change rows. Returns when it and everything it saw is durable.
    /// Once it was polled, it may be executed even if the future is dropped.
    ///
    /// # Errors
    /// Those of the operation. `Full` if the disk is and the operation frees nothing. `Full` or
    /// `Unavailable` if the batch it was in could not be committed (then it changed nothing).
    /// `Unavailable` when the master has ended, and then the outcome is unknown if the text says
    /// so.
    pub async fn run<V: Verb>(&self, caller: &Caller, verb: V) -> Result<V::Reply> {
        self.check_runs(V::RUNS_WHEN_FULL, verb.takes_reserve_of())?;
        Ok(reply_of::<V>(self.run_any(caller, Box::new(verb)).await?))
    }

    /// Runs a verb like [`Master::run`], and returns these inodes as they were right before and
    /// after.
    ///
    /// # Errors
    /// Same errors as [`Master::run`].
    pub async fn run_seeing<V: Verb>(
        &self,
        caller: &Caller,
        verb: V,
        inodes: Vec<Ino>,
    ) -> Result<(V::Reply, Vec<Option<Sight>>)> {
        self.check_runs(V::RUNS_WHEN_FULL, verb.takes_reserve_of())?;
        let seeing = Seeing { verb: Box::new(verb), inodes };
        let reply = self.run_any(caller, Box::new(seeing)).await?;
        match reply.downcast::<Seen>() {
            Ok(seen) => Ok((reply_of::<V>(seen.0), seen.1)),
            Err(_) => unreachable!("not a reply of Seeing"),
        }
    }

    async fn run_any(&self, caller: &Caller, verb: Box<dyn AnyVerb>) -> Result<AnyReply> {
        let (job, answer) = op::accept(caller, verb);
        self.execute(job, answer).await?
    }

    /// Runs an operation, and waits for its answer. As much of that time as the last commit took
    /// counts as time on the disk.
    async fn execute<T>(&self, job: Job, answer: oneshot::Receiver<T>) -> Result<T> {
        let counters = &self.owner.shared.counters;
        let batches = counters.batches.get();
        self.accept(job).await?;
        let answered = self.answered(answer).await;
        if counters.batches.get() > batches {
            let commit = Duration::from_micros(counters.last_commit_us.load(Ordering::Relaxed));
            stage::shift(Stage::Meta, Stage::Sync, commit);
        }
        answered
    }

    /// Passes an operation to the executor once there are not too many.
    async fn accept(&self, job: Job) -> Result<()> {
        let shared = &*self.owner.shared;
        let permit = match shared.permits.try_acquire() {
            Ok(permit) => permit,
            Err(_) => shared.permits.acquire().await.map_err(|_| shared.gone())?,
        };
        // The permit is given back when the operation is answered.
        permit.forget();
        shared.inbox.push(job).map_err(|_| shared.gone())
    }

    async fn answered<T>(&self, answer: oneshot::Receiver<T>) -> Result<T> {
        match answer.await {
            Ok(reply) => Ok(reply),
            // Dropped by a thread that is ending and is about to report why.
            Err(_) => {
                self.wait_failed().await;
                Err(self.owner.shared.gone())
            }
        }
    }

    /// Checks that an operation may run now.
    ///
    /// # Errors
    /// `Full` if the disk is full; then the operation does not run.
    fn check_runs(&self, when_full: bool, takes_reserve_of: Option<Party>) -> Result<()> {
        let shared = &self.owner.shared;
        match (when_full, takes_reserve_of) {
            (false, _) => self.check_space(),
            (true, Some(party))
                if shared.engine.is_low_on_space()
                    && !shared.reserve.take(party, shared.monotonic()) =>
            {
                let what = "the disk of the metadata is nearly full, and this client has taken \
                            its part of the reserve: make room on it";
                Err(Error::Full(what.into()))
            }
            (true, _) => Ok(()),
        }
    }

    /// Checks the space for callers that are about to write blocks for an operation to name.
    ///
    /// # Errors
    /// `Full` if [`Master::run`] would refuse that operation now.
    pub fn check_space(&self) -> Result<()> {
        if self.owner.shared.engine.is_low_on_space() {
            Err(Error::Full(
                "the disk of the metadata is nearly full: delete objects, or make room on it"
                    .into(),
            ))
        } else {
            Ok(())
        }
    }

    /// Runs a reading operation on durable rows only: on this thread if all rows that it needs are
    /// in memory, else on the blocking pool of the current runtime.
    ///
    /// # Errors
    /// Those of the operation and of the engine; `Invalid` if it changes rows; `Unavailable` when
    /// the master has failed, or may have been replaced.
    pub async fn read<V: Verb>(&self, caller: &Caller, verb: V) -> Result<V::Reply> {
        if let Some(result) = self.read_now(caller, &verb) {
            return result;
        }
        Ok(reply_of::<V>(self.read_missed(caller, Arc::new(verb)).await?))
    }

    /// Reads like [`Master::read`].
    pub(crate) async fn read_any(
        &self,
        caller: &Caller,
        verb: Arc<dyn AnyVerb>,
    ) -> Result<AnyReply> {
        if let Some(result) = read::cached_any(&self.owner.shared, caller, &*verb) {
            return result;
        }
        self.read_missed(caller, verb).await
    }

    /// Reads when not all needed rows are in memory.
    async fn read_missed(&self, caller: &Caller, verb: Arc<dyn AnyVerb>) -> Result<AnyReply> {
        let shared = &self.owner.shared;
        let Some(stamp) = shared.unsettled.stamp() else {
            return self.read_executed(caller, verb).await;
        };
        let result = read::stored(shared, caller.clone(), &verb).await;
        if shared.unsettled.holds(stamp) {
            return result;
        }
        self.read_executed(caller, verb).await
    }

    /// Reads like [`Master::read`] if all needed rows are in memory; otherwise returns `None`.
    /// Never blocks.
    pub fn read_now<V: Verb>(&self, caller: &Caller, verb: &V) -> Option<Result<V::Reply>> {
        read::cached(&self.owner.shared, caller, verb)
    }

    /// Reads like [`Master::read_now`], and returns what is needed to use the reply again.
    pub fn read_memo<V: Verb>(&self, caller: &Caller, verb: &V) -> Option<Result<Memo<V::Reply>>> {
        read::on_cached(&self.owner.shared, caller, verb, true)
    }

    /// Returns whether the caller that `memo` was made for would get the same reply now.
    pub fn is_current<R>(&self, memo: &Memo<R>) -> bool {
        read::is_current(&self.owner.shared, memo)
    }

    /// See [`crate::Meta::watch`].
    pub fn watch(&self, key: Bytes) -> RowWatch {
        self.owner.shared.watches.watch(key)
    }

    /// Returns all rows as they are in the engine, of a batch that reads have seen. Blocks.
    ///
    /// # Errors
    /// Those of the engine; `Unavailable` when the master has failed, or may have been replaced.
    pub fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        let shared = &self.owner.shared;
        shared.check_serving()?;
        let snapshot = shared.engine.snapshot()?;
        threads::block_on(shared.wait_published(snapshot.batch()))?;
        Ok(snapshot)
    }

    /// Runs blocking work where that is allowed.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        threads::blocking(&self.owner.shared.config.threads, work).await
    }

    /// Returns the last batch that is durable and visible to reads.
    pub fn durable_batch(&self) -> u64 {
        self.owner.shared.durable.batch()
    }

    /// Refuses new operations, finishes the accepted ones, and ends. Blocks meanwhile.
    pub fn stop(&self) {
        self.owner.begin_stop();
        // Nobody sends: the call returns with an error when all threads have ended.
        let _ = self.owner.threads.lock().recv();
        self.owner.shared.engine.give_up();
    }

    /// Ends the master after `stop`, if the process goes on and another master follows. Calls that
    /// still wait for something other than the disk, such as a session, get the answer that the
    /// outcome is unknown: nothing else would ever answer them.
    pub fn end(&self, reason: &str) {
        self.owner.shared.end(format!("outcome unknown: {reason}"));
    }

    /// Returns the epoch in which the master took over. Masters before it had lower ones.
    pub fn epoch(&self) -> u64 {
        self.owner.shared.epoch
    }

    /// Returns the handle for a session in this process that answers under this master's lease.
    pub fn serving(&self) -> Serving {
        let shared = Arc::downgrade(&self.owner.shared);
        let left = move || shared.upgrade().map_or(Duration::ZERO, |shared| shared.serves_for());
        Serving::new(self.epoch(), Arc::new(left))
    }

    /// Checks that this is the serving master, as far as it can know.
    ///
    /// # Errors
    /// `Unavailable` when it has failed, or could not renew its lease: then it answers no reads
    /// until it has renewed it.
    pub fn check_serving(&self) -> Result<()> {
        self.owner.shared.check_serving()
    }

    /// Returns why the master ended without an order to stop. The process must then exit, and
    /// recover by starting again.
    pub fn failed(&self) -> Option<String> {
        self.owner.shared.failure().map(str::to_owned)
    }

    /// Waits until the master fails, if it ever does, and returns the reason.
    pub fn wait_failed(&self) -> impl Future<Output = String> + Send + use<> {
        let shared = Arc::clone(&self.owner.shared);
        async move {
            shared.wait_failed().await;
            shared.failure().unwrap_or_default().to_owned()
        }
    }

    /// Returns the time for which this master has worked: time in which its disk stalled, it was
    /// not sure to be the master, or its process was stopped, does not count.
    pub fn working_time(&self) -> Duration {
        self.owner.shared.working.time()
    }

    /// Returns whether a session has left a request of this master unfulfilled for `most`.
    pub fn is_late(&self, session: SessionId, most: Duration) -> bool {
        self.owner.shared.asked.is_late(session, most)
    }

    /// Returns the sessions that have not given up what was recalled, and for how long.
    pub fn awaited(&self) -> Vec<(SessionId, Duration)> {
        self.owner.shared.asked.all()
    }

    /// Returns whether a session has not given a directory back for `most`.
    pub fn keeps_late(&self, session: SessionId, most: Duration) -> bool {
        self.owner.shared.asked.keeps_late(session, most)
    }

    pub fn stats(&self) -> Stats {
        self.owner.shared.stats()
    }
}

impl Owner {
    fn begin_stop(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.permits.close();
        self.shared.inbox.poke();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.begin_stop();
        // Threads that are given turns have none while this one waits.
        if self.shared.config.threads.is_none() {
            let _ = self.threads.lock().recv_timeout(DROP_TIMEOUT);
        }
    }
}

/// Starts a thread whose panic ends the master.
fn spawn(
    shared: &Arc<MasterShared>,
    alive: &Sender<()>,
    name: &'static str,
    body: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let guard = Guard { shared: Arc::clone(shared), name, _alive: alive.clone() };
    let thread = async move {
        let _guard = guard;
        body.await;
    };
    match &shared.config.threads {
        Some(threads) => threads.spawn(Box::pin(thread)),
        None => {
            let builder = std::thread::Builder::new().name(name.to_owned());
            builder.spawn(move || threads::block_on(thread))?;
        }
    }
    Ok(())
}

struct Guard {
    shared: Arc<MasterShared>,
    name: &'static str,
    _alive: Sender<()>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.fail(format!("outcome unknown: thread {} panicked", self.name));
        }
    }
}
