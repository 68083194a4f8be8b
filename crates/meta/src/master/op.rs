//! An accepted operation, whatever its verb, on its way to an answer.

use std::sync::Arc;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::{BucketId, Error, Ino, Result, SessionId, Timestamp};
use tokio::sync::oneshot;

use super::settle::{Answered, Settle};
use crate::erased::{AnyReply, AnyVerb};
use crate::{Context, Stop, View};

/// The outcome of a run of an operation. The reply is kept with the operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ran {
    Done,
    /// The run failed; its changes do not count.
    Failed,
    /// Rows were missing; the view knows which.
    Miss,
}

/// A directory to be delegated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DelegationWish {
    pub directory: Ino,
    pub bucket: BucketId,
    pub session: SessionId,
}

/// The caller that may be answered before an operation is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Haste {
    /// Nobody.
    Never,
    /// A reader, if all rows that it saw are durable or were changed by this session and answered
    /// early.
    Reader(Option<SessionId>),
    /// A session that runs the operation again if it is lost.
    Keeper(SessionId),
}

/// An operation that was answered early and is not durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Early {
    pub session: SessionId,
    /// Number of the operation among these, from 1.
    pub serial: u64,
    pub batch: u64,
}

/// A lease that an operation wants for its session once it has run.
#[derive(Clone, Debug)]
pub struct RowLease {
    pub session: SessionId,
    pub keys: Vec<Bytes>,
}

/// An operation with its verb erased.
pub trait Op: Send {
    fn apply(&mut self, view: &mut View<'_>, now: Timestamp, batch: u64) -> Ran;

    /// Returns rows that a session does not hold, whatever it was granted before: an operation that
    /// changes them does not recall them from it.
    fn released(&self) -> Option<(SessionId, &[Bytes])> {
        None
    }

    /// Returns the leases that its session gets with the reply.
    fn grant(&mut self) -> Option<RowLease> {
        None
    }

    /// Returns the caller that may be answered before the rows that it saw and changed are durable.
    fn haste(&self) -> Haste {
        Haste::Never
    }

    /// Returns whether it may run without changes that wait for a recall and that nobody has seen.
    /// It must then keep nothing of what it sees.
    fn reads_settled(&self) -> bool {
        false
    }

    /// Returns the sender of the reply of its last run, which succeeded and may be lost: for a
    /// [`Haste::Keeper`]. Afterwards it has no other sender.
    fn early_answer(&mut self, _serial: u64) -> Answered {
        Box::new(|| ())
    }

    /// Returns whether its last run failed.
    fn has_failed(&self) -> bool {
        false
    }

    /// Returns the session that runs it, if that session may see what is delegated to it.
    fn session(&self) -> Option<SessionId> {
        match self.haste() {
            Haste::Never => None,
            Haste::Reader(session) => session,
            Haste::Keeper(session) => Some(session),
        }
    }

    /// Returns whether its session ran it on its own before: then it runs after what came before
    /// it.
    fn is_posted(&self) -> bool {
        false
    }

    /// Returns whether it may change only rows that only its session knows, since the session has
    /// reported it as done.
    fn is_confined(&self) -> bool {
        false
    }

    /// Returns the inode that its last run made.
    fn made(&self) -> Option<Ino> {
        None
    }

    /// Returns the inode that its last run made, if that is a directory.
    fn made_directory(&self) -> Option<Ino> {
        None
    }

    /// Returns the directory that its session wants to fill on its own once this has run.
    fn wish(&self) -> Option<DelegationWish> {
        None
    }

    /// Notes that the wish was granted, with the number of the delegation.
    fn granted(&mut self, _number: u64) {}

    /// Replaces the reply.
    fn fail(&mut self, error: Error);

    /// Sends the reply. An operation that is dropped instead is answered with the reason why the
    /// master ended.
    fn answer(self: Box<Self>);
}

/// An operation in the queue or in a batch.
pub struct Job {
    pub op: Box<dyn Op>,
    /// Set if its last run changed rows.
    pub changed: bool,
    /// Recalls that it waits for, in addition to the disk.
    pub settle: Option<Arc<Settle<Job>>>,
    /// Set if it was answered before it is durable.
    pub early: Option<Early>,
    /// Set if it counts among the operations that are accepted and not answered.
    pub is_counted: bool,
    /// Ground of which it waits for all held directories; no more are delegated there meanwhile.
    pub closes: Option<Ground>,
}

/// The directories of a bucket, or of the whole store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Ground {
    Bucket(BucketId),
    Store,
}

impl Job {
    pub fn new(op: Box<dyn Op>) -> Job {
        Job { op, changed: false, settle: None, early: None, is_counted: true, closes: None }
    }
}

/// Channel on which the reply to an operation arrives.
pub type Answer = oneshot::Receiver<Result<AnyReply>>;

pub fn accept(caller: &Caller, verb: Box<dyn AnyVerb>) -> (Job, Answer) {
    let (sender, answer) = oneshot::channel();
    let context = Context { caller: caller.clone(), now: Timestamp(0), batch: 0 };
    let op = Box::new(VerbOp { verb, context, reply: None, sender });
    (Job::new(op), answer)
}

struct VerbOp {
    verb: Box<dyn AnyVerb>,
    context: Context,
    reply: Option<Result<AnyReply>>,
    sender: oneshot::Sender<Result<AnyReply>>,
}

impl Op for VerbOp {
    fn apply(&mut self, view: &mut View<'_>, now: Timestamp, batch: u64) -> Ran {
        self.context.now = now;
        self.context.batch = batch;
        let (ran, reply) = outcome(self.verb.apply_any(view, &self.context));
        self.reply = reply;
        ran
    }

    fn fail(&mut self, error: Error) {
        self.reply = Some(Err(error));
    }

    fn answer(self: Box<Self>) {
        send(self.sender, self.reply);
    }
}

/// Splits the result of a run into its outcome and the reply; there is none if rows are missing.
pub fn outcome<T>(ran: Result<T, Stop>) -> (Ran, Option<Result<T>>) {
    match ran {
        Ok(reply) => (Ran::Done, Some(Ok(reply))),
        Err(Stop::Fail(error)) => (Ran::Failed, Some(Err(error))),
        Err(Stop::Miss) => (Ran::Miss, None),
    }
}

pub fn no_read(name: &str) -> Error {
    Error::Invalid(format!("operation {name} changes rows, so it cannot be run as a read"))
}

pub fn send<T>(sender: oneshot::Sender<T>, reply: Option<T>) {
    if let Some(reply) = reply {
        // The caller may have gone away: the operation is done all the same.
        let _ = sender.send(reply);
    }
}
