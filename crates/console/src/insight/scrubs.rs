//! Scrubs of the blocks that a process keeps.

use cairn_base::Timestamp;

/// Scrubs of the blocks of this process.
pub trait Scrubs: Send + Sync {
    fn state(&self) -> ScrubState;
    /// Begins a scrub, unless one runs.
    fn begin(&self);
    /// Stops the scrub that runs, if any, before its end.
    fn stop(&self);
}

/// State of the scrubs of a process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScrubState {
    pub running: Option<ScrubRun>,
    /// The last scrub that ended since this process began.
    pub last: Option<ScrubEnd>,
    /// Time at which a scrub last reached its end, as noted on the disk.
    pub noted: Option<Timestamp>,
    /// Interval at which scrubs begin on their own, days; 0 for never.
    pub every_days: u32,
    /// Limit of the bytes that a scrub reads per second.
    pub rate: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScrubRun {
    pub began: Timestamp,
    pub blocks: u64,
    /// Number of blocks at the start.
    pub total_blocks: u64,
    pub bytes: u64,
    pub damaged_blocks: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScrubEnd {
    pub ended: Timestamp,
    pub blocks: u64,
    pub bytes: u64,
    pub damaged_blocks: u64,
    /// Objects to which the damaged blocks belong. A block that no object needs any more does no
    /// harm.
    pub damaged: Vec<DamagedObject>,
    /// Set if it was stopped before its end.
    pub is_stopped: bool,
    /// Reason why it failed, or why objects could not be named.
    pub failure: Option<String>,
}

/// An object with damaged bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedObject {
    /// `bucket/key`.
    pub object: String,
    /// First damaged byte, and the byte after the last one.
    pub start: u64,
    pub end: u64,
    pub why: String,
}
