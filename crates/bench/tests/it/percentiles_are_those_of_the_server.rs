use std::collections::HashMap;
use std::time::{Duration, Instant};

use cairn_bench::load::{self, Pace, Sample};
use cairn_bench::null::{Manner, Record, latency};

use super::{null, plan};

const PERCENTILES: [f64; 6] = [50.0, 75.0, 90.0, 99.0, 99.9, 100.0];
const TOLERANCE: f64 = 0.01;

/// How much later than the server a client may see an answer. A busy machine can take this long to
/// run the client; `CAIRN_TEST_QUIET=1` says that the machine does nothing else.
fn delay_us() -> f64 {
    if std::env::var_os("CAIRN_TEST_QUIET").is_some() { 5e3 } else { 2e6 }
}

/// The percentiles of a sample are those of the times that it should have seen.
fn check(what: &str, (sample, mut wanted): (Sample, Vec<Duration>)) {
    wanted.sort_unstable();
    let errors = &sample.tally.errors;
    assert_eq!(sample.tally.replies(), wanted.len() as u64, "{what}: {errors:?}");
    assert_eq!(sample.tally.failed(), 0);
    for percentile in PERCENTILES {
        let got = sample.tally.latency.us_at(percentile);
        // Which of two neighbours a percentile is, is a matter of rounding.
        let last = wanted.len() - 1;
        let place = (percentile / 100.0 * last as f64).round() as usize;
        let us = |place: usize| wanted[place.min(last)].as_secs_f64() * 1e6;
        let (low, high) = (us(place.saturating_sub(1)), us(place + 1));
        let allowed = low * (1.0 - TOLERANCE)..=high * (1.0 + TOLERANCE) + delay_us();
        assert!(allowed.contains(&got), "{what}: p{percentile}: {got:.0} us, not {allowed:.0?}");
    }
}

fn closed(times: &str, connections: usize) {
    let latency = Some(latency(times).unwrap());
    let null = null(Manner { latency, ..Manner::default() });
    let duration = Some(Duration::from_secs(5));
    let pace = Pace::Closed { warm_up: Duration::ZERO, duration };
    let sample = load::run(&plan(&null, connections, pace)).unwrap();
    let records = null.records();
    let took = records.iter().map(|record| record.answered - record.arrived);
    check(times, (sample, took.collect()));
}

#[test]
fn in_a_closed_loop() {
    // Long ones: what a busy machine adds to a time is less than a hundredth of them.
    closed("1200ms..5000ms", 200);
    closed("exp:600ms", 200);
    closed("900ms*90+2400ms*9+5400ms*1", 200);
}

/// From when each request was due to when it was answered.
fn due_to_answered(began: Instant, rate: f64, records: &[Record]) -> Vec<Duration> {
    let answered: HashMap<u64, Instant> =
        records.iter().map(|record| (record.path[1..].parse().unwrap(), record.answered)).collect();
    assert_eq!(answered.len(), records.len());
    let due = |number: u64| began + Duration::from_secs_f64(number as f64 / rate);
    answered.iter().map(|(number, at)| *at - due(*number)).collect()
}

fn open(connections: usize) {
    let (rate, requests, stall) = (200.0, 1000, Duration::from_secs(2));
    let duration = Duration::from_secs_f64(f64::from(requests) / rate);
    let latency = Some(latency("450ms..550ms").unwrap());
    let stall = Some((600, stall));
    let null = null(Manner { latency, stall, ..Manner::default() });
    let plan = plan(&null, connections, Pace::Open { rate, duration });
    let sample = load::run(&plan).unwrap();
    assert_eq!((sample.unsent, null.requests()), (0, u64::from(requests as u32)));
    let records = null.records();
    let wanted = due_to_answered(sample.began, rate, &records);
    // More than a quarter of all requests were due while nothing was answered. A client that counts
    // from when a request could be sent, or sends less meanwhile, does not see that.
    let waited = wanted.iter().filter(|time| **time > Duration::from_secs(1)).count();
    assert!(waited > 200, "{waited}");
    assert!(sample.tally.latency.us_at(80.0) > 1e6);
    check(&format!("{connections} connections"), (sample, wanted));
}

#[test]
fn in_an_open_loop_when_the_server_stalls() {
    open(1000);
}

#[test]
fn in_an_open_loop_when_the_server_stalls_and_connections_are_scarce() {
    open(150);
}

#[test]
fn requests_are_counted_once_and_those_of_the_warm_up_not_at_all() {
    let null = null(Manner { latency: Some(latency("20ms").unwrap()), ..Manner::default() });
    let (warm_up, duration) = (Duration::from_millis(500), Some(Duration::from_millis(500)));
    let sample = load::run(&plan(&null, 10, Pace::Closed { warm_up, duration })).unwrap();
    let begun = |record: &&Record| record.arrived >= sample.began;
    let (all, counted) = (null.requests(), null.records().iter().filter(begun).count() as u64);
    let replies = sample.tally.replies();
    assert!(replies < all && replies > 0, "{replies} of {all}");
    // Requests in flight when counting began may have arrived after that.
    assert!(counted - replies <= 10, "{counted} {replies}");
    assert_eq!(sample.tally.statuses.get(&200), Some(&replies));
    assert!(sample.tally.in_time <= replies + 10);
    assert_eq!(sample.tally.connections, 10);
}
