//! Operations that were executed and are not known to be durable. Their callers have been answered,
//! so they must take effect, whatever becomes of the master.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_base::{Error, Ino, SessionId, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::link::{LostCall, MasterLink, call};
use super::messages::{ExecuteReply, Progress, ReadReply, Reply, RunPosted, SessionMethod};
use super::operation::Operation;
use super::posted_operations::Post;
use super::slots::SlotGuard;

/// Number of kept operations from which on the master is asked what is durable.
const MANY: usize = 256;

/// A kept operation.
pub struct KeptOperation {
    pub operation: Arc<Operation>,
    /// Slot of the operation, by which the master finds that it has already run.
    pub slot: Arc<SlotGuard>,
    /// Inode that the operation made.
    pub ino: Option<Ino>,
    /// Time at which the session ran the operation on its own, if it did.
    pub posted: Option<Timestamp>,
    /// Number of the operation among all that were ever kept.
    number: u64,
}

impl KeptOperation {
    /// Sends the operation to be run again.
    pub async fn execute(
        &self,
        link: &dyn MasterLink,
        session: SessionId,
    ) -> Result<Reply<Result<ExecuteReply, Error>>, LostCall> {
        let run = self.operation.in_slot(session, &self.slot);
        let Some(time) = self.posted else {
            let answer = self.operation.execute(link, run, self.ino).await?;
            return Ok(answer.map(Ok));
        };
        let operations = vec![self.operation.to_post(run, self.ino, time)];
        let posted = RunPosted { session, operations };
        let answer =
            call::<_, Vec<Result<ExecuteReply, Error>>>(link, SessionMethod::RunPosted, &posted)
                .await?;
        let nothing = || Err(Error::Invalid("the master sent no answer for the operation".into()));
        Ok(answer.map(|mut ran| ran.pop().unwrap_or_else(nothing)))
    }
}

impl KeptState {
    /// Keeps an operation; returns the number of operations that are kept then.
    fn keep(&mut self, serial: u64, kept: KeptOperation) -> usize {
        self.number += 1;
        self.kept.insert(serial, Arc::new(KeptOperation { number: self.number, ..kept }));
        self.kept.len()
    }
}

/// The kept operations, in the order in which they were executed.
#[derive(Default)]
pub struct KeptOperations {
    state: Mutex<KeptState>,
    many: Notify,
}

#[derive(Default)]
struct KeptState {
    /// Kept operations by the serials of the master that the session is attached to.
    kept: BTreeMap<u64, Arc<KeptOperation>>,
    /// Number of the current attachment. Each attachment may be to another master.
    attachment: u64,
    progress: Progress,
    number: u64,
    lost: u64,
}

impl KeptOperations {
    /// Returns the number of operations that failed after they were acknowledged, or whose outcome
    /// is unknown.
    pub fn lost(&self) -> u64 {
        self.state.lock().lost
    }

    /// Returns the number of kept operations.
    pub fn count(&self) -> u64 {
        self.state.lock().kept.len() as u64
    }

    /// Begins a new attachment. Returns its number, and the operations that were kept.
    pub fn begin(&self) -> (u64, Vec<Arc<KeptOperation>>) {
        let mut state = self.state.lock();
        state.attachment += 1;
        state.progress = Progress::default();
        (state.attachment, std::mem::take(&mut state.kept).into_values().collect())
    }

    /// Puts back operations that could not be sent again, or that were sent again and are no longer
    /// known to have been executed.
    pub fn put_back(&self, rest: impl Iterator<Item = Arc<KeptOperation>>) {
        let mut state = self.state.lock();
        let kept = std::mem::take(&mut state.kept).into_values().chain(rest);
        state.kept = (1..).zip(kept).collect();
    }

    /// Counts operations that are not sent again as lost.
    pub fn lose(&self, count: usize) {
        self.state.lock().lost += count as u64;
    }

