//! The committer: one thread that makes batches durable, publishes and answers them, in order.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use cairn_base::Error;

use super::batch::{Batch, Next, Verdict};
use super::op::Job;
use super::recall_deadlines::Step;
use super::shared::MasterShared;
use crate::engine::{Commit, CommitError, Fence};

pub struct Committer {
    shared: Arc<MasterShared>,
    /// Fence as it is in the engine.
    fence: Fence,
}

impl Committer {
    pub fn new(shared: Arc<MasterShared>, fence: Fence) -> Committer {
        Committer { shared, fence }
    }

    /// Runs until the master ends.
    pub async fn run(mut self) {
        while let Some(batch) = self.next().await {
            self.shared.working.begin(Step::Commit);
            if batch.changes.is_empty() {
                self.shared.answer_unchanged(batch.jobs);
            } else {
                self.commit(batch).await;
            }
            self.shared.working.rest(Step::Commit);
        }
    }

    async fn next(&self) -> Option<Batch> {
        match self.shared.pipe.next() {
            Next::Batch(batch) => Some(batch),
            Next::Stop => None,
            Next::Idle => {
                // The committer stops once nothing is on its way.
                if self.shared.stopping.load(Ordering::SeqCst) {
                    self.shared.inbox.poke();
                }
                self.shared.pipe.wait().await
            }
        }
    }

    async fn commit(&mut self, batch: Batch) {
        assert_eq!(batch.number, self.fence.batch + 1, "batches are committed in order");
        let begun = self.shared.monotonic_us();
        let result = match self.shared.engine.commit_later(self.fence, batch.changes.clone()) {
            Commit::Done(result) => result,
            Commit::Later(result) => result.await,
        };
        let took = self.shared.monotonic_us() - begun;
        let counters = &self.shared.counters;
        counters.commit_us.add(took);
        counters.last_commit_us.store(took, Ordering::Relaxed);
        match result {
            Ok(()) => self.settle(batch),
            Err(error) => {
                counters.commits_failed.add(1);
                self.decide(batch, error).await;
            }
        }
    }

    /// Publishes and answers a batch that is durable.
    fn settle(&mut self, batch: Batch) {
        let shared = &self.shared;
        shared.counters.batches.add(1);
        shared.counters.rows.add(batch.changes.len() as u64);
        self.fence.batch = batch.number;
        let keys = || batch.changes.iter().map(|(key, _)| key.clone()).collect();
        let watched: Option<Vec<Bytes>> = (!shared.watches.is_empty()).then(keys);
        shared.cache.publish(batch.number, batch.changes);
        shared.durable.publish(batch.number);
        match watched {
            Some(keys) => shared.watches.wake(&keys),
            // A watcher may have come meanwhile, and read the former rows.
            None => shared.watches.wake_all(),
        }
        shared.answer(batch.jobs);
    }

    async fn decide(&mut self, batch: Batch, error: CommitError) {
        match error {
            CommitError::Failed(error) => {
                tracing::warn!(batch = batch.number, %error, "batch was not committed");
                self.refuse(batch, &error);
            }
            CommitError::Unknown(error) => self.look(batch, &error).await,
            CommitError::Fenced { found } => self.fenced(found),
            CommitError::Poisoned(error) => {
                self.shared.fail(format!("outcome unknown: the engine failed: {error}"));
            }
        }
    }

    /// Answers the operations of the batch that wanted to change rows with the error.
    fn refuse(&self, batch: Batch, error: &Error) {
        let (changed, redo): (Vec<Job>, _) = batch.jobs.into_iter().partition(|job| job.changed);
        self.shared.refuse(changed, || match error {
            Error::Full(what) => Error::Full(what.clone()),
            other => Error::Unavailable(format!("nothing was changed: {other}")),
        });
        self.start_over(redo);
    }

    /// Finds out whether a batch was committed.
    async fn look(&mut self, batch: Batch, error: &Error) {
        tracing::warn!(batch = batch.number, %error, "batch may or may not be committed");
        let committed = Fence { batch: batch.number, ..self.fence };
        match self.shared.engine.settle().await {
            Ok(fence) if fence == committed => self.settle(batch),
            Ok(fence) if fence == self.fence => self.start_over(batch.jobs),
            Ok(found) => self.fenced(found),
            Err(unread) => {
                let reason =
                    format!("outcome unknown: {error}; the fence cannot be read: {unread}");
                self.shared.fail(reason);
            }
        }
    }

    fn fenced(&self, found: Fence) {
        let Fence { epoch, batch } = self.fence;
        self.shared.fail(format!(
            "outcome unknown: another master took over: the engine is at epoch {}, batch {}; \
             this master at epoch {epoch}, batch {batch}",
            found.epoch, found.batch
        ));
    }

    fn start_over(&self, redo: Vec<Job>) {
        self.shared.pipe.post(Verdict { redo });
        self.shared.inbox.poke();
    }
}
