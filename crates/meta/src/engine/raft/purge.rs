//! Entries that the ring overwrites, and the library's knowledge of them.
//!
//! The ring decides which entries go: those in its oldest file. The library learns of them a whole
//! file ahead, when the file before that one is begun. Until then it may send them to other
//! members.

use std::time::Duration;

use cairn_base::Result;

use super::member::{Member, ended};

/// Interval between two looks whether the library has released entries.
const LOOK: Duration = Duration::from_millis(5);

impl Member {
    /// Reports to the library which entries the ring has overwritten, or will overwrite next. They
    /// are no longer sent: a member that needs them gets a snapshot, which the library must have
    /// first. Making one costs nothing. Called until everything is reported; `again` repeats the
    /// report.
    ///
    /// # Errors
    /// `Unavailable` when the library's core has ended.
    pub(super) async fn tell_purged(&self, again: bool) -> Result<()> {
        let Some(upto) = self.shared.store.purgeable().map(|id| id.index) else { return Ok(()) };
        let (purged, snapshot) = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow();
            (metrics.purged.map(|id| id.index), metrics.snapshot.map(|id| id.index))
        };
        let trigger = self.raft.trigger();
        if purged >= Some(upto) {
            return Ok(());
        }
        if snapshot < Some(upto) {
            // Until the snapshot is there, the library would purge only entries that an earlier one
            // has.
            return trigger.snapshot().await.map_err(ended);
        }
        if self.told_purged.lock().replace(upto) >= Some(upto) && !again {
            return Ok(());
        }
        trigger.purge_log(upto).await.map_err(ended)
    }

    /// Reports to the library everything that it must know before this member may lead. The next
    /// look continues if it does not follow at once.
    ///
    /// # Errors
    /// `Unavailable` when the library's core has ended.
    pub(super) async fn settle_purged(&self) -> Result<()> {
        for _ in 0..4 {
            self.tell_purged(true).await?;
            let purged = self.raft.metrics().borrow().purged;
            if purged.map(|id| id.index) >= self.shared.store.purgeable().map(|id| id.index) {
                break;
            }
            self.shared.rest(LOOK).await?;
        }
        Ok(())
    }

    /// Waits until the library has released the entries that are overwritten next, before a record
    /// of `bytes` goes into the second half of the current file. The library does so unless they
    /// are on their way to another member. That transfer ends, or its calls do; so this waits for
    /// two calls at most, after which a member that still needs them gets a snapshot.
    pub(super) async fn wait_for_purge(&self, bytes: usize) {
        let shared = &self.shared;
        let begun = shared.now();
        while shared.store.awaits_purge(bytes)
            && shared.now().saturating_sub(begun) <= shared.timing.call() * 2
            && self.tell_purged(false).await.is_ok()
            && shared.rest(LOOK).await.is_ok()
        {}
    }
}
