//! The requests of the last seconds, by door, user, bucket and object: counted only while a client
//! asks.
//!
//! Most of the time no client asks: then a request costs one look at a flag. After each question,
//! requests are counted for [`WATCHED`]. Counts are of whole periods. There are at most [`NAMES`]
//! users, buckets and objects in a period: if there are more, the one with the fewest requests
//! gives its place to a new one (space-saving, Metwally, Agrawal and El Abbadi 2005). So every name
//! with more than one `NAMES`th of the requests is included.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use cairn_base::UserId;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Time for which requests are counted after a question.
pub const WATCHED: Duration = Duration::from_secs(30);
/// Length of a period.
pub const PERIOD: Duration = Duration::from_secs(5);
/// Number of names of one kind in a period.
pub const NAMES: usize = 256;
/// Number of slow requests that are listed in a period.
const SLOWEST: usize = 10;

/// A request that has ended.
#[derive(Clone, Debug, Default)]
pub struct RequestSummary {
    pub door: &'static str,
    pub operation: String,
    pub user: Option<UserId>,
    pub bucket: Option<String>,
    pub key: Option<String>,
    /// `None` if the client did not take the reply.
    pub status: Option<u16>,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    pub took: Duration,
    pub trace: Option<String>,
}

/// The sum of some requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    pub requests: u64,
    /// Number of these requests that may belong to a name that had this place before.
    pub doubtful: u64,
    /// Number of requests with a status of 500 and above, and of those whose reply was not taken.
    pub failed: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    pub took: Duration,
}

impl Tally {
    fn of(passed: &RequestSummary) -> Tally {
        Tally {
            requests: 1,
            doubtful: 0,
            failed: u64::from(passed.status.is_none_or(|status| status >= 500)),
            received_bytes: passed.received_bytes,
            sent_bytes: passed.sent_bytes,
            took: passed.took,
        }
    }

    fn add(&mut self, other: &Tally) {
        self.requests += other.requests;
        self.failed += other.failed;
        self.received_bytes = self.received_bytes.saturating_add(other.received_bytes);
        self.sent_bytes = self.sent_bytes.saturating_add(other.sent_bytes);
        self.took += other.took;
    }
}

/// The names with most requests.
#[derive(Clone, Debug)]
struct Top<K>(HashMap<K, Tally>);

impl<K> Default for Top<K> {
    fn default() -> Top<K> {
        Top(HashMap::new())
    }
}

impl<K: Hash + Eq + Clone> Top<K> {
    fn count(&mut self, name: K, tally: &Tally) {
        if let Some(known) = self.0.get_mut(&name) {
            return known.add(tally);
        }
        let mut new = Tally::default();
        if self.0.len() >= NAMES
            && let Some(least) = self.0.iter().min_by_key(|(_, tally)| tally.requests)
        {
            let (least, requests) = (least.0.clone(), least.1.requests);
            self.0.remove(&least);
            new = Tally { requests, doubtful: requests, ..Tally::default() };
        }
        new.add(tally);
        self.0.insert(name, new);
    }

    /// Returns up to `most` names, those with most requests first.
    fn sorted(&self, most: usize) -> Vec<(K, Tally)> {
        let mut all: Vec<(K, Tally)> =
            self.0.iter().map(|(name, tally)| (name.clone(), *tally)).collect();
        all.sort_by_key(|(_, tally)| std::cmp::Reverse((tally.requests, tally.sent_bytes)));
        all.truncate(most);
        all
    }
}

/// Counts of one period.
#[derive(Clone, Debug, Default)]
struct Counts {
    doors: Top<&'static str>,
    users: Top<Option<UserId>>,
    buckets: Top<String>,
    objects: Top<(String, String)>,
    slowest: Vec<RequestSummary>,
}

impl Counts {
    fn count(&mut self, passed: RequestSummary) {
        let tally = Tally::of(&passed);
        self.doors.count(passed.door, &tally);
        self.users.count(passed.user, &tally);
        if let Some(bucket) = &passed.bucket {
            self.buckets.count(bucket.clone(), &tally);
            if let Some(key) = passed.key.as_ref().filter(|key| !key.is_empty()) {
                self.objects.count((bucket.clone(), key.clone()), &tally);
            }
        }
        let at = self.slowest.partition_point(|other| other.took >= passed.took);
        if at < SLOWEST {
            self.slowest.insert(at, passed);
            self.slowest.truncate(SLOWEST);
        }
    }
}

