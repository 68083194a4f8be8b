//! The inodes that the kernel knows, and the attributes and entries that it last received.
//!
//! A change elsewhere invalidates an inode's attributes in the kernel, and may then proceed. The
//! next `read` has to ask for the attributes, and if their size or mtime differs from those that
//! the kernel knows, it drops its pages (`FUSE_AUTO_INVAL_DATA`). So the change does not wait for
//! the pages, which reads in progress may have locked. Dropping the pages from here while the
//! kernel asks would not work: it ignores answers that were invalidated meanwhile.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cairn_base::{Ino, Timestamp};
use cairn_fs::rows::{Inode, Kind};
use parking_lot::Mutex;
use tokio::time::Instant;

const SHARDS: usize = 16;

#[derive(Default)]
pub struct KernelView {
    shards: [Mutex<HashMap<u64, One>>; SHARDS],
    /// Number of the last change. Each change gets a number.
    changes: AtomicU64,
    /// Number of the last change that concerned all inodes.
    all: AtomicU64,
}

#[derive(Clone, Copy, Default)]
struct One {
    lookups: u64,
    /// Number of its last change.
    changed: u64,
    /// Number of its last change by another client.
    changed_elsewhere: u64,
    /// Number of the last change of the names in it.
    names_changed: u64,
    /// The attributes that the kernel last received.
    shown: Option<ShownToKernel>,
    /// Moment of the last listing that the kernel received, and the time until which it keeps that.
    listed: Option<(Moment, Instant)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct ShownToKernel {
    size: u64,
    mtime: Timestamp,
    /// The mtime in the store, which may differ from the mtime that the kernel received.
    true_mtime: Timestamp,
    data_change: u64,
    /// Number of the last change of the names in it before these attributes.
    names_at: u64,
    /// Moment at which they were asked for.
    at: Moment,
}

/// The number of changes up to a moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment(u64);

impl KernelView {
    fn shard(&self, ino: Ino) -> &Mutex<HashMap<u64, One>> {
        &self.shards[ino.0 as usize % SHARDS]
    }

    /// Returns the present moment. If it is still the same later, nothing changed in between.
    pub fn moment(&self) -> Moment {
        Moment(self.changes.load(Ordering::SeqCst))
    }

    /// Counts one more lookup of an inode by the kernel.
    pub fn enter(&self, ino: Ino) {
        let mut shard = self.shard(ino).lock();
        let now = self.changes.load(Ordering::SeqCst);
        let fresh =
            One { changed: now, changed_elsewhere: now, names_changed: now, ..One::default() };
        shard.entry(ino.0).or_insert(fresh).lookups += 1;
    }

    /// Counts `times` fewer lookups, as the kernel forgets an inode. Returns whether the kernel
    /// does not know it any more.
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

    /// Notes that an inode was changed elsewhere, with `names` if it is a directory whose names
    /// changed.
    pub fn change(&self, ino: Ino, names: bool) {
        self.note_change(ino, names, true);
    }

    /// Notes a change like [`KernelView::change`], by an operation of this mount.
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

    /// Notes that the kernel receives the entries of a directory as they were at `moment`, and
    /// keeps them for `keeps`.
    pub fn list(&self, ino: Ino, moment: Moment, keeps: Duration) {
        if let Some(one) = self.shard(ino).lock().get_mut(&ino.0) {
            one.listed = Some((moment, Instant::now() + keeps));
        }
    }

    /// Returns whether the kernel keeps the entries of a directory, and they are still the same. A
    /// listing need not return them again then.
    pub fn is_listed(&self, ino: Ino) -> bool {
        let shard = self.shard(ino).lock();
        let Some(one) = shard.get(&ino.0) else { return false };
        let changed = self.last_change(one);
        one.listed.is_some_and(|(at, until)| changed <= at.0 && Instant::now() < until)
    }

    fn last_change(&self, one: &One) -> u64 {
        one.changed.max(self.all.load(Ordering::SeqCst))
    }

