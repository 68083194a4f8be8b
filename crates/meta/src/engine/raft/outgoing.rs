//! All rows of a member as of one entry, in pages: for a member that is too far behind for the log,
//! and for the comparison of members.

use bytes::Bytes;
use cairn_base::Result;
use cairn_base::planted::{Bug, is_planted};

use super::super::{Fence, Snapshot};
use super::entry::EntryId;
use super::member_record::Membership;

/// Rows read at once.
const PAGE: usize = 500;
/// Size of a page beyond which it takes no further row, bytes.
const PAGE_BYTES: usize = 1 << 20;
/// All keys are between these.
const FIRST: &[u8] = b"";
const END: &[u8] = b"\xff";

/// The state as of which rows were taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotState {
    /// Last entry in them.
    pub applied: EntryId,
    pub fence: Fence,
    pub given_up: bool,
    pub membership: Membership,
}

/// A snapshot of this member's rows for another.
pub struct Outgoing {
    pub taken: SnapshotState,
    rows: Box<dyn Snapshot>,
    /// Start of the next page; `None` if there is none.
    next: Option<Vec<u8>>,
}

impl Outgoing {
    /// Begins with the first of `rows`, which are in the state `taken`.
    pub fn new(taken: SnapshotState, rows: Box<dyn Snapshot>) -> Outgoing {
        Outgoing { taken, rows, next: Some(FIRST.to_vec()) }
    }

    /// Returns the next rows, in key order; `None` after the last.
    ///
    /// # Errors
    /// Those of the rows.
    pub fn page(&mut self) -> Result<Option<Vec<(Bytes, Bytes)>>> {
        let Some(next) = self.next.take() else { return Ok(None) };
        let mut page = if is_planted(Bug::DamagedFills) {
            self.rows.scan_sound(&next, END, PAGE, &mut |_, _| {})?
        } else {
            self.rows.scan(&next, END, PAGE)?
        };
        let (found, mut bytes) = (page.len(), 0);
        let fits = |(key, row): &&(Bytes, Bytes)| {
            bytes += key.len() + row.len();
            bytes <= PAGE_BYTES
        };
        let fitting = page.iter().take_while(fits).count().max(1);
        page.truncate(fitting);
        if let Some((key, _)) = page.last().filter(|_| found == PAGE || fitting < found) {
            self.next = Some([key, &b"\0"[..]].concat());
        }
        Ok((!page.is_empty()).then_some(page))
    }
}
