//! Transfers of entries to other members that cannot go on as the library has begun them.
//!
//! The library asks for a range of entries until another member has all of them. Once the first of
//! them is overwritten in the ring there is nothing to send, and an error of the log would end the
//! leader's core. So the reader of the log notes where that range begins, and the call that should
//! have carried the entries is answered with an error of the network. That ends the range, and the
//! library begins the next one after the entries that it has purged, or sends a snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_base::planted::{Bug, is_planted};
use parking_lot::Mutex;

/// Most starts of ranges that are remembered: there are far fewer members.
const STARTS_MAX: usize = 64;
/// Number of calls that fail so that a range begins anew. Some of them may be heartbeats, which
/// begin no range.
const RESTART_CALLS: u32 = 4;

#[derive(Default)]
pub struct Transfers {
    state: Mutex<TransfersState>,
    overwritten: AtomicU64,
    /// Pages of snapshots that each member received.
    pages: Mutex<BTreeMap<u64, u64>>,
}

#[derive(Default)]
struct TransfersState {
    /// First entries of requested ranges that are overwritten.
    starts: BTreeSet<u64>,
    /// The last of them, and how often it was requested in a row; `most_repeated` is the largest
    /// such number.
    repeated: (u64, u64),
    most_repeated: u64,
    /// Number of further calls to each member that are to fail, so that its range begins anew.
    restarts: BTreeMap<u64, u32>,
}

impl Transfers {
    /// Notes that a range was requested whose first entry, at `start`, is overwritten.
    pub fn note_overwritten(&self, start: u64) {
        self.overwritten.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        let (last, count) = state.repeated;
        state.repeated = (start, if last == start { count + 1 } else { 1 });
        state.most_repeated = state.most_repeated.max(state.repeated.1);
        if is_planted(Bug::OverwrittenIsEmpty) {
            return;
        }
        if state.starts.len() >= STARTS_MAX {
            state.starts.clear();
        }
        state.starts.insert(start);
    }

    /// Makes the range that is on its way to `member` begin anew.
    pub fn restart(&self, member: u64) {
        self.state.lock().restarts.insert(member, RESTART_CALLS);
    }

    /// Returns whether a call of `member` that continues with the entry at `next` must fail, so
    /// that its range begins anew. Counts the call.
    pub fn fails(&self, member: u64, next: u64) -> bool {
        let mut state = self.state.lock();
        let is_overwritten = state.starts.remove(&next);
        let Some(left) = state.restarts.get_mut(&member) else { return is_overwritten };
        *left -= 1;
        if *left == 0 {
            state.restarts.remove(&member);
        }
        true
    }

    /// Counts a page of a snapshot that `member` received.
    pub fn count_page(&self, member: u64) {
        *self.pages.lock().entry(member).or_default() += 1;
    }

    /// Number of pages of snapshots that `member` received.
    pub fn pages_of(&self, member: u64) -> u64 {
        self.pages.lock().get(&member).copied().unwrap_or(0)
    }

    /// Largest number of requests in a row for one range whose first entry was overwritten. It
    /// stays at a few per other member; a larger number means that a range does not end.
    pub fn most_repeated(&self) -> u64 {
        self.state.lock().most_repeated
    }

    /// Number of requested ranges whose first entry was overwritten.
    pub fn overwritten(&self) -> u64 {
        self.overwritten.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_begins_anew_once() {
        let transfers = Transfers::default();
        assert!(!transfers.fails(2, 7));
        transfers.note_overwritten(7);
        assert!(!transfers.fails(2, 8));
        assert!(transfers.fails(2, 7));
        assert!(!transfers.fails(2, 7));
        transfers.restart(3);
        assert!(!transfers.fails(2, 7));
        assert!((0..RESTART_CALLS).all(|_| transfers.fails(3, 9)));
        assert!(!transfers.fails(3, 9));
        assert_eq!(transfers.overwritten(), 1);
    }

    #[test]
    fn forgotten_starts_take_no_memory() {
        let transfers = Transfers::default();
        (0..1000).for_each(|start| transfers.note_overwritten(start));
        assert!(transfers.state.lock().starts.len() <= STARTS_MAX);
        assert!(transfers.fails(2, 999));
    }
}
