//! Connections for snapshots: a bounded number, kept for reuse.

#![expect(clippy::disallowed_methods, reason = "a database is not simulated")]

use std::sync::Arc;
use std::time::Instant;

use cairn_base::{Error, Result};
use parking_lot::{Condvar, Mutex};

use super::link::{DatabaseLink, Fault};
use super::target::Target;

pub struct Pool {
    pub target: Arc<Target>,
    limit: usize,
    state: Mutex<PoolState>,
    changed: Condvar,
}

#[derive(Default)]
struct PoolState {
    idle: Vec<DatabaseLink>,
    /// Number of connections, idle or in use.
    links: usize,
}

impl Pool {
    pub fn new(target: Arc<Target>, limit: usize) -> Pool {
        let state = Mutex::new(PoolState::default());
        Pool { target, limit: limit.max(1), state, changed: Condvar::new() }
    }

    /// Takes a connection and sends a first request. If the server has closed the connection since
    /// it was last used, another one is taken.
    pub fn ask<T>(
        &self,
        request: impl Fn(&DatabaseLink) -> Result<T, Fault>,
    ) -> Result<(DatabaseLink, T)> {
        loop {
            let (link, used) = self.take()?;
            match request(&link) {
                Ok(answer) => return Ok((link, answer)),
                Err(Fault::Lost { .. } | Fault::Standby { .. }) if used => self.forget(),
                Err(fault) => {
                    self.forget();
                    return Err(fault.at(self.target.shown()));
                }
            }
        }
    }

    /// Takes a connection; returns it, and whether it was used before.
    fn take(&self) -> Result<(DatabaseLink, bool)> {
        let deadline = Instant::now() + self.target.patience();
        let mut state = self.state.lock();
        loop {
            if let Some(link) = state.idle.pop() {
                return Ok((link, true));
            }
            if state.links < self.limit {
                break;
            }
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                let (limit, shown) = (self.limit, self.target.shown());
                let text = format!("{shown}: all {limit} connections for reading are in use");
                return Err(Error::Unavailable(text));
            }
        }
        state.links += 1;
        drop(state);
        let link = self.target.reconnect().inspect_err(|_| self.forget())?;
        Ok((link, false))
    }

    pub fn give(&self, link: DatabaseLink) {
        self.state.lock().idle.push(link);
        self.changed.notify_one();
    }

    /// Forgets a permit that will not come back.
    pub fn forget(&self) {
        self.state.lock().links -= 1;
        self.changed.notify_one();
    }
}
