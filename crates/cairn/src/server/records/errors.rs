//! Notifies a webhook when this process logs many errors, or a log source has many.

use std::collections::{HashMap, VecDeque};
use std::thread::{self, sleep};
use std::time::{Duration, Instant, SystemTime};

use cairn_audit::{LineSink, levels};
use cairn_base::{Timestamp, rfc3339};
use cairn_logs::LevelClass;
use serde_json::json;

use super::webhook::WebhookSink;
use crate::failure::Result;

/// Period in which errors are counted, and interval of the looks.
const WINDOW: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_secs(5);

/// Errors that were logged in the last minute.
struct Rate {
    /// Number of errors from which on the webhook is notified.
    most: u64,
    /// All errors up to a time.
    totals: VecDeque<(Duration, u64)>,
    is_told: bool,
}

impl Rate {
    fn new(most: u64) -> Rate {
        Rate { most, totals: VecDeque::new(), is_told: false }
    }

    /// Makes the rate of a source that had no errors until now.
    fn from_none(most: u64, now: Duration) -> Rate {
        Rate { totals: VecDeque::from([(now, 0)]), ..Rate::new(most) }
    }

    /// Returns the errors of the last minute, if they are too many and the webhook was not yet
    /// notified.
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

/// Numbers of errors within a minute from which on the webhook is notified.
#[derive(Clone, Copy)]
pub struct ErrorRates {
    /// Number for this process.
    pub own: u64,
    /// Number for a log source.
    pub source: Option<u64>,
}

/// Returns all errors so far by source, each with the number per minute from which on it is
/// reported.
fn totals(rates: ErrorRates, process: &str) -> Vec<(String, u64, u64)> {
    let errors = levels::read().into_iter().filter(|((_, level), _)| *level == "error");
    let own = errors.map(|(_, count)| count).sum();
    let mut all = vec![(process.to_owned(), own, rates.own)];
    if let Some(most) = rates.source {
        let error = LevelClass::Error as usize;
        let of_source = |((bucket, source), counts): ((String, String), [u64; 5])| {
            (format!("{bucket}/{source}"), counts[error], most)
        };
        all.extend(cairn_logs::levels::read().into_iter().map(of_source));
    }
    all
}

/// Watches as long as the process lives.
pub fn watch(url: &str, rates: ErrorRates, process: &str) -> Result<()> {
    let mut sink = WebhookSink::new("--error-webhook", url)?;
    let process = process.to_owned();
    thread::Builder::new().name("errors".to_owned()).spawn(move || {
        let began = Instant::now();
        // Sources are counted from their first record on: before that they had no errors.
        let mut known: HashMap<String, Rate> = HashMap::new();
        loop {
            for (source, total, most) in totals(rates, &process) {
                let is_process = source == process;
                let rate = known.entry(source.clone()).or_insert_with(|| {
                    if is_process {
                        Rate::new(most)
                    } else {
                        Rate::from_none(most, began.elapsed())
                    }
                });
                let Some(errors) = rate.look(began.elapsed(), total) else { continue };
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
        let mut rate = Rate::from_none(10, secs(100));
        assert_eq!(rate.look(secs(100), 12), Some(12), "all of them are new");
    }
}
