//! A host: one process with a runtime and a clock of its own, which is given turns, is stopped,
//! dies, and starts again.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use cairn_base::rng::SeededRng;
use cairn_base::{Clock, Thread, Threads, Timestamp};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, Sleep, advance, sleep, sleep_until};

/// Wall time at the beginning, seconds.
const BEGIN: i64 = 1_700_000_000;

/// A clock that is right except for its rate, which comes from its runtime, and for jumps of its
/// wall time.
pub struct SimClock {
    start: Instant,
    /// Monotonic time at `start`.
    base: Duration,
    jumps_ns: Arc<AtomicI64>,
    /// Time for which its machine was suspended, microseconds: timers stopped, and clocks did not.
    suspended_us: Arc<AtomicU64>,
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let since = i64::try_from(self.monotonic().as_nanos()).unwrap_or(i64::MAX);
        Timestamp(BEGIN * 1_000_000_000 + since + self.jumps_ns.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        let suspended = Duration::from_micros(self.suspended_us.load(Ordering::Relaxed));
        self.base + suspended + Instant::now().saturating_duration_since(self.start)
    }
}

/// Gives turns to the threads of a process: not at once, and in no certain order.
pub struct Turns {
    rng: Arc<SeededRng>,
    /// Factor by which the disk is slow.
    slow: Arc<AtomicU64>,
}

impl Turns {
    fn pause(&self) -> Duration {
        let millis = match self.rng.below(100) {
            0..50 => 0,
            50..90 => 1 + self.rng.below(2),
            90..99 => 3 + self.rng.below(10),
            _ => self.rng.below(100),
        };
        Duration::from_millis(millis * self.slow.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Turns")
    }
}

impl Threads for Turns {
    fn run(&self, work: Box<dyn FnOnce() + Send>) {
        let pause = self.pause();
        tokio::spawn(async move {
            sleep(pause).await;
            work();
        });
    }

    fn spawn(&self, thread: Thread) {
        let turns = Turns { rng: Arc::clone(&self.rng), slow: Arc::clone(&self.slow) };
        tokio::spawn(Turning { thread, turns, pause: None });
    }
}

/// A thread that goes on some time after it was woken.
struct Turning {
    thread: Thread,
    turns: Turns,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Future for Turning {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let pause = this.pause.get_or_insert_with(|| Box::pin(sleep(this.turns.pause())));
        if pause.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        this.pause = None;
        this.thread.as_mut().poll(context)
    }
}

pub struct Host {
    runtime: Option<Runtime>,
    start: Option<Instant>,
    /// Time since the start of the process by its own clock, microseconds.
    local_us: u64,
    /// Millionths by which its clock runs faster.
    pub rate_ppm: i64,
    /// Time it missed, microseconds; `None` while it runs.
    pub paused_us: Option<u64>,
    pub jumps_ns: Arc<AtomicI64>,
    suspended_us: Arc<AtomicU64>,
    pub slow: Arc<AtomicU64>,
}

/// The parts that a process is given by its host.
pub struct Given {
    pub clock: Arc<dyn Clock>,
    pub threads: Arc<dyn Threads>,
}

impl Host {
    pub fn new(rate_ppm: i64) -> Host {
        Host {
            runtime: None,
            start: None,
            local_us: 0,
            rate_ppm,
            paused_us: None,
            jumps_ns: Arc::default(),
            suspended_us: Arc::default(),
            slow: Arc::new(AtomicU64::new(1)),
        }
    }

    pub fn is_running(&self) -> bool {
        self.runtime.is_some()
    }

    /// Starts a process at `now_us` since all began.
    pub fn start(&mut self, now_us: u64, rng: &Arc<SeededRng>, main: impl FnOnce(Given)) {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime");
        let start = runtime.block_on(async { Instant::now() });
        let base = Duration::from_secs(1000) + Duration::from_micros(now_us);
        self.suspended_us = Arc::default();
        let clock = SimClock {
            start,
            base,
            jumps_ns: Arc::clone(&self.jumps_ns),
            suspended_us: Arc::clone(&self.suspended_us),
        };
        let turns = Turns { rng: Arc::clone(rng), slow: Arc::clone(&self.slow) };
        {
            let _inside = runtime.enter();
            main(Given { clock: Arc::new(clock), threads: Arc::new(turns) });
        }
        (self.runtime, self.start) = (Some(runtime), Some(start));
        (self.local_us, self.paused_us) = (0, None);
    }

    /// The process is no more.
    pub fn end(&mut self) {
        self.runtime = None;
        self.paused_us = None;
    }

    /// Lets time pass.
    pub fn advance(&mut self, by_us: u64) {
        let (Some(runtime), Some(start)) = (&self.runtime, self.start) else { return };
        let local_us = by_us as i64 + by_us as i64 * self.rate_ppm / 1_000_000;
        if let Some(missed) = &mut self.paused_us {
            *missed += local_us as u64;
            return;
        }
        self.local_us += local_us as u64;
        let until = start + Duration::from_millis(self.local_us / 1000);
        runtime.block_on(async { sleep_until(until).await });
    }

    /// A process that was stopped goes on, and finds that it is late.
    pub fn resume(&mut self) {
        let Some(missed) = self.paused_us.take() else { return };
        self.local_us += missed;
        if let Some(runtime) = &self.runtime {
            runtime.block_on(async { advance(Duration::from_micros(missed)).await });
        }
    }

    /// The machine was suspended, and goes on: `CLOCK_BOOTTIME` ran meanwhile, and timers, which
    /// count by `CLOCK_MONOTONIC`, did not. `forgets`: a clock that stood still as well.
    pub fn wake(&mut self, forgets: bool) {
        let missed = self.paused_us.take().filter(|_| !forgets);
        self.suspended_us.fetch_add(missed.unwrap_or(0), Ordering::Relaxed);
    }
}

impl Host {
    /// Does something as the process would, such as spawning a task.
    pub fn inside(&self, work: impl FnOnce()) {
        if let Some(runtime) = &self.runtime {
            let _inside = runtime.enter();
            work();
        }
    }

    pub fn jump(&mut self, secs: i64) {
        self.jumps_ns.fetch_add(secs * 1_000_000_000, Ordering::Relaxed);
    }

    pub fn set_slow(&mut self, factor: u64) {
        self.slow.store(factor, Ordering::Relaxed);
    }
}
