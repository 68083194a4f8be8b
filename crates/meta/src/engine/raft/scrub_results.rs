//! Findings of the scrub of a member.

use std::sync::atomic::AtomicU64;

use cairn_base::Timestamp;
use parking_lot::Mutex;

/// Damage at rest that is not healed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// File or row, and its damage.
    pub what: String,
    /// Time when the damage was noticed.
    pub since: Timestamp,
}

/// Results of a member's scrub.
#[derive(Debug, Default)]
pub struct ScrubResults {
    pub damage: Mutex<Option<Damage>>,
    /// Rows that differ among members, where no majority agrees.
    pub undecided: Mutex<Option<Damage>>,
    /// Completed passes; `healed` counts damaged records of the log that are no longer needed.
    pub passes: AtomicU64,
    pub healed: AtomicU64,
}
