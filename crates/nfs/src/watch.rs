//! The outcomes of calls, for metrics and the audit.

use std::net::IpAddr;
use std::sync::Arc;

use cairn_base::trace::Trace;
use cairn_base::{Stages, UserId};

/// Names of procedures: those of NFS, of MOUNT, of the portmapper, and one name for anything else.
pub const PROCEDURES: [&str; 30] = [
    "null",
    "getattr",
    "setattr",
    "lookup",
    "access",
    "readlink",
    "read",
    "write",
    "create",
    "mkdir",
    "symlink",
    "mknod",
    "remove",
    "rmdir",
    "rename",
    "link",
    "readdir",
    "readdirplus",
    "fsstat",
    "fsinfo",
    "pathconf",
    "commit",
    "mount_null",
    "mount_mnt",
    "mount_dump",
    "mount_umnt",
    "mount_umntall",
    "mount_export",
    "portmap",
    "none",
];
/// Index of the first procedure of MOUNT.
const MOUNT: usize = 22;
const PORTMAP: usize = PROCEDURES.len() - 2;
const NONE: usize = PROCEDURES.len() - 1;

/// The outcome of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Fine,
    /// The request is impossible, not allowed, or no call.
    Refused,
    /// The call may succeed another time.
    NotNow,
    Failed,
}

/// A call that was answered.
#[derive(Clone, Copy, Debug)]
pub struct CallRecord {
    /// Index in [`PROCEDURES`].
    pub procedure: usize,
    pub outcome: Outcome,
    /// Stages until the reply was made.
    pub stages: Stages,
    /// Bytes of the call, and of the reply.
    pub received: u64,
    pub sent: u64,
}

/// A procedure that has run for a call that asked for a change, or was refused.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Name from [`PROCEDURES`].
    pub procedure: &'static str,
    /// Value of `nfsstat3` or `mountstat3`; `None` if the outcome is unknown.
    pub status: Option<u32>,
    pub outcome: Outcome,
    /// True if the client lacks the right.
    pub is_refused: bool,
    pub client: IpAddr,
    /// The uid that the client states.
    pub uid: Option<u32>,
    /// The user that the export lets the client act as, if the call got that far.
    pub user: Option<UserId>,
    /// The inode, the name below it, or the path to be mounted.
    pub object: String,
    pub trace: Option<Trace>,
}

/// Observes calls: begins the timing of each, and receives its outcome. Must not block.
#[derive(Clone)]
pub struct Watch {
    pub begin: Arc<dyn Fn() -> Stages + Send + Sync>,
    pub end: Arc<dyn Fn(CallRecord) + Send + Sync>,
    /// Receives each run of a procedure that asked for a change or was refused, if there is an
    /// audit.
    pub audit: Option<Arc<dyn Fn(Ran) + Send + Sync>>,
}

/// Returns the index of a procedure of NFS in [`PROCEDURES`].
pub fn of_nfs(procedure: u32) -> usize {
    usize::try_from(procedure).ok().filter(|at| *at < MOUNT).unwrap_or(NONE)
}

/// Returns the index of a procedure of MOUNT in [`PROCEDURES`].
pub fn of_mount(procedure: u32) -> usize {
    let at = usize::try_from(procedure).ok().and_then(|at| at.checked_add(MOUNT));
    at.filter(|at| *at < PORTMAP).unwrap_or(NONE)
}

/// Returns the index of the portmapper's procedures in [`PROCEDURES`].
pub fn of_portmap() -> usize {
    PORTMAP
}

/// Returns the index of calls to any other program in [`PROCEDURES`].
pub fn of_none() -> usize {
    NONE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn procedures_have_their_names() {
        let names = [of_nfs(0), of_nfs(21), of_nfs(22), of_mount(0), of_mount(5), of_mount(6)];
        let names = names.map(|at| PROCEDURES[at]);
        assert_eq!(names, ["null", "commit", "none", "mount_null", "mount_export", "none"]);
        assert_eq!([of_nfs(u32::MAX), of_mount(u32::MAX)], [NONE, NONE]);
    }
}
