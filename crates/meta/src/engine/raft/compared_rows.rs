//! The rows of a member that are compared with those of others, and their digests.

use std::fmt;

use super::digest::RowDigests;
use super::outgoing::Outgoing;

/// A member's part in the last comparison.
#[derive(Default)]
pub struct Comparison {
    /// True until the next empty entry, as of which rows are kept.
    pub awaited: bool,
    /// Rows as of that entry, until they are summed up.
    pub rows: Option<Outgoing>,
    /// Length of the file of rows at that entry.
    pub table_bytes: u64,
    pub digests: Option<RowDigests>,
    /// Number of times that all rows were replaced.
    pub replaced: u64,
}

impl fmt::Debug for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Comparison").field("awaited", &self.awaited).finish_non_exhaustive()
    }
}
