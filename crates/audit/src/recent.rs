//! The last lines of a log, in memory.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;
use cairn_base::Party;
use parking_lot::Mutex;

/// Lines that are kept, and their bytes, at most.
const LINES: usize = 8192;
const BYTES: usize = 8 << 20;

/// The last lines of a log. Lines are numbered from 1 on, in order of arrival. If there is no room
/// for another line, the oldest line of a party that has more than an equal part is dropped: so the
/// lines of parties that do little stay the longest.
#[derive(Debug, Default)]
pub struct RecentLines(Mutex<KeptLines>);

#[derive(Debug, Default)]
struct KeptLines {
    lines: BTreeMap<u64, Bytes>,
    bytes: usize,
    parties: HashMap<Party, LinesOfParty>,
    /// Number of all lines so far.
    count: u64,
}

/// The numbers of the lines of one party, and their bytes.
#[derive(Debug, Default)]
struct LinesOfParty {
    numbers: VecDeque<u64>,
    bytes: usize,
}

impl LinesOfParty {
    /// Returns its part of all room: a million is all of it.
    fn part(&self) -> usize {
        const ALL: usize = 1_000_000;
        (self.numbers.len() * ALL / LINES).max(self.bytes.saturating_mul(ALL) / BYTES)
    }
}

impl KeptLines {
    /// Returns the party whose oldest line is dropped next: the party that adds lines if it has
    /// more than an equal part, otherwise the party that has most.
    fn largest(&self, adding: Party) -> Option<Party> {
        let own = self.parties.get(&adding).map_or(0, LinesOfParty::part);
        if own.saturating_mul(self.parties.len()) >= 1_000_000 {
            return Some(adding);
        }
        let all = self.parties.iter();
        all.max_by_key(|(_, lines)| lines.part()).map(|(party, _)| *party)
    }

    fn drop_oldest(&mut self, party: Party) {
        let Some(lines) = self.parties.get_mut(&party) else { return };
        if let Some(line) = lines.numbers.pop_front().and_then(|number| self.lines.remove(&number))
        {
            lines.bytes -= line.len();
            self.bytes -= line.len();
        }
        if lines.numbers.is_empty() {
            self.parties.remove(&party);
        }
    }
}

impl RecentLines {
    pub(crate) fn add(&self, party: Party, line: &[u8]) {
        let mut kept = self.0.lock();
        kept.count += 1;
        kept.bytes += line.len();
        let number = kept.count;
        kept.lines.insert(number, Bytes::copy_from_slice(line));
        let lines = kept.parties.entry(party).or_default();
        lines.numbers.push_back(number);
        lines.bytes += line.len();
        while kept.lines.len() > LINES || kept.bytes > BYTES {
            let Some(party) = kept.largest(party) else { break };
            kept.drop_oldest(party);
        }
    }

    /// Returns lines with numbers below `before`, the newest first, with their numbers.
    pub fn before(&self, before: u64) -> Vec<(u64, Bytes)> {
        let kept = self.0.lock();
        let lines = kept.lines.range(..before).rev();
        lines.map(|(number, line)| (*number, line.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use cairn_base::UserId;

    use super::*;

    #[test]
    fn the_newest_come_first_and_the_oldest_go() {
        let recent = RecentLines::default();
        assert!(recent.before(u64::MAX).is_empty());
        for number in 1..=LINES as u64 + 10 {
            recent.add(Party::Other, format!("{number}\n").as_bytes());
        }
        let all = recent.before(u64::MAX);
        assert_eq!((all.len(), all[0].0, &all[0].1[..]), (LINES, 8202, &b"8202\n"[..]));
        let older = recent.before(100);
        assert_eq!((older.len(), older[0].0), (89, 99));
        assert_eq!(&older.last().unwrap().1[..], b"11\n");
        recent.add(Party::Other, &vec![b'x'; BYTES]);
        assert_eq!(recent.before(u64::MAX).len(), 1, "bytes are bounded, too");
    }

    #[test]
    fn nobody_pushes_out_the_lines_of_others() {
        let (recent, bob) = (RecentLines::default(), Party::User(UserId(8)));
        recent.add(bob, b"bob\n");
        let alice = Party::User(UserId(7));
        (0..3 * LINES).for_each(|_| recent.add(alice, b"alice\n"));
        (0..20).for_each(|_| recent.add(alice, &vec![b'x'; BYTES / 8]));
        let kept = recent.before(u64::MAX);
        assert_eq!(kept.last().unwrap().1, b"bob\n"[..]);
        (0..100).for_each(|_| recent.add(bob, &vec![b'y'; BYTES / 16]));
        let kept = recent.before(u64::MAX);
        let of = |byte: u8| kept.iter().filter(|(_, line)| line[0] == byte).count();
        assert!(of(b'x') >= 4 && of(b'y') >= 7, "{} {}", of(b'x'), of(b'y'));
        assert!(recent.0.lock().bytes <= BYTES);
    }
}
