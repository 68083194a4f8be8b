//! The state that all threads of a master share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cairn_base::{Allowance, Clock, Error, Result, Timestamp};
use tokio::sync::{Notify, Semaphore};

use super::batch::Pipe;
use super::cache::RowCache;
use super::config::Config;
use super::hasty::Hasty;
use super::inbox::Inbox;
use super::lacking::FetchQueue;
use super::op::Job;
use super::operation_clock::OperationClock;
use super::recall_deadlines::{RecallDeadlines, Working};
use super::settle::UnsettledOperations;
use super::stats::{Counters, Stats};
use crate::engine::{Engine, Fence, Lease};
use crate::{RowWatches, Watched};

/// Period in which the number of operations is limited that run on a full disk although they free
/// no space: about the time after which their traces are forgotten. Each keeps less than 100 bytes:
/// some 6 MiB of the reserve.
const RESERVE_PERIOD: Duration = Duration::from_secs(600);
const RESERVE_OPS: u32 = 1 << 16;

/// The last published batch, and the tasks that wait for it.
pub struct Durable {
    batch: AtomicU64,
    changed: Notify,
}

impl Durable {
    fn new(batch: u64) -> Durable {
        Durable { batch: batch.into(), changed: Notify::new() }
    }

    /// Returns the last published batch: its rows and those of earlier batches are in the cache, or
    /// only in the engine.
    pub fn batch(&self) -> u64 {
        self.batch.load(Ordering::Acquire)
    }

    /// Publishes `batch`, once its rows are in the cache. For the committer.
    pub fn publish(&self, batch: u64) {
        self.batch.store(batch, Ordering::SeqCst);
        self.changed.notify_waiters();
    }
}

pub struct MasterShared {
    pub engine: Arc<dyn Engine>,
    pub config: Config,
    pub cache: RowCache,
    pub durable: Durable,
    pub inbox: Inbox,
    pub fetches: FetchQueue,
    pub pipe: Pipe,
    /// Permits for operations that may be accepted and not answered.
    pub permits: Semaphore,
    pub counters: Counters,
    pub unsettled: Arc<UnsettledOperations>,
    pub hasty: Hasty,
    pub working: Arc<Working>,
    pub asked: Arc<RecallDeadlines>,
    pub watches: Arc<RowWatches>,
    /// Allowance for operations that use some of the reserved space.
    pub reserve: Allowance,
    /// Set when accepted operations are finished and new ones refused.
    pub stopping: AtomicBool,
    /// Epoch in which the master took over.
    pub epoch: u64,
    /// Lease that is needed to answer from memory, if any.
    lease: Option<Arc<Lease>>,
    failure: OnceLock<String>,
    failed: Watched<bool>,
    clock: Arc<dyn Clock>,
    times: OperationClock,
}

impl MasterShared {
    pub fn new(
        engine: Arc<dyn Engine>,
        clock: Arc<dyn Clock>,
        config: Config,
        fence: Fence,
    ) -> MasterShared {
        let working = Arc::new(Working::new(Arc::clone(&clock), engine.lease()));
        MasterShared {
            epoch: fence.epoch,
            lease: engine.lease(),
            engine,
            cache: RowCache::new(config.cache_bytes),
            durable: Durable::new(fence.batch),
            inbox: Inbox::default(),
            fetches: FetchQueue::default(),
            pipe: Pipe::new(fence.batch + 1),
            permits: Semaphore::new(config.accepted_ops.clamp(1, Semaphore::MAX_PERMITS)),
            counters: Counters::default(),
            unsettled: Arc::default(),
            hasty: Hasty::default(),
            watches: Arc::default(),
            reserve: Allowance::new(RESERVE_PERIOD, RESERVE_OPS),
            asked: Arc::new(RecallDeadlines::new(Arc::clone(&working))),
            working,
            stopping: AtomicBool::new(false),
            failure: OnceLock::new(),
            failed: Watched::new(false),
            times: OperationClock::new(Arc::clone(&clock)),
            clock,
            config,
        }
    }

    /// Returns the wall time as given by [`OperationClock::now`].
    pub fn now(&self) -> Timestamp {
        self.times.now()
    }

    /// Returns the time of one operation as given by [`OperationClock::tick`].
    pub fn tick(&self) -> Timestamp {
        self.times.tick()
    }

    /// Returns the time for measurements.
    pub fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    pub fn monotonic_us(&self) -> u64 {
        u64::try_from(self.monotonic().as_micros()).unwrap_or(u64::MAX)
    }

    /// Makes the master fail when another takes over.
    pub fn watch_lease(self: &Arc<Self>) {
        let Some(lease) = &self.lease else { return };
        let shared = Arc::downgrade(self);
        lease.when_fenced(move |reason| {
            if let Some(shared) = shared.upgrade() {
                shared.fail(format!("outcome unknown: {reason}"));
            }
        });
    }

