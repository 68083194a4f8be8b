//! A snapshot of another member that is being received.

use cairn_base::{Error, Result};

use super::outgoing::SnapshotState;
use super::snapshot::Incoming;

/// A snapshot that is being received.
pub struct Receiving {
    pub from: u64,
    pub transfer: u64,
    /// The number of the next page.
    pub next: u64,
    pub taken: SnapshotState,
    pub incoming: Incoming,
}

/// Takes the snapshot of this transfer if its next page has this number.
///
/// # Errors
/// `Conflict` if another snapshot is being received, or none.
pub fn take_receiving(
    slot: &mut Option<Receiving>,
    from: u64,
    transfer: u64,
    number: u64,
) -> Result<Receiving> {
    let is_it = |receiving: &mut Receiving| {
        (receiving.from, receiving.transfer, receiving.next) == (from, transfer, number)
    };
    let other = || Error::Conflict(format!("page {number} of a snapshot that is not received"));
    slot.take_if(is_it).ok_or_else(other)
}
