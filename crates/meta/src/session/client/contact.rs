//! Logs that the master was lost, and that it was found: each once, by name.

use std::time::Duration;

use cairn_base::inflight::WaitTarget;

/// Tracks whether the session has a master.
#[derive(Default)]
pub struct Contact {
    /// Time since which it has none, once that was logged.
    lost: Option<Duration>,
}

impl Contact {
    /// Logs that there has been no master since `now`, by a monotonic clock, because of `why`.
    pub fn lost(&mut self, now: Duration, master: &WaitTarget, why: &str) {
        if self.lost.is_none() {
            self.lost = Some(now);
            tracing::warn!(%master, why, "the server does not answer: it is looked for");
        }
    }

    pub fn found(&mut self, now: Duration, master: &WaitTarget) {
        if let Some(lost) = self.lost.take() {
            let gone_ms = now.saturating_sub(lost).as_millis() as u64;
            tracing::info!(%master, gone_ms, "the server answers again");
        }
    }
}
