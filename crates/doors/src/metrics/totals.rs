//! The totals of each door since the process started, for pages within this process.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use cairn_base::Stage;

use super::{BUCKETS_US, FAILED, Histogram, Metrics};

/// The totals of one door since the process started.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DoorTotals {
    pub door: &'static str,
    pub requests: u64,
    /// Number of requests that failed on the server's side (5xx, without 501).
    pub failed: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    /// Durations of requests, from the head to the end of the reply.
    pub times: Times,
    /// Times in the order of [`Stage::ALL`].
    pub stages: [Duration; Stage::ALL.len()],
}

/// The distribution of the durations of requests.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// Number of requests for each bound that took longer than the bound before and at most this
    /// one; then the number of those that took longer than all bounds.
    counts: [u64; BUCKETS_US.len() + 1],
    pub sum: Duration,
}

impl Times {
    fn add(&mut self, histogram: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(&histogram.buckets) {
            *count += more.load(Relaxed);
        }
        self.sum += Duration::from_nanos(histogram.sum_ns.load(Relaxed));
    }

    /// Returns the durations since `before`.
    pub fn since(&self, before: &Times) -> Times {
        let mut counts = self.counts;
        for (count, before) in counts.iter_mut().zip(&before.counts) {
            *count = count.saturating_sub(*before);
        }
        Times { counts, sum: self.sum.saturating_sub(before.sum) }
    }

    /// Returns the time within which a share of the requests (0 to 1) was done, estimated between
    /// two bounds; `None` without requests.
    pub fn within(&self, share: f64) -> Option<Duration> {
        let total: u64 = self.counts.iter().sum();
        if total == 0 {
            return None;
        }
        let wanted = (total as f64 * share).max(1.0);
        let (mut below, mut low) = (0.0, 0);
        for (count, bound) in self.counts.iter().zip(BUCKETS_US) {
            let count = *count as f64;
            if below + count >= wanted {
                let part = (wanted - below) / count;
                let us = low as f64 + (bound - low) as f64 * part;
                return Some(Duration::from_nanos((us * 1e3) as u64));
            }
            (below, low) = (below + count, bound);
        }
        Some(Duration::from_micros(low))
    }
}

impl Metrics {
    /// Returns the totals of each door so far, in the order in which the doors were opened. Costs
    /// requests only the wait for one lock.
    pub fn doors(&self) -> Vec<DoorTotals> {
        let verbs = self.verbs.lock().clone();
        let mut doors: Vec<DoorTotals> = Vec::new();
        for stats in verbs {
            let at = doors.iter().position(|known| known.door == stats.door);
            let at = at.unwrap_or_else(|| {
                // All verbs of a door share these stages.
                let spent =
                    |histogram: &Histogram| Duration::from_nanos(histogram.sum_ns.load(Relaxed));
                let stages = stats.stages.stages.each_ref().map(spent);
                doors.push(DoorTotals { door: stats.door, stages, ..DoorTotals::default() });
                doors.len() - 1
            });
            let Some(door) = doors.get_mut(at) else { continue };
            let replies = stats.replies.each_ref().map(|count| count.load(Relaxed));
            door.requests += replies.iter().sum::<u64>();
            door.failed += replies[FAILED];
            door.received_bytes += stats.bytes_in.load(Relaxed);
            door.sent_bytes += stats.bytes_out.load(Relaxed);
            door.times.add(&stats.latency);
        }
        doors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(millis: &[u64]) -> Times {
        let (histogram, mut times) = (Histogram::default(), Times::default());
        for millis in millis {
            histogram.add(Duration::from_millis(*millis));
        }
        times.add(&histogram);
        times
    }

    #[test]
    fn shares_of_requests_are_between_bounds() {
        assert_eq!(Times::default().within(0.5), None);
        let many = of(&[&[2; 98][..], &[400, 40_000]].concat());
        let half = many.within(0.5).unwrap();
        assert!(half > Duration::from_millis(1) && half <= Duration::from_micros(2500), "{half:?}");
        let most = many.within(0.985).unwrap();
        assert!(most > Duration::from_millis(250) && most <= Duration::from_millis(500));
        assert_eq!(many.within(1.0), Some(Duration::from_secs(30)), "the last bound");
    }

    #[test]
    fn what_was_before_does_not_count() {
        let (before, after) = (of(&[400; 10]), of(&[&[400; 10][..], &[2; 5]].concat()));
        let since = after.since(&before);
        assert_eq!(since.sum, Duration::from_millis(10));
        assert!(since.within(1.0).unwrap() < Duration::from_millis(3));
        assert_eq!(before.since(&after).within(0.5), None, "a process that was started again");
    }
}
