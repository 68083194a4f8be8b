//! Read-ahead: the next bytes of files that are read in sequence are fetched before they are asked
//! for.
//!
//! Clients that read ahead themselves ask for several ranges at once, in any order. So a read near
//! the last one counts as its continuation.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use cairn_base::Ino;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that are fetched ahead of the last read.
const AHEAD_BYTES: u64 = 8 << 20;
/// Bytes that are fetched at once.
const STEP_BYTES: u64 = 1 << 20;
/// Reads shorter than this, bytes, cause no read-ahead: programs look around in a file with them.
const SHORT_BYTES: u64 = 64 << 10;
/// Number of files that are remembered.
const FILES: usize = 256;
/// Number of steps that are fetched at the same time, of all files. Their memory is counted
/// nowhere.
const STEPS: usize = 16;

pub struct Ahead {
    files: Mutex<AheadFiles>,
    steps: Arc<Semaphore>,
}

#[derive(Default)]
struct AheadFiles {
    read: HashMap<Ino, Progress>,
    /// Files in the order in which they were remembered, the oldest first.
    order: VecDeque<Ino>,
}

#[derive(Clone, Copy)]
struct Progress {
    /// End of the furthest read of the sequence.
    read: u64,
    /// Offset up to which bytes were fetched.
    fetched: u64,
}

impl Default for Ahead {
    fn default() -> Ahead {
        Ahead { files: Mutex::default(), steps: Arc::new(Semaphore::new(STEPS)) }
    }
}

impl Ahead {
    /// Returns the ranges that should be fetched now that this range is read: none, if it does not
    /// continue an earlier read. They may lie behind the end of the file.
    pub fn next(&self, ino: Ino, range: &Range<u64>) -> Vec<Range<u64>> {
        if range.end.saturating_sub(range.start) < SHORT_BYTES {
            return Vec::new();
        }
        let mut files = self.files.lock();
        let Some(progress) = files.read.get_mut(&ino) else {
            files.remember(ino, range.end);
            return Vec::new();
        };
        let near = progress.read.saturating_sub(AHEAD_BYTES)..=progress.read + AHEAD_BYTES;
        if !near.contains(&range.start) {
            *progress = Progress { read: range.end, fetched: range.end };
            return Vec::new();
        }
        progress.read = progress.read.max(range.end);
        let start = progress.fetched.max(progress.read).next_multiple_of(STEP_BYTES);
        let end = (progress.read + AHEAD_BYTES) / STEP_BYTES * STEP_BYTES;
        progress.fetched = progress.fetched.max(end);
        (start..end).step_by(STEP_BYTES as usize).map(|at| at..at + STEP_BYTES).collect()
    }

    /// Takes a place for one more step, if there is one.
    pub fn room(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.steps).try_acquire_owned().ok()
    }
}

impl AheadFiles {
    fn remember(&mut self, ino: Ino, end: u64) {
        if self.order.len() >= FILES
            && let Some(eldest) = self.order.pop_front()
        {
            self.read.remove(&eldest);
        }
        self.order.push_back(ino);
        self.read.insert(ino, Progress { read: end, fetched: end });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn step(ahead: &Ahead, at: u64) -> Vec<u64> {
        let next = ahead.next(Ino(1), &(at * MIB..(at + 1) * MIB));
        assert!(next.iter().all(|range| range.end - range.start == MIB));
        next.into_iter().map(|range| range.start / MIB).collect()
    }

    #[test]
    fn a_file_that_is_read_in_sequence_is_fetched_ahead_once() {
        let ahead = Ahead::default();
        assert!(step(&ahead, 0).is_empty(), "perhaps nobody goes on");
        assert_eq!(step(&ahead, 1), (2..10).collect::<Vec<_>>());
        assert_eq!(step(&ahead, 2), [10]);
        // Out of order.
        assert_eq!(step(&ahead, 5), [11, 12, 13]);
        assert!(step(&ahead, 3).is_empty() && step(&ahead, 4).is_empty());
        // Elsewhere.
        assert!(step(&ahead, 1000).is_empty());
        assert_eq!(step(&ahead, 1001), (1002..1010).collect::<Vec<_>>());
        assert!(step(&ahead, 0).is_empty());
    }

    #[test]
    fn short_reads_fetch_nothing_and_memory_is_bounded() {
        let ahead = Ahead::default();
        for at in 0..100 {
            assert!(ahead.next(Ino(1), &(at * 4096..(at + 1) * 4096)).is_empty());
        }
        for ino in 0..3 * FILES as u64 {
            ahead.next(Ino(ino), &(0..MIB));
        }
        let files = ahead.files.lock();
        assert_eq!((files.read.len(), files.order.len()), (FILES, FILES));
        let rooms: Vec<_> = std::iter::from_fn(|| ahead.room()).collect();
        assert_eq!(rooms.len(), STEPS);
    }
}
