//! CPU time by thread, from /proc.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use crate::cpu::{Processes, stat_ticks};

/// Share of a core below which a thread is idle.
const IDLE: f64 = 0.05;

/// CPU time that each thread of some processes had used at an instant.
pub struct Threads {
    roots: Vec<u32>,
    at: Instant,
    ticks: BTreeMap<(u32, u32), (String, u64)>,
}

/// Work of the threads since then.
pub struct Busy {
    /// Name of the busiest thread, and the number of cores that it used.
    pub name: String,
    pub cores: f64,
    pub working: usize,
    pub threads: usize,
}

impl Threads {
    /// Marks the threads of processes and of their descendants.
    pub fn mark(roots: &[u32]) -> Threads {
        let mut ticks = BTreeMap::new();
        for pid in Processes::of(roots).pids() {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            for task in tasks {
                let Some(tid) = task.file_name().to_str().and_then(|name| name.parse().ok()) else {
                    continue;
                };
                let Some(used) = stat_ticks(&task.path().join("stat")) else { continue };
                let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
                ticks.insert((pid, tid), (name.trim().to_owned(), used));
            }
        }
        Threads { roots: roots.to_vec(), at: Instant::now(), ticks }
    }

    /// Returns the threads that were busy since the mark; none if no process runs.
    pub fn since(&self) -> Option<Busy> {
        let now = Threads::mark(&self.roots);
        let passed = now.at.duration_since(self.at).as_secs_f64().max(1e-9);
        let second = rustix::param::clock_ticks_per_second() as f64;
        let used = now.ticks.iter().map(|(key, (name, ticks))| {
            let before = self.ticks.get(key).map_or(0, |(_, ticks)| *ticks);
            (name.clone(), ticks.saturating_sub(before) as f64 / second / passed)
        });
        let used: Vec<(String, f64)> = used.collect();
        let (name, cores) = used.iter().max_by(|a, b| a.1.total_cmp(&b.1))?.clone();
        Some(Busy {
            name,
            cores,
            working: used.iter().filter(|(_, cores)| *cores > IDLE).count(),
            threads: used.len(),
        })
    }
}
