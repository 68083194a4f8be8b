//! Directories in which files are being made from here.
//!
//! The kernel keeps names that are not there, and one that is about to be made has to be forgotten
//! before anybody else can see it. All that can be told to the kernel is to forget all names. A
//! program that makes one file often makes many. The kernel keeps no missing names of such a
//! directory, so there is nothing to forget.

use std::collections::HashMap;
use std::time::Duration;

use cairn_base::Ino;
use parking_lot::Mutex;
use tokio::time::Instant;

/// For so long after the last file was made.
const AFTER: Duration = Duration::from_secs(1);
const DIRECTORIES: usize = 1024;

#[derive(Default)]
pub struct Makers {
    made: Mutex<HashMap<Ino, Instant>>,
}

impl Makers {
    /// A file is about to be made in `directory`. Whether it was one before: if not, the kernel
    /// must forget names after this.
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

    /// Whether the kernel must keep no missing name of `directory`.
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
