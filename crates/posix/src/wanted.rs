//! Locks that are asked for.

use cairn_base::SessionId;
use cairn_fs::rows::{Lock, Space};

/// The last byte of a lock to the end of the file, wherever that is.
pub const END: u64 = i64::MAX as u64;

/// The lock that a range will have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    Read,
    Write,
    Unlock,
}

/// The wanted lock of a caller.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The door's number of the owner; once it is known who has locks, the name by which it has
    /// them.
    pub owner: u64,
    /// The number of the process on the owner's machine.
    pub pid: u32,
    pub start: u64,
    pub last: u64,
    pub kind: LockKind,
    /// Of a door that cannot tell by which call it is: both.
    pub space: Space,
}

impl Wanted {
    pub(crate) fn lock(self, session: SessionId) -> Lock {
        let Wanted { owner, pid, start, last, kind, space } = self;
        Lock { session, owner, pid, exclusive: kind == LockKind::Write, start, last, space }
    }

    /// Whether it is on all of a file, as locks by flock(2) are.
    pub fn is_whole(&self) -> bool {
        self.start == 0 && self.last >= END
    }
}
