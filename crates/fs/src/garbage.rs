//! The garbage collector's memory between its passes.

use std::time::Duration;

use cairn_base::{BlockId, BodyId, GroupId};

/// Something this session wrote and will not publish.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Abandoned {
    Block(GroupId, BlockId),
    /// A body with staged extents.
    Body(BodyId),
}

/// The parts of an ended session that were looked through.
#[derive(Clone, Copy)]
pub struct Looks {
    /// When the first look began, by the monotonic clock.
    pub first: Duration,
    pub again: bool,
}
