//! Counters of the doors, in the text format of Prometheus.
//!
//! A verb's counters are looked up once, when its door is made; a request then costs a handful of
//! relaxed additions and no lock.

mod connections;
mod form;
mod lines;
mod logs;
mod number;
mod peers;
mod process;
mod store;
mod throttle;
mod totals;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use cairn_audit::LineQueue;
use cairn_base::inflight::{self, Request};
use cairn_base::{Stage, Stages};
use cairn_fs::Fs;
use cairn_logs::Counts;
use cairn_logs::follow::FollowCounts;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

pub use self::connections::Connections;
pub(crate) use self::connections::Handshake;
use self::connections::of_connections;
pub use self::form::Form;
use self::number::Numbers;
pub use self::number::{Number, counter, counter_seconds, gauge, gauge_seconds};
pub use self::store::{of_blocks, of_master};
use self::store::{of_buckets, of_store};
pub use self::totals::{DoorTotals, Times};
use crate::observe::{EndedRequest, Observer};
use crate::places::Places;
use crate::traffic::Traffic;

/// Upper bounds of the latency buckets, microseconds; one more bucket counts longer times.
const BUCKETS_US: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 5_000_000, 30_000_000,
];

/// Labels of replies: classes of statuses, and the status of what is not implemented. A client that
/// asks for a feature that does not exist is no failure of the server.
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "501"];
/// Place of failures of the server among the [`CLASSES`].
const FAILED: usize = 4;

fn class_of(status: u16) -> usize {
    match status {
        501 => FAILED + 1,
        other => usize::from(other / 100).clamp(1, 5) - 1,
    }
}

/// A histogram of times.
#[derive(Debug, Default)]
struct Histogram {
    buckets: [AtomicU64; BUCKETS_US.len() + 1],
    sum_ns: AtomicU64,
}

impl Histogram {
    fn add(&self, time: Duration) {
        let us = time.as_micros() as u64;
        let bucket = BUCKETS_US.iter().position(|bound| us <= *bound).unwrap_or(BUCKETS_US.len());
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    fn encode(
        &self,
        metric: &mut prometheus_client::encoding::MetricEncoder<'_>,
        labels: &[(&'static str, &'static str); 2],
    ) -> fmt::Result {
        let counts = self.buckets.iter().map(|count| count.load(Relaxed));
        let counts: Vec<u64> = counts.collect();
        let total: u64 = counts.iter().sum();
        if total == 0 {
            return Ok(());
        }
        let bounds = BUCKETS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let sum = self.sum_ns.load(Relaxed) as f64 / 1e9;
        metric.encode_family(labels)?.encode_histogram::<NoLabelSet>(sum, total, &buckets, None)
    }
}

/// The time that all requests of a door spent in each stage.
#[derive(Debug)]
struct StageStats {
    door: &'static str,
    stages: [Histogram; Stage::ALL.len()],
}

/// The counters of one verb of one door.
#[derive(Debug)]
pub struct VerbStats {
    door: &'static str,
    verb: &'static str,
    stages: Arc<StageStats>,
    observer: Arc<Observer>,
    /// Number of replies by [`CLASSES`].
    replies: [AtomicU64; CLASSES.len()],
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    latency: Histogram,
}

impl VerbStats {
    /// Counts a reply; call when its last byte is handed over.
    pub fn record(&self, status: u16, stages: &Stages, bytes_out: u64) {
        self.replies[class_of(status)].fetch_add(1, Relaxed);
        self.latency.add(stages.total());
        for (stage, histogram) in Stage::ALL.into_iter().zip(&self.stages.stages) {
            let spent = stages.spent(stage);
            if !spent.is_zero() {
                histogram.add(spent);
            }
        }
        if bytes_out > 0 {
            self.bytes_out.fetch_add(bytes_out, Relaxed);
        }
        if self.observer.looks_at(status, stages) {
            let (door, verb, stages) = (self.door, self.verb, *stages);
            self.observer.end(&EndedRequest { door, verb, status, stages });
        }
    }

    /// Counts bytes of a request's body.
    pub fn received(&self, bytes: u64) {
        self.bytes_in.fetch_add(bytes, Relaxed);
    }

    fn labels(&self) -> [(&'static str, &'static str); 2] {
        [("door", self.door), ("verb", self.verb)]
    }
}

/// Counts one reply whose body is still being sent, when it is dropped.
#[derive(Debug)]
pub struct Pending {
    stats: Arc<VerbStats>,
    pub status: u16,
    pub stages: Stages,
    pub bytes_out: u64,
    request: Option<Request>,
}

impl Pending {
    /// Returns the count of a reply that from here on waits for the client, if for nothing else.
    pub fn new(stats: Arc<VerbStats>, status: u16, mut stages: Stages) -> Pending {
        stages.rest_in(Stage::Send);
        let request = inflight::current();
        if let Some(request) = &request {
            let (stage, since) = stages.rests();
            request.rest_in(stage, since);
        }
        Pending { stats, status, stages, bytes_out: 0, request }
    }

