//! The inodes that the kernel knows, and what it was told of their bytes.
//!
//! A change elsewhere invalidates an inode's attributes in the kernel, and is then let go on. The
//! next `read` has to ask for the attributes, and when these have another size or mtime than the
//! kernel knows, it drops its pages (`FUSE_AUTO_INVAL_DATA`). So nobody who waits for the change
//! waits for the pages, which reads in progress may have locked. Dropping them from here while the
//! kernel asks would not do: it ignores answers that were invalidated meanwhile.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cairn_base::{Ino, Timestamp};
use cairn_fs::rows::{Inode, Kind};
use parking_lot::Mutex;
use tokio::time::Instant;

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
    /// The last one that was not this mount's.
    changed_elsewhere: u64,
    /// The last one of the names in it.
    names_changed: u64,
    /// The attributes that the kernel was told last.
    shown: Option<ShownToKernel>,
    /// When it was told of the entries of a directory, and until when it keeps that.
    listed: Option<(Moment, Instant)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct ShownToKernel {
    size: u64,
    mtime: Timestamp,
    /// The true mtime.
    true_mtime: Timestamp,
    data_change: u64,
    /// The last change of the names in it that there was.
    names_at: u64,
    /// When it was asked for.
    at: Moment,
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
        let fresh =
            One { changed: now, changed_elsewhere: now, names_changed: now, ..One::default() };
        shard.entry(ino.0).or_insert(fresh).lookups += 1;
    }

    /// The kernel forgets an inode some times. Whether it does not know it any more.
    pub fn leave(&self, ino: Ino, times: u64) -> bool {
        let mut shard = self.shard(ino).lock();
        let Some(one) = shard.get_mut(&ino.0) else { return true };
        one.lookups = one.lookups.saturating_sub(times);
        if one.lookups > 0 {
            return false;
        }
        shard.remove(&ino.0);
        true
    }

    /// An inode changed elsewhere; `names` in it, if it is a directory.
    pub fn change(&self, ino: Ino, names: bool) {
        self.note_change(ino, names, true);
    }

    /// As [`Known::change`], by an operation of this mount.
    pub fn change_here(&self, ino: Ino, names: bool) {
        self.note_change(ino, names, false);
    }

    fn note_change(&self, ino: Ino, names: bool, elsewhere: bool) {
        let mut shard = self.shard(ino).lock();
        let number = self.changes.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some(one) = shard.get_mut(&ino.0) {
            one.changed = number;
            if elsewhere {
                one.changed_elsewhere = number;
            }
            if names {
                one.names_changed = number;
            }
        }
    }

    /// The kernel is told of the entries of a directory, as they were at `moment`, and keeps them
    /// so long.
    pub fn list(&self, ino: Ino, moment: Moment, keeps: Duration) {
        if let Some(one) = self.shard(ino).lock().get_mut(&ino.0) {
            one.listed = Some((moment, Instant::now() + keeps));
        }
    }

    /// Whether it keeps them, and they are still the same. A listing of the directory then need not
    /// tell them again.
    pub fn is_listed(&self, ino: Ino) -> bool {
        let shard = self.shard(ino).lock();
        let Some(one) = shard.get(&ino.0) else { return false };
        let changed = self.last_change(one);
        one.listed.is_some_and(|(at, until)| changed <= at.0 && Instant::now() < until)
    }

    fn last_change(&self, one: &One) -> u64 {
        one.changed.max(self.all.load(Ordering::SeqCst))
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

    /// Attributes that were asked for since `moment` go to the kernel now. Where bytes changed and
    /// somebody set size and mtime to what they were, the kernel gets an mtime a nanosecond off,
    /// this once, so that it drops its pages. So it is with a directory, whose names it keeps,
    /// after any change of these. There it holds until the next change, since the kernel does not
    /// look at each mtime, but at the one it has when it is asked for the names.
    ///
    /// Returns that mtime.
    pub fn show(&self, ino: Ino, moment: Moment, inode: &Inode) -> Timestamp {
        let Inode { size, data_change, mtime: true_mtime, .. } = *inode;
        let mut shard = self.shard(ino).lock();
        let Some(one) = shard.get_mut(&ino.0) else { return true_mtime };
        let names_at = one.names_changed.max(self.all.load(Ordering::SeqCst));
        let hides = |shown: ShownToKernel| match inode.kind {
            Kind::Directory if shown.names_at < names_at => shown.mtime == true_mtime,
            Kind::Directory => shown.true_mtime == true_mtime && shown.mtime != true_mtime,
            _ => {
                // A change that was made here gets its number when the server has run it.
                let changed_elsewhere = one.changed_elsewhere.max(self.all.load(Ordering::SeqCst));
                let got_number = shown.data_change >= Inode::NO_BATCH
                    && data_change < Inode::NO_BATCH
                    && changed_elsewhere <= shown.at.0;
                shown.data_change != data_change
                    && !got_number
                    && (shown.size, shown.mtime) == (size, true_mtime)
            }
        };
        let mtime = match one.shown.is_some_and(hides) {
            true => Timestamp(true_mtime.0.wrapping_add(1)),
            false => true_mtime,
        };
        // Of what it asked for before a change, the kernel takes no answer.
        if self.last_change(one) <= moment.0 {
            let at = moment;
            one.shown = Some(ShownToKernel { size, mtime, true_mtime, data_change, names_at, at });
        }
        mtime
    }

    pub fn count(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode(size: u64, mtime: i64, data_change: u64) -> Inode {
        Inode { size, mtime: Timestamp(mtime), data_change, ..Inode::default() }
    }

    #[test]
    fn what_hides_a_change_of_bytes_is_shown_otherwise_once() {
        let (known, ino) = (Known::default(), Ino(1));
        known.enter(ino);
        let show = |inode: Inode| known.show(ino, known.moment(), &inode).0;
        assert_eq!(show(inode(5, 100, 1)), 100);
        assert_eq!(show(inode(5, 100, 1)), 100, "the same bytes");
        assert_eq!(show(inode(5, 200, 2)), 200, "the kernel sees it");
        assert_eq!(show(inode(5, 200, 3)), 201);
        assert_eq!(show(inode(5, 200, 3)), 200);
        assert_eq!(show(inode(6, 200, 4)), 200);
    }

    #[test]
    fn what_was_done_here_changes_no_more_when_it_gets_its_number() {
        let (known, ino) = (Known::default(), Ino(1));
        known.enter(ino);
        let show = |data_change| known.show(ino, known.moment(), &inode(5, 100, data_change)).0;
        let here = Inode::NO_BATCH;
        assert_eq!((show(here + 1), show(here + 2)), (100, 101), "two changes");
        assert_eq!((show(here + 2), show(7), show(8)), (100, 100, 101));
        assert_eq!((show(8), show(here + 3), show(here + 3)), (100, 101, 100));
        known.change_here(ino, false);
        assert_eq!(show(9), 100, "its mode, perhaps");
        assert_eq!((show(here + 4), show(here + 4)), (101, 100));
        known.change(ino, false);
        assert_eq!(show(10), 101, "somebody else has changed it");
    }

    #[test]
    fn a_directory_that_changed_shows_another_mtime_until_the_next_change() {
        let (known, ino) = (Known::default(), Ino(1));
        known.enter(ino);
        let show = |mtime: i64| {
            let inode = Inode { kind: Kind::Directory, ..inode(0, mtime, 0) };
            known.show(ino, known.moment(), &inode).0
        };
        assert_eq!((show(100), show(100)), (100, 100));
        known.change(ino, false);
        assert_eq!(show(100), 100, "its mode, or its owner");
        known.change(ino, true);
        // The kernel asks twice before it is asked for the names.
        assert_eq!((show(100), show(100)), (101, 101));
        known.change(ino, true);
        assert_eq!((show(200), show(200)), (200, 200));
    }

    #[test]
    fn names_are_kept_until_they_change_or_for_a_time() {
        let (known, ino, long) = (Known::default(), Ino(1), Duration::from_secs(60));
        known.enter(ino);
        assert!(!known.is_listed(ino));
        known.list(ino, known.moment(), long);
        known.change(Ino(2), true);
        assert!(known.is_listed(ino));
        let before = known.moment();
        known.change(ino, true);
        assert!(!known.is_listed(ino));
        known.list(ino, before, long);
        assert!(!known.is_listed(ino), "told of what was before");
        known.list(ino, known.moment(), long);
        assert!(known.is_listed(ino));
        known.change_all();
        assert!(!known.is_listed(ino));
        known.list(ino, known.moment(), Duration::ZERO);
        assert!(!known.is_listed(ino));
    }

    #[test]
    fn an_answer_that_the_kernel_ignores_does_not_count() {
        let (known, ino) = (Known::default(), Ino(1));
        known.enter(ino);
        known.show(ino, known.moment(), &inode(5, 100, 1));
        for change in
            [|known: &Known| known.change(Ino(1), false), |known: &Known| drop(known.change_all())]
        {
            let before = known.moment();
            change(&known);
            known.show(ino, before, &inode(5, 100, 2));
            assert_eq!(known.show(ino, known.moment(), &inode(5, 100, 2)).0, 101);
            known.show(ino, known.moment(), &inode(5, 100, 1));
        }
    }

    #[test]
    fn inodes_are_known_until_they_are_forgotten() {
        let known = Known::default();
        known.enter(Ino(1));
        known.enter(Ino(1));
        known.enter(Ino(2));
        known.leave(Ino(1), 1);
        assert_eq!((known.count(), known.change_all().len()), (2, 2));
        known.leave(Ino(1), 1);
        assert_eq!(known.count(), 1);
    }
}
