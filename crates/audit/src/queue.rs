//! Lines that wait for a sink, in bounded memory.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use cairn_base::Party;
use cairn_base::shares::FAIR;
use parking_lot::{Condvar, Mutex};

/// Bytes of lines that wait for a sink, at most.
const WAITING_BYTES: usize = 8 << 20;
/// Bytes that a sink gets at once, at most.
const BATCH_BYTES: usize = 1 << 20;
/// Waiting bytes from which on no change is begun, if its record is required.
const FULL_BYTES: usize = WAITING_BYTES / 2;
/// Bytes that a sink reserves if records are required: enough for all lines that may wait.
pub(crate) const RESERVED_BYTES: u64 = 2 * WAITING_BYTES as u64;
/// Parties whose lost lines are counted separately. Those of further parties count as of nobody.
const PARTIES: usize = 64;

/// Lines on their way to one sink. The caller that adds a line never waits: a line that finds no
/// room is lost, and counted. The lines of one user, or of one address, take at most three times
/// the room that is free: so no user can cause the loss of others' lines.
#[derive(Debug)]
pub struct LineQueue {
    /// Names of the log and of the sink, for metrics: `audit`, `file`.
    pub log: &'static str,
    pub sink: &'static str,
    waiting: Mutex<WaitingLines>,
    changed: Condvar,
    written: AtomicU64,
    lost: AtomicU64,
    /// Set if no change is made that could not be recorded.
    is_required: bool,
    /// Set while the sink takes no lines, or has no room for more.
    is_stuck: AtomicBool,
}

#[derive(Debug, Default)]
struct WaitingLines {
    bytes: Vec<u8>,
    /// Parties of these lines and the length of each line, in order.
    lines: VecDeque<(Party, usize)>,
    /// Bytes of each party that has lines.
    parties: HashMap<Party, usize>,
    /// Lost lines of which the sink has no notice yet.
    lost: HashMap<Party, u64>,
    is_closed: bool,
}

/// Lines that a sink is to take.
#[derive(Debug)]
pub struct LineBatch {
    pub bytes: Vec<u8>,
    /// Lines that were lost before these, by party.
    pub lost: HashMap<Party, u64>,
}

impl WaitingLines {
    /// Returns true if there is room for a line.
    fn takes(&self, party: Party, len: usize) -> bool {
        let free = WAITING_BYTES.saturating_sub(self.bytes.len());
        let own = self.parties.get(&party).copied().unwrap_or_default();
        len <= free && own + len <= FAIR as usize * free
    }

    fn push(&mut self, party: Party, line: &[u8]) {
        self.bytes.extend_from_slice(line);
        self.lines.push_back((party, line.len()));
        *self.parties.entry(party).or_default() += line.len();
    }

    fn lose(&mut self, party: Party) {
        let is_known = self.lost.contains_key(&party) || self.lost.len() < PARTIES;
        let party = if is_known { party } else { Party::Other };
        *self.lost.entry(party).or_default() += 1;
    }

    /// Takes the first bytes, which are whole lines.
    fn split(&mut self, end: usize) -> Vec<u8> {
        let mut left = end;
        while let Some((party, len)) = self.lines.pop_front_if(|(_, len)| *len <= left) {
            left -= len;
            if let Some(bytes) = self.parties.get_mut(&party) {
                *bytes -= len;
                if *bytes == 0 {
                    self.parties.remove(&party);
                }
            }
        }
        let rest = self.bytes.split_off(end);
        std::mem::replace(&mut self.bytes, rest)
    }
}

/// Lines that the sink has taken so far, and lines that were lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueCounts {
    pub written: u64,
    pub lost: u64,
}

/// Returns the number of lines in these bytes.
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
            is_required: false,
            is_stuck: AtomicBool::new(false),
        }
    }

    /// Returns the same queue, which loses no line about a change: a change begins only if
    /// [`LineQueue::has_room`] allows it.
    #[must_use]
    pub fn required(self) -> LineQueue {
        LineQueue { is_required: true, ..self }
    }

    pub(crate) fn is_required(&self) -> bool {
        self.is_required
    }

    /// Notes whether the sink takes lines and has room for those to come.
    pub(crate) fn set_stuck(&self, is_stuck: bool) {
        self.is_stuck.store(is_stuck, Relaxed);
    }

    /// Returns whether the record of another change fits. Records of changes that have begun are
    /// always taken: there are at most as many as requests in progress.
    pub fn has_room(&self) -> bool {
        !self.is_required
            || !self.is_stuck.load(Relaxed) && self.waiting.lock().bytes.len() < FULL_BYTES
    }

    /// Waits for lines, at most for `time`. Returns true if there are some, or the queue is closed.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.bytes.is_empty() && !waiting.is_closed {
            self.changed.wait_for(&mut waiting, time);
        }
        !waiting.bytes.is_empty() || waiting.is_closed
    }

    /// Adds a line, which ends with a new line. A line that is longer than a batch is lost.
    pub fn add(&self, party: Party, line: &[u8]) {
        self.add_of(party, line, false);
    }

    /// Adds a line. A line about a change that was made (`has_changed`) is never lost if records
    /// are required.
    pub(crate) fn add_of(&self, party: Party, line: &[u8], has_changed: bool) {
        let mut waiting = self.waiting.lock();
        let is_kept = self.is_required && has_changed;
        let is_taken = is_kept || waiting.takes(party, line.len());
        if line.len() > BATCH_BYTES || waiting.is_closed || !is_taken {
            waiting.lose(party);
            self.lost.fetch_add(1, Relaxed);
            return;
        }
        let was_empty = waiting.bytes.is_empty();
        waiting.push(party, line);
        drop(waiting);
        if was_empty {
            self.changed.notify_all();
        }
    }

    /// Returns the next lines. Waits until there are some, and then for more of them as long as
    /// `pace`. `None` once the queue is closed and empty.
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
        if waiting.bytes.is_empty() && lost.is_empty() {
            return None;
        }
        let end = batch_end(&waiting.bytes);
        Some(LineBatch { bytes: waiting.split(end), lost })
    }

    /// Waits until the queue is closed, at most for `time`. Returns true if it is closed.
    pub fn pause(&self, time: Duration) -> bool {
        let mut waiting = self.waiting.lock();
        while !waiting.is_closed {
            if self.changed.wait_for(&mut waiting, time).timed_out() {
                break;
            }
        }
        waiting.is_closed
    }

    /// Takes no more lines. Waiting lines still go to the sink.
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