    /// Notes a change of something that is not an inode.
    pub fn change_other(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes that everything may have changed. Returns all inodes that the kernel knows.
    pub fn change_all(&self) -> Vec<Ino> {
        let number = self.changes.fetch_add(1, Ordering::SeqCst) + 1;
        self.all.fetch_max(number, Ordering::SeqCst);
        let inodes = |shard: &Mutex<HashMap<u64, One>>| -> Vec<Ino> {
            shard.lock().keys().map(|ino| Ino(*ino)).collect()
        };
        self.shards.iter().flat_map(inodes).collect()
    }

    /// Notes that the kernel receives attributes that were asked for at `moment`, and returns the
    /// mtime to send. If bytes changed and somebody reset size and mtime to their old values, the
    /// kernel receives an mtime that is a nanosecond off, this once, so that it drops its pages.
    /// The same holds for a directory whose names the kernel keeps, after any change of these.
    /// There the mtime stays until the next change, since the kernel does not look at each mtime,
    /// but at the one it has when it is asked for the names.
    pub fn show(&self, ino: Ino, moment: Moment, inode: &Inode) -> Timestamp {
        let Inode { size, data_change, mtime: true_mtime, .. } = *inode;
        let mut shard = self.shard(ino).lock();
        let Some(one) = shard.get_mut(&ino.0) else { return true_mtime };
        let names_at = one.names_changed.max(self.all.load(Ordering::SeqCst));
        let hides = |shown: ShownToKernel| match inode.kind {
            Kind::Directory if shown.names_at < names_at => shown.mtime == true_mtime,
            Kind::Directory => shown.true_mtime == true_mtime && shown.mtime != true_mtime,
            _ => {
                // A local change gets its number when the server has run it.
                let changed_elsewhere = one.changed_elsewhere.max(self.all.load(Ordering::SeqCst));
                let got_number = shown.data_change >= Inode::NO_BATCH
                    && data_change < Inode::NO_BATCH
                    && changed_elsewhere <= shown.at.0;
                shown.data_change != data_change
                    && !got_number
                    && (shown.size, shown.mtime) == (size, true_mtime)
            }
        };
        let mtime = if one.shown.is_some_and(hides) {
            Timestamp(true_mtime.0.wrapping_add(1))
        } else {
            true_mtime
        };
        // The kernel ignores an answer to a request from before a change.
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
        let (known, ino) = (KernelView::default(), Ino(1));
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
        let (known, ino) = (KernelView::default(), Ino(1));
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
        let (known, ino) = (KernelView::default(), Ino(1));
        known.enter(ino);
        let show = |mtime: i64| {
            let inode = Inode { kind: Kind::Directory, ..inode(0, mtime, 0) };
            known.show(ino, known.moment(), &inode).0
        };
        assert_eq!((show(100), show(100)), (100, 100));
        known.change(ino, false);
        assert_eq!(show(100), 100, "its mode, or its owner");
        known.change(ino, true);
        // The kernel asks for attributes twice before it is asked for the names.
        assert_eq!((show(100), show(100)), (101, 101));
        known.change(ino, true);
        assert_eq!((show(200), show(200)), (200, 200));
    }

    #[test]
    fn names_are_kept_until_they_change_or_for_a_time() {
        let (known, ino, long) = (KernelView::default(), Ino(1), Duration::from_secs(60));
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
        let (known, ino) = (KernelView::default(), Ino(1));
        known.enter(ino);
        known.show(ino, known.moment(), &inode(5, 100, 1));
        for change in [
            |known: &KernelView| known.change(Ino(1), false),
            |known: &KernelView| drop(known.change_all()),
        ] {
            let before = known.moment();
            change(&known);
            known.show(ino, before, &inode(5, 100, 2));
            assert_eq!(known.show(ino, known.moment(), &inode(5, 100, 2)).0, 101);
            known.show(ino, known.moment(), &inode(5, 100, 1));
        }
    }

    #[test]
    fn inodes_are_known_until_they_are_forgotten() {
        let known = KernelView::default();
        known.enter(Ino(1));
        known.enter(Ino(1));
        known.enter(Ino(2));
        known.leave(Ino(1), 1);
        assert_eq!((known.count(), known.change_all().len()), (2, 2));
        known.leave(Ino(1), 1);
        assert_eq!(known.count(), 1);
    }
}
