//! Measures where a request spends its time.
//!
//! A request carries a [`Stages`]: its time, cut into stages. While a task works on the request,
//! all code below can reach it ([`Scope`]). So code that waits for a disk says so without knowing
//! about requests: `let _waiting = stage::enter(Stage::Read);`. If no request is being timed, that
//! costs one look at a thread-local variable.
//!
//! Every moment belongs to at most one stage: the deepest of those that are entered, which is the
//! last of them in [`Stage`]. So stages that overlap or are nested never add up to more than the
//! total.

#![expect(clippy::disallowed_methods, reason = "times are reported and decide nothing")]

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::task::Context;
use std::time::{Duration, Instant};

use crate::trace::Trace;

/// A stage of a request, the deepest last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Sends the reply: the client receives it.
    Send,
    /// Waits for the body of the request: the client sends it.
    Receive,
    /// Establishes the caller.
    Admit,
    /// Reads or changes metadata, in this process or at a master.
    Meta,
    /// Reads blocks in memory.
    Cache,
    /// Writes a block to a disk here.
    Write,
    /// Reads a block from a disk here.
    Read,
    /// Waits for another node, with a block.
    Peer,
    /// Makes written bytes durable.
    Sync,
}

const COUNT: usize = Stage::ALL.len();

impl Stage {
    pub const ALL: [Stage; 9] = [
        Stage::Send,
        Stage::Receive,
        Stage::Admit,
        Stage::Meta,
        Stage::Cache,
        Stage::Write,
        Stage::Read,
        Stage::Peer,
        Stage::Sync,
    ];

    /// Returns the name, as in metrics and headers.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Send => "send",
            Stage::Receive => "receive",
            Stage::Admit => "admit",
            Stage::Meta => "meta",
            Stage::Cache => "cache",
            Stage::Write => "write",
            Stage::Read => "read",
            Stage::Peer => "peer",
            Stage::Sync => "sync",
        }
    }
}

/// The time of one request, by stages.
#[derive(Clone, Copy, Debug)]
pub struct Stages {
    pub trace: Trace,
    started: Instant,
    /// Point up to which time is accounted for.
    until: Instant,
    /// Time of entry into the deepest stage that is entered, or of leaving the last one.
    since: Instant,
    /// Number of times that each stage is entered and not left yet.
    entered: [u16; COUNT],
    /// Nanoseconds spent in each stage.
    spent: [u64; COUNT],
}

impl Stages {
    pub fn start(trace: Trace) -> Stages {
        let now = Instant::now();
        Stages {
            trace,
            started: now,
            until: now,
            since: now,
            entered: [0; COUNT],
            spent: [0; COUNT],
        }
    }

    /// Assigns all time since the last lap to `stage`. For code that never waits.
    pub fn lap(&mut self, stage: Stage) {
        self.spent[stage as usize] += self.advance();
    }

    /// Accounts for the time until now.
    pub fn settle(&mut self) {
        let passed = self.advance();
        if let Some(deepest) = self.deepest() {
            self.spent[deepest as usize] += passed;
        }
    }

    fn deepest(&self) -> Option<Stage> {
        let deepest = self.entered.iter().rposition(|count| *count > 0)?;
        Stage::ALL.get(deepest).copied()
    }

    /// Returns the deepest stage that is entered, and the time since when.
    pub fn rests(&self) -> (Option<Stage>, Instant) {
        (self.deepest(), self.since)
    }

    /// Continues in `stage` until something deeper is entered.
    pub fn rest_in(&mut self, stage: Stage) {
        self.settle();
        if self.deepest().is_none_or(|deepest| (deepest as usize) < stage as usize) {
            self.since = self.until;
        }
        self.entered[stage as usize] += 1;
    }

    fn advance(&mut self) -> u64 {
        let now = Instant::now();
        let passed = nanos(now.saturating_duration_since(self.until));
        self.until = now;
        passed
    }

    fn leave(&mut self, stage: Stage) {
        self.settle();
        let before = self.deepest();
        let count = &mut self.entered[stage as usize];
        *count = count.saturating_sub(1);
        if self.deepest() != before {
            self.since = self.until;
        }
    }

    pub fn spent(&self, stage: Stage) -> Duration {
        Duration::from_nanos(self.spent[stage as usize])
    }

