//! The statuses that clients receive for errors.

use cairn_base::Error;

use crate::rpc::{self, Reply};
use crate::xdr::Garbage;

/// An `nfsstat3` (RFC 1813, 2.6); some of its values are also those of `mountstat3`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status(pub u32);

impl Status {
    pub const OK: Status = Status(0);
    pub const PERM: Status = Status(1);
    pub const NOENT: Status = Status(2);
    pub const IO: Status = Status(5);
    pub const ACCES: Status = Status(13);
    pub const EXIST: Status = Status(17);
    pub const XDEV: Status = Status(18);
    pub const NOTDIR: Status = Status(20);
    pub const ISDIR: Status = Status(21);
    pub const INVAL: Status = Status(22);
    pub const FBIG: Status = Status(27);
    pub const NOSPC: Status = Status(28);
    pub const ROFS: Status = Status(30);
    pub const MLINK: Status = Status(31);
    pub const NAMETOOLONG: Status = Status(63);
    pub const NOTEMPTY: Status = Status(66);
    pub const STALE: Status = Status(70);
    pub const BADHANDLE: Status = Status(10_001);
    pub const NOT_SYNC: Status = Status(10_002);
    pub const TOOSMALL: Status = Status(10_005);
    pub const SERVERFAULT: Status = Status(10_006);
    pub const BADTYPE: Status = Status(10_007);
    /// The call cannot be answered now: the client tries again.
    pub const JUKEBOX: Status = Status(10_008);

    /// Returns whether the status says that the client may not do what it asked for.
    pub fn is_refusal(self) -> bool {
        let refusals = [Status::PERM, Status::ACCES, Status::ROFS, Status::BADHANDLE];
        refusals.contains(&self)
    }

    /// Returns the status of an error about a name that is looked up or made.
    pub fn of_name(error: &Error) -> Status {
        match error {
            Error::TooLarge(_) => Status::NAMETOOLONG,
            error => Status::of(error),
        }
    }

    /// Returns the status of an error about the inode of a handle.
    pub fn of_inode(error: &Error) -> Status {
        match error {
            Error::NotFound(_) => Status::STALE,
            error => Status::of(error),
        }
    }

    /// Returns the status of an error of an operation that only the owner of an inode may do.
    pub fn of_owner(error: &Error) -> Status {
        match error {
            Error::Denied(_) => Status::PERM,
            error => Status::of_inode(error),
        }
    }

    pub fn of(error: &Error) -> Status {
        let status = match error {
            Error::NotFound(_) => Status::NOENT,
            Error::Exists(_) => Status::EXIST,
            Error::Denied(_) => Status::ACCES,
            Error::Conflict(_) | Error::Unavailable(_) => Status::JUKEBOX,
            Error::Full(_) => Status::NOSPC,
            Error::ReadOnly(_) => Status::ROFS,
            Error::Invalid(_) | Error::RangeNotSatisfiable { .. } => Status::INVAL,
            Error::TooLarge(_) => Status::FBIG,
            Error::NotEmpty(_) => Status::NOTEMPTY,
            Error::IsDirectory(_) => Status::ISDIR,
            Error::NotDirectory(_) => Status::NOTDIR,
            Error::CrossBucket(_) => Status::XDEV,
            // As a rule the call was refused before, and is answered as before.
            Error::PreconditionFailed(_) => Status::NOT_SYNC,
            // Also for NotImplemented: programs of Linux have no name for NOTSUPP.
            _ => Status::IO,
        };
        if status == Status::IO {
            tracing::warn!(%error, "a call failed");
        } else {
            tracing::debug!(%error, ?status, "a call failed");
        }
        status
    }
}

/// The outcome of a procedure.
pub type Done = Result<Reply, Refusal>;

/// The reason why a procedure has no result of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The arguments cannot be read.
    Garbage,
    /// The result is this status, with all optional fields absent.
    Failed(Status),
}

impl Refusal {
    /// Returns the reply: the status, and `absent` flags, each of which says that an optional field
    /// is left out.
    pub fn reply(self, xid: u32, absent: u32) -> Reply {
        let Refusal::Failed(status) = self else { return rpc::garbage(xid) };
        let mut result = rpc::success(xid);
        result.number(status.0);
        for _ in 0..absent {
            result.flag(false);
        }
        result.into()
    }
}

impl From<Garbage> for Refusal {
    fn from(_: Garbage) -> Refusal {
        Refusal::Garbage
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Refusal {
        Refusal::Failed(status)
    }
}