    /// Notes that the reply is worked on while `poll` runs.
    pub fn poll<T>(&mut self, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
        inflight::poll(&mut self.stages, &mut self.request, poll)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.stages.settle();
        self.stats.record(self.status, &self.stages, self.bytes_out);
    }
}

/// All counters of the doors.
pub struct Metrics {
    /// The store behind them, if there is one.
    fs: Option<Fs>,
    connections: Arc<Connections>,
    observer: Arc<Observer>,
    verbs: Mutex<Vec<Arc<VerbStats>>>,
    /// Counters of records of logs.
    logs: Mutex<Vec<Arc<Counts>>>,
    /// Lines on their way to sinks.
    lines: Mutex<Vec<Arc<LineQueue>>>,
    /// Counters of followers of objects.
    follows: Mutex<Vec<Arc<FollowCounts>>>,
    more: Mutex<Vec<MoreNumbers>>,
    traffic: Arc<Traffic>,
}

/// Returns further numbers of a door, in addition to those of its calls.
pub type MoreNumbers = Arc<dyn Fn() -> Vec<Number> + Send + Sync>;

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// The counters of one door.
#[derive(Clone, Debug)]
pub struct DoorMetrics {
    all: Arc<Metrics>,
    door: &'static str,
}

impl DoorMetrics {
    /// Returns the counters of a verb. Keep them: this takes a lock.
    pub fn verb(&self, verb: &'static str) -> Arc<VerbStats> {
        self.all.verb(self.door, verb)
    }

    /// Returns the counters of all doors.
    pub fn all(&self) -> &Arc<Metrics> {
        &self.all
    }
}

impl Metrics {
    pub fn new(fs: Fs, connections: Arc<Connections>, observer: Observer) -> Arc<Metrics> {
        Metrics::behind(Some(fs), connections, observer)
    }

    /// Returns the metrics of doors without a store behind them.
    pub fn of_links(connections: Arc<Connections>, observer: Observer) -> Arc<Metrics> {
        Metrics::behind(None, connections, observer)
    }

    fn behind(fs: Option<Fs>, connections: Arc<Connections>, observer: Observer) -> Arc<Metrics> {
        let (observer, verbs) = (Arc::new(observer), Mutex::new(Vec::new()));
        Arc::new(Metrics {
            fs,
            connections,
            observer,
            verbs,
            logs: Mutex::default(),
            lines: Mutex::default(),
            follows: Mutex::default(),
            more: Mutex::default(),
            traffic: Arc::default(),
        })
    }

    /// Returns the observer, which begins the traces of requests.
    pub fn observer(&self) -> &Arc<Observer> {
        &self.observer
    }

    /// Returns the counters of a door. Its name appears in metrics, in traces and in the log of
    /// slow requests.
    pub fn door(self: &Arc<Metrics>, name: &'static str) -> DoorMetrics {
        DoorMetrics { all: Arc::clone(self), door: name }
    }

    /// Returns the requests of the last seconds, which are counted only while a client asks for
    /// them.
    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Adds counters of followers to the metrics.
    pub fn count_followers(&self, counts: Arc<FollowCounts>) {
        self.follows.lock().push(counts);
    }

    /// Adds counts of records of logs to the metrics.
    pub fn count_logs(&self, counts: Arc<Counts>) {
        self.logs.lock().push(counts);
    }

    /// Adds counts of lines on their way to sinks to the metrics.
    pub fn count_lines(&self, queues: &[Arc<LineQueue>]) {
        self.lines.lock().extend_from_slice(queues);
    }

    /// Adds further numbers to the metrics.
    pub fn count_more(&self, numbers: MoreNumbers) {
        self.more.lock().push(numbers);
    }

    /// Adds the number of places for requests, and of those taken, to the metrics.
    pub fn count_places(&self, places: &Arc<Places>) {
        let places = Arc::clone(places);
        self.count_more(Arc::new(move || {
            vec![
                gauge("request_places", "Places for requests in progress", places.room()),
                gauge("request_places_taken", "Places that are taken", places.taken()),
                counter(
                    "request_places_refused",
                    "Requests refused as their address or user had its part of the places",
                    places.refused(),
                ),
            ]
        }));
    }

