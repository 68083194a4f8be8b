//! Removed directories that local programs still have open, or have as their working directory:
//! they can be looked at until the kernel forgets them. Inode numbers are never reused.

use std::collections::HashMap;

use cairn_base::{Ino, Timestamp};
use cairn_fs::rows::Inode;
use parking_lot::Mutex;

/// Most directories that are remembered.
const DIRECTORIES: usize = 1 << 14;

#[derive(Default)]
pub struct RemovedDirectories(Mutex<HashMap<Ino, Inode>>);

impl RemovedDirectories {
    /// Notes that a directory with these attributes was removed. The kernel knows it.
    pub fn remember(&self, ino: Ino, inode: Inode, now: Timestamp) {
        let mut gone = self.0.lock();
        if gone.len() < DIRECTORIES {
            gone.insert(ino, Inode { nlink: 0, ctime: now, ..inode });
        }
    }

    pub fn find(&self, ino: Ino) -> Option<Inode> {
        self.0.lock().get(&ino).cloned()
    }

    pub fn count(&self) -> u64 {
        self.0.lock().len() as u64
    }

    pub fn forget(&self, ino: Ino) {
        self.0.lock().remove(&ino);
    }
}