    /// Checks that the rows in memory are those of the engine.
    ///
    /// # Errors
    /// `Unavailable` when the master has failed, or another may have taken over.
    pub fn check_serving(&self) -> Result<()> {
        if self.serves() { Ok(()) } else { Err(self.refusal()) }
    }

    pub fn serves(&self) -> bool {
        self.failure().is_none() && self.lease.as_ref().is_none_or(|lease| lease.is_held())
    }

    /// Returns how long the rows in memory stay those of the engine without a renewal of the lease.
    pub fn serves_for(&self) -> Duration {
        match (self.failure(), &self.lease) {
            (Some(_), _) => Duration::ZERO,
            (None, Some(lease)) => lease.left(),
            (None, None) => Duration::MAX,
        }
    }

    fn refusal(&self) -> Error {
        match &self.lease {
            Some(lease) if self.failure().is_none() => lease.refusal(),
            _ => self.gone(),
        }
    }

    /// Returns why the master ended, if it did so on its own.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Waits until the master fails.
    pub async fn wait_failed(&self) {
        self.failed.wait_for(|failed| failed.then_some(())).await;
    }

    /// Fails the master: every waiting and every later operation is answered with `reason`. Only
    /// the first reason counts.
    pub fn fail(&self, reason: String) {
        tracing::error!(reason, "the master ends: restart to recover");
        self.end(reason);
    }

    /// Ends the master like [`MasterShared::fail`], as part of a regular stop.
    pub fn end(&self, reason: String) {
        let _ = self.failure.set(reason);
        self.permits.close();
        self.inbox.close();
        self.fetches.close();
        self.pipe.stop();
        self.durable.changed.notify_waiters();
        self.failed.set(true);
    }

    /// Returns the error for an operation that gets no other answer.
    pub fn gone(&self) -> Error {
        Error::Unavailable(match self.failure() {
            Some(reason) => reason.to_owned(),
            None => "the master is stopping".to_owned(),
        })
    }

    /// Waits until `batch`, which is durable in the engine, is published.
    ///
    /// # Errors
    /// `Unavailable` when the master fails before that.
    pub async fn wait_published(&self, batch: u64) -> Result<()> {
        loop {
            // Changes are noticed from here on.
            let changed = self.durable.changed.notified();
            if self.durable.batch() >= batch {
                return Ok(());
            }
            if self.failure().is_some() {
                return Err(self.gone());
            }
            changed.await;
        }
    }

    /// Answers operations that are durable, or will be once they have settled.
    pub fn answer(&self, jobs: Vec<Job>) {
        self.hasty.end(&jobs, &self.unsettled);
        let (mut answered, mut counted) = (0, 0);
        for mut job in jobs {
            let settled = match job.settle.take() {
                None => Some(job),
                Some(settle) => settle.hold(job),
            };
            if let Some(job) = settled {
                job.op.answer();
                answered += 1;
                counted += usize::from(job.is_counted);
            }
        }
        if answered > 0 {
            self.counters.ops.add(answered);
            self.permits.add_permits(counted);
        }
    }

    /// Answers like [`MasterShared::answer`] operations that changed nothing: no commit proves that
    /// the rows that they saw are current.
    pub fn answer_unchanged(&self, jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        if self.serves() {
            self.answer(jobs);
        } else {
            self.refuse(jobs, || self.refusal());
        }
    }

    /// Answers operations with an error.
    pub fn refuse(&self, jobs: Vec<Job>, error: impl Fn() -> Error) {
        let refused = jobs.iter().filter(|job| job.is_counted).count();
        for mut job in jobs {
            job.op.fail(error());
            self.hasty.end(std::slice::from_ref(&job), &self.unsettled);
            job.op.answer();
        }
        self.permits.add_permits(refused);
    }

    pub fn stats(&self) -> Stats {
        let counters = &self.counters;
        let (cache_rows, cache_bytes) = self.cache.usage();
        let free = self.permits.available_permits();
        Stats {
            batches: counters.batches.get(),
            ops: counters.ops.get(),
            rows: counters.rows.get(),
            commit_us: counters.commit_us.get(),
            commits_failed: counters.commits_failed.get(),
            op_misses: counters.op_misses.get(),
            rows_inline: counters.rows_inline.get(),
            reads_cached: counters.reads_cached.get(),
            reads_missed: counters.reads_missed.get(),
            in_flight: self.config.accepted_ops.saturating_sub(free) as u64,
            queued: self.inbox.len() as u64,
            cache_rows,
            cache_bytes,
            leases: counters.leases.load(Ordering::Relaxed),
            lease_bytes: counters.lease_bytes.load(Ordering::Relaxed),
            recalls: counters.recalls.load(Ordering::Relaxed),
            delegated_directories: counters.delegated_directories.load(Ordering::Relaxed),
            delegated_files: counters.delegated_files.load(Ordering::Relaxed),
            memory_bytes: self.engine.memory_bytes(),
            durable_batch: self.durable.batch(),
            checkpoints: self.engine.checkpoints(),
        }
    }
}
