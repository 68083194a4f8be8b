//! The outcome of calls, for counting.

use std::net::IpAddr;
use std::sync::Arc;

use cairn_base::trace::Trace;
use cairn_base::{Stages, UserId};

/// Procedures, each by its name, those of NFS first; the last one is whatever is none.
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
/// Where those of MOUNT begin.
const MOUNT: usize = 22;
const PORTMAP: usize = PROCEDURES.len() - 2;
const NONE: usize = PROCEDURES.len() - 1;

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Fine,
    /// The request is not possible, or not allowed, or no call.
    Refused,
    /// It may go well another time.
    NotNow,
    Failed,
}

/// A call that was answered.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Of [`PROCEDURES`].
    pub procedure: usize,
    pub outcome: Outcome,
    /// Until the reply was made.
    pub stages: Stages,
    /// Bytes of the call, and of the reply.
    pub received: u64,
    pub sent: u64,
}

/// A procedure that has run for a call that asks for a change, or was refused.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Of [`PROCEDURES`].
    pub procedure: &'static str,
    /// `nfsstat3` or `mountstat3`; none where nothing is known.
    pub status: Option<u32>,
    pub outcome: Outcome,
    /// The client may not.
    pub is_refused: bool,
    pub client: IpAddr,
    /// As the client says.
    pub uid: Option<u32>,
    /// As whom the export lets it act, if it came so far.
    pub user: Option<UserId>,
    /// The inode, or the name below it, or the path that it wanted to mount.
    pub object: String,
    pub trace: Option<Trace>,
}

/// Begins the time of a call, and is told of its end. Must not wait.
#[derive(Clone)]
pub struct Watch {
    pub begin: Arc<dyn Fn() -> Stages + Send + Sync>,
    pub end: Arc<dyn Fn(Ended) + Send + Sync>,
    /// Is told of each run of a procedure that asks for a change or was refused, if anybody is.
    pub audit: Option<Arc<dyn Fn(Ran) + Send + Sync>>,
}

/// The place of a procedure in [`PROCEDURES`].
pub fn of_nfs(procedure: u32) -> usize {
    usize::try_from(procedure).ok().filter(|at| *at < MOUNT).unwrap_or(NONE)
}

/// The same of one of MOUNT.
pub fn of_mount(procedure: u32) -> usize {
    let at = usize::try_from(procedure).ok().and_then(|at| at.checked_add(MOUNT));
    at.filter(|at| *at < PORTMAP).unwrap_or(NONE)
}

/// Those of the portmapper.
pub fn of_portmap() -> usize {
    PORTMAP
}

/// That of no program.
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
