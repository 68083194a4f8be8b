//! Work of the doors over the last minutes. A look is taken when a page wants one, and serves all
//! pages for a while.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::Stage;
use cairn_doors::metrics::{DoorTotals, Metrics};
use cairn_fs::{Fs, Usage as BlocksUsage};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Interval at which a page gets new numbers.
pub const PERIOD: Duration = Duration::from_secs(2);
/// Time for which a look is reused.
const FRESH: Duration = Duration::from_millis(1500);
/// Age at which a look says nothing about the current rate.
const STALE: Duration = Duration::from_secs(30);
/// Time that plots show.
pub const SHOWN: Duration = Duration::from_secs(300);
/// Looks that are kept, at most; more than those of the time that is shown.
const KEPT: usize = 180;
/// Interval at which the block store is asked for its usage.
const USAGE_PERIOD: Duration = Duration::from_secs(10);

/// Work of a door between two looks.
#[derive(Clone, PartialEq, Debug)]
pub struct Rates {
    pub door: &'static str,
    /// Requests per second.
    pub requests: f64,
    pub failed: f64,
    pub received_bytes: f64,
    pub sent_bytes: f64,
    /// Times within which half of the requests and 99 % were done.
    pub half: Option<Duration>,
    pub most: Option<Duration>,
    /// Time spent in all requests, and in each stage.
    pub time: Duration,
    pub stages: [Duration; Stage::ALL.len()],
}

/// Work of all doors between two looks.
#[derive(Clone, PartialEq, Debug)]
pub struct Moment {
    /// End of the span, since the sampler began.
    pub at: Duration,
    /// Length of the span.
    pub over: Duration,
    /// Set if nothing is known of the time before it.
    pub is_first: bool,
    pub doors: Vec<Rates>,
}

pub struct Sampler {
    metrics: Arc<Metrics>,
    began: Instant,
    series: Mutex<Series>,
    usage: Mutex<Option<(Duration, Result<BlocksUsage, String>)>>,
}

#[derive(Default)]
struct Series {
    last: Option<(Duration, Vec<DoorTotals>)>,
    moments: VecDeque<Moment>,
}

impl Sampler {
    pub fn new(metrics: Arc<Metrics>) -> Sampler {
        let (series, usage) = (Mutex::default(), Mutex::default());
        Sampler { metrics, began: Instant::now(), series, usage }
    }

    /// Takes a look, unless the last one is fresh. Returns the moments of the shown time, the
    /// oldest first, and the current work of the doors: that since the process began if no look is
    /// recent enough.
    pub fn look(&self) -> (Vec<Moment>, Moment) {
        let now = self.began.elapsed();
        let mut series = self.series.lock();
        let age = series.last.as_ref().map(|(at, _)| now.saturating_sub(*at));
        if age.is_none_or(|age| age >= FRESH) {
            series.add(now, self.metrics.doors());
        }
        let shown: Vec<Moment> = series
            .moments
            .iter()
            .filter(|one| now.saturating_sub(one.at) <= SHOWN)
            .cloned()
            .collect();
        let current = match shown.last().filter(|last| now.saturating_sub(last.at) <= STALE) {
            Some(last) => last.clone(),
            None => {
                let (age, none) = (self.metrics.observer().age(), Vec::new());
                let totals = series.last.as_ref().map(|(_, totals)| &totals[..]);
                between(now, age, &none, totals.unwrap_or_default())
            }
        };
        (shown, current)
    }

    /// Returns the usage of the block store, at most some seconds old.
    ///
    /// # Errors
    /// The error of the block store, in words.
    pub async fn usage(&self, fs: &Fs) -> Result<BlocksUsage, String> {
        let now = self.began.elapsed();
        if let Some((at, usage)) = &*self.usage.lock()
            && now.saturating_sub(*at) < USAGE_PERIOD
        {
            return usage.clone();
        }
        let usage = fs.blocks().usage().await.map_err(|error| error.to_string());
        *self.usage.lock() = Some((now, usage.clone()));
        usage
    }
}

impl Series {
    fn add(&mut self, now: Duration, totals: Vec<DoorTotals>) {
        if let Some((at, before)) = &self.last
            && now.saturating_sub(*at) <= STALE
        {
            let over = now.saturating_sub(*at);
            let mut moment = between(now, over, before, &totals);
            moment.is_first = self.moments.back().is_none_or(|last| last.at != *at);
            self.moments.push_back(moment);
            if self.moments.len() > KEPT {
                self.moments.pop_front();
            }
        }
        self.last = Some((now, totals));
    }
}

/// Returns the work from `before` to `after`, a span of length `over` that ends `at`.
fn between(at: Duration, over: Duration, before: &[DoorTotals], after: &[DoorTotals]) -> Moment {
    let secs = over.as_secs_f64().max(1e-3);
    let none = DoorTotals::default();
    let doors = after.iter().map(|after| {
        let before = before.iter().find(|before| before.door == after.door).unwrap_or(&none);
        let rate = |after: u64, before: u64| after.saturating_sub(before) as f64 / secs;
        let times = after.times.since(&before.times);
        let mut stages = after.stages;
        for (stage, before) in stages.iter_mut().zip(&before.stages) {
            *stage = stage.saturating_sub(*before);
        }
        Rates {
            door: after.door,
            requests: rate(after.requests, before.requests),
            failed: rate(after.failed, before.failed),
            received_bytes: rate(after.received_bytes, before.received_bytes),
            sent_bytes: rate(after.sent_bytes, before.sent_bytes),
            half: times.within(0.5),
            most: times.within(0.99),
            time: times.sum,
            stages,
        }
    });
    Moment { at, over, is_first: true, doors: doors.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(requests: u64) -> Vec<DoorTotals> {
        vec![DoorTotals { door: "s3", requests, sent_bytes: 10 * requests, ..Default::default() }]
    }

    #[test]
    fn a_time_without_looks_is_a_gap() {
        let mut series = Series::default();
        for (at, requests) in [(0, 100), (2, 120), (4, 120), (500, 9000), (502, 9001)] {
            series.add(Duration::from_secs(at), totals(requests));
        }
        let seen: Vec<(u64, f64, bool)> = series
            .moments
            .iter()
            .map(|one| (one.at.as_secs(), one.doors[0].requests, one.is_first))
            .collect();
        assert_eq!(seen, [(2, 10.0, true), (4, 0.0, false), (502, 0.5, true)]);
        assert_eq!(series.moments[0].doors[0].sent_bytes, 100.0);
    }

    #[test]
    fn the_past_is_bounded() {
        let mut series = Series::default();
        for at in 0..1000 {
            series.add(Duration::from_secs(at), totals(at));
        }
        assert_eq!(series.moments.len(), KEPT);
    }
}
