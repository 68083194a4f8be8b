//! Directories that were removed here and that programs still have open, or are in: they are asked
//! for until the kernel forgets them. Numbers are never used again.

use std::collections::HashMap;

use cairn_base::{Ino, Timestamp};
use cairn_fs::rows::Inode;
use parking_lot::Mutex;

/// Remembered at the same time, at most.
const DIRECTORIES: usize = 1 << 14;

#[derive(Default)]
pub struct Gone(Mutex<HashMap<Ino, Inode>>);

impl Gone {
    /// A directory was removed that was like this. The kernel knows it.
    pub fn remember(&self, ino: Ino, inode: Inode, now: Timestamp) {
        let mut gone = self.0.lock();
        if gone.len() < DIRECTORIES {
            gone.insert(ino, Inode { nlink: 0, ctime: now, ..inode });
        }
    }

    pub fn find(&self, ino: Ino) -> Option<Inode> {
        self.0.lock().get(&ino).cloned()
    }

    pub fn forget(&self, ino: Ino) {
        self.0.lock().remove(&ino);
    }
}
