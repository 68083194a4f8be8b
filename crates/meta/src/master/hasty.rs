//! Operations that were answered when they had run, before they were durable.
//!
//! Such an early answer is only for a session that keeps the operation until it is durable, and so
//! can run it again. Its answers must not depend on anything that may be lost and is not run again.
//! So an operation is answered early only under two conditions: all rows that it saw are durable,
//! or were changed by such operations of the same session; and no other session has such operations
//! that are not durable. After a failure a session's operations, run again in their order, then
//! find the same rows as before.

use std::collections::{BTreeSet, HashMap};

use cairn_base::SessionId;
use parking_lot::Mutex;

use super::op::{Early, Job};
use super::settle::UnsettledOperations;
use crate::Watched;
use crate::session::Progress;

/// The early-answered operations of all sessions.
#[derive(Default)]
pub struct Hasty {
    state: Mutex<HastyState>,
    /// Serial up to which all operations are durable or have failed.
    settled: Watched<u64>,
}

#[derive(Default)]
struct HastyState {
    /// Session that the open operations belong to.
    session: Option<SessionId>,
    last: u64,
    open: BTreeSet<u64>,
    /// Number of operations of each session that failed after their answer.
    failed: HashMap<SessionId, u64>,
}

impl Hasty {
    /// Returns the serial for one more operation, unless operations of another session are not
    /// durable yet.
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

    /// Notes that these operations are durable, or have failed.
    pub fn end(&self, jobs: &[Job], unsettled: &UnsettledOperations) {
        let mut early = jobs.iter().filter_map(|job| Some((job.early?, &job.op))).peekable();
        if early.peek().is_none() {
            return;
        }
        let mut state = self.state.lock();
        for (Early { session, serial, batch }, op) in early {
            // An operation that has yet to settle passes here twice.
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

    /// Returns the progress of the operations of a session.
    pub fn progress(&self, session: SessionId) -> Progress {
        let failed = self.state.lock().failed.get(&session).copied().unwrap_or(0);
        Progress { settled: self.settled.get(), failed }
    }

    /// Waits until operations up to `serial` are durable or have failed.
    pub async fn wait(&self, serial: u64) {
        self.settled.wait_for(|settled| (*settled >= serial).then_some(())).await;
    }

    pub fn forget(&self, session: SessionId) {
        self.state.lock().failed.remove(&session);
    }
}
