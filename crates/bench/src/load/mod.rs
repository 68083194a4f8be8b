//! Requests that many connections send at once, in a closed loop or at a rate, and their results.
//!
//! ```text
//!   Plan ──► thread 0: connection, connection, … ─┐
//!            thread 1: connection, connection, … ─┴─► Tally ──► Sample
//! ```
//!
//! Each thread has a runtime, and shares with the others only the number of the next request.

mod connection;
mod repeat;
mod run;
mod tally;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, response};
use http_body_util::Full;
use tokio_rustls::TlsConnector;

pub use repeat::Repeat;
pub use run::{ask, run, run_always};
pub use tally::{Phases, Sample, Second, Tally};

use crate::client::Target;

/// Requests of a load.
pub trait Work: Send + Sync {
    /// Makes the request of this number for the endpoint of this number; none if there are no more.
    fn request(&self, number: u64, endpoint: usize) -> Option<Request<Full<Bytes>>>;

    /// Called with each answer that is a success.
    fn answered(&self, _number: u64, _head: &response::Parts) {}

    /// Returns the bytes that this request sends, to be counted when it is answered.
    fn sent_bytes(&self, _number: u64) -> u64 {
        0
    }

    /// Returns true if a status is a success.
    fn expects(&self, status: StatusCode) -> bool {
        status.is_success() || status.is_redirection()
    }
}

/// Times at which requests begin.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// Each connection asks again as soon as it is answered. Requests that begin in the warm-up are
    /// not counted. Without a duration the load ends with the work.
    Closed { warm_up: Duration, duration: Option<Duration> },
    /// `rate` requests per second, whether or not they are answered; times count from the planned
    /// instant.
    Open { rate: f64, duration: Duration },
}

/// A run of one load.
#[derive(Clone)]
pub struct Plan {
    /// Targets, which connections use in turn.
    pub endpoints: Vec<Target>,
    pub connector: TlsConnector,
    pub work: Arc<dyn Work>,
    pub connections: usize,
    pub keep_alive: bool,
    pub pace: Pace,
    /// Time after which a request has failed.
    pub timeout: Duration,
    pub threads: usize,
    /// Processes of the server, if they are on this machine.
    pub server: Vec<u32>,
}

impl Plan {
    /// Returns the number of planned requests; none in a closed loop.
    pub fn planned(&self) -> Option<u64> {
        match self.pace {
            Pace::Open { rate, duration } => Some((rate * duration.as_secs_f64()).ceil() as u64),
            Pace::Closed { .. } => None,
        }
    }
}
