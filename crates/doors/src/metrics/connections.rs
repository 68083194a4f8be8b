//! Numbers of connections.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::number::{Number, counter, counter_seconds, gauge};

/// Open connections of all listeners of one door, or of several.
#[derive(Debug, Default)]
pub struct Connections {
    open: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
    tls_full: AtomicU64,
    tls_resumed: AtomicU64,
    tls_failed: AtomicU64,
    tls_us: AtomicU64,
}

/// The outcome of a TLS handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Handshake {
    /// Succeeded with a signature of the server's key, which costs most.
    Full,
    Resumed,
    Failed,
}

pub(crate) struct Open<'a>(&'a Connections);

impl Connections {
    pub(crate) fn enter(&self) -> Open<'_> {
        self.open.fetch_add(1, Relaxed);
        self.accepted.fetch_add(1, Relaxed);
        Open(self)
    }

    /// Counts a connection that found no place.
    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(crate) fn shook_hands(&self, handshake: Handshake, took: Duration) {
        let counter = match handshake {
            Handshake::Full => &self.tls_full,
            Handshake::Resumed => &self.tls_resumed,
            Handshake::Failed => &self.tls_failed,
        };
        counter.fetch_add(1, Relaxed);
        self.tls_us.fetch_add(took.as_micros() as u64, Relaxed);
    }

    pub fn open(&self) -> u64 {
        self.open.load(Relaxed)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

pub(super) fn of_connections(connections: &Connections) -> Vec<Number> {
    let get = |counter: &AtomicU64| counter.load(Relaxed);
    vec![
        gauge("connections", "Open connections", connections.open()),
        counter("connections_accepted", "Connections", get(&connections.accepted)),
        counter(
            "connections_refused",
            "Connections that were closed for want of a place",
            get(&connections.refused),
        ),
        counter("tls_full", "TLS handshakes with a signature", get(&connections.tls_full)),
        counter("tls_resumed", "TLS sessions resumed", get(&connections.tls_resumed)),
        counter("tls_failed", "TLS handshakes that failed", get(&connections.tls_failed)),
        counter_seconds(
            "tls_seconds",
            "Time in TLS handshakes",
            Duration::from_micros(get(&connections.tls_us)),
        ),
    ]
}
