//! Limits that a process is about to reach.

use crate::Finding;
use crate::sample::{Pair, Process, Program};

const NEAR: f64 = 0.85;

pub fn near(pair: &Pair<'_>) -> Vec<Finding> {
    let processes = pair.after.processes.iter();
    let ours = processes.filter(|(_, process)| process.program == Program::Cairn);
    ours.flat_map(|(pid, process)| files(*pid, process).into_iter().chain(memory(*pid, process)))
        .collect()
}

fn files(pid: u32, process: &Process) -> Option<Finding> {
    let (used, limit) = (process.limits.files, process.limits.files_limit?);
    let share = used as f64 / limit.max(1) as f64;
    (share >= NEAR).then(|| Finding {
        kind: "file descriptors",
        cost_percent: 100.0 * share.min(1.0),
        what: format!("{} has nearly all file descriptors that it may have", process.name),
        evidence: vec![format!("process {pid}: {used} of {limit}")],
        remedy: "raise the limit (ulimit -n, LimitNOFILE= of systemd)".to_owned(),
    })
}

fn memory(pid: u32, process: &Process) -> Option<Finding> {
    let (used, limit) = (process.limits.memory_bytes, process.limits.memory_limit_bytes?);
    let share = used as f64 / limit.max(1) as f64;
    (share >= NEAR).then(|| Finding {
        kind: "memory limit",
        cost_percent: 100.0 * share.min(1.0),
        what: format!("{} has nearly all memory that its cgroup allows", process.name),
        evidence: vec![format!("process {pid}: {} of {} MiB", used >> 20, limit >> 20)],
        remedy: "raise the limit, or give it smaller caches (--cache-mib and others)".to_owned(),
    })
}
