//! Statistics of cgroups, of version 1 and of version 2.

use std::time::Duration;

use crate::sample::Cgroup;

/// Returns the paths below `/sys/fs/cgroup` of the cgroup of a process for `controller`, and of
/// those above it, from `/proc/PID/cgroup`. Version 1 comes first; version 2 may be mounted alone
/// or beside it.
pub fn paths(text: &str, controller: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(names), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if names.split(',').any(|name| name == controller) {
            // Its directory is named after the controller, or after all controllers that share it.
            for above in upwards(path) {
                found.extend([format!("/{controller}{above}"), format!("/{names}{above}")]);
            }
        } else if names.is_empty() {
            for above in upwards(path) {
                found.extend([above.to_owned(), format!("/unified{above}")]);
            }
        }
    }
    found
}

/// Returns `/a/b`, `/a`, and nothing for the root, which has no limits.
fn upwards(path: &str) -> impl Iterator<Item = &str> {
    let start = Some(path.trim_end_matches('/')).filter(|path| !path.is_empty());
    std::iter::successors(start, |path| {
        let (above, _) = path.rsplit_once('/')?;
        (!above.is_empty()).then_some(above)
    })
}

/// Returns the quota in millicores, from `cpu.max` or the two files of version 1; `None` if there
/// is none.
pub fn quota(max: Option<&str>, quota_us: Option<&str>, period_us: Option<&str>) -> Option<u64> {
    let (quota, period) = match max {
        Some(max) => max.trim().split_once(' ')?,
        None => (quota_us?.trim(), period_us?.trim()),
    };
    // "max" and -1 mean no quota.
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    (quota * 1000).checked_div(period)
}

/// Parses `cpu.stat`.
pub fn stat(text: &str) -> Cgroup {
    let find = |name: &str| number(text, name).unwrap_or(0);
    let nanos = match number(text, "throttled_usec") {
        Some(us) => us.saturating_mul(1000),
        None => find("throttled_time"),
    };
    Cgroup {
        periods: find("nr_periods"),
        throttled: find("nr_throttled"),
        throttled_time: Duration::from_nanos(nanos),
        ..Cgroup::default()
    }
}

fn number(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(' ')?;
        (found == name).then(|| value.trim().parse().ok())?
    })
}

/// Parses a number of bytes; `None` for no limit, which version 1 writes as a very large number.
pub fn bytes(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| *bytes < 1 << 60)
}

/// Returns the bytes of files in memory that are not in use, from `memory.stat`.
pub fn droppable(text: &str) -> u64 {
    number(text, "total_inactive_file").or_else(|| number(text, "inactive_file")).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_of_both_versions() {
        let one = "9:name=systemd:/\n2:cpu,cpuacct:/a/b\n1:cpuset:/other\n";
        assert_eq!(paths(one, "cpu"), ["/cpu/a/b", "/cpu,cpuacct/a/b", "/cpu/a", "/cpu,cpuacct/a"]);
        let two = "0::/system.slice/cairn.service\n";
        let wanted = [
            "/system.slice/cairn.service",
            "/unified/system.slice/cairn.service",
            "/system.slice",
            "/unified/system.slice",
        ];
        assert_eq!(paths(two, "cpu"), wanted);
        assert!(paths("0::/\n", "cpu").is_empty());
    }

    #[test]
    fn quotas_of_both_versions() {
        assert_eq!(quota(Some("50000 100000\n"), None, None), Some(500));
        assert_eq!(quota(Some("max 100000\n"), None, None), None);
        assert_eq!(quota(None, Some("20000\n"), Some("100000\n")), Some(200));
        assert_eq!(quota(None, Some("-1\n"), Some("100000\n")), None);
        assert_eq!(quota(Some("1 0"), None, None), None);
    }

    #[test]
    fn counters_of_both_versions() {
        let one = stat("nr_periods 10\nnr_throttled 4\nthrottled_time 2000000\n");
        let two = stat("usage_usec 9\nnr_periods 10\nnr_throttled 4\nthrottled_usec 2000\n");
        assert_eq!(one, two);
        assert_eq!((one.periods, one.throttled), (10, 4));
        assert_eq!(one.throttled_time, Duration::from_millis(2));
    }

    #[test]
    fn memory_without_a_limit() {
        assert_eq!(bytes("9223372036854771712\n"), None);
        assert_eq!(bytes("max\n"), None);
        assert_eq!(bytes("1048576\n"), Some(1 << 20));
        assert_eq!(droppable("inactive_file 5\ntotal_inactive_file 7\n"), 7);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed(text in "([a-z_:/,]| |\n|[0-9]){0,60}") {
            paths(&text, "cpu");
            stat(&text);
            let _ = quota(Some(&text), None, None);
            droppable(&text);
        }
    }
}
