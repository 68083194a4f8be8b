//! Directories whose possible contents are known here, so that nobody has to be asked for a name
//! that is not there: programs look for each file before they make it.
//!
//! A directory is one from when it is made here or seen to be empty, under a lease on its tally.
//! Any new entry, by any client, changes the tally. Others recall it before anybody sees the entry
//! they made, and then the directory is no longer here. Entries made from here are noted before
//! they are sent. Names that are removed stay, so what is known is more than there is.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use cairn_base::Ino;
use parking_lot::Mutex;

/// Names of all directories together: beyond it all are forgotten.
const NAMES: usize = 1 << 18;
const DIRECTORIES: usize = 1 << 12;

#[derive(Default)]
pub struct Whole {
    state: Mutex<WholeState>,
    hasher: RandomState,
}

#[derive(Default)]
struct WholeState {
    /// Hashes of names: two with the same are taken for one, and asked for.
    directories: HashMap<Ino, HashSet<u64>>,
    names: usize,
}

impl Whole {
    /// A directory was empty a moment ago, and `is_so` says whether it is: nothing has been
    /// recalled since, nor made from here.
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

    /// A name is about to be made from here.
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

    /// Whether a name is known not to be there.
    pub fn lacks(&self, directory: Ino, name: &[u8]) -> bool {
        let state = self.state.lock();
        let names = state.directories.get(&directory);
        names.is_some_and(|names| !names.contains(&self.hasher.hash_one(name)))
    }

    /// Others made or removed something there.
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
        // It is not empty any more, whoever believes so.
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
