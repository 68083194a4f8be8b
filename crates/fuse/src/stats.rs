//! Work of a mount, and where the time went.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cairn_base::inflight::{About, Request};
use cairn_base::rng::RealRng;
use cairn_base::trace::Traces;
use cairn_base::{Rng, Scope, Stage, Stages};
use cairn_posix::Work;

use crate::kernel_request::KernelRequest;
use crate::paths::Paths;

/// Requests of the kernel, by operation.
pub const OPERATIONS: [&str; 28] = [
    "lookup",
    "getattr",
    "setattr",
    "readlink",
    "mknod",
    "mkdir",
    "unlink",
    "rmdir",
    "symlink",
    "rename",
    "link",
    "open",
    "read",
    "write",
    "flush",
    "release",
    "fsync",
    "opendir",
    "readdir",
    "statfs",
    "setxattr",
    "getxattr",
    "listxattr",
    "removexattr",
    "create",
    "copy",
    LOCK,
    "other",
];

/// Latencies are counted below 2^0, 2^1, ... microseconds.
const BUCKETS: usize = 26;
/// Time after which a request is logged with its stages.
const SLOW: Duration = Duration::from_secs(1);
/// The operation that waits until a lock is free, however long that takes.
const LOCK: &str = "lock";

#[derive(Default)]
struct One {
    count: AtomicU64,
    total_us: AtomicU64,
    latency: [AtomicU64; BUCKETS],
    stages_ns: [AtomicU64; Stage::ALL.len()],
}

/// Counters since the mount began.
pub struct Stats {
    traces: Traces,
    operations: [One; OPERATIONS.len()],
}

/// Measures one request, until it is dropped.
pub struct Timer {
    stats: Arc<Stats>,
    operation: usize,
    stages: Stages,
}

impl Timer {
    pub fn start(stats: &Arc<Stats>, operation: &str) -> Timer {
        let found = OPERATIONS.iter().position(|known| *known == operation);
        let operation = found.unwrap_or(OPERATIONS.len() - 1);
        let stages = Stages::start(stats.traces.next(None));
        Timer { stats: Arc::clone(stats), operation, stages }
    }

    /// Describes the request for the table of requests in flight.
    pub fn in_flight(&self, paths: &Arc<Paths>, name: Option<&OsStr>) -> Request {
        let (operation, paths) = (OPERATIONS[self.operation], Arc::clone(paths));
        let KernelRequest { process, uid, ino } = KernelRequest::taken();
        let name: Option<Box<[u8]>> = name.map(|name| name.as_bytes().into());
        let about = move || About {
            door: "fuse",
            operation: operation.into(),
            object: paths.path(ino, name.as_deref()),
            client: format!("uid {uid}"),
            process: (process != 0).then_some(process),
            is_patient: operation == LOCK,
            ..About::default()
        };
        Request::new(Some(self.stages.trace), about)
    }

    /// Runs the rest of the request.
    pub async fn during<T>(mut self, request: Request, work: Work<T>, reply: impl FnOnce(T)) {
        let mut scope = Scope::of(self.stages, request, work);
        let answer = (&mut scope).await;
        self.stages = scope.stages.unwrap_or(self.stages);
        reply(answer);
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.stages.settle();
        self.stats.count(self.operation, &self.stages);
    }
}

impl Default for Stats {
    fn default() -> Stats {
        let start = [RealRng.next_u64(), RealRng.next_u64()];
        Stats { traces: Traces::new(start, 0.0), operations: Default::default() }
    }
}

impl Stats {
    fn count(&self, operation: usize, stages: &Stages) {
        let Some(one) = self.operations.get(operation) else { return };
        let took = stages.total();
        if took >= SLOW && OPERATIONS[operation] != LOCK {
            tracing::warn!(
                trace = %stages.trace,
                operation = OPERATIONS[operation],
                elapsed_us = took.as_micros() as u64,
                stages_ms = %stages,
                "slow request"
            );
        }
        for (stage, sum) in Stage::ALL.into_iter().zip(&one.stages_ns) {
            let spent = stages.spent(stage);
            if !spent.is_zero() {
                sum.fetch_add(spent.as_nanos() as u64, Ordering::Relaxed);
            }
        }
        let micros = took.as_micros() as u64;
        let bucket = (u64::BITS - micros.leading_zeros()) as usize;
        one.count.fetch_add(1, Ordering::Relaxed);
        one.total_us.fetch_add(micros, Ordering::Relaxed);
        one.latency[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counters as text, a line for each operation that occurred: at its end the stages
    /// that it was in, each with its mean.
    pub fn show(&self) -> String {
        let mut text = String::from("operation count mean_us p50_us p99_us stages_us\n");
        for (name, one) in OPERATIONS.iter().zip(&self.operations) {
            let count = one.count.load(Ordering::Relaxed);
            if count == 0 {
                continue;
            }
            let mean = one.total_us.load(Ordering::Relaxed) / count;
            let (p50, p99) = (one.percentile(50), one.percentile(99));
            let _ = write!(text, "{name} {count} {mean} {p50} {p99}");
            for (stage, sum) in Stage::ALL.into_iter().zip(&one.stages_ns) {
                let mean = sum.load(Ordering::Relaxed) as f64 / count as f64 / 1e3;
                if mean >= 0.05 {
                    let _ = write!(text, " {} {mean:.1}", stage.name());
                }
            }
            text.push('\n');
        }
        text
    }
}

impl One {
    /// Returns the upper end of the bucket that the percentile lies in.
    fn percentile(&self, percent: u64) -> u64 {
        let counts: Vec<u64> =
            self.latency.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let wanted = (counts.iter().sum::<u64>() * percent).div_ceil(100);
        let mut seen = 0;
        for (bucket, count) in counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return 1 << bucket;
            }
        }
        0
    }
}
