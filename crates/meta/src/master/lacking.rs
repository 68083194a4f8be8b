//! Operations that lack rows, until a thread reads them.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::config::Config;
use super::op::Job;
use super::pins::Pins;
use crate::Want;

/// An operation and the rows that it lacks.
pub struct Lacking {
    pub job: Job,
    pub pins: Box<Pins>,
    pub wants: Vec<Want>,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Lacking>,
    closed: bool,
}

/// Operations that wait for a fetch thread. Bounded by the executor.
#[derive(Default)]
pub struct FetchQueue {
    state: Mutex<QueueState>,
    ready: Notify,
}

impl FetchQueue {
    pub fn push(&self, lacking: Lacking) {
        let mut state = self.state.lock();
        if !state.closed {
            state.waiting.push_back(lacking);
            drop(state);
            self.ready.notify_one();
        }
    }

    /// Ends the threads; waiting operations are dropped.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let dropped = std::mem::take(&mut state.waiting);
        drop(state);
        self.ready.notify_one();
        drop(dropped);
    }

    /// Takes the next operations; `None` when the master ends.
    pub async fn take(&self, config: &Config) -> Option<Vec<Lacking>> {
        loop {
            if let Some(taken) = self.take_now(config) {
                return Some(taken);
            }
            if self.state.lock().closed {
                // Wakes the next thread.
                self.ready.notify_one();
                return None;
            }
            self.ready.notified().await;
        }
    }

    fn take_now(&self, config: &Config) -> Option<Vec<Lacking>> {
        let mut state = self.state.lock();
        let share = state.waiting.len().div_ceil(config.fetch_threads.max(1));
        let share = share.min(config.fetch_ops.max(1));
        let taken: Vec<Lacking> = state.waiting.drain(..share).collect();
        (!taken.is_empty()).then_some(taken)
    }
}
