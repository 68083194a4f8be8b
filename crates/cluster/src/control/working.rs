//! Time for which this process has worked. A suspended machine or a stopped process received
//! nothing meanwhile; that does not mean that the others were silent.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::Clock;
use parking_lot::Mutex;

/// Counts at most `longest` between two readings. It is normally read twice a second.
pub struct WorkingTime {
    clock: Arc<dyn Clock>,
    longest: Duration,
    looks: Mutex<Looks>,
}

struct Looks {
    last: Duration,
    worked: Duration,
}

impl WorkingTime {
    pub fn new(clock: Arc<dyn Clock>, longest: Duration) -> WorkingTime {
        let looks = Mutex::new(Looks { last: clock.monotonic(), worked: Duration::ZERO });
        WorkingTime { clock, longest, looks }
    }

    /// Returns the time worked since this was made.
    pub fn now(&self) -> Duration {
        let mut looks = self.looks.lock();
        let now = self.clock.monotonic();
        let passed = now.saturating_sub(looks.last);
        looks.worked += passed.min(self.longest);
        looks.last = now.max(looks.last);
        looks.worked
    }
}

#[cfg(test)]
mod tests {
    use cairn_base::Timestamp;

    use super::*;

    #[derive(Default)]
    struct SetClock(Mutex<Duration>);

    impl Clock for SetClock {
        fn now(&self) -> Timestamp {
            Timestamp::default()
        }

        fn monotonic(&self) -> Duration {
            *self.0.lock()
        }
    }

    #[test]
    fn time_without_work_does_not_count() {
        let clock = Arc::new(SetClock::default());
        let time = WorkingTime::new(clock.clone(), Duration::from_secs(2));
        for (passed_ms, worked_ms) in [(500, 500), (1500, 2000), (3_600_000, 4000), (1, 4001)] {
            *clock.0.lock() += Duration::from_millis(passed_ms);
            assert_eq!(time.now(), Duration::from_millis(worked_ms));
        }
        *clock.0.lock() = Duration::ZERO;
        assert_eq!(time.now(), Duration::from_millis(4001));
    }
}