    /// Returns the time from the start until time was last accounted for.
    pub fn total(&self) -> Duration {
        self.until - self.started
    }

    pub fn started(&self) -> Instant {
        self.started
    }

    fn shift(&mut self, from: Stage, to: Stage, time: Duration) {
        let moved = nanos(time).min(self.spent[from as usize]);
        self.spent[from as usize] -= moved;
        self.spent[to as usize] += moved;
    }
}

/// Formats as `meta 0.012 sync 4.100`, milliseconds.
impl fmt::Display for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        for stage in Stage::ALL.into_iter().filter(|stage| self.spent[*stage as usize] > 0) {
            let ms = self.spent(stage).as_secs_f64() * 1e3;
            write!(f, "{gap}{} {ms:.3}", stage.name())?;
            gap = " ";
        }
        Ok(())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

thread_local! {
    /// Stages of the request that this thread works on at the moment.
    static CURRENT: RefCell<Option<Stages>> = const { RefCell::new(None) };
}

fn with<T>(look: impl FnOnce(&mut Stages) -> T) -> Option<T> {
    CURRENT.with_borrow_mut(|current| current.as_mut().map(look))
}

/// Keeps a stage entered until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct StageGuard(Stage);

/// Enters a stage of the request that is being worked on, if there is one.
pub fn enter(stage: Stage) -> StageGuard {
    with(|stages| stages.rest_in(stage));
    StageGuard(stage)
}

impl Drop for StageGuard {
    fn drop(&mut self) {
        with(|stages| stages.leave(self.0));
    }
}

/// Times a future that waits.
pub async fn time<F: Future>(stage: Stage, future: F) -> F::Output {
    let _entered = enter(stage);
    future.await
}

/// Moves `time` from stage `from` to stage `to`, when it is known only afterwards where it belongs.
pub fn shift(from: Stage, to: Stage, time: Duration) {
    with(|stages| {
        stages.settle();
        stages.shift(from, to, time);
    });
}

/// Divides the time that was spent in `from` waiting for another task, in the proportions of that
/// task's own stages.
pub fn divide(from: Stage, waited: Duration, task: Option<&Stages>) {
    let Some(task) = task else { return };
    let all: u64 = task.spent.iter().sum();
    for stage in Stage::ALL.into_iter().filter(|stage| *stage != from) {
        let share = u128::from(task.spent[stage as usize]) * waited.as_nanos();
        if let Some(share) = share.checked_div(u128::from(all))
            && share > 0
        {
            shift(from, stage, Duration::from_nanos(u64::try_from(share).unwrap_or(u64::MAX)));
        }
    }
}

/// Returns the stages, up to now, of the request that is being worked on.
pub fn snapshot() -> Option<Stages> {
    with(|stages| {
        stages.settle();
        *stages
    })
}

/// Returns the trace of the request that is being worked on.
pub fn trace() -> Option<Trace> {
    with(|stages| stages.trace)
}

/// Returns the deepest stage of the request that is being worked on.
pub fn deepest() -> Option<Stage> {
    with(|stages| stages.deepest()).flatten()
}

/// Calls [`Stages::rests`] of the request that is being worked on.
pub fn rests() -> Option<(Option<Stage>, Instant)> {
    with(|stages| stages.rests())
}

/// Starts the time of a task that works on a part of the current request.
pub fn of_task() -> Option<Stages> {
    trace().map(Stages::start)
}

/// Makes a task's part of the request that is being worked on: its calls to other nodes carry the
/// trace of the request.
pub fn part<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let mut stages = of_task();
    async move {
        let mut future = pin!(future);
        let poll = |context: &mut Context<'_>| match &mut stages {
            Some(stages) => during(stages, || future.as_mut().poll(context)),
            None => future.as_mut().poll(context),
        };
        std::future::poll_fn(poll).await
    }
}

/// Makes `stages` the current ones while `poll` runs.
pub fn during<T>(stages: &mut Stages, poll: impl FnOnce() -> T) -> T {
    let _restored = RestoreGuard { before: CURRENT.replace(Some(*stages)), stages };
    poll()
}

