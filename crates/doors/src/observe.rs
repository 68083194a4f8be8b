//! Observers of requests that have ended: the log, and collectors of traces.

use std::fmt;
use std::time::Duration;

use cairn_base::trace::{Trace, Traces};
use cairn_base::{Rng, Stages};
use http::HeaderMap;

use crate::timing;

/// From when on a request is slow, if nothing else is said.
pub const SLOW: Duration = Duration::from_secs(1);

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub door: &'static str,
    pub verb: &'static str,
    pub status: u16,
    pub stages: Stages,
}

/// Takes requests that are sampled. Must not wait.
pub type Export = Box<dyn Fn(Ended) + Send + Sync>;

/// Begins traces, and looks at what became of them.
pub struct Observer {
    traces: Traces,
    slow: Duration,
    export: Option<Export>,
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("slow", &self.slow).finish_non_exhaustive()
    }
}

impl Observer {
    /// Logs what is slow or fails.
    pub fn new(rng: &dyn Rng, slow: Duration) -> Observer {
        let traces = Traces::new([rng.next_u64(), rng.next_u64()], 0.0);
        Observer { traces, slow, export: None }
    }

    /// Also gives away those whose client says that they are sampled, and `ratio` of the others.
    pub fn exporting(rng: &dyn Rng, slow: Duration, ratio: f64, export: Export) -> Observer {
        let traces = Traces::new([rng.next_u64(), rng.next_u64()], ratio);
        Observer { traces, slow, export: Some(export) }
    }

    /// The stages of a request that begins.
    pub fn begin(&self, headers: &HeaderMap) -> Stages {
        self.start(self.traces.next(timing::traceparent(headers)))
    }

    /// Of one whose client knows no traces.
    pub fn begin_alone(&self) -> Stages {
        self.start(self.traces.next(None))
    }

    fn start(&self, trace: Trace) -> Stages {
        // A trace that nobody takes is not sampled.
        let sampled = trace.sampled && self.export.is_some();
        Stages::start(Trace { sampled, ..trace })
    }

    /// Whether [`Observer::end`] is to be told; most are fast, fine and not sampled.
    pub(crate) fn looks_at(&self, status: u16, stages: &Stages) -> bool {
        stages.trace.sampled || self.is_logged(status, stages)
    }

    fn is_logged(&self, status: u16, stages: &Stages) -> bool {
        stages.total() >= self.slow || has_failed(status)
    }

    pub(crate) fn end(&self, ended: &Ended) {
        let (stages, total) = (&ended.stages, ended.stages.total());
        if self.is_logged(ended.status, stages) {
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

/// Whether something went wrong here. That a feature is not there (501) is no failure: clients that
/// probe for it would fill the log.
fn has_failed(status: u16) -> bool {
    status >= 500 && status != 501
}
