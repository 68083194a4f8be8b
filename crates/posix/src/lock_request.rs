//! Requests for locks.

use cairn_base::SessionId;
use cairn_fs::rows::{Lock, Space};

/// Last byte of a lock that reaches to the end of the file, wherever that is.
pub const END: u64 = i64::MAX as u64;

/// The kind of lock that a range will have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    Read,
    Write,
    Unlock,
}

/// A lock as a caller wants it.
#[derive(Clone, Copy, Debug)]
pub struct LockRequest {
    /// Number of the owner at the door; once it is known which owner has locks, the name under
    /// which it has them.
    pub owner: u64,
    /// Process id on the owner's machine.
    pub pid: u32,
    pub start: u64,
    pub last: u64,
    pub kind: LockKind,
    /// The call that the lock is by: both, if the door cannot tell.
    pub space: Space,
}

impl LockRequest {
    pub(crate) fn lock(self, session: SessionId) -> Lock {
        let LockRequest { owner, pid, start, last, kind, space } = self;
        Lock { session, owner, pid, exclusive: kind == LockKind::Write, start, last, space }
    }

    /// Returns whether the lock is on the whole file, as locks by flock(2) are.
    pub fn is_whole(&self) -> bool {
        self.start == 0 && self.last >= END
    }
}
