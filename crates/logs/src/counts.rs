//! How many records came, and what became of them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How records came.
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

/// Records of one protocol.
#[derive(Debug, Default)]
pub struct Count {
    /// Durable.
    pub accepted: AtomicU64,
    /// Refused for what they are: sent again they would be refused again.
    pub refused: AtomicU64,
    /// Not stored, by no fault of theirs, and their sender was told: it may send them again.
    pub failed: AtomicU64,
    /// Not stored, and nobody could be told.
    pub lost: AtomicU64,
}

/// Those of all protocols.
#[derive(Debug, Default)]
pub struct Counts([Count; Protocol::ALL.len()]);

impl Counts {
    pub fn of(&self, protocol: Protocol) -> &Count {
        &self.0[protocol as usize]
    }

    /// All that is not zero: protocol, what became of the records, and how many.
    pub fn read(&self) -> Vec<(&'static str, &'static str, u64)> {
        let all = Protocol::ALL.into_iter().flat_map(|protocol| {
            let Count { accepted, refused, failed, lost } = self.of(protocol);
            [("accepted", accepted), ("refused", refused), ("failed", failed), ("lost", lost)]
                .map(|(outcome, count)| (protocol.name(), outcome, count.load(Relaxed)))
        });
        all.filter(|(.., count)| *count > 0).collect()
    }
}

/// Adds to a count.
pub fn add(count: &AtomicU64, records: usize) {
    count.fetch_add(records as u64, Relaxed);
}
