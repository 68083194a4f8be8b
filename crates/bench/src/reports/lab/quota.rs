//! A quota of CPU on processes: a separate control group, of either version.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::cpu::Processes;
use crate::error::{Error, Result};

const ROOT: &str = "/sys/fs/cgroup";
/// Period of the quota: the default of schedulers.
const PERIOD_US: u64 = 100_000;
/// Number of checks whether a group has become empty.
const ATTEMPTS: u32 = 100;

/// A control group that is removed when this is dropped; its processes leave it then.
pub struct Quota {
    path: PathBuf,
    is_first: bool,
}

impl Quota {
    /// Makes a group without a limit, for these processes and their descendants.
    pub fn new(name: &str, pids: &[u32]) -> Result<Quota> {
        let failed = |path: &Path, error| {
            let path = path.display();
            let text =
                format!("no control group: {path}: {error}: run as root, where CPU quotas are");
            Error::failed(text)
        };
        let first = Path::new(ROOT).join("cpu");
        let is_first = first.join("cgroup.procs").exists();
        let parent = if is_first { first } else { PathBuf::from(ROOT) };
        if !is_first {
            let control = parent.join("cgroup.subtree_control");
            fs::write(&control, "+cpu").map_err(|error| failed(&control, error))?;
        }
        let path = parent.join(format!("cairn-bench-{}-{name}", std::process::id()));
        fs::create_dir(&path).map_err(|error| failed(&path, error))?;
        let quota = Quota { path, is_first };
        for pid in Processes::of(pids).pids() {
            let procs = quota.path.join("cgroup.procs");
            fs::write(&procs, pid.to_string()).map_err(|error| failed(&procs, error))?;
        }
        Ok(quota)
    }

    /// Limits all of it to a percentage of one CPU; none removes the limit.
    pub fn limit(&self, percent: Option<f64>) -> Result<()> {
        let quota = percent.map(|percent| (PERIOD_US as f64 * percent / 100.0).max(1000.0) as u64);
        let files = match (self.is_first, quota) {
            (true, Some(quota)) => vec![
                ("cpu.cfs_period_us", PERIOD_US.to_string()),
                ("cpu.cfs_quota_us", quota.to_string()),
            ],
            (true, None) => vec![("cpu.cfs_quota_us", "-1".to_owned())],
            (false, Some(quota)) => vec![("cpu.max", format!("{quota} {PERIOD_US}"))],
            (false, None) => vec![("cpu.max", "max".to_owned())],
        };
        for (name, value) in files {
            let path = self.path.join(name);
            fs::write(&path, value).map_err(|error| Error::file(&path, error))?;
        }
        Ok(())
    }

    /// Returns the number of throttled periods until now, and of all periods.
    pub fn throttled(&self) -> (u64, u64) {
        let text = fs::read_to_string(self.path.join("cpu.stat")).unwrap_or_default();
        let field = |name: &str| {
            let mut words = text.lines().filter_map(|line| line.split_once(' '));
            words.find(|(key, _)| *key == name).and_then(|(_, value)| value.parse().ok())
        };
        (field("nr_throttled").unwrap_or(0), field("nr_periods").unwrap_or(0))
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let _ = self.limit(None);
        let Some(parent) = self.path.parent() else { return };
        for _ in 0..ATTEMPTS {
            let inside = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
            for pid in inside.lines() {
                let _ = fs::write(parent.join("cgroup.procs"), pid);
            }
            if fs::remove_dir(&self.path).is_ok() || !self.path.exists() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}
