//! Operations that were executed and are not known to be durable: whoever was told that they are
//! done is to find them done, whatever becomes of the master.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_base::{Error, Ino, SessionId, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::link::{Lost, MasterLink, call};
use super::messages::{Executed, Progress, ReadReply, Reply, RunPosted, SessionMethod};
use super::operation::Operation;
use super::posted::Post;
use super::slots::Taken;

/// Beyond so many the master is asked what is durable.
const MANY: usize = 256;

/// A kept operation.
pub struct Kept {
    pub operation: Arc<Operation>,
    /// Kept as well: the master finds by it that the operation has run.
    pub slot: Arc<Taken>,
    /// The inode that it made.
    pub ino: Option<Ino>,
    /// When the session ran it on its own, if it did.
    pub posted: Option<Timestamp>,
    /// Counts what was kept.
    number: u64,
}

impl Kept {
    /// Has it run again.
    pub async fn execute(
        &self,
        link: &dyn MasterLink,
        session: SessionId,
    ) -> Result<Reply<Result<Executed, Error>>, Lost> {
        let run = self.operation.in_slot(session, &self.slot);
        let Some(time) = self.posted else {
            let answer = self.operation.execute(link, run, self.ino).await?;
            return Ok(answer.map(Ok));
        };
        let operations = vec![self.operation.to_post(run, self.ino, time)];
        let posted = RunPosted { session, operations };
        let answer =
            call::<_, Vec<Result<Executed, Error>>>(link, SessionMethod::RunPosted, &posted)
                .await?;
        let nothing = || Err(Error::Invalid("the master sent no answer for the operation".into()));
        Ok(answer.map(|mut ran| ran.pop().unwrap_or_else(nothing)))
    }
}

impl KeptState {
    /// How many are kept then.
    fn keep(&mut self, serial: u64, kept: Kept) -> usize {
        self.number += 1;
        self.kept.insert(serial, Arc::new(Kept { number: self.number, ..kept }));
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
    /// By the serials of the master that the session is attached to.
    kept: BTreeMap<u64, Arc<Kept>>,
    /// Counts attachments: each may be to another master.
    attachment: u64,
    progress: Progress,
    number: u64,
    lost: u64,
}

impl KeptOperations {
    /// Operations of which it turned out that they came to nothing, or that nobody knows.
    pub fn lost(&self) -> u64 {
        self.state.lock().lost
    }

    /// The session is about to be attached anew. Returns the attachment, and what was kept.
    pub fn begin(&self) -> (u64, Vec<Arc<Kept>>) {
        let mut state = self.state.lock();
        state.attachment += 1;
        state.progress = Progress::default();
        (state.attachment, std::mem::take(&mut state.kept).into_values().collect())
    }

    /// Puts back operations that could not be sent again, or were and are no more known to have
    /// been executed.
    pub fn put_back(&self, rest: impl Iterator<Item = Arc<Kept>>) {
        let mut state = self.state.lock();
        let kept = std::mem::take(&mut state.kept).into_values().chain(rest);
        state.kept = (1..).zip(kept).collect();
    }

    /// These are not sent again.
    pub fn lose(&self, count: usize) {
        self.state.lock().lost += count as u64;
    }

    /// Keeps an operation that was executed by the master of an attachment. Not if that is over,
    /// as another master may not know of it; returns whether it is not.
    fn keep(
        &self,
        attachment: u64,
        serial: u64,
        (operation, slot): (&Arc<Operation>, &Arc<Taken>),
        ino: Option<Ino>,
    ) -> bool {
        let mut state = self.state.lock();
        if state.attachment != attachment {
            return false;
        }
        if serial > state.progress.settled {
            let (operation, slot) = (Arc::clone(operation), Arc::clone(slot));
            let kept = Kept { operation, slot, ino, posted: None, number: 0 };
            if state.keep(serial, kept) == MANY {
                self.many.notify_one();
            }
        }
        true
    }

    /// Keeps operations that the session had run on its own, and that the master of an attachment
    /// has executed now. Not if that is over; returns whether it is not.
    pub fn keep_posted(
        &self,
        attachment: u64,
        batch: &[Arc<Post>],
        ran: &[Result<Executed, Error>],
    ) -> bool {
        let mut state = self.state.lock();
        if state.attachment != attachment || batch.len() != ran.len() {
            return false;
        }
        for (post, ran) in batch.iter().zip(ran) {
            let Ok(Executed { serial, progress, .. }) = ran else { continue };
            if *serial > state.progress.settled.max(progress.settled) {
                let (operation, slot) = (Arc::clone(&post.operation), Arc::clone(&post.slot));
                let (ino, posted) = (post.ino, Some(post.time));
                state.keep(*serial, Kept { operation, slot, ino, posted, number: 0 });
            }
        }
        if state.kept.len() >= MANY {
            self.many.notify_one();
        }
        drop(state);
        if let Some(Ok(Executed { progress, .. })) = ran.iter().rfind(|ran| ran.is_ok()) {
            self.note(attachment, *progress);
        }
        true
    }

    /// Keeps what was executed according to an answer of the master of an attachment.
    ///
    /// # Errors
    /// `Lost` if the attachment is over: another master may not know of it.
    pub fn kept(
        &self,
        attachment: u64,
        ran: (&Arc<Operation>, &Arc<Taken>),
        answer: Reply<Executed>,
    ) -> Result<Reply<ReadReply>, Lost> {
        if let Reply::Done(Executed { serial, ino, progress, .. }) = &answer {
            if *serial > 0 && !self.keep(attachment, *serial, ran, *ino) {
                return Err(Lost("the master may have been replaced meanwhile".into()));
            }
            self.note(attachment, *progress);
        }
        Ok(answer.map(|ran| ReadReply { reply: Ok(ran.reply), rows: ran.rows }))
    }

    /// Keeps one that was sent again.
    pub fn keep_again(&self, serial: u64, kept: Arc<Kept>) {
        let mut state = self.state.lock();
        if serial > state.progress.settled {
            state.kept.insert(serial, kept);
        }
    }

    /// Takes note of the progress that the master of an attachment reports.
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

    /// The number of the one that was kept last.
    pub fn last_number(&self) -> u64 {
        self.state.lock().number
    }

    /// The attachment, and the serial up to which it has to be waited for so that nothing numbered
    /// `number` or less is kept; `None` if nothing is.
    pub fn serial_of(&self, number: u64) -> (u64, Option<u64>) {
        let state = self.state.lock();
        let mut newest = state.kept.iter().rev();
        let found = newest.find(|(_, kept)| kept.number <= number);
        (state.attachment, found.map(|(serial, _)| *serial))
    }

    /// Returns when there are many of them.
    pub async fn many(&self) {
        self.many.notified().await;
    }
}
