//! Messages between a session and a master.

use std::time::Duration;

use bytes::Bytes;
use cairn_auth::RelayedCaller;
use cairn_base::{BucketId, Error, Ino, Result, SessionId, Timestamp};
use serde::{Deserialize, Serialize};

/// Lifetime of a session without renewal, by default. Masters of all versions must agree:
/// docs/decisions/0005-sessions.md.
pub const LEASE: Duration = Duration::from_secs(10);
/// The calls to a master. Their numbers cross the network, together with those of
/// `cairn_cluster::control`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum SessionMethod {
    /// [`Attach`], answered with [`AttachReply`].
    Attach = 1,
    /// [`Renew`], answered with [`RenewReply`].
    Renew = 2,
    /// [`ReadRequest`], answered with [`ReadReply`].
    Read = 3,
    /// [`Run`], answered with the reply of the verb.
    Run = 4,
    /// [`Acknowledge`], answered with nothing.
    Acknowledge = 5,
    /// [`Detach`], answered with nothing.
    Detach = 8,
    /// [`Change`], answered with [`ReadReply`].
    Change = 9,
    /// [`Execute`], answered with [`ExecuteReply`].
    Execute = 10,
    /// [`Flush`], answered with [`Progress`].
    Flush = 11,
    /// Attaches like [`SessionMethod::Attach`] a session that executes: nobody else is answered
    /// before its [`SessionMethod::Replayed`].
    AttachToReplay = 12,
    /// [`ReplayEnd`], answered with nothing.
    Replayed = 13,
    /// [`Delegate`], answered with [`DelegateReply`].
    Delegate = 14,
    /// [`RunPosted`], answered with a `Result` of [`ExecuteReply`] for each operation.
    RunPosted = 15,
    /// [`GiveBack`], answered with nothing.
    GiveBack = 25,
    /// [`DumpRows`], answered with [`DumpedRows`].
    DumpRows = 28,
    /// Attaches like [`SessionMethod::Attach`] the session of a node that still holds rows leased
    /// by former masters. If the session no longer holds them, it is refused and nothing changes.
    AttachHolding = 29,
    /// [`Bind`], answered with [`Bound`].
    Bind = 45,
    /// [`Succeed`], answered with nothing.
    Succeed = 46,
}

impl SessionMethod {
    pub fn from_number(number: u16) -> Result<SessionMethod> {
        match number {
            1 => Ok(SessionMethod::Attach),
            2 => Ok(SessionMethod::Renew),
            3 => Ok(SessionMethod::Read),
            4 => Ok(SessionMethod::Run),
            5 => Ok(SessionMethod::Acknowledge),
            8 => Ok(SessionMethod::Detach),
            9 => Ok(SessionMethod::Change),
            10 => Ok(SessionMethod::Execute),
            11 => Ok(SessionMethod::Flush),
            12 => Ok(SessionMethod::AttachToReplay),
            13 => Ok(SessionMethod::Replayed),
            14 => Ok(SessionMethod::Delegate),
            15 => Ok(SessionMethod::RunPosted),
            25 => Ok(SessionMethod::GiveBack),
            28 => Ok(SessionMethod::DumpRows),
            29 => Ok(SessionMethod::AttachHolding),
            45 => Ok(SessionMethod::Bind),
            46 => Ok(SessionMethod::Succeed),
            other => Err(Error::NotImplemented(format!(
                "masters of this version do not know method {other}"
            ))),
        }
    }
}

/// The answer to every message.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply<T> {
    Done(T),
    Failed(Error),
    /// The session is not attached here: it must attach (again).
    NotAttached,
    /// This master does not serve, or no longer serves; another one may.
    NotServing(String),
}

impl<T> Reply<T> {
    pub fn map<U>(self, done: impl FnOnce(T) -> U) -> Reply<U> {
        match self {
            Reply::Done(reply) => Reply::Done(done(reply)),
            Reply::Failed(error) => Reply::Failed(error),
            Reply::NotAttached => Reply::NotAttached,
            Reply::NotServing(why) => Reply::NotServing(why),
        }
    }
}

/// Opens a session, or continues a session after the connection was lost. The client has given up
/// all rows before, unless it attaches as a holder of rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attach {
    pub session: SessionId,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttachReply {
    pub lease_ms: u64,
    /// Last batch that reads see; 0 for a session that holds rows of former masters.
    pub batch: u64,
}

/// Binds the session: since before this was sent, it reads leased rows only while the master of
/// this epoch, which is in the same process, holds its own lease. This lasts until a master of a
/// later epoch has attached the session. Mounts may not send it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bind {
    pub session: SessionId,
    pub epoch: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bound {
    /// Epoch of the master that answers. If the session named another epoch, nothing was noted.
    pub epoch: u64,
}

