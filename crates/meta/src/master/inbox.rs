//! The queue of the executor, and how the executor sleeps.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::leases::Event;
use super::op::Job;
use super::pins::Pins;

/// Looks before the executor goes to sleep. Waking it costs other threads more than these looks.
const SPINS: usize = 200;

/// An operation with the rows that were fetched for it.
pub struct FetchedJob {
    pub job: Job,
    pub pins: Box<Pins>,
}

/// The jobs that the executor takes from the inbox.
#[derive(Default)]
pub struct InboxContents {
    pub jobs: Vec<Job>,
    pub fetched: Vec<FetchedJob>,
    pub events: Vec<Event>,
}

#[derive(Default)]
struct InboxState {
    jobs: Vec<Job>,
    fetched: Vec<FetchedJob>,
    events: Vec<Event>,
    poked: bool,
    sleeping: bool,
    closed: bool,
}

impl InboxState {
    fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.fetched.is_empty() && self.events.is_empty()
    }
}

/// The executor's only entrance.
#[derive(Default)]
pub struct Inbox {
    state: Mutex<InboxState>,
    wake: Notify,
    /// Set when something new has arrived.
    news: AtomicBool,
}

impl Inbox {
    /// Adds an operation; gives it back if the executor has ended.
    pub fn push(&self, job: Job) -> Result<(), Job> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(job);
        }
        state.jobs.push(job);
        self.wake(state);
        Ok(())
    }

    /// Returns operations with the rows that were fetched for them.
    pub fn push_fetched(&self, fetched: Vec<FetchedJob>) {
        let mut state = self.state.lock();
        if !state.closed {
            state.fetched.extend(fetched);
            self.wake(state);
        }
    }

    /// Adds an event of a session.
    pub fn push_event(&self, event: Event) {
        let mut state = self.state.lock();
        if !state.closed {
            state.events.push(event);
            self.wake(state);
        }
    }

    /// Wakes the executor.
    pub fn poke(&self) {
        let mut state = self.state.lock();
        state.poked = true;
        self.wake(state);
    }

    fn wake(&self, mut state: parking_lot::MutexGuard<'_, InboxState>) {
        self.news.store(true, Ordering::Relaxed);
        let sleeping = std::mem::take(&mut state.sleeping);
        drop(state);
        if sleeping {
            self.wake.notify_one();
        }
    }

    /// Looks out for something new, for a moment.
    pub fn spin(&self) {
        for _ in 0..SPINS {
            if self.news.load(Ordering::Relaxed) {
                break;
            }
            std::hint::spin_loop();
        }
    }

    /// Waits until there is something new.
    pub async fn wait(&self) {
        while self.sleeps() {
            self.wake.notified().await;
        }
    }

    /// Puts the executor to sleep if there is nothing new; from then on, an arrival wakes it.
    /// Returns whether it sleeps.
    fn sleeps(&self) -> bool {
        let mut state = self.state.lock();
        state.sleeping = state.is_empty() && !state.poked && !state.closed;
        state.sleeping
    }

    /// Moves everything to `arrived`.
    pub fn take(&self, arrived: &mut InboxContents) {
        let mut state = self.state.lock();
        state.sleeping = false;
        state.poked = false;
        self.news.store(false, Ordering::Relaxed);
        arrived.jobs.append(&mut state.jobs);
        arrived.fetched.append(&mut state.fetched);
        arrived.events.append(&mut state.events);
    }

    /// Closes the inbox if it is empty.
    pub fn close_if_empty(&self) -> bool {
        let mut state = self.state.lock();
        state.closed = state.is_empty();
        state.closed
    }

    /// Closes the inbox and drops its contents.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let dropped = (std::mem::take(&mut state.jobs), std::mem::take(&mut state.fetched));
        self.wake(state);
        drop(dropped);
    }

    /// Number of operations that the executor has not looked at.
    pub fn len(&self) -> usize {
        self.state.lock().jobs.len()
    }
}
