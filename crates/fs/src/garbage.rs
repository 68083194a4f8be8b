//! The state of the garbage collector between its passes.

use std::time::Duration;

use cairn_base::{BlockId, BodyId, GroupId};

/// A block or body that this session wrote and will not publish.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GarbageItem {
    Block(GroupId, BlockId),
    /// A body with staged extents.
    Body(BodyId),
}

/// The parts of an ended session that were looked through.
#[derive(Clone, Copy)]
pub struct Looks {
    /// Monotonic time at which the first look began.
    pub first: Duration,
    pub again: bool,
}
