//! Directories whose possible contents are known here, so that the store need not be asked for a
//! missing name: programs look for each file before they make it.
//!
//! A directory is in this list from the moment when it is made here or found empty, under a lease
//! on its tally. Any new entry, by any client, changes the tally. Other clients recall it before
//! anybody sees the entry that they made, and then the directory is dropped from the list. Entries
//! made here are noted before they are sent. Removed names stay, so the known contents may be more
//! than the real ones.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use cairn_base::Ino;
use parking_lot::Mutex;

/// Number of names of all directories together: beyond it all are forgotten.
const NAMES: usize = 1 << 18;
const DIRECTORIES: usize = 1 << 12;

#[derive(Default)]
pub struct Whole {
    state: Mutex<WholeState>,
    hasher: RandomState,
}

#[derive(Default)]
struct WholeState {
    /// Hashes of names: two names with the same hash count as one, and are asked for.
    directories: HashMap<Ino, HashSet<u64>>,
    names: usize,
}

impl Whole {
    /// Adds a directory that was empty a moment ago. `is_so` returns whether it still is: nothing
    /// has been recalled since, and nothing was made here.
    pub fn begin(&self, directory: Ino, is_so: impl FnOnce() -> bool) {
        let mut state = self.state.lock();
        if !is_so() || state.directories.contains_key(&directory) {
            return;
        }
        if state.directories.len() >= DIRECTORIES {
            *state = WholeState::default();
        }
        state.directories.insert(directory, HashSet::new());
    }

    /// Notes that a name is about to be made here.
    pub fn make(&self, directory: Ino, name: &[u8]) {
        let mut state = self.state.lock();
        let Some(names) = state.directories.get_mut(&directory) else { return };
        if names.insert(self.hasher.hash_one(name)) {
            state.names += 1;
        }
        if state.names > NAMES {
            *state = WholeState::default();
        }
    }

    /// Returns whether a name is known to be missing.
    pub fn lacks(&self, directory: Ino, name: &[u8]) -> bool {
        let state = self.state.lock();
        let names = state.directories.get(&directory);
        names.is_some_and(|names| !names.contains(&self.hasher.hash_one(name)))
    }

    /// Drops a directory in which others made or removed something.
    pub fn end(&self, directory: Ino) {
        let mut state = self.state.lock();
        if let Some(names) = state.directories.remove(&directory) {
            state.names -= names.len();
        }
    }

    pub fn end_all(&self) {
        *self.state.lock() = WholeState::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_one_until_others_change_it() {
        let (whole, one, other) = (Whole::default(), Ino(5), Ino(6));
        assert!(!whole.lacks(one, b"a"));
        whole.begin(one, || false);
        assert!(!whole.lacks(one, b"a"));
        whole.begin(one, || true);
        assert!(whole.lacks(one, b"a") && !whole.lacks(other, b"a"));
        whole.make(one, b"a");
        whole.make(other, b"a");
        // The directory is not empty any more, although `is_so` returns true.
        whole.begin(one, || true);
        assert!(!whole.lacks(one, b"a") && whole.lacks(one, b"b"));
        whole.end(one);
        assert!(!whole.lacks(one, b"b"));
        whole.begin(one, || true);
        whole.end_all();
        assert!(!whole.lacks(one, b"b"));
    }

    #[test]
    fn memory_is_bounded() {
        let whole = Whole::default();
        whole.begin(Ino(1), || true);
        for name in 0..=NAMES as u64 {
            assert!(whole.lacks(Ino(1), &name.to_ne_bytes()));
            whole.make(Ino(1), &name.to_ne_bytes());
        }
        assert!(!whole.lacks(Ino(1), b"a"));
        for ino in 0..=DIRECTORIES as u64 {
            whole.begin(Ino(ino), || true);
        }
        assert!(!whole.lacks(Ino(1), b"a") && whole.lacks(Ino(DIRECTORIES as u64), b"a"));
    }
}
