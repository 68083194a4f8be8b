//! Answers of servers, and their sums.

use serde::{Deserialize, Serialize};

/// Answer of a server, or of several.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TrafficReport {
    /// Length of the period; 0 if a server has not finished one.
    pub seconds: f64,
    pub doors: Vec<Tally>,
    pub users: Vec<Tally>,
    pub buckets: Vec<Tally>,
    pub objects: Vec<Tally>,
    pub slowest: Vec<Slow>,
    pub in_flight: Vec<Waiting>,
    pub waiting: u64,
}

/// Requests of one name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    pub name: String,
    pub requests: u64,
    pub doubtful: u64,
    pub failed: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    pub us: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Slow {
    pub door: String,
    pub operation: String,
    pub user: String,
    pub bucket: Option<String>,
    pub key: Option<String>,
    pub status: Option<u16>,
    pub us: u64,
    pub trace: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Waiting {
    pub door: String,
    pub operation: String,
    pub object: String,
    pub user: String,
    pub client: String,
    pub stage: Option<String>,
    pub age_ms: u64,
    pub waits_for: Vec<String>,
}

impl TrafficReport {
    /// Adds the answer of another server.
    pub fn and(mut self, other: TrafficReport) -> TrafficReport {
        // 0 until all of them have a period.
        self.seconds = self.seconds.min(other.seconds);
        for (own, others) in [
            (&mut self.doors, other.doors),
            (&mut self.users, other.users),
            (&mut self.buckets, other.buckets),
            (&mut self.objects, other.objects),
        ] {
            others.into_iter().for_each(|tally| add(own, tally));
            own.sort_by_key(|tally| std::cmp::Reverse((tally.requests, tally.sent_bytes)));
        }
        self.slowest.extend(other.slowest);
        self.slowest.sort_by_key(|slow| std::cmp::Reverse(slow.us));
        self.in_flight.extend(other.in_flight);
        self.in_flight.sort_by_key(|waiting| std::cmp::Reverse(waiting.age_ms));
        self.waiting += other.waiting;
        self
    }
}

fn add(all: &mut Vec<Tally>, tally: Tally) {
    match all.iter_mut().find(|known| known.name == tally.name) {
        None => all.push(tally),
        Some(known) => {
            known.requests += tally.requests;
            known.doubtful += tally.doubtful;
            known.failed += tally.failed;
            known.received_bytes += tally.received_bytes;
            known.sent_bytes += tally.sent_bytes;
            known.us += tally.us;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_servers_are_shown_as_one() {
        let tally =
            |name: &str, requests| Tally { name: name.to_owned(), requests, ..Tally::default() };
        let told = |seconds, users: &[(&str, u64)], us| TrafficReport {
            seconds,
            users: users.iter().map(|(name, requests)| tally(name, *requests)).collect(),
            slowest: vec![Slow { us, ..Slow::default() }],
            waiting: 1,
            ..TrafficReport::default()
        };
        let sum = told(5.0, &[("a", 3), ("b", 2)], 7).and(told(5.0, &[("b", 2), ("c", 1)], 9));
        let users: Vec<(&str, u64)> =
            sum.users.iter().map(|tally| (tally.name.as_str(), tally.requests)).collect();
        assert_eq!(users, [("b", 4), ("a", 3), ("c", 1)]);
        assert_eq!((sum.slowest[0].us, sum.waiting, sum.seconds), (9, 2, 5.0));
        assert_eq!(told(5.0, &[], 1).and(told(0.0, &[], 1)).seconds, 0.0);
    }
}
