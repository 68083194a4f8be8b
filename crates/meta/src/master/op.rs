//! One accepted operation, whatever its verb, on its way to an answer.

use std::sync::Arc;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::{BucketId, Error, Ino, Result, SessionId, Timestamp};
use tokio::sync::oneshot;

use super::settle::{Answered, Settle};
use crate::erased::{AnyReply, AnyVerb};
use crate::{Context, Stop, View};

/// How a run of an operation ended. The reply is kept with the operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ran {
    Done,
    /// Its changes do not count.
    Failed,
    /// The view knows what was missing.
    Miss,
}

/// A directory to be delegated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DelegationWish {
    pub directory: Ino,
    pub bucket: BucketId,
    pub session: SessionId,
}

/// The caller that may hear how an operation ended before it is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Haste {
    /// Nobody.
    Never,
    /// A reader, if all rows that it saw are durable or were left by this session early.
    Reader(Option<SessionId>),
    /// A session that runs it again if it is lost.
    Keeper(SessionId),
}

/// An operation that was answered early and is not durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Early {
    pub session: SessionId,
    /// Counts them, from 1.
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

    /// Rows that a session does not hold, whatever it was granted before: an operation that
    /// changes rows recalls none of these from it.
    fn released(&self) -> Option<(SessionId, &[Bytes])> {
        None
    }

    /// The leases its session gets with the reply.
    fn grant(&mut self) -> Option<RowLease> {
        None
    }

    /// The caller that may be answered before the rows that it saw and changed are durable.
    fn haste(&self) -> Haste {
        Haste::Never
    }

    /// Whether it need not see changes that nobody was told of and that wait for a recall. It must
    /// keep nothing of what it sees then.
    fn reads_settled(&self) -> bool {
        false
    }

    /// The sender of the reply of its last run, which succeeded and may be lost: for a [`Keeper`].
    /// After this it has no other.
    fn early_answer(&mut self, _serial: u64) -> Answered {
        Box::new(|| ())
    }

    /// Whether its last run failed.
    fn has_failed(&self) -> bool {
        false
    }

    /// The session that runs it, where that may see what is delegated to it.
    fn session(&self) -> Option<SessionId> {
        match self.haste() {
            Haste::Never => None,
            Haste::Reader(session) => session,
            Haste::Keeper(session) => Some(session),
        }
    }

    /// Its session has run it on its own before: it runs after what came before it.
    fn is_posted(&self) -> bool {
        false
    }

    /// Whether it may change only what nobody but its session knows, since that has said that it is
    /// done.
    fn is_confined(&self) -> bool {
        false
    }

    /// The inode that its last run made.
    fn made(&self) -> Option<Ino> {
        None
    }

    /// As [`Op::made`], if that is a directory.
    fn made_directory(&self) -> Option<Ino> {
        None
    }

    /// The directory that its session wants to fill on its own once this has run.
    fn wish(&self) -> Option<DelegationWish> {
        None
    }

    /// The wish was granted: the number of the delegation.
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
    /// Its last run changed rows.
    pub changed: bool,
    /// The recalls that it waits for besides the disk.
    pub settle: Option<Arc<Settle<Job>>>,
    /// It was answered before it is durable.
    pub early: Option<Early>,
    /// It counts among those that may be accepted and not answered.
    pub is_counted: bool,
    /// It waits for all directories that are held there, and no more are delegated meanwhile.
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

/// Where the reply to an operation arrives.
pub type Answer = oneshot::Receiver<Result<AnyReply>>;

pub fn accept(caller: &Caller, verb: Box<dyn AnyVerb>) -> (Job, Answer) {
    let (sender, answer) = oneshot::channel();
    let context = Context { caller: caller.clone(), now: Timestamp(0), batch: 0 };
    let op = Box::new(Accepted { verb, context, reply: None, sender });
    (Job::new(op), answer)
}

struct Accepted {
    verb: Box<dyn AnyVerb>,
    context: Context,
    reply: Option<Result<AnyReply>>,
    sender: oneshot::Sender<Result<AnyReply>>,
}

impl Op for Accepted {
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

/// How a run ended, and the reply, unless rows are missing.
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