/// States that the session belongs to the only process of its node, which holds the lock of the
/// node's directory. All other sessions of the node belong to processes that have ended. Mounts may
/// not send it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Succeed {
    pub session: SessionId,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Renew {
    pub session: SessionId,
    /// Oldest batch that anything in the session still reads.
    pub reads_from: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RenewReply {
    /// Batch up to which all changes have settled: a read that begins after this arrived sees them.
    /// 0 for a session that holds rows of former masters.
    pub settled: u64,
}

/// Runs a verb that only reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadRequest {
    pub session: SessionId,
    pub caller: RelayedCaller,
    pub verb: u16,
    pub fields: Bytes,
    /// Asks for the rows that the verb read, to be kept until they are recalled.
    pub lease: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct ReadReply {
    pub reply: Result<Bytes>,
    /// Rows that the reply was made of, or that the verb changed, if they are leased.
    pub rows: Vec<(Bytes, Option<Bytes>)>,
}

/// Runs a verb once: if it is sent again with the same slot and sequence, it gets the same reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    pub session: SessionId,
    pub slot: u16,
    /// Number of the operation in its slot, counted from 1.
    pub sequence: u64,
    pub caller: RelayedCaller,
    pub verb: u16,
    pub fields: Bytes,
}

/// Runs a verb as [`Run`] does; the answer has the rows that it changed, to be kept until they are
/// recalled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Change {
    pub run: Run,
    /// Rows that the session has given up. Until the operation has run, it keeps none of them that
    /// it receives.
    pub released: Vec<Bytes>,
}

/// Runs a verb as [`Change`] does, or as [`Run`] if nothing was released, and is answered when it
/// has run. The session keeps the operation until it is durable, and sends it again after it
/// attached.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Execute {
    pub change: Change,
    /// Inode that the operation made when it was executed before.
    pub ino: Option<Ino>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct ExecuteReply {
    pub reply: Bytes,
    /// Rows that the operation changed, if they are leased.
    pub rows: Vec<(Bytes, Option<Bytes>)>,
    /// Inode that the operation made.
    pub ino: Option<Ino>,
    /// Number of the operation among those that this master answered before they were durable; 0 if
    /// it is durable, or changed nothing.
    pub serial: u64,
    pub progress: Progress,
}

/// Asks for a directory that the session made and nobody else has looked into, to fill it on its
/// own. The session gives it back when a recall names it: see [`crate::keys::delegation`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Delegate {
    pub session: SessionId,
    pub directory: Ino,
    /// Bucket that the directory is in.
    pub bucket: BucketId,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct DelegateReply {
    /// Number of the delegation.
    pub number: u64,
    /// Keys of all entries of the directory.
    pub entries: Vec<Bytes>,
    /// Rows that operations need to fill the directory, leased.
    pub rows: Vec<(Bytes, Option<Bytes>)>,
}

/// Sends operations that the session has run on its own, in their order: in directories that it
/// holds, and on files that it has made there on its own. All others are refused.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunPosted {
    pub session: SessionId,
    pub operations: Vec<PostedOperation>,
}

/// A posted operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PostedOperation {
    pub execute: Execute,
    /// Time at which the session ran the operation.
    pub time: Timestamp,
}

/// Gives back directories in which everything that the session did on its own has run. Each comes
/// with the number of its delegation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GiveBack {
    pub session: SessionId,
    pub directories: Vec<(Ino, u64)>,
}

/// Asks for rows of one state, for a dump. Mounts may not send it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DumpRows {
    pub session: SessionId,
    pub caller: RelayedCaller,
    /// Number chosen by the sender, by which the master recognizes the state.
    pub dump: u64,
    /// Last key that was received; `None` asks for the current state.
    pub after: Option<Bytes>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct DumpedRows {
    /// The id of the store: the row `c cluster`.
    pub cluster: u64,
    /// Batch of the state.
    pub batch: u64,
    pub rows: Vec<(Bytes, Bytes)>,
    /// Set if there are no further rows.
    pub is_last: bool,
}

/// Waits until the executed operations up to this serial are durable or have failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Flush {
    pub session: SessionId,
    pub serial: u64,
}

/// The progress of operations that were executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Serial up to which executed operations are durable or have failed.
    pub settled: u64,
    /// Number of the session's operations that have failed since the master began.
    pub failed: u64,
}

/// States that the session has sent again all operations that it kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplayEnd {
    pub session: SessionId,
}

/// States that all rows of recalls up to `number` are forgotten.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Acknowledge {
    pub session: SessionId,
    pub number: u64,
}

/// Ends a session, so that nobody needs to wait for it any more.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Detach {
    pub session: SessionId,
}

/// Names rows that a session must not use any more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recall {
    /// Number of the recall, counted from 1 since the session attached.
    pub number: u64,
    /// Keys of rows; names of delegations, see [`crate::keys::delegation`]; or
    /// [`crate::keys::all_rows`].
    pub keys: Vec<Bytes>,
}
