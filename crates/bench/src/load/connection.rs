//! Loop of one connection until its load ends.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use parking_lot::Mutex;

use super::tally::Tally;
use super::{Pace, Plan};
use crate::alarm::Alarm;
use crate::client::{self, Connection, Exchange};

/// Pause of a connection after a failure.
const FAILED_PAUSE: Duration = Duration::from_millis(20);
/// Time without any success after which a target counts as dead.
const DEAD_AFTER: Duration = Duration::from_secs(3);
/// Delay after the planned time from which on a request is late.
const LATE: Duration = Duration::from_millis(1);

/// The state that all connections of a load share.
pub struct LoadShared {
    pub plan: Plan,
    pub start: Instant,
    pub next: AtomicU64,
    /// Milliseconds from the start to the latest success.
    pub lived_ms: AtomicU64,
    /// Failures since the latest success.
    pub failures: AtomicU64,
    pub is_over: AtomicBool,
    pub broken: Mutex<Option<String>>,
    pub is_stopped: fn() -> bool,
}

impl LoadShared {
    /// Returns the time at which counting begins.
    pub fn began(&self) -> Instant {
        match self.plan.pace {
            Pace::Closed { warm_up, .. } => self.start + warm_up,
            Pace::Open { .. } => self.start,
        }
    }

    /// Returns the time from which on no request begins.
    fn end(&self) -> Option<Instant> {
        match self.plan.pace {
            Pace::Closed { duration, .. } => Some(self.began() + duration?),
            Pace::Open { duration, .. } => Some(self.start + duration),
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed) || (self.is_stopped)()
    }

    fn succeeded(&self, at: Instant) {
        let millis = at.saturating_duration_since(self.start).as_millis() as u64;
        self.lived_ms.fetch_max(millis, Ordering::Relaxed);
        self.failures.store(0, Ordering::Relaxed);
    }

    /// Ends the load if nothing has succeeded for long, on any connection.
    fn failed(&self, cause: &str) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        let lived = Duration::from_millis(self.lived_ms.load(Ordering::Relaxed));
        let is_dead = self.start.elapsed().saturating_sub(lived) > DEAD_AFTER;
        if is_dead && failures >= self.plan.connections as u64 {
            self.is_over.store(true, Ordering::Relaxed);
            let seconds = DEAD_AFTER.as_secs();
            let text = format!("no request succeeded for {seconds} s, the last: {cause}");
            self.broken.lock().get_or_insert(text);
        }
    }
}

/// A connection of a load, and its number among them.
pub struct Worker<'a> {
    pub shared: &'a LoadShared,
    pub tally: &'a RefCell<Tally>,
    pub endpoint: usize,
    pub address: SocketAddr,
}

impl Worker<'_> {
    pub async fn run(&self) {
        let mut open: Option<Connection> = None;
        let mut alarm = match Alarm::new() {
            Ok(alarm) => alarm,
            Err(error) => return self.tally.borrow_mut().error(&format!("timer: {error}")),
        };
        while !self.shared.is_over() {
            let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
            let Some(start) = self.turn(number, &mut alarm).await else { return };
            let work = &self.shared.plan.work;
            let Some(request) = work.request(number, self.endpoint) else { return };
            let exchange = self.exchange(&mut open, request);
            let done = match tokio::time::timeout(self.shared.plan.timeout, exchange).await {
                Ok(done) => done,
                Err(_) => Err("timeout".to_owned()),
            };
            match done {
                Ok((sent, exchange)) => self.count(number, start, sent, &exchange),
                Err(cause) => {
                    open = None;
                    self.count_error(start, &cause);
                    tokio::time::sleep(FAILED_PAUSE).await;
                }
            }
            if !self.shared.plan.keep_alive {
                open = None;
            }
        }
    }

    /// Waits for the turn of a request. Returns the time from which its duration counts; none if
    /// the load is over.
    async fn turn(&self, number: u64, alarm: &mut Alarm) -> Option<Instant> {
        let now = Instant::now();
        let Pace::Open { rate, duration } = self.shared.plan.pace else {
            return self.shared.end().is_none_or(|end| now < end).then_some(now);
        };
        if number >= self.shared.plan.planned()? {
            return None;
        }
        let planned = self.shared.start + Duration::from_secs_f64(number as f64 / rate);
        if now > self.shared.start + duration + self.shared.plan.timeout {
            return None;
        }
        alarm.wait_until(planned).await.ok()?;
        let mut tally = self.tally.borrow_mut();
        tally.sent += 1;
        tally.late += u64::from(now > planned + LATE);
        Some(planned)
    }

    async fn exchange(
        &self,
        open: &mut Option<Connection>,
        request: Request<Full<Bytes>>,
    ) -> Result<(Instant, Exchange), String> {
        if let Some(connection) = open
            && !connection.is_open().await
        {
            *open = None;
        }
        let connection = match open {
            Some(connection) => connection,
            None => open.insert(self.connect().await?),
        };
        let sent = Instant::now();
        Ok((sent, connection.exchange(request, 0).await?))
    }

    async fn connect(&self) -> Result<Connection, String> {
        let plan = &self.shared.plan;
        let target = &plan.endpoints[self.endpoint];
        let opened = client::open(target, self.address, &plan.connector).await?;
        let mut tally = self.tally.borrow_mut();
        tally.connections += 1;
        tally.phases.connect.record(opened.connect);
        if let Some(tls) = opened.tls {
            tally.phases.tls.record(tls);
        }
        Ok(opened.connection)
    }

    fn count(&self, number: u64, start: Instant, sent: Instant, exchange: &Exchange) {
        let (shared, work) = (self.shared, &self.shared.plan.work);
        let is_success = work.expects(exchange.head.status);
        if is_success {
            work.answered(number, &exchange.head);
            shared.succeeded(exchange.end);
        } else {
            shared.failed(&format!("status {}", exchange.head.status));
        }
        let mut tally = self.tally.borrow_mut();
        let latency = exchange.end - start;
        if let Pace::Open { .. } = shared.plan.pace {
            let second = tally.second_at(exchange.end - shared.start);
            second.replies += 1;
            second.latency.record(latency);
            *second.statuses.entry(exchange.head.status.as_u16()).or_default() += 1;
        }
        let in_time =
            exchange.end >= shared.began() && shared.end().is_none_or(|end| exchange.end <= end);
        if is_success && in_time {
            tally.in_time += 1;
            tally.bytes_in_time += exchange.bytes + work.sent_bytes(number);
        }
        if start >= shared.began() {
            tally.latency.record(latency);
            tally.phases.first_byte.record(exchange.first_byte - sent);
            tally.phases.transfer.record(exchange.end - exchange.first_byte);
            tally.status(exchange.head.status);
        }
    }

    fn count_error(&self, start: Instant, cause: &str) {
        self.shared.failed(cause);
        let mut tally = self.tally.borrow_mut();
        if let Pace::Open { .. } = self.shared.plan.pace {
            tally.second_at(self.shared.start.elapsed()).errors += 1;
        }
        if start >= self.shared.began() {
            tally.error(cause);
        }
    }
}
