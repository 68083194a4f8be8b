//! Watches of inodes for changes by others.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use cairn_base::Ino;
use parking_lot::Mutex;

#[derive(Default)]
pub struct Watches {
    watched: Mutex<HashMap<Ino, WatchState>>,
    /// Number of watched inodes, which is mostly 0.
    count: AtomicUsize,
}

#[derive(Default)]
struct WatchState {
    watchers: u32,
    /// True if another caller changed it, or may have.
    is_mixed: bool,
}

impl Watches {
    /// Begins to watch an inode. If two watch the same inode, each counts as a change for the
    /// other.
    pub fn begin(&self, ino: Ino) {
        let mut watched = self.watched.lock();
        let one = watched.entry(ino).or_default();
        one.watchers += 1;
        one.is_mixed |= one.watchers > 1;
        self.count.store(watched.len(), Ordering::SeqCst);
    }

    /// Returns whether another caller changed the inode, or may have.
    pub fn is_mixed(&self, ino: Ino) -> bool {
        self.watched.lock().get(&ino).is_none_or(|one| one.is_mixed)
    }

    pub fn end(&self, ino: Ino) {
        let mut watched = self.watched.lock();
        if let Some(one) = watched.get_mut(&ino) {
            one.watchers -= 1;
            if one.watchers == 0 {
                watched.remove(&ino);
            }
        }
        self.count.store(watched.len(), Ordering::SeqCst);
    }

    /// Notes that an inode was changed.
    pub fn change(&self, ino: Ino) {
        if self.count.load(Ordering::SeqCst) > 0
            && let Some(one) = self.watched.lock().get_mut(&ino)
        {
            one.is_mixed = true;
        }
    }

    /// Notes that anything may have changed.
    pub fn change_all(&self) {
        self.watched.lock().values_mut().for_each(|one| one.is_mixed = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_watches_sees_others() {
        let (watches, one, other) = (Watches::default(), Ino(5), Ino(6));
        watches.change(one);
        watches.begin(one);
        watches.change(other);
        assert!(!watches.is_mixed(one) && watches.is_mixed(other), "nobody watches the other");
        watches.change(one);
        assert!(watches.is_mixed(one));
        watches.end(one);
        watches.begin(one);
        watches.begin(other);
        assert!(!watches.is_mixed(one), "a new watch");
        watches.change_all();
        assert!(watches.is_mixed(one) && watches.is_mixed(other));
    }

    #[test]
    fn two_who_watch_are_in_each_others_way_until_both_are_done() {
        let (watches, ino) = (Watches::default(), Ino(5));
        watches.begin(ino);
        watches.begin(ino);
        assert!(watches.is_mixed(ino));
        watches.end(ino);
        assert!(watches.is_mixed(ino), "the first one had begun before the second one ended");
        watches.end(ino);
        watches.begin(ino);
        assert!(!watches.is_mixed(ino));
    }
}
