//! CPU time that processes used, from /proc.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

/// Processes whose CPU time counts together.
pub struct Processes {
    roots: Vec<u32>,
}

/// CPU time that they had used at an instant.
pub struct Mark {
    at: Instant,
    seconds: f64,
}

impl Processes {
    pub fn this() -> Processes {
        Processes { roots: vec![std::process::id()] }
    }

    /// Counts these processes and all their descendants (nginx works in children).
    pub fn of(roots: &[u32]) -> Processes {
        Processes { roots: roots.to_vec() }
    }

    /// Returns the first process that does not run.
    pub fn missing(&self) -> Option<u32> {
        self.roots.iter().copied().find(|pid| stat(*pid).is_none())
    }

    pub fn mark(&self) -> Mark {
        Mark { at: Instant::now(), seconds: self.seconds() }
    }

    /// Returns the average number of cores in use since a mark.
    pub fn cores_since(&self, mark: &Mark) -> f64 {
        let passed = mark.at.elapsed().as_secs_f64();
        ((self.seconds() - mark.seconds) / passed.max(1e-9)).max(0.0)
    }

    fn seconds(&self) -> f64 {
        let ticks: u64 = self.all().iter().map(|(_, ticks)| ticks).sum();
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64
    }

    /// Returns these processes and all their current descendants.
    pub fn pids(&self) -> Vec<u32> {
        self.all().into_iter().map(|(pid, _)| pid).collect()
    }

    /// Returns the processes and their ticks of CPU time.
    fn all(&self) -> Vec<(u32, u64)> {
        if self.roots == [std::process::id()] {
            return stat(self.roots[0])
                .map(|(_, ticks)| (self.roots[0], ticks))
                .into_iter()
                .collect();
        }
        let names = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = names.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let stats: HashMap<u32, (u32, u64)> =
            pids.filter_map(|pid| Some((pid, stat(pid)?))).collect();
        let belongs = |pid: u32| {
            let mut at = pid;
            loop {
                if self.roots.contains(&at) {
                    return true;
                }
                match stats.get(&at) {
                    Some((parent, _)) if *parent != 0 => at = *parent,
                    _ => return false,
                }
            }
        };
        let own = stats.iter().filter(|(pid, _)| belongs(**pid));
        own.map(|(pid, (_, ticks))| (*pid, *ticks)).collect()
    }
}

/// Returns the ticks of CPU time in the `stat` of a thread or process.
pub fn stat_ticks(path: &Path) -> Option<u64> {
    parse(&fs::read_to_string(path).ok()?).map(|(_, ticks)| ticks)
}

fn stat(pid: u32) -> Option<(u32, u64)> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Returns the parent of a process and its ticks of CPU time, user and system.
fn parse(text: &str) -> Option<(u32, u64)> {
    // The name of the program, in parentheses, may contain anything.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some((fields.get(1)?.parse().ok()?, ticks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_seen_and_children_belong() {
        let (this, parent) = (Processes::this(), stat(std::process::id()).unwrap().0);
        let mark = this.mark();
        let mut work = 0_u64;
        while this.seconds() < mark.seconds + 0.05 {
            work = std::hint::black_box(work.wrapping_add(1));
        }
        assert!(this.cores_since(&mark) > 0.0);
        let family = Processes::of(&[parent]);
        assert!(family.all().iter().any(|(pid, _)| *pid == std::process::id()));
        assert_eq!(Processes::of(&[std::process::id(), u32::MAX]).missing(), Some(u32::MAX));
    }
}