/// A period, as it is shown to clients.
#[derive(Clone, Debug, Default)]
pub struct TrafficPeriod {
    /// Length of the period. Zero if none has ended since a client began to ask.
    pub period: Duration,
    pub doors: Vec<(&'static str, Tally)>,
    pub users: Vec<(Option<UserId>, Tally)>,
    pub buckets: Vec<(String, Tally)>,
    pub objects: Vec<((String, String), Tally)>,
    /// The slowest requests, the slowest first.
    pub slowest: Vec<RequestSummary>,
}

/// Counts requests of this process while a client asks.
#[derive(Debug)]
pub struct Traffic {
    is_watched: AtomicBool,
    state: Mutex<TrafficState>,
}

#[derive(Debug)]
struct TrafficState {
    until: Instant,
    /// Beginning of the present period.
    since: Instant,
    present: Counts,
    last: Option<Counts>,
}

impl Default for Traffic {
    fn default() -> Traffic {
        let now = Instant::now();
        let (present, last) = (Counts::default(), None);
        let state = TrafficState { until: now, since: now, present, last };
        Traffic { is_watched: AtomicBool::new(false), state: Mutex::new(state) }
    }
}

impl Traffic {
    /// Returns whether requests are being counted. Costs next to nothing.
    pub fn is_watched(&self) -> bool {
        self.is_watched.load(Relaxed)
    }

    /// Counts a request.
    pub fn count(&self, passed: RequestSummary) {
        self.count_at(passed, Instant::now());
    }

    fn count_at(&self, passed: RequestSummary, now: Instant) {
        let mut state = self.state.lock();
        if now >= state.until {
            // No client asks any more.
            self.is_watched.store(false, Relaxed);
            (state.present, state.last) = Default::default();
            return;
        }
        state.turn(now);
        state.present.count(passed);
    }

    /// Returns the last complete period, with up to `most` names of each kind. From now on requests
    /// are counted for a while.
    pub fn ask(&self, most: usize) -> TrafficPeriod {
        self.ask_at(most, Instant::now())
    }

    fn ask_at(&self, most: usize, now: Instant) -> TrafficPeriod {
        let mut state = self.state.lock();
        if now >= state.until {
            (state.present, state.last, state.since) = (Counts::default(), None, now);
        }
        state.until = now + WATCHED;
        self.is_watched.store(true, Relaxed);
        state.turn(now);
        let Some(last) = &state.last else { return TrafficPeriod::default() };
        TrafficPeriod {
            period: PERIOD,
            doors: last.doors.sorted(most),
            users: last.users.sorted(most),
            buckets: last.buckets.sorted(most),
            objects: last.objects.sorted(most),
            slowest: last.slowest.iter().take(most).cloned().collect(),
        }
    }
}

impl TrafficState {
    /// Begins a new period if the present one is over.
    fn turn(&mut self, now: Instant) {
        let over = now.saturating_duration_since(self.since).as_nanos() / PERIOD.as_nanos();
        match over {
            0 => return,
            1 => self.last = Some(std::mem::take(&mut self.present)),
            // No request came in the last period.
            _ => (self.present, self.last) = (Counts::default(), Some(Counts::default())),
        }
        self.since += PERIOD * u32::try_from(over).unwrap_or(u32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(user: u64, key: &str, millis: u64) -> RequestSummary {
        RequestSummary {
            door: "http",
            user: Some(UserId(user)),
            bucket: Some("b".to_owned()),
            key: Some(key.to_owned()),
            status: Some(200),
            sent_bytes: 100,
            took: Duration::from_millis(millis),
            ..RequestSummary::default()
        }
    }

    #[test]
    fn whole_periods_are_told_while_somebody_asks() {
        let (traffic, mut now) = (Traffic::default(), Instant::now());
        assert!(!traffic.is_watched());
        assert_eq!(traffic.ask_at(10, now).period, Duration::ZERO);
        assert!(traffic.is_watched());
        (0..20).for_each(|at| traffic.count_at(get(at % 2, "k", at), now));
        assert_eq!(traffic.ask_at(10, now).period, Duration::ZERO, "the first is not over");
        now += PERIOD;
        let seen = traffic.ask_at(10, now);
        assert_eq!(seen.period, PERIOD);
        assert_eq!(seen.doors[0].1.requests, 20);
        assert_eq!(seen.users.iter().map(|(_, tally)| tally.requests).sum::<u64>(), 20);
        assert_eq!(seen.objects[0].0, ("b".to_owned(), "k".to_owned()));
        assert_eq!(seen.objects[0].1.sent_bytes, 2000);
        let slow: Vec<u128> = seen.slowest.iter().map(|one| one.took.as_millis()).collect();
        assert_eq!(slow, (10..20).rev().collect::<Vec<_>>());
        now += PERIOD * 2;
        assert!(traffic.ask_at(10, now).doors.is_empty(), "nothing came since then");
        now += WATCHED;
        traffic.count_at(get(1, "k", 1), now);
        assert!(!traffic.is_watched(), "nobody asks any more");
    }

    #[test]
    fn what_is_asked_for_most_is_there_among_any_number_of_names() {
        let mut top = Top::default();
        let one = Tally { requests: 1, ..Tally::default() };
        for at in 0..100_000_u64 {
            top.count(at, &one);
            if at % 50 == 0 {
                top.count(u64::MAX, &one);
            }
        }
        assert_eq!(top.0.len(), NAMES);
        let (name, tally) = top.sorted(1)[0];
        assert_eq!(name, u64::MAX);
        assert!((2000..=2000 + 100_000 / NAMES as u64).contains(&tally.requests), "{tally:?}");
    }
}
