//! Counters of a running load.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use http::StatusCode;

use crate::stats::Histogram;

/// Seconds of a load that are counted separately, at most.
const SECONDS_MAX: usize = 3600;

/// Durations of the parts of requests.
#[derive(Clone, Default)]
pub struct Phases {
    /// Durations of DNS, once for each thread.
    pub dns: Histogram,
    pub connect: Histogram,
    pub tls: Histogram,
    /// Time from the request to the head of its answer.
    pub first_byte: Histogram,
    /// Time from the head to the end of the body.
    pub transfer: Histogram,
}

/// Requests that ended in one second of a load.
#[derive(Clone)]
pub struct Second {
    pub replies: u64,
    pub latency: Histogram,
    pub statuses: BTreeMap<u16, u64>,
    pub errors: u64,
}

/// Counts of one thread, and in the end of all threads.
#[derive(Clone, Default)]
pub struct Tally {
    /// Successful answers that ended in time, for the rate.
    pub in_time: u64,
    pub bytes_in_time: u64,
    pub latency: Histogram,
    pub phases: Phases,
    pub statuses: BTreeMap<u16, u64>,
    pub errors: BTreeMap<String, u64>,
    /// Number of requests sent, in an open loop.
    pub sent: u64,
    /// Requests among these that waited for a connection, and so began more than a millisecond
    /// late.
    pub late: u64,
    pub connections: u64,
    pub seconds: Vec<Second>,
}

/// A load that ran.
pub struct Sample {
    /// Time at which counting began.
    pub began: Instant,
    /// Time over which rates were counted.
    pub seconds: f64,
    pub tally: Tally,
    /// Number above that of every request.
    pub asked: u64,
    /// Number of planned requests that were not sent before the patience was over.
    pub unsent: u64,
    /// Average number of cores in use.
    pub client_cores: f64,
    pub server_cores: Option<f64>,
    /// Reason why it ended before its time.
    pub broken: Option<String>,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.in_time += other.in_time;
        self.bytes_in_time += other.bytes_in_time;
        self.latency.add(&other.latency);
        let phases = &other.phases;
        self.phases.dns.add(&phases.dns);
        self.phases.connect.add(&phases.connect);
        self.phases.tls.add(&phases.tls);
        self.phases.first_byte.add(&phases.first_byte);
        self.phases.transfer.add(&phases.transfer);
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        for (cause, count) in &other.errors {
            *self.errors.entry(cause.clone()).or_default() += count;
        }
        self.sent += other.sent;
        self.late += other.late;
        self.connections += other.connections;
        for (number, second) in other.seconds.iter().enumerate() {
            self.second(number).add(second);
        }
    }

    /// Returns the number of replies of all kinds.
    pub fn replies(&self) -> u64 {
        self.latency.count()
    }

    pub fn failed(&self) -> u64 {
        self.errors.values().sum()
    }

    pub fn status(&mut self, status: StatusCode) {
        *self.statuses.entry(status.as_u16()).or_default() += 1;
    }

    pub fn error(&mut self, cause: &str) {
        match self.errors.get_mut(cause) {
            Some(count) => *count += 1,
            None => drop(self.errors.insert(cause.to_owned(), 1)),
        }
    }

    /// Returns the second of a load that contains a time after its start.
    pub fn second_at(&mut self, after: Duration) -> &mut Second {
        self.second(usize::try_from(after.as_secs()).unwrap_or(usize::MAX))
    }

    fn second(&mut self, number: usize) -> &mut Second {
        let number = number.min(SECONDS_MAX - 1);
        if self.seconds.len() <= number {
            self.seconds.resize_with(number + 1, || Second {
                replies: 0,
                latency: Histogram::coarse(),
                statuses: BTreeMap::new(),
                errors: 0,
            });
        }
        &mut self.seconds[number]
    }
}

impl Second {
    fn add(&mut self, other: &Second) {
        self.replies += other.replies;
        self.latency.add(&other.latency);
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self.errors += other.errors;
    }
}

impl Sample {
    /// Returns the successes per second.
    pub fn rate(&self) -> f64 {
        self.tally.in_time as f64 / self.seconds
    }

    pub fn bytes_rate(&self) -> f64 {
        self.tally.bytes_in_time as f64 / self.seconds
    }
}
