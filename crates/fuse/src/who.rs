//! On whose behalf a request is.

use std::fs;

use cairn_auth::{Caller, Posix};
use fuser::Request;

/// Who made a request of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Who {
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
}

impl Who {
    pub fn of(request: &Request) -> Who {
        Who { uid: request.uid(), gid: request.gid(), pid: request.pid() }
    }

    /// Without supplementary groups: enough for most, since the kernel has checked mode bits.
    pub fn caller(self, user: &Caller) -> Caller {
        let Who { uid, gid, .. } = self;
        user.clone().with_posix(Posix { uid, gid, groups: Vec::new() })
    }

    /// With the groups of the process, which cost a look into `/proc`.
    pub fn caller_in_groups(self, user: &Caller) -> Caller {
        let Who { uid, gid, pid } = self;
        if uid == 0 {
            return self.caller(user);
        }
        user.clone().with_posix(Posix { uid, gid, groups: groups_of(pid) })
    }
}

/// Whether a thread has got a signal that it does not block, or is gone. Of one in another PID
/// namespace, which has no number here (0), nothing is known.
pub fn is_signalled(thread: u32) -> bool {
    if thread == 0 {
        return false;
    }
    let Ok(status) = fs::read_to_string(format!("/proc/{thread}/status")) else { return true };
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
    };
    (set("SigPnd:") | set("ShdPnd:")) & !set("SigBlk:") & !set("SigIgn:") != 0
}

/// None of a process that is gone: then nothing is allowed because of them.
fn groups_of(pid: u32) -> Vec<u32> {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return Vec::new() };
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    line.unwrap_or_default().split_whitespace().filter_map(|gid| gid.parse().ok()).collect()
}
