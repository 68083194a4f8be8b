//! Requests in flight: those that wait in this process now, since when, and for what.
//!
//! A door gives each request that may wait a [`Request`], and polls it within a
//! [`Scope`](crate::Scope). The request is in the table of this process from its first wait until
//! nobody works on it any more. A request that is answered at once costs no lock. Code further down
//! notes what it waits for with [`waiting`]. Without a current request, and without a wait, that
//! costs nothing.
//!
//! ```text
//!   door ── Request ──► Scope ── poll: pending ──► table ──► seen(): `cairn inflight`, the log
//!                         └── waiting("node 3", …) ── pending ──┘
//! ```

#![expect(clippy::disallowed_methods, reason = "times are reported and decide nothing")]

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::trace::Trace;
use crate::{NodeId, Stage, UserId, stage};

/// Number of parts of the table, so that threads seldom wait for each other.
const SHARDS: usize = 16;

/// Describes the subject of a request. It is called only when somebody looks.
pub trait Describe: Send + Sync {
    fn describe(&self) -> About;
}

impl<F: Fn() -> About + Send + Sync> Describe for F {
    fn describe(&self) -> About {
        self()
    }
}

/// A request, as its door knows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct About {
    /// Name of the door in metrics: `s3`, `fuse`.
    pub door: &'static str,
    pub operation: Cow<'static, str>,
    /// Path, key or inode of the request; it contains no secret.
    pub object: String,
    /// User of the store, if the door knows it from the start.
    pub user: Option<UserId>,
    /// Machine or node that sent the request; empty for this one.
    pub client: String,
    /// Process on this machine that sent the request.
    pub process: Option<u32>,
    /// Thing that the whole request waits for, if the door knows it.
    pub waits_for: Option<String>,
    /// Set if it may wait as long as another client wants, as for a lock. That is no problem.
    pub is_patient: bool,
}

/// Something that a request waits for.
#[derive(Clone)]
pub enum WaitTarget {
    /// A kind of thing, such as `server`, and its name.
    Named(&'static str, Arc<str>),
    /// A node of the cluster, with its role and address.
    Node(&'static str, NodeId, String),
    Text(String),
    /// Description that is made when somebody looks.
    Asked(Arc<dyn Fn() -> String + Send + Sync>),
}

impl fmt::Display for WaitTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitTarget::Named(kind, name) => write!(f, "{kind} {name}"),
            WaitTarget::Node(role, node, address) if address.is_empty() => {
                write!(f, "{role} node {node}")
            }
            WaitTarget::Node(role, node, address) => write!(f, "{role} node {node} at {address}"),
            WaitTarget::Text(text) => f.write_str(text),
            WaitTarget::Asked(ask) => f.write_str(&ask()),
        }
    }
}

/// A request in flight. Clones are the same request; it is over when the last of them is dropped.
#[derive(Clone)]
pub struct Request(Arc<Entry<dyn Describe>>);

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Request").field(&self.0.trace).finish()
    }
}

struct Entry<D: ?Sized> {
    trace: Option<Trace>,
    began: Instant,
    /// Number of the request in the table; 0 as long as it has not waited.
    number: AtomicU64,
    /// Stage and time, as [`pack`] encodes them.
    stage: AtomicU64,
    /// User id plus one; 0 if the user is not known.
    user: AtomicU64,
    /// The name of the operation, once it is known.
    operation: OnceLock<&'static str>,
    waits: Mutex<Vec<Wait>>,
    about: D,
}

struct Wait {
    number: u64,
    what: WaitTarget,
    stage: Option<Stage>,
    since: Instant,
}

type Shard = Mutex<BTreeMap<u64, Weak<Entry<dyn Describe>>>>;

static TABLE: [Shard; SHARDS] = [const { Mutex::new(BTreeMap::new()) }; SHARDS];
/// Numbers of requests and of their waits. The first is 1.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

fn next_number() -> u64 {
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

fn shard(number: u64) -> &'static Shard {
    &TABLE[number as usize % SHARDS]
}

/// Locks `mutex`. A holder that panicked has left nothing half done.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<D: ?Sized> Drop for Entry<D> {
    fn drop(&mut self) {
        let number = *self.number.get_mut();
        if number > 0 {
            locked(shard(number)).remove(&number);
        }
    }
}

