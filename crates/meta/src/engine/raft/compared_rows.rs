//! The rows of a member that are compared with those of others, and their digests.

use std::fmt;

use super::super::Snapshot;
use super::digest::RowDigests;
use super::entry::EntryId;

/// The part of a member in the last comparison.
#[derive(Default)]
pub struct Comparison {
    /// The next empty entry counts.
    pub awaited: bool,
    /// The rows as of that entry, until they are summed up.
    pub rows: Option<(EntryId, Box<dyn Snapshot>)>,
    pub digests: Option<RowDigests>,
    /// Count of the times at which all rows were replaced.
    pub replaced: u64,
}

impl fmt::Debug for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Comparison").field("awaited", &self.awaited).finish_non_exhaustive()
    }
}
