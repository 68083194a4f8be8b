//! Counters of checkpoints, for metrics and measurements.

use std::time::Duration;

/// Checkpoints since the engine was opened. An engine without a table at rest has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Checkpoints {
    /// Number of checkpoints that ended well.
    pub count: u64,
    /// Time of all of them, microseconds.
    pub took_us: u64,
    /// Time of the longest one, microseconds.
    pub longest_us: u64,
    /// Bytes that they wrote to the table.
    pub bytes: u64,
}

impl Checkpoints {
    pub(super) fn add(&mut self, took: Duration, bytes: u64) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.count += 1;
        self.took_us += took_us;
        self.longest_us = self.longest_us.max(took_us);
        self.bytes += bytes;
    }
}
