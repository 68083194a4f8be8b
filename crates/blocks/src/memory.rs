//! Memory that blocks are read into.

use std::ops::Range;

use cairn_base::Buffers;

/// Longer runs get memory of their own. This is as much as a mount or a client of NFS is asked for
/// at once, and a page.
const BUFFER_BYTES: usize = (1 << 20) + (128 << 10);
/// Buffers that wait to be used again.
const WAITING: usize = 16;

/// Memory to read into.
#[derive(Clone)]
pub(crate) struct ReadMemory(Buffers);

impl Default for ReadMemory {
    fn default() -> ReadMemory {
        ReadMemory(Buffers::new(BUFFER_BYTES, WAITING))
    }
}

impl ReadMemory {
    /// For a read by which somebody is given these bytes. None if they are no more than `short`:
    /// then each has memory of its own.
    pub(crate) fn of(&self, range: &Range<u32>, short: usize) -> Option<&Buffers> {
        (range.len() > short).then_some(&self.0)
    }
}