/// Packs a stage and its start: the stage's number plus one, or 0, in the upper 8 bits; nanoseconds
/// since the start of the request below them.
fn pack(stage: Option<Stage>, since: Duration) -> u64 {
    let nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX).min((1 << 56) - 1);
    stage.map_or(0, |stage| stage as u64 + 1) << 56 | nanos
}

fn unpack(packed: u64) -> (Option<Stage>, Duration) {
    let stage = (packed >> 56).checked_sub(1).and_then(|at| Stage::ALL.get(at as usize).copied());
    (stage, Duration::from_nanos(packed & ((1 << 56) - 1)))
}

impl Request {
    /// Creates a request; `trace` is `None` where requests have none.
    pub fn new(trace: Option<Trace>, about: impl Describe + 'static) -> Request {
        let entry = Entry {
            trace,
            began: Instant::now(),
            number: AtomicU64::new(0),
            stage: AtomicU64::new(0),
            user: AtomicU64::new(0),
            operation: OnceLock::new(),
            waits: Mutex::default(),
            about,
        };
        Request(Arc::new(entry))
    }

    /// Returns the name of its operation, once it is known.
    pub fn operation(&self) -> Option<&'static str> {
        self.0.operation.get().copied()
    }

    /// Notes that it waits, in this stage since then.
    pub fn wait_in(&self, stage: Option<Stage>, since: Instant) {
        let since = since.saturating_duration_since(self.0.began);
        self.0.stage.store(pack(stage, since), Ordering::Relaxed);
        self.list();
    }

    /// Notes the stage that it is in since then, if it has waited before.
    pub fn rest_in(&self, stage: Option<Stage>, since: Instant) {
        if self.0.number.load(Ordering::Relaxed) != 0 {
            self.wait_in(stage, since);
        }
    }

    /// Returns its user, if known.
    pub fn user(&self) -> Option<UserId> {
        self.0.user.load(Ordering::Relaxed).checked_sub(1).map(UserId)
    }

    fn list(&self) {
        let own = &self.0.number;
        if own.load(Ordering::Relaxed) != 0 {
            return;
        }
        let number = next_number();
        let relaxed = Ordering::Relaxed;
        if own.compare_exchange(0, number, relaxed, relaxed).is_ok() {
            let about: Weak<Entry<dyn Describe>> = Arc::downgrade(&self.0);
            locked(shard(number)).insert(number, about);
        }
    }

    fn note(&self, what: WaitTarget) -> WaitGuard {
        let number = next_number();
        let wait = Wait { number, what, stage: stage::deepest(), since: Instant::now() };
        locked(&self.0.waits).push(wait);
        self.list();
        WaitGuard { request: self.clone(), number }
    }

    fn seen(&self, now: Instant) -> RequestSnapshot {
        let entry = &self.0;
        let mut about = entry.about.describe();
        if let Some(operation) = entry.operation.get() {
            about.operation = Cow::Borrowed(operation);
        }
        about.user = self.user().or(about.user);
        let (own, since) = unpack(entry.stage.load(Ordering::Relaxed));
        // The owner of a name may take locks of its own when it is asked.
        let waits: Vec<_> = locked(&entry.waits)
            .iter()
            .map(|wait| (wait.stage, wait.what.clone(), now.saturating_duration_since(wait.since)))
            .collect();
        let stages = waits.iter().filter_map(|(stage, ..)| *stage).chain(own);
        let age = now.saturating_duration_since(entry.began);
        RequestSnapshot {
            number: entry.number.load(Ordering::Relaxed),
            trace: entry.trace,
            stage: stages.max_by_key(|stage| *stage as usize),
            age,
            stage_age: age.saturating_sub(since),
            waits: waits
                .iter()
                .map(|(_, what, time)| (what.to_string(), *time))
                .chain(about.waits_for.take().map(|what| (what, age.saturating_sub(since))))
                .collect(),
            about,
        }
    }
}

/// A snapshot of a request in flight.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestSnapshot {
    /// Number of the request, unique in this process.
    pub number: u64,
    pub trace: Option<Trace>,
    pub about: About,
    /// The deepest stage that the request is in.
    pub stage: Option<Stage>,
    /// Time since the request began.
    pub age: Duration,
    /// Time since the request entered `stage`, or left its last stage.
    pub stage_age: Duration,
    /// Things that the request waits for, with the time of each wait; the oldest wait is the first.
    pub waits: Vec<(String, Duration)>,
}

