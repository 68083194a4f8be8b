//! The wall clock as operations see it. It does not go back with each small correction, but it
//! follows a clock that was set right after it had been ahead.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use cairn_base::{Clock, Timestamp};

/// Largest setback that counts as a correction of the clock. Operations' time stands still until
/// the clock catches up.
const CORRECTION: Duration = Duration::from_secs(1);
/// Time after which a clock that is behind counts as right: it had been ahead before.
const FOLLOWS_AFTER: Duration = Duration::from_secs(30);

/// Gives the times of operations.
pub struct OperationClock {
    clock: Arc<dyn Clock>,
    /// Latest time that was given, nanoseconds of wall time.
    last: AtomicI64,
    /// Time since which the clock has been behind `last` by more than a correction, nanoseconds of
    /// monotonic time; 0 if it is not.
    behind_since: AtomicU64,
}

impl OperationClock {
    pub fn new(clock: Arc<dyn Clock>) -> OperationClock {
        OperationClock { clock, last: AtomicI64::new(i64::MIN), behind_since: AtomicU64::new(0) }
    }

    /// Returns the wall time, or the last time that was given if that is later. A clock that was
    /// set back is followed after half a minute.
    pub fn now(&self) -> Timestamp {
        let wall = self.clock.now().0;
        let last = self.last.fetch_max(wall, Ordering::Relaxed).max(wall);
        let behind = u64::try_from(last.saturating_sub(wall)).unwrap_or(0);
        if behind <= CORRECTION.as_nanos() as u64 {
            if behind == 0 {
                self.behind_since.store(0, Ordering::Relaxed);
            }
            return Timestamp(last);
        }
        if !self.was_set_back() {
            return Timestamp(last);
        }
        tracing::warn!(seconds = behind / 1_000_000_000, "the clock was set back: it is followed");
        self.behind_since.store(0, Ordering::Relaxed);
        self.last.store(wall, Ordering::Relaxed);
        Timestamp(wall)
    }

    /// Returns the time of one operation. It is later than that of each operation before, so two
    /// operations within one tick of the clock have different times. Call [`OperationClock::now`]
    /// first.
    pub fn tick(&self) -> Timestamp {
        Timestamp(self.last.fetch_add(1, Ordering::Relaxed).saturating_add(1))
    }

    /// Returns whether the clock has been behind for long. Notes that it is behind.
    fn was_set_back(&self) -> bool {
        let now = u64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(u64::MAX).max(1);
        match self.behind_since.load(Ordering::Relaxed) {
            0 => {
                self.behind_since.store(now, Ordering::Relaxed);
                false
            }
            since => now.saturating_sub(since) >= FOLLOWS_AFTER.as_nanos() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// Wall time in seconds, and monotonic time in seconds.
    struct SetClock(Mutex<(i64, u64)>);

    impl Clock for SetClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_secs(self.0.lock().0)
        }

        fn monotonic(&self) -> Duration {
            Duration::from_secs(self.0.lock().1)
        }
    }

    #[test]
    fn a_clock_that_was_ahead_is_followed_within_a_minute() {
        let set = Arc::new(SetClock(Mutex::new((1_000, 10))));
        let clock = OperationClock::new(Arc::clone(&set) as Arc<dyn Clock>);
        let at = |wall, monotonic| {
            *set.0.lock() = (wall, monotonic);
            clock.now().secs()
        };
        assert_eq!(at(1_000, 10), 1_000);
        assert_eq!(at(8_200, 11), 8_200, "two hours ahead");
        assert_eq!(at(1_002, 12), 8_200, "set right: not at once");
        assert_eq!(at(1_031, 41), 8_200);
        assert_eq!(at(1_033, 43), 1_033, "it is followed");
        assert!(clock.tick() > Timestamp::from_secs(1_033));
        assert_eq!(at(1_034, 44), 1_034);
    }

    #[test]
    fn a_small_correction_makes_no_time_go_back() {
        let set = Arc::new(SetClock(Mutex::new((1_000, 10))));
        let clock = OperationClock::new(Arc::clone(&set) as Arc<dyn Clock>);
        let mut last = clock.now();
        for second in 0..100 {
            *set.0.lock() = (1_000 + second - 1, 10 + second as u64);
            let now = clock.now();
            assert!(now >= last);
            assert!(clock.tick() > now);
            last = now;
        }
    }
}