/// Restores the previous stages, also after a panic: a thread of a runtime goes on with other
/// requests.
struct RestoreGuard<'a> {
    before: Option<Stages>,
    stages: &'a mut Stages,
}

impl Drop for RestoreGuard<'_> {
    fn drop(&mut self) {
        if let Some(after) = CURRENT.replace(self.before) {
            *self.stages = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(2);

    fn stages() -> Stages {
        Stages::start(Trace { id: 1, span: 1, parent: 0, sampled: false })
    }

    fn sum(stages: &Stages) -> Duration {
        Stage::ALL.into_iter().map(|stage| stages.spent(stage)).sum()
    }

    fn wait() {
        std::thread::sleep(WAIT);
    }

    #[test]
    fn each_moment_belongs_to_the_deepest_stage() {
        let mut timed = stages();
        during(&mut timed, || {
            let _meta = enter(Stage::Meta);
            wait();
            {
                let _sync = enter(Stage::Sync);
                wait();
                // Not as deep, so it changes nothing.
                let _write = enter(Stage::Write);
                wait();
            }
            wait();
        });
        assert!(timed.spent(Stage::Meta) >= 2 * WAIT, "{timed:?}");
        assert!(timed.spent(Stage::Sync) >= 2 * WAIT, "{timed:?}");
        assert_eq!(timed.spent(Stage::Write), Duration::ZERO);
        assert!(sum(&timed) <= timed.total());
    }

    #[test]
    fn stages_that_overlap_add_up_to_no_more_than_the_total() {
        let mut timed = stages();
        during(&mut timed, || {
            let first = enter(Stage::Read);
            wait();
            let second = enter(Stage::Read);
            drop(first);
            wait();
            drop(second);
            wait();
        });
        timed.settle();
        assert!(timed.spent(Stage::Read) >= 2 * WAIT);
        assert!(sum(&timed) + WAIT <= timed.total(), "{timed:?}");
    }

    #[test]
    fn it_rests_in_the_deepest_stage_since_that_was_entered() {
        let mut timed = stages();
        timed.rest_in(Stage::Meta);
        let (stage, first) = timed.rests();
        assert_eq!(stage, Some(Stage::Meta));
        wait();
        // Not as deep, and once more: it has been there all the time.
        timed.rest_in(Stage::Send);
        timed.rest_in(Stage::Meta);
        timed.leave(Stage::Meta);
        assert_eq!(timed.rests(), (Some(Stage::Meta), first));
        timed.rest_in(Stage::Sync);
        let (stage, second) = timed.rests();
        assert!(stage == Some(Stage::Sync) && second >= first + WAIT);
        wait();
        timed.leave(Stage::Sync);
        let (stage, third) = timed.rests();
        assert!(stage == Some(Stage::Meta) && third >= second + WAIT);
    }

    #[test]
    fn laps_are_all_there_is() {
        let mut timed = stages();
        timed.lap(Stage::Admit);
        wait();
        timed.lap(Stage::Meta);
        assert!(timed.spent(Stage::Meta) >= WAIT);
        assert_eq!(sum(&timed), timed.total());
    }

    #[test]
    fn what_is_known_afterwards_is_moved_as_far_as_there_is_any() {
        let mut timed = stages();
        during(&mut timed, || {
            let _meta = enter(Stage::Meta);
            wait();
            shift(Stage::Meta, Stage::Sync, WAIT);
            shift(Stage::Meta, Stage::Sync, Duration::from_secs(9));
        });
        assert!(timed.spent(Stage::Sync) >= WAIT);
        assert!(sum(&timed) <= timed.total(), "{timed:?}");
    }

    #[test]
    fn waiting_for_a_task_is_divided_as_its_time_was() {
        let mut task = stages();
        task.spent[Stage::Write as usize] = 100;
        task.spent[Stage::Sync as usize] = 300;
        let mut timed = stages();
        during(&mut timed, || {
            with(|stages| stages.spent[Stage::Write as usize] = 4_000);
            divide(Stage::Write, Duration::from_nanos(4_000), Some(&task));
            divide(Stage::Write, Duration::from_nanos(4_000), None);
        });
        assert_eq!(timed.spent(Stage::Write), Duration::from_nanos(1_000));
        assert_eq!(timed.spent(Stage::Sync), Duration::from_nanos(3_000));
    }
}
