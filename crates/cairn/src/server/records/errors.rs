//! Tells a webhook when this process logs many errors.

use std::collections::VecDeque;
use std::thread::{self, sleep};
use std::time::{Duration, Instant, SystemTime};

use cairn_audit::{LineSink, levels};
use cairn_base::{Timestamp, rfc3339};
use serde_json::json;

use super::webhook::WebhookSink;
use crate::failure::Result;

/// The time within which errors are counted, and how often there is a look.
const WINDOW: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_secs(5);

/// Errors that were logged in the last minute.
struct Rate {
    /// From how many on that is told.
    most: u64,
    /// All errors up to a time.
    totals: VecDeque<(Duration, u64)>,
    is_told: bool,
}

impl Rate {
    fn new(most: u64) -> Rate {
        Rate { most, totals: VecDeque::new(), is_told: false }
    }

    /// The errors of the last minute, if they are too many and nobody was told of it.
    fn look(&mut self, now: Duration, total: u64) -> Option<u64> {
        self.totals.push_back((now, total));
        while self.totals.len() > 1 && self.totals.get(1).is_some_and(|(at, _)| *at + WINDOW <= now)
        {
            self.totals.pop_front();
        }
        let before = self.totals.front().map_or(total, |(_, before)| *before);
        let errors = total.saturating_sub(before);
        if errors < self.most {
            self.is_told = false;
        }
        (errors >= self.most && !self.is_told).then_some(errors)
    }
}

/// Looks for as long as the process lives.
pub fn watch(url: &str, most: u64, source: &str) -> Result<()> {
    let mut sink = WebhookSink::new("--error-webhook", url)?;
    let (mut rate, source) = (Rate::new(most), source.to_owned());
    thread::Builder::new().name("errors".to_owned()).spawn(move || {
        let began = Instant::now();
        loop {
            let errors = levels::read().into_iter().filter(|((_, level), _)| *level == "error");
            let total = errors.map(|(_, count)| count).sum();
            if let Some(errors) = rate.look(began.elapsed(), total) {
                let time = rfc3339(Timestamp::from_system_time(SystemTime::now()));
                let seconds = WINDOW.as_secs();
                let told =
                    json!({ "time": time, "source": source, "errors": errors, "seconds": seconds });
                match sink.write(format!("{told}\n").as_bytes()) {
                    Ok(()) => rate.is_told = true,
                    Err(error) => tracing::warn!(%error, "nobody could be told of errors"),
                }
            }
            sleep(LOOK);
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_errors_are_told_once_until_there_are_few() {
        let mut rate = Rate::new(10);
        let secs = Duration::from_secs;
        assert_eq!(rate.look(secs(0), 100), None, "those of before are of no minute");
        assert_eq!(rate.look(secs(5), 109), None);
        assert_eq!(rate.look(secs(10), 111), Some(11));
        assert_eq!(rate.look(secs(15), 112), Some(12), "nobody was told");
        rate.is_told = true;
        assert_eq!(rate.look(secs(20), 150), None);
        assert_eq!(rate.look(secs(60), 150), None);
        assert_eq!(rate.look(secs(85), 151), None, "the rate is low again");
        assert_eq!(rate.look(secs(90), 170), Some(20));
    }
}
