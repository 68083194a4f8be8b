//! Disks that take long to make things durable.

use super::peers;
use crate::Finding;
use crate::sample::{DiskTimes, Pair, Server};

/// Average time of a sync from which on a disk is slow, seconds. A rotating disk needs some 15 ms.
const SLOW_SYNC: f64 = 0.025;
const COMMITS: f64 = 3.0;

/// Servers whose requests wait for slow syncs. Many requests that wait for a disk which does its
/// work are its limit, and no finding.
pub fn slow(pair: &Pair<'_>) -> Vec<Finding> {
    pair.servers().filter_map(|server| of(pair, &server)).collect()
}

fn of(pair: &Pair<'_>, server: &Server<'_>) -> Option<Finding> {
    let commits = server.grew("cairn_meta_batches_total", &[]);
    let commit = server.grew("cairn_meta_commit_seconds_total", &[]) / commits.max(1.0);
    if commits < COMMITS || commit < SLOW_SYNC {
        return None;
    }
    let share = server.share(&["sync", "write", "read"]);
    let mut evidence = vec![
        format!("{commits:.0} commits of metadata took {:.1} ms on average", commit * 1e3),
        format!("{:.0} % of the time of requests is waiting for it", 100.0 * share),
    ];
    evidence.extend(busiest(pair));
    Some(Finding {
        kind: "slow disk",
        cost_percent: 100.0 * share,
        what: format!("{}: making things durable takes long", server.url),
        evidence,
        remedy: "see what else uses the disk, and whether it is limited (cgroup io.max, blkio \
                 throttling, a volume's IOPS); put the data on a disk that syncs in under 10 ms; \
                 with --meta, look at the database"
            .to_owned(),
    })
}

/// Returns the share of the requests' time that is waiting for disks, here or of chunkservers.
pub fn waits(server: &Server<'_>) -> f64 {
    server.share(&["sync", "write", "read"]) + peers::durable(server)
}

/// Returns the busiest disk.
pub fn busiest(pair: &Pair<'_>) -> Option<String> {
    let (name, busy, times) = utilisation(pair)?;
    let wait = times.writes_ms as f64 / times.writes.max(1) as f64;
    Some(format!(
        "disk {name}: in use {:.0} % of the time, {:.0} writes/s of {wait:.1} ms",
        100.0 * busy,
        times.writes as f64 / pair.seconds()
    ))
}

/// Returns the disk's name, the share of the time in which it was in use, and its work.
fn utilisation<'a>(pair: &Pair<'a>) -> Option<(&'a str, f64, DiskTimes)> {
    let before = &pair.before.host.disks;
    let all = pair.after.host.disks.iter().filter_map(|(name, after)| {
        let was = before.get(name)?;
        let times = DiskTimes {
            busy_ms: after.busy_ms.saturating_sub(was.busy_ms),
            writes: after.writes.saturating_sub(was.writes),
            writes_ms: after.writes_ms.saturating_sub(was.writes_ms),
            reads: after.reads.saturating_sub(was.reads),
            reads_ms: after.reads_ms.saturating_sub(was.reads_ms),
        };
        Some((name.as_str(), times.busy_ms as f64 / 1e3 / pair.seconds(), times))
    });
    all.max_by(|one, other| one.1.total_cmp(&other.1))
}
