//! Messages between a session and a master.

use std::time::Duration;

use bytes::Bytes;
use cairn_auth::RelayedCaller;
use cairn_base::{BucketId, Error, Ino, Result, SessionId, Timestamp};
use serde::{Deserialize, Serialize};

/// How long a session lives without renewal, by default. Masters of all versions must agree:
/// docs/decisions/0005-sessions.md.
pub const LEASE: Duration = Duration::from_secs(10);
/// The calls to a master; the number is what crosses the network, together with those of
/// `cairn_cluster::control`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum SessionMethod {
    /// [`Attach`], answered with [`Attached`].
    Attach = 1,
    /// [`Renew`], answered with [`Renewed`].
    Renew = 2,
    /// [`Read`], answered with [`ReadReply`].
    Read = 3,
    /// [`Run`], answered with the reply of the verb.
    Run = 4,
    /// [`Acknowledge`], answered with nothing.
    Acknowledge = 5,
    /// [`Detach`], answered with nothing.
    Detach = 8,
    /// [`Change`], answered with [`ReadReply`].
    Change = 9,
    /// [`Execute`], answered with [`Executed`].
    Execute = 10,
    /// [`Flush`], answered with [`Progress`].
    Flush = 11,
    /// As [`SessionMethod::Attach`], by a session that executes: nobody else is answered before its
    /// [`SessionMethod::Replayed`].
    AttachToReplay = 12,
    /// [`Replayed`], answered with nothing.
    Replayed = 13,
    /// [`Delegate`], answered with [`Delegated`].
    Delegate = 14,
    /// [`RunPosted`], answered with a `Result` of [`Executed`] for each.
    RunPosted = 15,
    /// [`GiveBack`], answered with nothing.
    GiveBack = 25,
    /// [`DumpRows`], answered with [`DumpedRows`].
    DumpRows = 28,
    /// As [`SessionMethod::Attach`], by a session of a node that still holds what former masters
    /// have leased to it. It is refused, and nothing changes, where that does not hold any more.
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

/// Every message is answered with one of these.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply<T> {
    Done(T),
    Failed(Error),
    /// The session is not attached here: it must attach (again).
    NotAttached,
    /// This master does not serve, or not any more; another one may.
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

/// Opens a session, or goes on with one after the connection was lost. The client has let go of
/// all rows before, unless it attaches as one that holds them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attach {
    pub session: SessionId,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attached {
    pub lease_ms: u64,
    /// The last batch that is seen by reads; 0 for a session that holds rows of former masters.
    pub batch: u64,
}

/// From before this was sent, the session reads leased rows only while the master of this epoch,
/// which is in the same process, holds its own lease. It goes on with that until a master of a
/// later epoch has attached it. Mounts may not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bind {
    pub session: SessionId,
    pub epoch: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bound {
    /// That of the master that answers. If the session named another one, nothing was noted.
    pub epoch: u64,
}

/// The session is that of the only process of its node: it holds the lock of the node's directory.
/// All other sessions of the node belong to processes that have ended. Mounts may not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Succeed {
    pub session: SessionId,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Renew {
    pub session: SessionId,
    /// Nothing in the session reads a state older than this batch.
    pub reads_from: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Renewed {
    /// All changes up to this batch have settled: a read that begins after this came sees them. 0
    /// for a session that holds rows of former masters.
    pub settled: u64,
}

/// Runs a verb that only reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Read {
    pub session: SessionId,
    pub caller: RelayedCaller,
    pub verb: u16,
    pub fields: Bytes,
    /// Send the rows it read, to be kept until they are recalled.
    pub lease: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct ReadReply {
    pub reply: Result<Bytes>,
    /// The rows that it was made of or changed, where those are leased.
    pub rows: Vec<(Bytes, Option<Bytes>)>,
}

/// Runs a verb, once: sent again with the same slot and sequence it gets the same reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    pub session: SessionId,
    pub slot: u16,
    /// Grows with every operation of the slot, from 1.
    pub sequence: u64,
    pub caller: RelayedCaller,
    pub verb: u16,
    pub fields: Bytes,
}

/// Runs a verb as [`Run`] does; the answer has rows that it changed, to be kept until they are
/// recalled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Change {
    pub run: Run,
    /// The session holds none of these rows, and will keep none that it was sent before the
    /// operation has run.
    pub released: Vec<Bytes>,
}

/// Runs a verb as [`Change`] does, or as [`Run`] where nothing was released, and is answered when
/// it has run. The session keeps it until it is durable, and sends it again after it attached.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Execute {
    pub change: Change,
    /// The inode that it made when it was executed before.
    pub ino: Option<Ino>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Executed {
    pub reply: Bytes,
    /// The rows that it changed, where those are leased.
    pub rows: Vec<(Bytes, Option<Bytes>)>,
    /// The inode that it made.
    pub ino: Option<Ino>,
    /// 0: it is durable, or changed nothing. Otherwise it counts, on this master, the operations
    /// that were answered before they were durable.
    pub serial: u64,
    pub progress: Progress,
}

/// Asks for a directory that the session made and nobody else has looked into, to fill it on its
/// own. It is to be given back when a recall names it: see [`crate::keys::delegation`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Delegate {
    pub session: SessionId,
    pub directory: Ino,
    /// That it is in.
    pub bucket: BucketId,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Delegated {
    /// Counts delegations.
    pub number: u64,
    /// The keys of all its entries.
    pub entries: Vec<Bytes>,
    /// The rows that an operation needs that fills it, leased.
    pub rows: Vec<(Bytes, Option<Bytes>)>,
}

/// Operations that the session has run on its own, in their order: in directories that it holds,
/// and on files that it has made there on its own. All others are refused.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunPosted {
    pub session: SessionId,
    pub operations: Vec<Posted>,
}

/// A posted operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Posted {
    pub execute: Execute,
    /// When it was.
    pub time: Timestamp,
}

/// All that the session has done on its own in these directories has run. With each, the number of
/// its delegation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GiveBack {
    pub session: SessionId,
    pub directories: Vec<(Ino, u64)>,
}

/// Asks for rows of one state, for a dump. Mounts may not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DumpRows {
    pub session: SessionId,
    pub caller: RelayedCaller,
    /// A number of the sender's choice, by which the master knows the state again.
    pub dump: u64,
    /// The last key that came; without it, the state is that of now.
    pub after: Option<Bytes>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct DumpedRows {
    /// The id of the store: the row `c cluster`.
    pub cluster: u64,
    /// Of the state.
    pub batch: u64,
    pub rows: Vec<(Bytes, Bytes)>,
    /// There are no further ones.
    pub is_last: bool,
}

/// Waits until executed operations up to this one are durable, or came to nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Flush {
    pub session: SessionId,
    pub serial: u64,
}

/// The progress of operations that were executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Those up to this serial are durable, or came to nothing.
    pub settled: u64,
    /// So many of this session came to nothing since the master began.
    pub failed: u64,
}

/// The session has sent again all that it kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Replayed {
    pub session: SessionId,
}

/// All rows of recalls up to `number` are forgotten.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Acknowledge {
    pub session: SessionId,
    pub number: u64,
}

/// Ends a session: nobody need wait for it any more.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Detach {
    pub session: SessionId,
}

/// Rows a session must not use any more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recall {
    /// Counts the recalls of a session since it attached, from 1.
    pub number: u64,
    /// Of rows; or names of delegations, see [`crate::keys::delegation`]; or
    /// [`crate::keys::all_rows`].
    pub keys: Vec<Bytes>,
}
