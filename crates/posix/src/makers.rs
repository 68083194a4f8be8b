//! Directories in which local programs are making files.
//!
//! The kernel caches missing names, and the name of a new file has to be forgotten before another
//! client can see the file. The only message to the kernel for that is to forget all names. A
//! program that makes one file often makes many, so the kernel keeps no missing names of such a
//! directory, and there is nothing to forget.

use std::collections::HashMap;
use std::time::Duration;

use cairn_base::Ino;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Time after the last new file for which a directory is in this list.
const AFTER: Duration = Duration::from_secs(1);
const DIRECTORIES: usize = 1024;

#[derive(Default)]
pub struct Makers {
    made: Mutex<HashMap<Ino, Instant>>,
}

impl Makers {
    /// Notes that a file is about to be made in `directory`. Returns whether the directory was in
    /// the list: if not, the kernel must forget names after this.
    pub fn make(&self, directory: Ino) -> bool {
        let (mut made, now) = (self.made.lock(), Instant::now());
        if made.len() >= DIRECTORIES {
            made.retain(|_, last| now.duration_since(*last) < AFTER);
            if made.len() >= DIRECTORIES {
                made.clear();
            }
        }
        let last = made.insert(directory, now);
        last.is_some_and(|last| now.duration_since(last) < AFTER)
    }

    /// Returns whether the kernel must keep no missing names of `directory`.
    pub fn is_one(&self, directory: Ino) -> bool {
        self.made.lock().get(&directory).is_some_and(|last| last.elapsed() < AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_one_from_the_first_file_on() {
        let makers = Makers::default();
        assert!(!makers.is_one(Ino(1)));
        assert!(!makers.make(Ino(1)), "names were kept before");
        assert!(makers.is_one(Ino(1)) && !makers.is_one(Ino(2)));
        assert!(makers.make(Ino(1)));
        for ino in 2..DIRECTORIES as u64 + 2 {
            assert!(!makers.make(Ino(ino)));
        }
        assert!(!makers.make(Ino(1)), "one that was left out begins again");
    }
}