/// Returns the end of the last line that fits in a batch.
fn batch_end(bytes: &[u8]) -> usize {
    let Some(head) = bytes.get(..BATCH_BYTES) else { return bytes.len() };
    head.iter().rposition(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    use cairn_base::UserId;

    const NOW: Duration = Duration::ZERO;
    const ALICE: Party = Party::User(UserId(7));
    const BOB: Party = Party::User(UserId(8));

    #[test]
    fn where_records_are_required_those_of_changes_are_kept() {
        let queue = LineQueue::new("audit", "file").required();
        let line = [&[b'x'; 9999][..], b"\n"].concat();
        let mut taken = 0;
        while queue.has_room() {
            queue.add_of(ALICE, &line, true);
            taken += line.len();
        }
        assert!((FULL_BYTES..FULL_BYTES + line.len()).contains(&taken));
        // Lines of changes that began before are all taken, and records of refusals are not.
        (0..1000).for_each(|_| queue.add_of(ALICE, &line, true));
        assert_eq!(queue.counts().lost, 0);
        queue.add_of(BOB, &line, false);
        assert_eq!(queue.counts().lost, 1);
        queue.close();
        let mut all = 0;
        while let Some(batch) = queue.take(NOW) {
            all += count(&batch.bytes);
        }
        assert_eq!(all, taken as u64 / line.len() as u64 + 1000);
        assert!(queue.has_room());
        queue.set_stuck(true);
        assert!(!queue.has_room());
        let other = LineQueue::new("audit", "file");
        other.set_stuck(true);
        assert!(other.has_room(), "it is not required");
    }

    #[test]
    fn lines_come_whole_and_in_their_order() {
        let queue = LineQueue::new("audit", "file");
        let line = [&[b'x'; 999][..], b"\n"].concat();
        (0..2000).for_each(|_| queue.add(ALICE, &line));
        queue.close();
        let mut lines = 0;
        while let Some(LineBatch { bytes, lost }) = queue.take(NOW) {
            assert!(bytes.len() % 1000 == 0 && lost.is_empty());
            assert!(bytes.len() <= BATCH_BYTES);
            lines += count(&bytes);
        }
        assert_eq!(lines, 2000);
    }

    #[test]
    fn a_line_that_finds_no_room_is_counted_and_told() {
        let queue = LineQueue::new("audit", "file");
        let line = [&[b'x'; (1 << 20) - 1][..], b"\n"].concat();
        (0..9).for_each(|_| queue.add(ALICE, &line));
        assert_eq!(queue.counts().lost, 3);
        assert_eq!(queue.take(NOW).unwrap().lost, HashMap::from([(ALICE, 3)]));
        queue.add(ALICE, &line);
        assert!(queue.take(NOW).unwrap().lost.is_empty());
        queue.close();
        queue.add(ALICE, &line);
        assert_eq!(queue.counts().lost, 4, "nobody takes it any more");
        let queue = LineQueue::new("audit", "file");
        queue.add(ALICE, &[b'x'; BATCH_BYTES + 1]);
        assert_eq!(queue.counts().lost, 1, "no sink would take it");
    }

    #[test]
    fn lines_of_one_user_leave_room_for_those_of_others() {
        let queue = LineQueue::new("audit", "file");
        let line = [&[b'x'; 9999][..], b"\n"].concat();
        (0..2000).for_each(|_| queue.add(ALICE, &line));
        (0..10).for_each(|_| queue.add(BOB, b"bob\n"));
        queue.close();
        let (mut text, mut lost) = (Vec::new(), HashMap::new());
        while let Some(batch) = queue.take(NOW) {
            text.extend_from_slice(&batch.bytes);
            lost.extend(batch.lost);
        }
        assert_eq!(text.windows(4).filter(|part| part == b"bob\n").count(), 10);
        assert_eq!(lost.keys().collect::<Vec<_>>(), [&ALICE]);
        assert!(queue.waiting.lock().parties.is_empty());
        for number in 0..1000 {
            queue.add(Party::User(UserId(number)), b"closed\n");
        }
        assert!(queue.waiting.lock().lost.len() <= PARTIES + 1);
    }
}
