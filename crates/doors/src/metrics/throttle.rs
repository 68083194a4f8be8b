//! Counts how often the process's control group was stopped by its CPU quota, for cgroup v1 and v2.

use std::fmt;
use std::fs;
use std::path::Path;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

const ROOT: &str = "/sys/fs/cgroup";

/// The collector, used with a prefix. It reports nothing if there is no quota or if the quota
/// cannot be read.
#[derive(Debug)]
pub(super) struct ThrottleCollector;

impl Collector for ThrottleCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let Some(found) = find(Path::new(ROOT), &own) else { return Ok(()) };
        let counter = MetricType::Counter;
        for (name, help, value) in [
            ("cpu_periods", "Periods of the CPU quota in which the process ran", found.periods),
            ("cpu_throttled_periods", "Of these, those that ended with it stopped", found.stopped),
        ] {
            let mut metric = encoder.encode_descriptor(name, help, None, counter)?;
            metric.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        let help = "Time for which the CPU quota stopped it, summed over cores";
        let mut metric = encoder.encode_descriptor("cpu_throttled_seconds", help, None, counter)?;
        metric.encode_counter::<NoLabelSet, _, u64>(&(found.nanos as f64 / 1e9), None)
    }
}

/// Counts since the control group was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stat {
    periods: u64,
    stopped: u64,
    /// Time stopped, nanoseconds.
    nanos: u64,
}

/// Returns the counts of the nearest control group that counts periods, since a group without a
/// quota may lie in a group that has one. `own` is the text of `/proc/self/cgroup`.
fn find(root: &Path, own: &str) -> Option<Stat> {
    directories(own).iter().find_map(|directory| {
        let text = fs::read_to_string(root.join(directory).join("cpu.stat")).ok()?;
        parse(&text).filter(|stat| stat.periods > 0)
    })
}

/// Returns directories in which `cpu.stat` may be, below the root of all control groups. A
/// container may see its own group as the root, and nevertheless have the path that its host sees.
fn directories(own: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(names), Some(path)) = (parts.next(), parts.next()) else { continue };
        let tops = match names {
            "" => vec![String::new(), "unified".to_owned()],
            _ if names.split(',').any(|name| name == "cpu") => {
                vec!["cpu".to_owned(), names.to_owned()]
            }
            _ => continue,
        };
        let mut path = path.trim_matches('/');
        loop {
            found.extend(tops.iter().map(|top| format!("{top}/{path}")));
            match path.rsplit_once('/') {
                Some((above, _)) => path = above,
                None if path.is_empty() => break,
                None => path = "",
            }
        }
    }
    // Relative paths, not from the root of the machine.
    found.iter().map(|path| path.trim_matches('/').to_owned()).collect()
}

fn parse(text: &str) -> Option<Stat> {
    let number = |name: &str| {
        text.lines().find_map(|line| {
            let (found, value) = line.split_once(' ')?;
            (found == name).then(|| value.trim().parse::<u64>().ok())?
        })
    };
    let nanos = match number("throttled_usec") {
        Some(micros) => micros.saturating_mul(1000),
        None => number("throttled_time")?,
    };
    Some(Stat { periods: number("nr_periods")?, stopped: number("nr_throttled")?, nanos })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "usage_usec 9\nnr_periods 10\nnr_throttled 4\nthrottled_usec 2000\n";
    const ONE: &str = "nr_periods 10\nnr_throttled 4\nthrottled_time 2000000\n";
    const FOUND: Option<Stat> = Some(Stat { periods: 10, stopped: 4, nanos: 2_000_000 });

    #[test]
    fn counters_of_both_versions_are_the_same() {
        assert_eq!((parse(ONE), parse(TWO)), (FOUND, FOUND));
        for text in ["", "usage_usec 9\n", "nr_periods x\nnr_throttled 1\nthrottled_time 1\n"] {
            assert_eq!(parse(text), None);
        }
    }

    #[test]
    fn it_is_found_wherever_it_is() {
        let one = "9:name=systemd:/x\n2:cpu,cpuacct:/a/b\n1:cpuset:/other\n";
        for (own, directory, text) in [
            (one, "cpu/a/b", ONE),
            (one, "cpu,cpuacct/a/b", ONE),
            // A container that sees its own as the root.
            (one, "cpu", ONE),
            ("0::/system.slice/c.service\n", "system.slice/c.service", TWO),
            ("0::/a/b\n", "a", TWO),
            ("0::/\n", "", TWO),
            ("0::/../x\n", "", TWO),
        ] {
            let root = tempfile::tempdir().unwrap();
            assert_eq!(find(root.path(), own), None);
            let at = root.path().join(directory);
            fs::create_dir_all(&at).unwrap();
            fs::write(at.join("cpu.stat"), text).unwrap();
            assert_eq!(find(root.path(), own), FOUND, "{own} {directory}");
        }
    }

    #[test]
    fn without_a_quota_the_one_above_counts() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        let none = "usage_usec 9\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n";
        fs::write(root.path().join("a/b/cpu.stat"), none).unwrap();
        assert_eq!(find(root.path(), "0::/a/b\n"), None);
        fs::write(root.path().join("a/cpu.stat"), TWO).unwrap();
        assert_eq!(find(root.path(), "0::/a/b\n"), FOUND);
    }
}
