//! Scrubs of a cluster: their state at each chunkserver, and the damaged objects that they found.
//! Also orders, and lists of damaged objects, which fscks use too.

use crate::{NodeId, Rng};

/// An order to a scrub or an fsck of a cluster. Each has a number chosen by its orderer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunOrder {
    /// Asks for the state, and changes nothing.
    Look,
    Begin,
    Stop,
}

impl RunOrder {
    /// Returns the number of a run to order: a new one to begin a run, and otherwise 0, for the run
    /// that is under way or ended last.
    pub fn number(self, rng: &dyn Rng) -> u64 {
        match self {
            RunOrder::Begin => rng.next_u64().max(1),
            RunOrder::Look | RunOrder::Stop => 0,
        }
    }
}

/// State of a scrub at one chunkserver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ScrubPhase {
    /// This process has received no order for the scrub: it started after the order was given.
    #[default]
    Unknown,
    Waits,
    Runs,
    Ended,
    Stopped,
    Failed,
    /// The chunkserver could not be asked. It never reports this itself.
    Silent,
}

impl ScrubPhase {
    pub const ALL: [ScrubPhase; 7] = [
        ScrubPhase::Unknown,
        ScrubPhase::Waits,
        ScrubPhase::Runs,
        ScrubPhase::Ended,
        ScrubPhase::Stopped,
        ScrubPhase::Failed,
        ScrubPhase::Silent,
    ];

    pub fn number(self) -> u32 {
        self as u32
    }

    /// Decodes a number; one of a newer version is [`ScrubPhase::Unknown`].
    pub fn from_number(number: u64) -> ScrubPhase {
        let found = Self::ALL.into_iter().find(|phase| u64::from(phase.number()) == number);
        found.unwrap_or_default()
    }

    pub fn word(self) -> &'static str {
        match self {
            ScrubPhase::Unknown => "unknown",
            ScrubPhase::Waits => "waits",
            ScrubPhase::Runs => "runs",
            ScrubPhase::Ended => "ended",
            ScrubPhase::Stopped => "stopped",
            ScrubPhase::Failed => "failed",
            ScrubPhase::Silent => "silent",
        }
    }

    /// Returns whether the scrub comes to an end without further orders.
    pub fn is_under_way(self) -> bool {
        matches!(self, ScrubPhase::Waits | ScrubPhase::Runs)
    }
}

/// The report of a chunkserver on a scrub.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeScrub {
    pub phase: ScrubPhase,
    pub blocks: u64,
    /// Number of blocks at the start of the scrub.
    pub total_blocks: u64,
    pub bytes: u64,
    /// Blocks that failed verification.
    pub damaged: u64,
    /// Damaged blocks that were replaced by another member's replica, or deleted since.
    pub repaired: u64,
    /// Damaged blocks whose repair has not been tried yet.
    pub pending: u64,
    /// Reason why the scrub failed, or why the node cannot be asked.
    pub failure: String,
    /// Segments that could be read only in part when the node started. It may lack blocks of these,
    /// and no scrub looks for missing blocks.
    pub damaged_segments: u64,
}

/// Severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Wholeness {
    /// No good replica can be read now.
    Lost,
    /// Good replicas exist, but fewer than there should be.
    Degraded,
    /// A damaged replica was replaced.
    Repaired,
}

impl Wholeness {
    pub const ALL: [Wholeness; 3] = [Wholeness::Lost, Wholeness::Degraded, Wholeness::Repaired];

    pub fn word(self) -> &'static str {
        match self {
            Wholeness::Lost => "lost",
            Wholeness::Degraded => "degraded",
            Wholeness::Repaired => "repaired",
        }
    }
}

/// A range of an object, and the number of its replicas.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DegradedObject {
    pub wholeness: Wholeness,
    /// `bucket/key`.
    pub object: String,
    /// First byte of the range, and the byte after the last.
    pub start: u64,
    pub end: u64,
}

/// Objects, the worst first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DegradedObjects {
    pub objects: Vec<DegradedObject>,
    /// Set if there are, or may be, more objects than are named.
    pub is_cut: bool,
    /// Number of blocks by severity, in the order of [`Wholeness::ALL`].
    pub blocks: [u64; 3],
    /// Number of further blocks that no object holds any more, as far as they were looked up.
    pub garbage: u64,
    /// Chunkservers that could not report their findings or blocks, and the reasons.
    pub silent: Vec<(NodeId, String)>,
    /// Number of objects that are known and not named.
    pub unnamed: u64,
}
