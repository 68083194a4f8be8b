//! Operations that were answered when they had run, before they were durable.
//!
//! Only who can run such an operation again may be answered so early: a session that keeps it until
//! it is durable. Its answers must not hang on anything that may be lost and is not run again. So
//! an operation is answered early only under two conditions. All rows that it saw are durable or
//! were left by such operations of the same session. No other session has such operations that are
//! not durable. After a failure a session's operations, run again in their order, then find what
//! they found.

use std::collections::{BTreeSet, HashMap};

use cairn_base::SessionId;
use parking_lot::Mutex;

use super::op::{Early, Job};
use super::settle::Unsettled;
use crate::Watched;
use crate::session::Progress;

/// Those of all sessions.
#[derive(Default)]
pub struct Hasty {
    state: Mutex<HastyState>,
    /// All with serials up to this one are over.
    settled: Watched<u64>,
}

#[derive(Default)]
struct HastyState {
    /// The session that they belong to.
    session: Option<SessionId>,
    last: u64,
    open: BTreeSet<u64>,
    /// How many came to nothing after all.
    failed: HashMap<SessionId, u64>,
}

impl Hasty {
    /// A serial for one more, unless those of another session are not durable yet.
    pub fn begin(&self, session: SessionId) -> Option<u64> {
        let mut state = self.state.lock();
        if !state.open.is_empty() && state.session != Some(session) {
            return None;
        }
        state.session = Some(session);
        state.last += 1;
        let serial = state.last;
        state.open.insert(serial);
        Some(serial)
    }

    /// These are durable, or came to nothing after all.
    pub fn end(&self, jobs: &[Job], unsettled: &Unsettled) {
        let mut early = jobs.iter().filter_map(|job| Some((job.early?, &job.op))).peekable();
        if early.peek().is_none() {
            return;
        }
        let mut state = self.state.lock();
        for (Early { session, serial, batch }, op) in early {
            // An operation that has yet to settle comes by twice.
            if !state.open.remove(&serial) {
                continue;
            }
            unsettled.end(batch);
            if op.has_failed() {
                *state.failed.entry(session).or_default() += 1;
            }
        }
        let settled = state.open.first().map_or(state.last, |first| first - 1);
        drop(state);
        self.settled.modify(|was| settled > std::mem::replace(was, settled.max(*was)));
    }

    /// How far the operations of a session are.
    pub fn progress(&self, session: SessionId) -> Progress {
        let failed = self.state.lock().failed.get(&session).copied().unwrap_or(0);
        Progress { settled: self.settled.get(), failed }
    }

    /// Waits until those up to `serial` are over.
    pub async fn wait(&self, serial: u64) {
        self.settled.wait_for(|settled| (*settled >= serial).then_some(())).await;
    }

    pub fn forget(&self, session: SessionId) {
        self.state.lock().failed.remove(&session);
    }
}