    /// Keeps an operation that was executed by the master of an attachment. Returns `false` and
    /// keeps nothing if the attachment is over, as another master may not know the operation.
    fn keep(
        &self,
        attachment: u64,
        serial: u64,
        operation: &Arc<Operation>,
        slot: &Arc<SlotGuard>,
        ino: Option<Ino>,
    ) -> bool {
        let mut state = self.state.lock();
        if state.attachment != attachment {
            return false;
        }
        if serial > state.progress.settled {
            let (operation, slot) = (Arc::clone(operation), Arc::clone(slot));
            let kept = KeptOperation { operation, slot, ino, posted: None, number: 0 };
            if state.keep(serial, kept) == MANY {
                self.many.notify_one();
            }
        }
        true
    }

    /// Keeps operations that the session had run on its own and that the master of an attachment
    /// has executed now. Returns `false` and keeps nothing if the attachment is over.
    pub fn keep_posted(
        &self,
        attachment: u64,
        batch: &[Arc<Post>],
        ran: &[Result<ExecuteReply, Error>],
    ) -> bool {
        let mut state = self.state.lock();
        if state.attachment != attachment || batch.len() != ran.len() {
            return false;
        }
        for (post, ran) in batch.iter().zip(ran) {
            let Ok(ExecuteReply { serial, progress, .. }) = ran else { continue };
            if *serial > state.progress.settled.max(progress.settled) {
                let (operation, slot) = (Arc::clone(&post.operation), Arc::clone(&post.slot));
                let (ino, posted) = (post.ino, Some(post.time));
                state.keep(*serial, KeptOperation { operation, slot, ino, posted, number: 0 });
            }
        }
        if state.kept.len() >= MANY {
            self.many.notify_one();
        }
        drop(state);
        if let Some(Ok(ExecuteReply { progress, .. })) = ran.iter().rfind(|ran| ran.is_ok()) {
            self.note(attachment, *progress);
        }
        true
    }

    /// Keeps the operation that was executed according to an answer of the master of an attachment.
    ///
    /// # Errors
    /// `LostCall` if the attachment is over: another master may not know the operation.
    pub fn kept(
        &self,
        attachment: u64,
        operation: &Arc<Operation>,
        slot: &Arc<SlotGuard>,
        answer: Reply<ExecuteReply>,
    ) -> Result<Reply<ReadReply>, LostCall> {
        if let Reply::Done(ExecuteReply { serial, ino, progress, .. }) = &answer {
            if *serial > 0 && !self.keep(attachment, *serial, operation, slot, *ino) {
                return Err(LostCall("the master may have been replaced meanwhile".into()));
            }
            self.note(attachment, *progress);
        }
        Ok(answer.map(|ran| ReadReply { reply: Ok(ran.reply), rows: ran.rows }))
    }

    /// Keeps an operation that was sent again.
    pub fn keep_again(&self, serial: u64, kept: Arc<KeptOperation>) {
        let mut state = self.state.lock();
        if serial > state.progress.settled {
            state.kept.insert(serial, kept);
        }
    }

    /// Notes the progress that the master of an attachment reports.
    pub fn note(&self, attachment: u64, progress: Progress) {
        let mut state = self.state.lock();
        if state.attachment != attachment {
            return;
        }
        if progress.settled > state.progress.settled {
            state.progress.settled = progress.settled;
            state.kept = state.kept.split_off(&(progress.settled + 1));
        }
        if progress.failed > state.progress.failed {
            state.lost += progress.failed - state.progress.failed;
            state.progress.failed = progress.failed;
        }
    }

    /// Returns the number of the operation that was kept last.
    pub fn last_number(&self) -> u64 {
        self.state.lock().number
    }

    /// Returns the attachment, and the serial that must have settled before no operation numbered
    /// `number` or less is kept; `None` if none is.
    pub fn serial_of(&self, number: u64) -> (u64, Option<u64>) {
        let state = self.state.lock();
        let mut newest = state.kept.iter().rev();
        let found = newest.find(|(_, kept)| kept.number <= number);
        (state.attachment, found.map(|(serial, _)| *serial))
    }

    /// Waits until there are many of them.
    pub async fn many(&self) {
        self.many.notified().await;
    }
}