/// Returns all requests of this process that wait, the oldest first.
pub fn seen() -> Vec<RequestSnapshot> {
    let mut requests = Vec::new();
    for shard in &TABLE {
        let listed = locked(shard);
        // Dropped here, once the lock is free, if this is the last reference.
        requests.extend(listed.values().filter_map(Weak::upgrade).map(Request));
    }
    let now = Instant::now();
    let mut all: Vec<RequestSnapshot> = requests.iter().map(|request| request.seen(now)).collect();
    all.sort_by_key(|seen| std::cmp::Reverse(seen.age));
    all
}

thread_local! {
    /// Request that this thread works on at the moment.
    static CURRENT: RefCell<Option<Request>> = const { RefCell::new(None) };
}

/// Returns the request that is being worked on, for a task that works on a part of it.
pub fn current() -> Option<Request> {
    CURRENT.with_borrow(Clone::clone)
}

/// Makes `request` the current one while `poll` runs; `None` leaves the current request as it is.
pub fn during<T>(request: &mut Option<Request>, poll: impl FnOnce() -> T) -> T {
    if request.is_none() {
        return poll();
    }
    let before = CURRENT.replace(request.take());
    let _restored = RestoreGuard { before, request };
    poll()
}

/// Restores the previous request, also after a panic.
struct RestoreGuard<'a> {
    before: Option<Request>,
    request: &'a mut Option<Request>,
}

impl Drop for RestoreGuard<'_> {
    fn drop(&mut self) {
        *self.request = CURRENT.replace(self.before.take());
    }
}

/// Notes the user of the request that is being worked on.
pub fn by(user: UserId) {
    CURRENT.with_borrow(|current| {
        if let Some(request) = current {
            request.0.user.store(user.0.saturating_add(1), Ordering::Relaxed);
        }
    });
}

/// Notes the operation of the request that is being worked on. Later calls have no effect.
pub fn is(operation: &'static str) {
    CURRENT.with_borrow(|current| {
        if let Some(request) = current {
            let _ = request.0.operation.set(operation);
        }
    });
}

/// A noted wait of the request that is being worked on, until it is dropped.
struct WaitGuard {
    request: Request,
    number: u64,
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        locked(&self.request.0.waits).retain(|wait| wait.number != self.number);
    }
}

/// Runs `future`; whenever it waits, the request that is being worked on shows what for.
pub async fn waiting<F: Future>(what: impl FnOnce() -> WaitTarget, future: F) -> F::Output {
    let mut future = pin!(future);
    let (mut what, mut noted) = (Some(what), None);
    std::future::poll_fn(|context| {
        let polled = future.as_mut().poll(context);
        if polled.is_pending()
            && let Some(request) = what.is_some().then(current).flatten()
            && let Some(what) = what.take()
        {
            noted = Some(request.note(what()));
        }
        if polled.is_ready() {
            noted = None;
        }
        polled
    })
    .await
}

/// Works on a request. Its time is measured only as a part of the request that is being worked on,
/// if there is one.
pub async fn within<F: Future>(request: Request, future: F) -> F::Output {
    let (mut future, began) = (pin!(future), request.0.began);
    let mut request = Some(request);
    std::future::poll_fn(|context| {
        let polled = during(&mut request, || future.as_mut().poll(context));
        if polled.is_pending()
            && let Some(request) = &request
        {
            let (stage, since) = stage::rests().unwrap_or((None, began));
            request.wait_in(stage, since);
        }
        polled
    })
    .await
}

/// Polls like [`stage::during`], and notes where the request waits whenever it is pending. If it is
/// ready, its stage from then on is that in which its stages rest: a client may take a reply
/// slowly.
pub fn poll<T>(
    stages: &mut stage::Stages,
    request: &mut Option<Request>,
    poll: impl FnOnce() -> Poll<T>,
) -> Poll<T> {
    let polled = during(request, || stage::during(stages, poll));
    if let Some(request) = request {
        let (stage, since) = stages.rests();
        if polled.is_pending() {
            request.wait_in(stage, since);
        } else {
            request.rest_in(stage, since);
        }
    }
    polled
}

#[cfg(test)]
mod tests;
