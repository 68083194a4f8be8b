//! What the scrub of a member has found.

use std::sync::atomic::AtomicU64;

use cairn_base::Timestamp;
use parking_lot::Mutex;

/// Damage at rest that is not healed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The file or the row, and what is wrong with it.
    pub what: String,
    /// When it was noticed.
    pub since: Timestamp,
}

/// The results of a member's scrub.
#[derive(Debug, Default)]
pub struct Scrubbed {
    pub damage: Mutex<Option<Damage>>,
    /// Rows that differ among members, where no majority agrees.
    pub undecided: Mutex<Option<Damage>>,
    /// Passes that ended, and damaged records of the log that are needed no more.
    pub passes: AtomicU64,
    pub healed: AtomicU64,
}
