//! Observers of requests that have ended: the log, and collectors of traces.

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use cairn_base::trace::{Trace, Traces};
use cairn_base::{Allowance, Party, Rng, Stages};
use http::HeaderMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::timing;

/// Duration from which on a request is slow, by default.
pub const SLOW: Duration = Duration::from_secs(1);

/// Number of requests per second that are exported because their clients mark them as sampled. One
/// address has a quarter of them: the collector is shared.
const CLAIMED: u32 = 1000;
const SECOND: Duration = Duration::from_secs(1);
/// Number of slow or failed requests that are remembered.
const REMEMBERED: usize = 50;

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedRequest {
    pub door: &'static str,
    pub verb: &'static str,
    pub status: u16,
    pub stages: Stages,
}

/// Receives sampled requests. Must not block.
pub type Export = Box<dyn Fn(EndedRequest) + Send + Sync>;

/// Begins traces, and observes the requests that have ended.
pub struct Observer {
    traces: Traces,
    slow: Duration,
    export: Option<Export>,
    claimed: Allowance,
    since: Instant,
    /// The last slow or failed requests, and when each ended.
    recent: Mutex<VecDeque<(Duration, EndedRequest)>>,
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("slow", &self.slow).finish_non_exhaustive()
    }
}

impl Observer {
    /// Returns an observer that logs slow and failed requests.
    pub fn new(rng: &dyn Rng, slow: Duration) -> Observer {
        let traces = Traces::new([rng.next_u64(), rng.next_u64()], 0.0);
        Observer::with(traces, slow, None)
    }

    /// Also exports requests that their clients mark as sampled, if these are not too many, and a
    /// fraction `ratio` of the others.
    pub fn exporting(rng: &dyn Rng, slow: Duration, ratio: f64, export: Export) -> Observer {
        let traces = Traces::new([rng.next_u64(), rng.next_u64()], ratio);
        Observer::with(traces, slow, Some(export))
    }

    fn with(traces: Traces, slow: Duration, export: Option<Export>) -> Observer {
        let claimed = Allowance::new(SECOND, CLAIMED);
        let recent = Mutex::new(VecDeque::with_capacity(REMEMBERED));
        Observer { traces, slow, export, claimed, since: Instant::now(), recent }
    }

    /// Returns the duration from which on a request is slow.
    pub fn slow(&self) -> Duration {
        self.slow
    }

    /// Returns the time since which it has observed.
    pub fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Returns the last slow or failed requests, the latest first, and the time since each ended.
    pub fn recent(&self) -> Vec<(Duration, EndedRequest)> {
        let now = self.age();
        let recent = self.recent.lock();
        recent.iter().rev().map(|(at, ended)| (now.saturating_sub(*at), *ended)).collect()
    }

    fn remember(&self, ended: EndedRequest) {
        let now = self.age();
        let mut recent = self.recent.lock();
        if recent.len() == REMEMBERED {
            recent.pop_front();
        }
        recent.push_back((now, ended));
    }

    /// Begins the stages of a request from an address.
    pub fn begin(&self, headers: &HeaderMap, from: IpAddr) -> Stages {
        self.begin_at(headers, from, self.since.elapsed())
    }

    fn begin_at(&self, headers: &HeaderMap, from: IpAddr, now: Duration) -> Stages {
        let mut trace = self.traces.next(timing::traceparent(headers));
        let is_claimed = trace.sampled && trace.parent != 0 && self.export.is_some();
        if is_claimed && !self.claimed.take(Party::at(from), now) {
            trace.sampled = false;
        }
        self.start(trace)
    }

    /// Begins the stages of a request whose client knows no traces.
    pub fn begin_alone(&self) -> Stages {
        self.start(self.traces.next(None))
    }

    fn start(&self, trace: Trace) -> Stages {
        // Without a receiver, a trace is not sampled.
        let sampled = trace.sampled && self.export.is_some();
        Stages::start(Trace { sampled, ..trace })
    }

    /// Returns whether [`Observer::end`] must be called; most requests are fast, successful and not
    /// sampled.
    pub(crate) fn looks_at(&self, status: u16, stages: &Stages) -> bool {
        stages.trace.sampled || self.is_logged(status, stages)
    }

    fn is_logged(&self, status: u16, stages: &Stages) -> bool {
        stages.total() >= self.slow || has_failed(status)
    }

    pub(crate) fn end(&self, ended: &EndedRequest) {
        let (stages, total) = (&ended.stages, ended.stages.total());
        if self.is_logged(ended.status, stages) {
            self.remember(*ended);
            let what = if has_failed(ended.status) { "request failed" } else { "slow request" };
            tracing::warn!(
                trace = %stages.trace,
                door = ended.door,
                verb = ended.verb,
                status = ended.status,
                elapsed_us = total.as_micros() as u64,
                stages_ms = %stages,
                "{what}"
            );
        }
        if stages.trace.sampled
            && let Some(export) = &self.export
        {
            export(*ended);
        }
    }
}

/// Returns whether the server failed. A missing feature (501) is no failure: clients that probe for
/// it would fill the log.
fn has_failed(status: u16) -> bool {
    status >= 500 && status != 501
}

#[cfg(test)]
mod tests {
    use cairn_base::rng::SeededRng;

    use super::*;

    #[test]
    fn the_last_that_failed_are_remembered() {
        let observer = Observer::new(&SeededRng::new(1), SLOW);
        for status in [200, 500, 501, 503].into_iter().chain([502; REMEMBERED]) {
            let stages = observer.begin_alone();
            observer.end(&EndedRequest { door: "s3", verb: "GetObject", status, stages });
        }
        let known: Vec<u16> = observer.recent().iter().map(|(_, ended)| ended.status).collect();
        assert_eq!(known, [502; REMEMBERED], "the latest, and no more");
    }

    #[test]
    fn clients_choose_some_requests_a_second_to_be_exported() {
        let rng = SeededRng::new(1);
        let observer = Observer::exporting(&rng, SLOW, 0.0, Box::new(|_| ()));
        let mut headers = HeaderMap::new();
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        headers.insert("traceparent", parent.parse().unwrap());
        let sampled = |last: u8, now| {
            let from = IpAddr::from([10, 0, 0, last]);
            let begun = (0..1000).map(|_| observer.begin_at(&headers, from, now).trace);
            begun.filter(|trace| trace.sampled && trace.parent != 0).count()
        };
        assert_eq!([1, 1, 2].map(|last| sampled(last, SECOND)), [250, 0, 250]);
        assert_eq!(sampled(1, 2 * SECOND), 250);
        let of_nobody = observer.begin(&HeaderMap::new(), IpAddr::from([10, 0, 0, 1]));
        assert!(!of_nobody.trace.sampled);
    }
}
