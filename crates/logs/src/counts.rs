//! Counts of records by protocol and outcome.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The protocol by which records were sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    Lines,
    Loki,
    Bulk,
    Otlp,
    Journal,
    Syslog,
}

impl Protocol {
    pub const ALL: [Protocol; 6] = [
        Protocol::Lines,
        Protocol::Loki,
        Protocol::Bulk,
        Protocol::Otlp,
        Protocol::Journal,
        Protocol::Syslog,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Protocol::Lines => "lines",
            Protocol::Loki => "loki",
            Protocol::Bulk => "bulk",
            Protocol::Otlp => "otlp",
            Protocol::Journal => "journal",
            Protocol::Syslog => "syslog",
        }
    }
}

/// Counts of the records of one protocol.
#[derive(Debug, Default)]
pub struct Count {
    /// Number of records that are durable.
    pub accepted: AtomicU64,
    /// Number of records refused because of their content: sent again they would be refused again.
    pub refused: AtomicU64,
    /// Number of records that could not be stored, through no fault of their own. Their sender was
    /// notified, and may send them again.
    pub failed: AtomicU64,
    /// Number of records that could not be stored, without a sender that could be notified.
    pub lost: AtomicU64,
}

/// Counts of the records of all protocols.
#[derive(Debug, Default)]
pub struct Counts([Count; Protocol::ALL.len()]);

impl Counts {
    pub fn of(&self, protocol: Protocol) -> &Count {
        &self.0[protocol as usize]
    }

    /// Returns all counts that are not zero: protocol, outcome, number of records.
    pub fn read(&self) -> Vec<(&'static str, &'static str, u64)> {
        let all = Protocol::ALL.into_iter().flat_map(|protocol| {
            let Count { accepted, refused, failed, lost } = self.of(protocol);
            [("accepted", accepted), ("refused", refused), ("failed", failed), ("lost", lost)]
                .map(|(outcome, count)| (protocol.name(), outcome, count.load(Relaxed)))
        });
        all.filter(|(.., count)| *count > 0).collect()
    }
}

/// Adds a number of records to a count.
pub fn add(count: &AtomicU64, records: usize) {
    count.fetch_add(records as u64, Relaxed);
}
