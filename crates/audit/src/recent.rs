//! The last lines of a log, in memory.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;

/// Lines that are kept, at most, and their bytes.
const LINES: usize = 8192;
const BYTES: usize = 8 << 20;

/// The last lines of a log. Lines are numbered from 1 on, in the order in which they came.
#[derive(Debug, Default)]
pub struct RecentLines(Mutex<KeptLines>);

#[derive(Debug, Default)]
struct KeptLines {
    lines: VecDeque<Bytes>,
    bytes: usize,
    /// All lines that there ever were.
    count: u64,
}

impl RecentLines {
    pub(crate) fn add(&self, line: &[u8]) {
        let mut kept = self.0.lock();
        kept.count += 1;
        kept.bytes += line.len();
        kept.lines.push_back(Bytes::copy_from_slice(line));
        while kept.lines.len() > LINES || kept.bytes > BYTES {
            let Some(gone) = kept.lines.pop_front() else { break };
            kept.bytes -= gone.len();
        }
    }

    /// Lines with numbers below `before`, the newest first, with their numbers.
    pub fn before(&self, before: u64) -> Vec<(u64, Bytes)> {
        let kept = self.0.lock();
        let numbers = (1..=kept.count).rev();
        let lines = numbers.zip(kept.lines.iter().rev());
        lines
            .filter(|(number, _)| *number < before)
            .map(|(number, line)| (number, line.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_come_first_and_the_oldest_go() {
        let recent = RecentLines::default();
        assert!(recent.before(u64::MAX).is_empty());
        for number in 1..=LINES as u64 + 10 {
            recent.add(format!("{number}\n").as_bytes());
        }
        let all = recent.before(u64::MAX);
        assert_eq!((all.len(), all[0].0, &all[0].1[..]), (LINES, 8202, &b"8202\n"[..]));
        let older = recent.before(100);
        assert_eq!((older.len(), older[0].0), (89, 99));
        assert_eq!(&older.last().unwrap().1[..], b"11\n");
        recent.add(&vec![b'x'; BYTES]);
        assert_eq!(recent.before(u64::MAX).len(), 1, "bytes are bounded, too");
    }
}
