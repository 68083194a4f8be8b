//! Collection of facts about this machine. Files that are missing or may not be read are left out.

#[deny(clippy::indexing_slicing)]
mod cgroup;
#[deny(clippy::indexing_slicing)]
mod proc;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::sample::{Cgroup, Host, Limits, NetworkDevice, Process, Thread};

/// Directories in which the kernel shows its state.
#[derive(Clone, Debug)]
pub struct Kernel {
    proc: PathBuf,
    sys: PathBuf,
    /// Pid of this process, which is left out; 0 for none.
    own_pid: u32,
}

impl Default for Kernel {
    fn default() -> Kernel {
        Kernel { proc: "/proc".into(), sys: "/sys".into(), own_pid: std::process::id() }
    }
}

fn read(path: &Path) -> Option<String> {
    fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the names in a directory.
fn list(path: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

impl Kernel {
    /// Includes this process: for a process that is part of the store.
    pub fn with_own() -> Kernel {
        Kernel { own_pid: 0, ..Kernel::default() }
    }

    /// Returns the processes of the store and of what it may depend on, except this one.
    pub fn processes(&self) -> BTreeMap<u32, Process> {
        let pids = list(&self.proc).filter_map(|name| name.parse().ok());
        let others = pids.filter(|pid| *pid != self.own_pid);
        others.filter_map(|pid| Some((pid, self.process(pid)?))).collect()
    }

    fn process(&self, pid: u32) -> Option<Process> {
        let dir = self.proc.join(pid.to_string());
        let name = read(&dir.join("comm"))?.trim().to_owned();
        let command = read(&dir.join("cmdline"))?;
        let program = proc::program(&name, &command)?;
        let limits = proc::files_limit(&read(&dir.join("limits")).unwrap_or_default());
        let (memory_bytes, memory_limit_bytes) = self.memory(&dir);
        Some(Process {
            program,
            name,
            threads: threads(&dir),
            cgroup: self.cgroup(&dir),
            limits: Limits {
                files: list(&dir.join("fd")).count() as u64,
                files_limit: limits,
                memory_bytes,
                memory_limit_bytes,
            },
        })
    }

    /// Returns the nearest cgroup above a process that has a quota.
    fn cgroup(&self, dir: &Path) -> Option<Cgroup> {
        let of = read(&dir.join("cgroup"))?;
        cgroup::paths(&of, "cpu").into_iter().find_map(|path| {
            let dir = self.sys.join("fs/cgroup").join(path.trim_start_matches('/'));
            let quota = cgroup::quota(
                read(&dir.join("cpu.max")).as_deref(),
                read(&dir.join("cpu.cfs_quota_us")).as_deref(),
                read(&dir.join("cpu.cfs_period_us")).as_deref(),
            )?;
            let stat = cgroup::stat(&read(&dir.join("cpu.stat"))?);
            Some(Cgroup { path, quota_millicores: Some(quota), ..stat })
        })
    }

    fn memory(&self, dir: &Path) -> (u64, Option<u64>) {
        let of = read(&dir.join("cgroup")).unwrap_or_default();
        let found = cgroup::paths(&of, "memory").into_iter().find_map(|path| {
            let dir = self.sys.join("fs/cgroup").join(path.trim_start_matches('/'));
            let number = |names: [&str; 2]| {
                let text = names.iter().find_map(|name| read(&dir.join(name)))?;
                cgroup::bytes(&text)
            };
            let limit = number(["memory.max", "memory.limit_in_bytes"])?;
            let used = number(["memory.current", "memory.usage_in_bytes"])?;
            let stat = read(&dir.join("memory.stat")).unwrap_or_default();
            Some((used.saturating_sub(cgroup::droppable(&stat)), Some(limit)))
        });
        found.unwrap_or_default()
    }

    /// Returns the counters of the machine.
    pub fn host(&self) -> Host {
        let text = |path: &str| read(&self.proc.join(path)).unwrap_or_default();
        let mut host = proc::stat(&text("stat"));
        host.disks = proc::disks(&text("diskstats"));
        host.disks.retain(|name, _| self.sys.join("block").join(name).exists());
        (host.segments_sent, host.segments_resent) =
            proc::segments(&text("net/snmp"), &text("net/netstat"));
        let links = proc::links(&text("net/dev")).into_iter();
        let device = |name: &str| self.sys.join("class/net").join(name);
        host.links = links
            .filter(|(name, _)| device(name).join("device").exists())
            .map(|(name, bytes)| {
                let speed = read(&device(&name).join("speed"));
                let speed = speed.and_then(|text| text.trim().parse().ok());
                (name, NetworkDevice { bytes, speed: speed.filter(|speed| *speed > 0) })
            })
            .collect();
        host
    }
}

fn threads(dir: &Path) -> BTreeMap<u32, Thread> {
    let tasks = dir.join("task");
    let ids: Vec<u32> = list(&tasks).filter_map(|name| name.parse().ok()).collect();
    let thread = |id: u32| {
        let dir = tasks.join(id.to_string());
        let (running, waiting) = proc::schedstat(&read(&dir.join("schedstat"))?)?;
        let name = read(&dir.join("comm"))?.trim().to_owned();
        Some((id, Thread { name, running, waiting }))
    };
    ids.into_iter().filter_map(thread).collect()
}
