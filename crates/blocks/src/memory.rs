//! Memory that blocks are read into.

use std::ops::Range;

use cairn_base::Buffers;

/// Bytes of a buffer; longer reads get memory of their own. This is the most that a mount or an NFS
/// client asks for at once, and a page.
const BUFFER_BYTES: usize = (1 << 20) + (128 << 10);
/// Number of buffers that are kept to be used again.
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
    /// Returns the buffers for a read whose bytes go to a client. Returns `None` for reads of at
    /// most `short` bytes, which have memory of their own.
    pub(crate) fn of(&self, range: &Range<u32>, short: usize) -> Option<&Buffers> {
        (range.len() > short).then_some(&self.0)
    }
}
