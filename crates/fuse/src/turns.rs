//! Turns of threads to take the next request from the kernel.
//!
//! Waking a thread takes longer than most requests. So one thread at a time has the *turn*: it
//! takes requests, one after another, and looks out for the next one for a moment before it sleeps.
//! It passes the turn on when it is about to be busy for longer and another request is there. The
//! others wait here, and not in the kernel, which would wake one of them for each request.

#![expect(clippy::disallowed_methods, reason = "a kernel is not simulated")]

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::awake::Awake;
use crate::kernel::Kernel;
use crate::kernel_request::KernelRequest;

/// Time for which a thread looks out for the next request: programs make one request after another.
const LOOKOUT: Duration = Duration::from_micros(50);
/// Interval at which a waiting thread checks whether requests wait too: then the thread that has
/// the turn is busy for too long.
const WAIT: Duration = Duration::from_secs(1);
/// Bytes from which on a request counts as long.
pub const MANY_BYTES: usize = 32 << 10;
/// Looking out goes on while most of the last requests came in time; otherwise it is tried at one
/// request in [`PROBES`].
const TRUST: u32 = 8;
const PROBES: u32 = 16;

thread_local! {
    static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

pub struct Turns {
    kernel: Arc<Kernel>,
    state: Arc<Mutex<TurnsState>>,
    free: Arc<Condvar>,
    /// Threads that take requests.
    threads: usize,
    /// Recent success of looking out, up to [`TRUST`].
    worth: AtomicU32,
    requests: AtomicU32,
    /// Set if there is a processor to look out with.
    looks_out: bool,
    /// Keeps the other processors awake while looking out succeeds.
    awake: Option<Arc<Awake>>,
}

#[derive(Default)]
struct TurnsState {
    is_taken: bool,
    waiting: usize,
}

/// The turn of a thread, until this is dropped: at the latest when the thread ends.
struct Turn {
    state: Arc<Mutex<TurnsState>>,
    free: Arc<Condvar>,
}

/// A request that was taken. Its thread is done with it when this is dropped.
#[must_use]
pub struct Request<'a>(&'a Turns);

impl Turns {
    pub fn new(kernel: Arc<Kernel>, threads: usize, awake: Option<Arc<Awake>>) -> Turns {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Turns {
            kernel,
            state: Arc::default(),
            free: Arc::default(),
            threads,
            worth: AtomicU32::new(TRUST),
            requests: AtomicU32::new(0),
            looks_out: processors > 1,
            awake,
        }
    }

    /// Notes that this thread has taken a request, which takes it longer if `is_long`.
    pub fn request(&self, asked: KernelRequest, is_long: bool) -> Request<'_> {
        asked.take();
        if is_long && self.kernel.has_requests() {
            TURN.take();
        }
        Request(self)
    }

    /// Waits until this thread is to take the next request.
    fn wait(&self) {
        let others_wait = {
            let mut state = self.state.lock();
            if TURN.with_borrow(Option::is_none) {
                while state.is_taken {
                    state.waiting += 1;
                    let timed_out = self.free.wait_for(&mut state, WAIT).timed_out();
                    state.waiting -= 1;
                    if timed_out && self.kernel.has_requests() {
                        return;
                    }
                }
                state.is_taken = true;
                let (state, free) = (Arc::clone(&self.state), Arc::clone(&self.free));
                TURN.set(Some(Turn { state, free }));
            }
            state.waiting + 1 == self.threads
        };
        // A thread that sleeps in the kernel is woken for each request that this one takes.
        let comes_soon = others_wait && self.looks_out && self.look_out();
        match &self.awake {
            Some(awake) if !comes_soon => awake.release(),
            Some(awake) if self.worth.load(Ordering::Relaxed) == TRUST => awake.hold(),
            _ => {}
        }
    }

    /// Looks out for a request. Returns true if one has come.
    fn look_out(&self) -> bool {
        let worth = self.worth.load(Ordering::Relaxed);
        let count = self.requests.fetch_add(1, Ordering::Relaxed);
        if worth == 0 && !count.is_multiple_of(PROBES) {
            return false;
        }
        let began = Instant::now();
        while began.elapsed() < LOOKOUT {
            if self.kernel.has_requests() {
                self.worth.store((worth + 1).min(TRUST), Ordering::Relaxed);
                return true;
            }
            std::hint::spin_loop();
        }
        self.worth.store(worth.saturating_sub(2), Ordering::Relaxed);
        false
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.0.wait();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.state.lock().is_taken = false;
        self.free.notify_one();
    }
}
