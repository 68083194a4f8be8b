//! Standard metrics of a process: its version, and its use of the machine.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Ticks per second in the files of the kernel: the same on every Linux that is supported.
const TICKS: f64 = 100.0;

/// The collector of the version, used with a prefix.
#[derive(Debug)]
pub(super) struct Build;

impl Collector for Build {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let help = "Which version this is";
        let mut metric = encoder.encode_descriptor("build_info", help, None, MetricType::Gauge)?;
        let labels = [("version", env!("CARGO_PKG_VERSION"))];
        metric.encode_family(&labels)?.encode_gauge(&1_u64)
    }
}

/// The collector of the process, used without a prefix, as the names are the same for all programs.
/// Unreadable values are left out.
#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        if let Some(seconds) = cpu_seconds(&stat) {
            let help = "Processor time";
            let counter = MetricType::Counter;
            let mut metric =
                encoder.encode_descriptor("process_cpu_seconds", help, None, counter)?;
            metric.encode_counter::<NoLabelSet, _, u64>(&seconds, None)?;
        }
        let open = fs::read_dir("/proc/self/fd").ok().map(|all| all.count() as u64);
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Memory in use", bytes_of(&status, "VmRSS:")),
            ("process_virtual_memory_bytes", "Addresses in use", bytes_of(&status, "VmSize:")),
            ("process_open_fds", "Open descriptors", open),
            ("process_max_fds", "Descriptors there may be", descriptors(&limits)),
        ] {
            if let Some(value) = value {
                let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
                metric.encode_gauge(&value)?;
            }
        }
        Ok(())
    }
}

/// Returns the CPU time in seconds, from two fields after the program's name, which may contain
/// spaces and parentheses.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11).map(str::parse::<u64>);
    let (user, system) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some(user.saturating_add(system) as f64 / TICKS)
}

fn bytes_of(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1 << 10)
}

/// Returns the soft limit.
fn descriptors(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_read() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4 1 0 0 0 150 50 0 0 20 0 9 0 77 1 2";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(bytes_of("VmSize:\t  8 kB\nVmRSS:\t   12 kB\n", "VmRSS:"), Some(12 << 10));
        let limits = "Max processes   unlimited unlimited processes\n\
            Max open files            1024                 4096                 files\n";
        assert_eq!(descriptors(limits), Some(1024));
        for text in ["", "7 (a", "VmRSS: x kB", "Max open files unlimited"] {
            assert_eq!((cpu_seconds(text), bytes_of(text, "VmRSS:")), (None, None));
            assert_eq!(descriptors(text), None);
        }
    }
}