    fn verb(&self, door: &'static str, verb: &'static str) -> Arc<VerbStats> {
        let mut verbs = self.verbs.lock();
        let known = verbs.iter().find(|stats| stats.door == door && stats.verb == verb);
        if let Some(stats) = known {
            return Arc::clone(stats);
        }
        let of_door = verbs.iter().find(|stats| stats.door == door);
        let stages = of_door.map_or_else(
            || Arc::new(StageStats { door, stages: Default::default() }),
            |stats| Arc::clone(&stats.stages),
        );
        let stats = Arc::new(VerbStats {
            door,
            verb,
            stages,
            observer: Arc::clone(&self.observer),
            replies: Default::default(),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            latency: Histogram::default(),
        });
        verbs.push(Arc::clone(&stats));
        stats
    }

    /// Returns all metrics in the format of Prometheus. Metrics with names given by users are
    /// included only `with_names`. Asks the block store for its usage.
    pub async fn text(&self, with_names: bool) -> String {
        let mut registry = Registry::with_prefix("cairn");
        let verbs = self.verbs.lock().clone();
        registry.register_collector(Box::new(Requests(verbs)));
        let mut numbers = of_connections(&self.connections);
        if let Some(fs) = &self.fs {
            let peers = fs.blocks().counted().peers;
            numbers.extend(of_store(fs).await);
            if with_names {
                numbers.extend(of_buckets(fs).await);
            }
            numbers.extend(peers::connections(&peers));
            registry.register_collector(Box::new(peers::PeerCollector(peers)));
        }
        let more = self.more.lock().clone();
        numbers.extend(more.iter().flat_map(|more| more()));
        registry.register_collector(Box::new(Numbers(numbers)));
        registry.register_collector(Box::new(process::Build));
        registry.register_collector(Box::new(throttle::ThrottleCollector));
        registry.register_collector(Box::new(logs::Records(self.logs.lock().clone())));
        if with_names {
            registry.register_collector(Box::new(logs::Levels));
        }
        registry.register_collector(Box::new(lines::Lines(self.lines.lock().clone())));
        registry.register_collector(Box::new(logs::Follows(self.follows.lock().clone())));
        let mut bare = Registry::default();
        bare.register_collector(Box::new(process::Process));
        let mut text = String::new();
        let both = [&registry, &bare].iter().try_for_each(|all| encode_registry(&mut text, all));
        match both.and_then(|()| encode_eof(&mut text)) {
            Ok(()) => text,
            Err(error) => format!("# {error}\n"),
        }
    }
}

#[derive(Debug)]
struct Requests(Vec<Arc<VerbStats>>);

impl Collector for Requests {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        self.encode_replies(&mut encoder)?;
        self.encode_bytes(&mut encoder, "received_bytes", |stats| &stats.bytes_in)?;
        self.encode_bytes(&mut encoder, "sent_bytes", |stats| &stats.bytes_out)?;
        self.encode_latency(&mut encoder)?;
        self.encode_stages(&mut encoder)
    }
}

impl Requests {
    fn encode_replies(&self, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let help = "Requests answered, by class of status";
        let mut metric = encoder.encode_descriptor("requests", help, None, MetricType::Counter)?;
        for stats in &self.0 {
            for (class, count) in CLASSES.into_iter().zip(&stats.replies) {
                let count = count.load(Relaxed);
                if count > 0 {
                    let [door, verb] = stats.labels();
                    metric
                        .encode_family(&[door, verb, ("status", class)])?
                        .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
                }
            }
        }
        Ok(())
    }

    fn encode_bytes(
        &self,
        encoder: &mut DescriptorEncoder,
        name: &str,
        bytes: fn(&VerbStats) -> &AtomicU64,
    ) -> Result<(), fmt::Error> {
        let help = "Bytes of bodies";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for stats in &self.0 {
            let bytes = bytes(stats).load(Relaxed);
            if bytes > 0 {
                metric
                    .encode_family(&stats.labels())?
                    .encode_counter::<NoLabelSet, _, u64>(&bytes, None)?;
            }
        }
        Ok(())
    }

    fn encode_latency(&self, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let help = "Time from a request's head to the end of its reply";
        let name = "request_seconds";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for stats in &self.0 {
            stats.latency.encode(&mut metric, &stats.labels())?;
        }
        Ok(())
    }

    fn encode_stages(&self, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let help = "Time of requests, by what they spent it on";
        let name = "stage_seconds";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        let mut seen = Vec::new();
        for StageStats { door, stages } in self.0.iter().map(|stats| &*stats.stages) {
            if seen.contains(door) {
                continue;
            }
            seen.push(*door);
            for (stage, histogram) in Stage::ALL.into_iter().zip(stages) {
                histogram.encode(&mut metric, &[("door", *door), ("stage", stage.name())])?;
            }
        }
        Ok(())
    }
}
