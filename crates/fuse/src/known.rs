//! The inodes that the kernel knows, and whether the pages it keeps of them are still right.
//!
//! A change elsewhere marks an inode, invalidates its attributes in the kernel, and is then let
//! go on. The next `read` has to ask for the attributes: before they are given, the pages go. So
//! nobody who waits for the change waits for the pages, which reads in progress may have locked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_base::Ino;
use parking_lot::Mutex;

const SHARDS: usize = 16;

#[derive(Default)]
pub struct Known {
    shards: [Mutex<HashMap<u64, One>>; SHARDS],
    /// Counts changes; each gets a number.
    changes: AtomicU64,
    /// The last change that concerned everything.
    all: AtomicU64,
}

#[derive(Clone, Copy, Default)]
struct One {
    lookups: u64,
    /// The last change of it.
    changed: u64,
    /// Pages are those after this change.
    told: u64,
}

/// Changes there were up to a moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment(u64);

impl Known {
    fn shard(&self, ino: Ino) -> &Mutex<HashMap<u64, One>> {
        &self.shards[ino.0 as usize % SHARDS]
    }

    /// Now. If it is the same later, nothing changed in between.
    pub fn moment(&self) -> Moment {
        Moment(self.changes.load(Ordering::SeqCst))
    }

    /// The kernel gets to know an inode once more.
    pub fn enter(&self, ino: Ino) {
        let mut shard = self.shard(ino).lock();
        let now = self.changes.load(Ordering::SeqCst);
        shard.entry(ino.0).or_insert(One { lookups: 0, changed: now, told: now }).lookups += 1;
    }

    /// The kernel forgets an inode some times.
    pub fn leave(&self, ino: Ino, times: u64) {
        let mut shard = self.shard(ino).lock();
        let Some(one) = shard.get_mut(&ino.0) else { return };
        one.lookups = one.lookups.saturating_sub(times);
        if one.lookups == 0 {
            shard.remove(&ino.0);
        }
    }

    /// An inode changed elsewhere.
    pub fn change(&self, ino: Ino) {
        let mut shard = self.shard(ino).lock();
        let number = self.changes.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some(one) = shard.get_mut(&ino.0) {
            one.changed = number;
        }
    }

    /// Something else changed.
    pub fn change_other(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Everything may have changed. Returns all inodes that the kernel knows.
    pub fn change_all(&self) -> Vec<Ino> {
        let number = self.changes.fetch_add(1, Ordering::SeqCst) + 1;
        self.all.fetch_max(number, Ordering::SeqCst);
        let inodes = |shard: &Mutex<HashMap<u64, One>>| -> Vec<Ino> {
            shard.lock().keys().map(|ino| Ino(*ino)).collect()
        };
        self.shards.iter().flat_map(inodes).collect()
    }

    /// Whether the kernel's pages of an inode are right.
    pub fn is_told(&self, ino: Ino) -> bool {
        let shard = self.shard(ino).lock();
        let Some(one) = shard.get(&ino.0) else { return true };
        one.told >= one.changed.max(self.all.load(Ordering::SeqCst))
    }

    /// The kernel's pages are from after this moment.
    pub fn tell(&self, ino: Ino, moment: Moment) {
        if let Some(one) = self.shard(ino).lock().get_mut(&ino.0) {
            one.told = one.told.max(moment.0);
        }
    }

    pub fn count(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_right_until_a_change() {
        let known = Known::default();
        let (a, b) = (Ino(1), Ino(2));
        known.enter(a);
        known.enter(b);
        assert!(known.is_told(a) && known.is_told(b));
        known.change(a);
        assert!(!known.is_told(a) && known.is_told(b));
        known.tell(a, known.moment());
        assert!(known.is_told(a));
        let before = known.moment();
        assert_eq!(known.change_all().len(), 2);
        known.tell(a, before);
        assert!(!known.is_told(a) && !known.is_told(b));
        known.leave(a, 1);
        known.enter(a);
        assert!(known.is_told(a));
        assert_eq!(known.count(), 2);
    }
}
