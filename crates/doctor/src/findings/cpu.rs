//! CPU: quotas, a thread at its limit, cores taken away.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Finding;
use crate::sample::{Cgroup, Pair, Process, Program, Server};

/// Share of the time in which a thread runs, or waits for a core, from which on it is at its limit.
const FULL: f64 = 0.9;
/// Share of the machine that is idle at the same time.
const IDLE: f64 = 0.25;
const PERIODS: &str = "cairn_cpu_periods_total";
/// Periods by which two immediate readings of the same cgroup may differ.
const SAME_PERIODS: f64 = 50.0;
const REMEDY: &str = "raise or remove the quota (CPUQuota= of systemd, cpu.max, cpu.cfs_quota_us, \
                      a CPU limit of Kubernetes or Docker)";
/// Threads of a mount that take the kernel's requests.
const READER: &str = "fuser-";

/// Processes that the quota of their cgroup stops.
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
        remedy: REMEDY.to_owned(),
    })
}

/// Servers that report such stops themselves, if no process of this machine is in that cgroup: on
/// another machine, or in a container.
pub fn throttled_elsewhere(pair: &Pair<'_>) -> Vec<Finding> {
    let of = |server: Server<'_>| {
        let all = server.is(PERIODS);
        let is_here = pair.after.processes.values().any(|process| {
            let cgroup = process.cgroup.as_ref();
            cgroup.is_some_and(|cgroup| (cgroup.periods as f64 - all).abs() <= SAME_PERIODS)
        });
        let periods = server.grew(PERIODS, &[]);
        let throttled = server.grew("cairn_cpu_throttled_periods_total", &[]);
        if is_here || periods <= 0.0 || throttled <= 0.0 {
            return None;
        }
        let stopped = server.grew("cairn_cpu_throttled_seconds_total", &[]);
        Some(Finding {
            kind: "cpu quota",
            cost_percent: (100.0 * throttled / periods).min(100.0),
            what: format!("the server at {} is stopped by its CPU quota", server.url),
            evidence: vec![
                format!("{throttled} of {periods} periods ended with it stopped"),
                format!("stopped for {stopped:.1} s, summed over cores"),
            ],
            remedy: REMEDY.to_owned(),
        })
    };
    pair.servers().filter_map(of).collect()
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

/// A thread at its limit while cores are idle.
pub fn one_thread(pair: &Pair<'_>) -> Vec<Finding> {
    let (idle, seconds) = (pair.idle(), pair.seconds());
    if idle < IDLE {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (pid, before, after) in pair.processes() {
        // A thread that a quota stops also waits, but not for a core.
        let full = threads(before, after, seconds).filter(|thread| {
            thread.busy() >= FULL && !thread.name.starts_with(READER) && !is_stopped(before, after)
        });
        found.extend(full.map(|thread| Finding {
            kind: "one thread",
            cost_percent: 100.0 * idle,
            what: format!("one thread of {} does all it can: {}", after.name, thread.name),
            evidence: vec![
                format!("process {pid}: {}", thread.shown()),
                format!("{:.0} % of this machine's cores did nothing", 100.0 * idle),
            ],
            remedy: remedy_of_thread(&thread.name).to_owned(),
        }));
    }
    found
}

/// Mounts that take the kernel's requests with fewer threads than there are cores, all of them at
/// their limit. Cores need not be idle for that: the requests of programs go through one thread
/// after another, which waits for a core among them.
pub fn few_readers(pair: &Pair<'_>) -> Vec<Finding> {
    let (cores, seconds) = (pair.after.host.cores as usize, pair.seconds());
    let of = |(pid, before, after): (u32, &Process, &Process)| {
        let readers = threads(before, after, seconds).filter(|it| it.name.starts_with(READER));
        let readers: Vec<Busy> = readers.collect();
        let is_full = readers.iter().all(|reader| reader.busy() >= FULL);
        if readers.is_empty() || readers.len() >= cores || !is_full || is_stopped(before, after) {
            return None;
        }
        let others = threads(before, after, seconds).filter(|it| !it.name.starts_with(READER));
        let others: f64 = others.map(|thread| thread.busy()).sum();
        let count = match readers.len() {
            1 => "one thread takes".to_owned(),
            more => format!("{more} threads take"),
        };
        let mut evidence: Vec<String> =
            readers.iter().map(|reader| format!("process {pid}: {}", reader.shown())).collect();
        evidence.push(format!("its other threads together {:.0} %", 100.0 * others));
        Some(Finding {
            kind: "one thread",
            // The work that as many threads as cores could do.
            cost_percent: 100.0 * (1.0 - readers.len() as f64 / cores as f64),
            what: format!("{count} all requests of the kernel for a mount, and can do no more"),
            evidence,
            remedy: "mount with more: --threads (one a core if it is left out)".to_owned(),
        })
    };
    pair.processes().filter_map(of).collect()
}

fn is_stopped(before: &Process, after: &Process) -> bool {
    let throttled = |process: &Process| process.cgroup.as_ref().map_or(0, |it| it.throttled);
    throttled(after) > throttled(before)
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

/// Work of a thread, as shares of the time.
struct Busy {
    name: String,
    running: f64,
    /// Share of the time in which it was ready to run, without a core.
    waiting: f64,
}

impl Busy {
    /// Returns the share of the time in which it had something to do.
    fn busy(&self) -> f64 {
        self.running + self.waiting
    }

    fn shown(&self) -> String {
        let Busy { name, running, waiting } = self;
        let (running, waiting) = (100.0 * running, 100.0 * waiting);
        format!("thread {name} ran {running:.0} % of the time and waited for a core {waiting:.0} %")
    }
}

fn threads<'a>(
    before: &'a Process,
    after: &'a Process,
    seconds: f64,
) -> impl Iterator<Item = Busy> + 'a {
    after.threads.iter().filter_map(move |(id, thread)| {
        let was = before.threads.get(id)?;
        let share = |is: Duration, was: Duration| is.saturating_sub(was).as_secs_f64() / seconds;
        Some(Busy {
            name: thread.name.clone(),
            running: share(thread.running, was.running),
            waiting: share(thread.waiting, was.waiting),
        })
    })
}

/// Returns the average number of the store's threads that were ready to run and had no core.
pub fn queued(pair: &Pair<'_>) -> f64 {
    let ours = pair.processes().filter(|(_, _, process)| process.program == Program::Cairn);
    let seconds = pair.seconds();
    let waiting = |(_, before, after)| -> f64 {
        threads(before, after, seconds).map(|thread| thread.waiting).sum()
    };
    ours.filter(|(_, before, after)| !is_stopped(before, after)).map(waiting).sum()
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
