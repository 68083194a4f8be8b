//! The seam to time. Wall time is for users to see; durations are measured monotonically.

#![expect(clippy::disallowed_methods, reason = "this is the clock")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Wall time, nanoseconds since 1970-01-01T00:00:00Z; negative before.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize,
)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub fn from_secs(secs: i64) -> Timestamp {
        Timestamp(secs.saturating_mul(1_000_000_000))
    }

    /// Returns whole seconds, rounded down.
    pub fn secs(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }

    /// Returns the nanoseconds within the second, 0 to 999,999,999.
    pub fn subsec_nanos(self) -> u32 {
        self.0.rem_euclid(1_000_000_000) as u32
    }

    pub fn to_system_time(self) -> SystemTime {
        let magnitude = Duration::from_nanos(self.0.unsigned_abs());
        if self.0 >= 0 { UNIX_EPOCH + magnitude } else { UNIX_EPOCH - magnitude }
    }

    pub fn from_system_time(time: SystemTime) -> Timestamp {
        let clamp = |d: Duration| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Timestamp(clamp(after)),
            Err(before) => Timestamp(-clamp(before.duration())),
        }
    }
}

/// A source of time.
pub trait Clock: Send + Sync + 'static {
    /// Returns wall time. It may jump.
    fn now(&self) -> Timestamp;
    /// Returns the time since an arbitrary start. It never goes back, and runs while the machine is
    /// suspended, which leases need.
    fn monotonic(&self) -> Duration;
}

/// The clock of the operating system.
#[derive(Debug)]
pub struct RealClock {
    start: Duration,
}

impl Default for RealClock {
    fn default() -> Self {
        RealClock { start: since_boot() }
    }
}

impl Clock for RealClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_system_time(SystemTime::now())
    }

    fn monotonic(&self) -> Duration {
        since_boot().saturating_sub(self.start)
    }
}

/// Returns the time since boot: `Instant` stops while the machine is suspended (`CLOCK_MONOTONIC`).
fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let secs = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(secs, u32::try_from(time.tv_nsec).unwrap_or_default())
}
