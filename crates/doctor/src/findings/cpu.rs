//! CPU: quotas, a thread that cannot do more, cores taken away.

use std::collections::BTreeMap;

use crate::Finding;
use crate::sample::{Cgroup, Pair, Process, Program};

/// A thread that runs for more than this share of the time can do no more.
const FULL: f64 = 0.9;
/// While so much of the machine does nothing.
const IDLE: f64 = 0.25;

/// Processes that their cgroup's quota stops.
pub fn throttled(pair: &Pair<'_>) -> Vec<Finding> {
    let mut groups: BTreeMap<&str, (&Cgroup, &Cgroup, Vec<String>, Program)> = BTreeMap::new();
    for (pid, before, after) in pair.processes() {
        let (Some(was), Some(is)) = (&before.cgroup, &after.cgroup) else { continue };
        if was.path != is.path {
            continue;
        }
        let found = groups.entry(&is.path).or_insert((was, is, Vec::new(), after.program));
        found.2.push(format!("{} ({pid})", after.name));
    }
    groups.into_values().filter_map(|(was, is, who, program)| of(was, is, &who, program)).collect()
}

fn of(was: &Cgroup, is: &Cgroup, who: &[String], program: Program) -> Option<Finding> {
    let periods = is.periods.checked_sub(was.periods)?;
    let throttled = is.throttled.checked_sub(was.throttled)?;
    if throttled == 0 || periods == 0 {
        return None;
    }
    let stopped = is.throttled_time.saturating_sub(was.throttled_time);
    let (kind, whose) = match program {
        Program::Cairn => ("cpu quota", "Cairn"),
        Program::Postgres => ("cpu quota of postgresql", "PostgreSQL"),
        Program::Proxy => ("cpu quota of a proxy", "a proxy"),
    };
    let quota = is.quota_millicores.map(|quota| format!(" of {:.2} cores", quota as f64 / 1e3));
    Some(Finding {
        kind,
        cost_percent: 100.0 * throttled as f64 / periods as f64,
        what: format!("{whose} is stopped by its CPU quota{}", quota.unwrap_or_default()),
        evidence: vec![
            format!("{throttled} of {periods} periods ended with it stopped, in {}", is.path),
            format!("stopped for {:.1} s, summed over cores", stopped.as_secs_f64()),
            shortened(who),
        ],
        remedy:
            "raise or remove the quota (CPUQuota= of systemd, cpu.max, cpu.cfs_quota_us, a CPU \
                 limit of Kubernetes or Docker)"
                .to_owned(),
    })
}

fn shortened(who: &[String]) -> String {
    const SHOWN: usize = 4;
    let more = who.len().saturating_sub(SHOWN);
    let shown = who.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if more > 0 {
        format!("processes: {shown} and {more} more")
    } else {
        format!("processes: {shown}")
    }
}

/// One thread at its end while cores do nothing.
pub fn one_thread(pair: &Pair<'_>) -> Vec<Finding> {
    let (idle, seconds) = (pair.idle(), pair.seconds());
    if idle < IDLE {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (pid, before, after) in pair.processes() {
        for (name, share) in shares(before, after, seconds) {
            if share >= FULL {
                found.push(Finding {
                    kind: "one thread",
                    cost_percent: 100.0 * idle,
                    what: format!("one thread of {} does all it can: {name}", after.name),
                    evidence: vec![format!(
                        "thread {name} of process {pid} ran {:.0} % of the time, while {:.0} % of \
                         this machine's cores did nothing",
                        100.0 * share,
                        100.0 * idle
                    )],
                    remedy: remedy_of_thread(&name).to_owned(),
                });
            }
        }
    }
    found
}

fn remedy_of_thread(name: &str) -> &'static str {
    match name {
        "meta-execute" | "meta-commit" => {
            "metadata go through one master: fewer, larger objects or requests; buckets in several \
             clusters"
        }
        _ => "spread the work over more connections or processes",
    }
}

/// Threads with the share of the time that they ran.
fn shares<'a>(
    before: &'a Process,
    after: &'a Process,
    seconds: f64,
) -> impl Iterator<Item = (String, f64)> + 'a {
    after.threads.iter().filter_map(move |(id, thread)| {
        let was = before.threads.get(id)?.running;
        Some((thread.name.clone(), thread.running.saturating_sub(was).as_secs_f64() / seconds))
    })
}

/// Cores that the hypervisor gave to others.
pub fn stolen(pair: &Pair<'_>) -> Vec<Finding> {
    let (before, after) = (&pair.before.host, &pair.after.host);
    let all = (after.busy + after.idle).saturating_sub(before.busy + before.idle) as f64;
    let stolen = after.stolen.saturating_sub(before.stolen) as f64;
    if all == 0.0 || stolen / all < 0.05 {
        return Vec::new();
    }
    vec![Finding {
        kind: "stolen cpu",
        cost_percent: 100.0 * stolen / all,
        what: "the hypervisor gives this machine's cores to others".to_owned(),
        evidence: vec![format!("{:.0} % of all ticks are steal", 100.0 * stolen / all)],
        remedy: "another host, or a machine with cores of its own".to_owned(),
    }]
}
