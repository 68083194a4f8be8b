//! Lines that wait for a sink, in bounded memory.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Bytes of lines that wait for a sink, at most.
const WAITING_BYTES: usize = 8 << 20;
/// Bytes that a sink is given at once, at most.
const BATCH_BYTES: usize = 1 << 20;

/// Lines on their way to one sink. Who adds a line never waits: a line that finds no room is lost,
/// and counted.
#[derive(Debug)]
pub struct LineQueue {
    /// The name of the log and that of the sink, for metrics: `audit`, `file`.
    pub log: &'static str,
    pub sink: &'static str,
    waiting: Mutex<WaitingLines>,
    changed: Condvar,
    written: AtomicU64,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct WaitingLines {
    bytes: Vec<u8>,
    /// Lines that were lost, and that the sink was not told of.
    lost: u64,
    is_closed: bool,
}

/// Lines that a sink is to take.
#[derive(Debug)]
pub struct LineBatch {
    pub bytes: Vec<u8>,
    /// Lines that were lost before these.
    pub lost: u64,
}

/// How many lines the sink took so far, and how many were lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueCounts {
    pub written: u64,
    pub lost: u64,
}

/// How many lines these bytes are.
pub fn count(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

impl LineQueue {
    pub fn new(log: &'static str, sink: &'static str) -> LineQueue {
        LineQueue {
            log,
            sink,
            waiting: Mutex::default(),
            changed: Condvar::new(),
            written: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Adds a line, which ends with a new line. A line that is longer than a batch is lost.
    pub fn add(&self, line: &[u8]) {
        let mut waiting = self.waiting.lock();
        if line.len() > BATCH_BYTES
            || waiting.is_closed
            || waiting.bytes.len() + line.len() > WAITING_BYTES
        {
            waiting.lost += 1;
            self.lost.fetch_add(1, Relaxed);
            return;
        }
        let was_empty = waiting.bytes.is_empty();
        waiting.bytes.extend_from_slice(line);
        drop(waiting);
        if was_empty {
            self.changed.notify_all();
        }
    }

    /// The next lines: waits until there are some, and then for more of them as long as `pace`.
    /// `None` once it is closed and empty.
    pub fn take(&self, pace: Duration) -> Option<LineBatch> {
        let mut waiting = self.waiting.lock();
        while waiting.bytes.is_empty() && !waiting.is_closed {
            self.changed.wait(&mut waiting);
        }
        while !waiting.is_closed && waiting.bytes.len() < BATCH_BYTES {
            if self.changed.wait_for(&mut waiting, pace).timed_out() {
                break;
            }
        }
        let lost = std::mem::take(&mut waiting.lost);
        if waiting.bytes.is_empty() && lost == 0 {
            return None;
        }
        let end = batch_end(&waiting.bytes);
        let rest = waiting.bytes.split_off(end);
        Some(LineBatch { bytes: std::mem::replace(&mut waiting.bytes, rest), lost })
    }

    /// Waits so long, or until it is closed; says whether it is.
    pub fn pause(&self, time: Duration) -> bool {
        let mut waiting = self.waiting.lock();
        while !waiting.is_closed {
            if self.changed.wait_for(&mut waiting, time).timed_out() {
                break;
            }
        }
        waiting.is_closed
    }

    /// Takes no more lines. Those that wait are still given to the sink.
    pub fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.changed.notify_all();
    }

    pub(crate) fn wrote(&self, lines: u64) {
        self.written.fetch_add(lines, Relaxed);
    }

    pub(crate) fn lose(&self, lines: u64) {
        self.lost.fetch_add(lines, Relaxed);
    }

    pub fn counts(&self) -> QueueCounts {
        QueueCounts { written: self.written.load(Relaxed), lost: self.lost.load(Relaxed) }
    }
}

/// Where the last line ends that is within a batch.
fn batch_end(bytes: &[u8]) -> usize {
    let Some(head) = bytes.get(..BATCH_BYTES) else { return bytes.len() };
    head.iter().rposition(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn lines_come_whole_and_in_their_order() {
        let queue = LineQueue::new("audit", "file");
        let line = [&[b'x'; 999][..], b"\n"].concat();
        (0..2000).for_each(|_| queue.add(&line));
        queue.close();
        let mut lines = 0;
        while let Some(LineBatch { bytes, lost }) = queue.take(NOW) {
            assert_eq!((bytes.len() % 1000, lost), (0, 0));
            assert!(bytes.len() <= BATCH_BYTES);
            lines += count(&bytes);
        }
        assert_eq!(lines, 2000);
    }

    #[test]
    fn a_line_that_finds_no_room_is_counted_and_told() {
        let queue = LineQueue::new("audit", "file");
        let line = [&[b'x'; (1 << 20) - 1][..], b"\n"].concat();
        (0..11).for_each(|_| queue.add(&line));
        assert_eq!(queue.counts().lost, 3);
        assert_eq!(queue.take(NOW).unwrap().lost, 3);
        queue.add(&line);
        assert_eq!(queue.take(NOW).unwrap().lost, 0);
        queue.close();
        queue.add(&line);
        assert_eq!(queue.counts().lost, 4, "nobody takes it any more");
        let queue = LineQueue::new("audit", "file");
        queue.add(&[b'x'; BATCH_BYTES + 1]);
        assert_eq!(queue.counts().lost, 1, "no sink would take it");
    }
}
