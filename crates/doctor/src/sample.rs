//! Measurements of one moment, and the difference between two.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Metrics;

/// One look at servers and this machine.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Time since a moment that is the same for all samples.
    pub at: Duration,
    pub nodes: Vec<Node>,
    /// Processes by pid.
    pub processes: BTreeMap<u32, Process>,
    pub host: Host,
    pub cluster: Option<Cluster>,
}

/// A server, by its answers over the network.
#[derive(Clone, Debug)]
pub struct Node {
    pub url: String,
    /// Metrics, or the reason why there are none.
    pub metrics: Result<Metrics, String>,
    /// Seconds by which its clock is ahead of the local clock, to the second only.
    pub clock_ahead: Option<f64>,
}

/// Programs whose slowness slows the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Program {
    Cairn,
    Postgres,
    /// nginx, haproxy, pgbouncer.
    Proxy,
}

/// A process on this machine.
#[derive(Clone, Debug)]
pub struct Process {
    pub program: Program,
    /// Name of the process in the system's list.
    pub name: String,
    /// Threads by thread id.
    pub threads: BTreeMap<u32, Thread>,
    pub cgroup: Option<Cgroup>,
    pub limits: Limits,
}

/// Times of a thread since it began.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    pub name: String,
    pub running: Duration,
    /// Time in which it was ready to run, without a core.
    pub waiting: Duration,
}

/// The cgroup whose quota of CPU limits a process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cgroup {
    pub path: String,
    pub periods: u64,
    pub throttled: u64,
    pub throttled_time: Duration,
    pub quota_millicores: Option<u64>,
}

/// Resources of a process, and their limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    pub files: u64,
    pub files_limit: Option<u64>,
    /// Memory of its cgroup, without what the kernel can drop.
    pub memory_bytes: u64,
    pub memory_limit_bytes: Option<u64>,
}

/// Counters of this machine since it was started.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Host {
    pub cores: u64,
    /// Ticks of all cores: busy, idle, and taken away by the hypervisor.
    pub busy: u64,
    pub idle: u64,
    pub stolen: u64,
    /// Whole disks by name, without their partitions.
    pub disks: BTreeMap<String, DiskTimes>,
    pub segments_sent: u64,
    pub segments_resent: u64,
    /// Network devices by name, without the loopback.
    pub links: BTreeMap<String, NetworkDevice>,
}

/// Work of a disk; milliseconds of requests are summed over the requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskTimes {
    /// Milliseconds in which any request was in flight.
    pub busy_ms: u64,
    pub writes: u64,
    pub writes_ms: u64,
    pub reads: u64,
    pub reads_ms: u64,
}

/// A network device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NetworkDevice {
    /// Bytes sent and received.
    pub bytes: u64,
    /// Megabits per second, if the device reports it.
    pub speed: Option<u64>,
}

/// A cluster, as its master sees it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Cluster {
    pub stores: Vec<Store>,
    pub degraded_groups: u64,
    /// Replicas of a block, for the buckets with the most.
    pub replicas: u64,
    /// Copies of names and small objects; none if the master does not know the number.
    pub metadata_copies: Option<u64>,
    /// Sentences about masters that make no progress, each with a remedy.
    pub stalls: Vec<String>,
    /// Sentences about masters whose metadata are damaged, each with a remedy.
    pub damage: Vec<String>,
}

/// A chunkserver.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Store {
    pub node: String,
    pub up: bool,
    pub live_bytes: u64,
    pub free_bytes: u64,
    pub weight: u32,
    /// Error because of which its disk takes no writes.
    pub failure: Option<String>,
}

/// Two samples, and what happened between them.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    pub before: &'a Sample,
    pub after: &'a Sample,
}

impl<'a> Pair<'a> {
    pub fn seconds(&self) -> f64 {
        self.after.at.saturating_sub(self.before.at).as_secs_f64().max(1e-3)
    }

    /// Returns the servers that answered both times.
    pub fn servers(&self) -> impl Iterator<Item = Server<'a>> {
        let before = &self.before.nodes;
        self.after.nodes.iter().filter_map(|node| {
            let known = before.iter().find(|known| known.url == node.url)?;
            let (before, after) = (known.metrics.as_ref().ok()?, node.metrics.as_ref().ok()?);
            Some(Server { url: &node.url, before, after })
        })
    }

    /// Returns the processes that existed both times.
    pub fn processes(&self) -> impl Iterator<Item = (u32, &'a Process, &'a Process)> {
        let before = &self.before.processes;
        let known = self.after.processes.iter();
        known.filter_map(|(pid, after)| Some((*pid, before.get(pid)?, after)))
    }

    /// Returns the share of this machine's cores that was idle.
    pub fn idle(&self) -> f64 {
        let (before, after) = (&self.before.host, &self.after.host);
        let idle = after.idle.saturating_sub(before.idle) as f64;
        let busy = after.busy.saturating_sub(before.busy) as f64;
        if idle + busy > 0.0 { idle / (idle + busy) } else { 1.0 }
    }
}

/// Work of a server between two samples.
#[derive(Clone, Copy, Debug)]
pub struct Server<'a> {
    pub url: &'a str,
    before: &'a Metrics,
    after: &'a Metrics,
}

impl Server<'_> {
    /// Returns the growth of a counter.
    pub fn grew(&self, name: &str, labels: &[&str]) -> f64 {
        self.after.since(self.before, name, labels)
    }

    /// Returns the current value of a gauge.
    pub fn is(&self, name: &str) -> f64 {
        self.after.sum(name, &[])
    }

    /// Returns the current value of a gauge with these labels, such as `part="rows"`.
    pub fn is_of(&self, name: &str, labels: &[&str]) -> f64 {
        self.after.sum(name, labels)
    }

    /// Returns the current values of a label of a counter.
    pub fn labels(&self, name: &str, label: &str) -> Vec<String> {
        self.after.labels(name, label)
    }

    pub fn requests(&self) -> f64 {
        self.grew("cairn_requests_total", &[])
    }

    /// Returns the seconds of all requests together.
    pub fn request_seconds(&self) -> f64 {
        self.grew("cairn_request_seconds_sum", &[])
    }

    pub fn stage_seconds(&self, stage: &str) -> f64 {
        self.grew("cairn_stage_seconds_sum", &[&format!("stage=\"{stage}\"")])
    }

    /// Returns the share of the requests' time that was spent in any of these stages.
    pub fn share(&self, stages: &[&str]) -> f64 {
        let spent: f64 = stages.iter().map(|stage| self.stage_seconds(stage)).sum();
        let all = self.request_seconds();
        if all > 0.0 { (spent / all).min(1.0) } else { 0.0 }
    }
}
