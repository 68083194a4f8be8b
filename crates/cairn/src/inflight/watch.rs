//! Warns about requests that wait for long: first after [`FIRST`], then whenever a request has
//! waited for twice as long as at the last warning.

use std::collections::HashMap;
use std::time::Duration;

use cairn_base::Stage;
use cairn_base::inflight::RequestSnapshot;

use super::form::{Flight, millis};

/// Time of waiting in one stage after which a warning is due.
const FIRST: Duration = Duration::from_secs(10);
/// Warnings of one look, at most. There may be as many waiting requests as there are clients, and
/// they mostly wait for the same thing.
const MOST: usize = 10;

/// Requests about which there was a warning.
#[derive(Default)]
pub struct Watch {
    /// Wait at which the next warning is due, by the number of the request.
    next: HashMap<u64, Duration>,
}

impl Watch {
    /// Returns the requests in flight for which a warning is due.
    fn due<'a>(&mut self, seen: &'a [RequestSnapshot]) -> Vec<&'a RequestSnapshot> {
        let mut due = Vec::new();
        let mut next = HashMap::new();
        for one in seen.iter().filter(|one| is_worth(one) && one.stage_age >= FIRST) {
            let mut at = self.next.get(&one.number).copied().unwrap_or(FIRST);
            if one.stage_age >= at {
                due.push(one);
                while one.stage_age >= at {
                    at = at.saturating_mul(2);
                }
            }
            next.insert(one.number, at);
        }
        // A request that goes on, or is over, begins anew.
        self.next = next;
        due
    }

    /// Logs the warnings that are due.
    pub fn warn(&mut self, seen: &[RequestSnapshot]) {
        let due = self.due(seen);
        for one in due.iter().take(MOST) {
            let flight = Flight::of(one);
            tracing::warn!(
                trace = flight.trace,
                door = flight.door,
                operation = flight.operation,
                object = flight.object,
                who = flight.who(),
                stage = flight.stage,
                waited_ms = millis(one.stage_age),
                waits_for = flight.awaited(),
                "a request waits"
            );
        }
        if due.len() > MOST {
            tracing::warn!(requests = due.len() - MOST, "more requests wait");
        }
    }
}

/// Returns true if waiting is worth a warning: not if it waits for the client, or for a lock of
/// another.
fn is_worth(seen: &RequestSnapshot) -> bool {
    !seen.about.is_patient && !matches!(seen.stage, Some(Stage::Send | Stage::Receive))
}

#[cfg(test)]
mod tests {
    use cairn_base::inflight::About;

    use super::*;

    fn seen(number: u64, stage: Stage, seconds: u64) -> RequestSnapshot {
        RequestSnapshot {
            number,
            trace: None,
            about: About::default(),
            stage: Some(stage),
            age: Duration::from_secs(1000),
            stage_age: Duration::from_secs(seconds),
            waits: Vec::new(),
        }
    }

    #[test]
    fn it_is_warned_of_what_waits_at_doubling_intervals() {
        let mut watch = Watch::default();
        let mut warned = Vec::new();
        for second in 0..=100 {
            let all = [seen(7, Stage::Meta, second)];
            warned.extend(watch.due(&all).iter().map(|_| second));
        }
        assert_eq!(warned, [10, 20, 40, 80]);
        // The clock of this process stood still.
        assert_eq!(watch.due(&[seen(7, Stage::Meta, 1000)]).len(), 1);
        assert_eq!(watch.due(&[seen(7, Stage::Meta, 1001)]).len(), 0);
    }

    #[test]
    fn what_goes_on_is_no_trouble() {
        let mut watch = Watch::default();
        for stage in [Stage::Send, Stage::Receive] {
            assert!(watch.due(&[seen(1, stage, 99)]).is_empty());
        }
        let mut patient = seen(1, Stage::Meta, 99);
        patient.about.is_patient = true;
        assert!(watch.due(&[patient]).is_empty());
        assert_eq!(watch.due(&[seen(1, Stage::Peer, 15)]).len(), 1);
        // It has gone on, and waits again.
        assert!(watch.due(&[seen(1, Stage::Peer, 1)]).is_empty());
        assert_eq!(watch.due(&[seen(1, Stage::Peer, 11), seen(2, Stage::Peer, 11)]).len(), 2);
    }
}
