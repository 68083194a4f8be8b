//! What a mount has done.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

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
    "lock",
    "other",
];

/// Latencies are counted below 2^0, 2^1, ... microseconds.
const BUCKETS: usize = 26;

#[derive(Default)]
struct One {
    count: AtomicU64,
    total_us: AtomicU64,
    latency: [AtomicU64; BUCKETS],
}

/// Counters since the mount began.
#[derive(Default)]
pub struct Stats {
    operations: [One; OPERATIONS.len()],
    pub bytes_read: AtomicU64,
    pub bytes_written: AtomicU64,
    pub bytes_written_back: AtomicU64,
}

/// Measures one request, until it is dropped.
pub struct Timer {
    stats: std::sync::Arc<Stats>,
    operation: usize,
    started: Instant,
}

impl Timer {
    pub fn start(stats: &std::sync::Arc<Stats>, operation: &str) -> Timer {
        let found = OPERATIONS.iter().position(|known| *known == operation);
        let operation = found.unwrap_or(OPERATIONS.len() - 1);
        Timer { stats: std::sync::Arc::clone(stats), operation, started: Instant::now() }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.stats.count(self.operation, self.started.elapsed());
    }
}

impl Stats {
    fn count(&self, operation: usize, took: Duration) {
        let Some(one) = self.operations.get(operation) else { return };
        let micros = took.as_micros() as u64;
        let bucket = (u64::BITS - micros.leading_zeros()) as usize;
        one.count.fetch_add(1, Ordering::Relaxed);
        one.total_us.fetch_add(micros, Ordering::Relaxed);
        one.latency[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    /// As text, a line for each operation that there was.
    pub fn show(&self) -> String {
        let mut text = String::from("operation count mean_us p50_us p99_us\n");
        for (name, one) in OPERATIONS.iter().zip(&self.operations) {
            let count = one.count.load(Ordering::Relaxed);
            if count == 0 {
                continue;
            }
            let mean = one.total_us.load(Ordering::Relaxed) / count;
            let (p50, p99) = (one.percentile(50), one.percentile(99));
            let _ = writeln!(text, "{name} {count} {mean} {p50} {p99}");
        }
        for (name, bytes) in [
            ("bytes_read", &self.bytes_read),
            ("bytes_written", &self.bytes_written),
            ("bytes_written_back", &self.bytes_written_back),
        ] {
            let _ = writeln!(text, "{name} {}", bytes.load(Ordering::Relaxed));
        }
        text
    }
}

impl One {
    /// The upper end of the bucket that the percentile lies in.
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
