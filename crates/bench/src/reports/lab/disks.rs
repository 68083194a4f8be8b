//! Work of disks, from /proc/diskstats.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{major, minor, stat};

/// Size of the sectors that the kernel counts, whatever the disk has.
const SECTOR_BYTES: u64 = 512;

/// Bytes and times that the disks below some directories had counted at an instant.
pub struct Disks {
    directories: Vec<PathBuf>,
    at: Instant,
    counted: BTreeMap<(u32, u32), DiskCounters>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct DiskCounters {
    written: u64,
    busy_ms: u64,
}

/// Work of the disks since then.
pub struct DiskWork {
    /// Bytes written to all disks.
    pub written: u64,
    /// Share of the time in which the busiest disk had something to do.
    pub busy: f64,
}

impl Disks {
    pub fn mark(directories: &[PathBuf]) -> Disks {
        let table = fs::read_to_string("/proc/diskstats").unwrap_or_default();
        let all: BTreeMap<(u32, u32), DiskCounters> = table.lines().filter_map(parse).collect();
        let devices: BTreeSet<(u32, u32)> = directories.iter().filter_map(|at| of(at)).collect();
        let counted = devices.iter().filter_map(|device| Some((*device, *all.get(device)?)));
        Disks { directories: directories.to_vec(), at: Instant::now(), counted: counted.collect() }
    }

    /// Returns the work since then; none if the kernel counts no writes, as in memory.
    pub fn since(&self) -> Option<DiskWork> {
        let now = Disks::mark(&self.directories);
        let passed = now.at.duration_since(self.at).as_secs_f64().max(1e-9);
        let done = now.counted.iter().filter_map(|(device, now)| {
            let before = self.counted.get(device)?;
            let busy = now.busy_ms.saturating_sub(before.busy_ms) as f64 / 1000.0 / passed;
            Some((now.written.saturating_sub(before.written), busy.min(1.0)))
        });
        let done: Vec<(u64, f64)> = done.collect();
        let busiest = done.iter().map(|(_, busy)| *busy).max_by(f64::total_cmp)?;
        Some(DiskWork { written: done.iter().map(|(written, _)| written).sum(), busy: busiest })
    }
}

/// Returns the device of a directory.
fn of(directory: &Path) -> Option<(u32, u32)> {
    let device = stat(directory).ok()?.st_dev;
    Some((major(device), minor(device)))
}

/// Parses a line: numbers and name of a device, then counters; the 7th is of writes, the 10th of
/// time.
fn parse(line: &str) -> Option<((u32, u32), DiskCounters)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let device = (fields.first()?.parse().ok()?, fields.get(1)?.parse().ok()?);
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let written = number(9)?.saturating_mul(SECTOR_BYTES);
    Some((device, DiskCounters { written, busy_ms: number(12)? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line = " 254       0 vda 1 2 3 4 50 6 70 8 0 900 10 11 12 13 14 15 16";
        let counted = DiskCounters { written: 70 * SECTOR_BYTES, busy_ms: 900 };
        assert_eq!(parse(line), Some(((254, 0), counted)));
        for line in ["", "254 0 vda", "a b vda 1 2 3 4 50 6 70 8 0 900"] {
            assert_eq!(parse(line), None);
        }
    }

    #[test]
    fn a_directory_that_no_disk_is_below_has_no_work() {
        assert!(Disks::mark(&[PathBuf::from("/proc")]).since().is_none());
    }
}
