//! Index of the entries in effect, and of the place where each can be read: the log after all
//! replacements.
//!
//! ```text
//!   first ...................................................... next
//!     records in the ring, oldest first     │ recent entries, also in memory
//!     pinned: not applied, at rest beside the rows, since their records may be overwritten
//! ```

use std::collections::{BTreeMap, VecDeque};

use cairn_base::{Error, Result};

use super::super::ring::LogPosition;
use super::entry::{Entry, EntryId};

/// The part of a record's entries that is in effect: the indexes `first <= index < end`.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: u64,
    end: u64,
    place: LogPosition,
}

/// The place of an entry.
pub enum EntryPlace {
    Memory(Entry),
    Record(LogPosition),
}

/// The log in effect.
#[derive(Default)]
pub struct Index {
    spans: VecDeque<Span>,
    /// The first index of each run of entries of one term, and the term.
    terms: VecDeque<(u64, u64)>,
    /// Entry before the first.
    before: Option<EntryId>,
    first: u64,
    next: u64,
    pinned: BTreeMap<u64, Entry>,
    recent: VecDeque<Entry>,
    recent_bytes: usize,
    /// Most bytes of the latest entries that stay in memory.
    recent_bytes_max: usize,
    /// Number of times that entries were removed from the end.
    removals: u64,
}

impl Index {
    /// Creates the index of a log without entries that continues after `before`.
    pub fn after(before: Option<EntryId>) -> Index {
        let first = before.map_or(0, |id| id.index + 1);
        Index { before, first, next: first, ..Index::default() }
    }

    /// Creates the index of a log whose first known entry will be the one at `first`.
    pub fn starting_at(first: u64) -> Index {
        Index { first, next: first, ..Index::default() }
    }

    /// Makes sure that the entry before the first is known; `applied` is the last applied entry.
    pub fn settle_before(&mut self, applied: Option<EntryId>) {
        if self.first == 0 || self.before.is_some() {
            return;
        }
        match self.id(self.first) {
            Some(id) if applied.is_some_and(|applied| id.index <= applied.index) => {
                (self.before, self.first) = (Some(id), id.index + 1);
            }
            _ => self.before = applied,
        }
    }

    /// Returns the entry before the first that can be read; `None` if there is none.
    pub fn before(&self) -> Option<EntryId> {
        self.before
    }

    /// Returns the index of the first entry that can be read.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Replaces `other`, whose entries are not those of this log.
    pub fn replacing(self, other: &Index) -> Index {
        let recent_bytes_max = other.recent_bytes_max;
        Index { removals: other.removals + 1, recent_bytes_max, ..self }
    }

    /// Keeps up to `bytes` of entries in memory that are appended from now on.
    pub fn keep_recent(&mut self, bytes: usize) {
        self.recent_bytes_max = bytes;
    }

    /// Returns a number that changes whenever entries are removed from the end.
    pub fn removals(&self) -> u64 {
        self.removals
    }

    /// Returns the index after the last entry.
    pub fn next(&self) -> u64 {
        self.next
    }

    pub fn last(&self) -> Option<EntryId> {
        self.next.checked_sub(1).and_then(|index| self.id(index))
    }

    /// Returns the id of the entry at `index`, if it can be read or is just before the first.
    pub fn id(&self, index: u64) -> Option<EntryId> {
        if index < self.first {
            return self.before.filter(|id| id.index == index);
        }
        let runs = self.terms.partition_point(|(first, _)| *first <= index);
        let (_, term) = self.terms.get(runs.checked_sub(1)?)?;
        (index < self.next).then_some(EntryId { term: *term, index })
    }

    /// Adds entries that are durable in the record at `place`; `None` if they are pinned. They
    /// replace all entries from the first one's index on.
    ///
    /// # Errors
    /// `Invalid` for entries that do not follow those before.
    pub fn append(&mut self, place: Option<LogPosition>, entries: Vec<Entry>) -> Result<()> {
        let Some(first) = entries.first().map(|entry| entry.id.index) else { return Ok(()) };
        if first > self.next {
            let next = self.next;
            return Err(Error::Invalid(format!("log: entry {first} does not follow {next}")));
        }
        self.truncate(first)?;
        self.next = first + entries.len() as u64;
        if let Some(place) = place {
            self.spans.push_back(Span { first, end: self.next, place });
        }
        for entry in entries {
            if self.terms.back().is_none_or(|(_, term)| *term != entry.id.term) {
                self.terms.push_back((entry.id.index, entry.id.term));
            }
            match place {
                None => drop(self.pinned.insert(entry.id.index, entry)),
                Some(_) => {
                    self.recent_bytes += entry.encoded_bytes();
                    self.recent.push_back(entry);
                }
            }
        }
        while self.recent_bytes > self.recent_bytes_max && self.recent.len() > 1 {
            self.forget_oldest();
        }
        self.move_first();
        Ok(())
    }

    /// Removes the entries from `from` on.
    ///
    /// # Errors
    /// `Invalid` if entries would go that can no longer be read.
    pub fn truncate(&mut self, from: u64) -> Result<()> {
        if from < self.first {
            let first = self.first;
            let text = format!("log: cannot remove entry {from}, the first is {first}");
            return Err(Error::Invalid(text));
        }
        if from >= self.next {
            return Ok(());
        }
        while self.spans.pop_back_if(|span| span.first >= from).is_some() {}
        if let Some(span) = self.spans.back_mut() {
            span.end = span.end.min(from);
        }
        while let Some(entry) = self.recent.pop_back_if(|entry| entry.id.index >= from) {
            self.recent_bytes -= entry.encoded_bytes();
        }
        while self.terms.pop_back_if(|(first, _)| *first >= from).is_some() {}
        self.pinned.split_off(&from);
        self.next = from;
        self.removals += 1;
        Ok(())
    }

    /// Forgets the records in the file `segment`, which are about to be overwritten.
    pub fn forget_segment(&mut self, segment: usize) {
        while self.spans.iter().any(|span| span.place.segment == segment) {
            self.spans.pop_front();
        }
        self.move_first();
    }

    /// Forgets the records up to `sequence`. Their entries are applied, or pinned.
    pub fn forget_records(&mut self, sequence: u64) {
        while self.spans.pop_front_if(|span| span.place.header.sequence <= sequence).is_some() {}
        self.move_first();
    }

    /// Returns the places of the records, oldest first.
    pub fn places(&self) -> Vec<LogPosition> {
        self.spans.iter().map(|span| span.place).collect()
    }

    /// Returns whether the record at `place` holds entries that are in effect.
    pub fn has(&self, place: &LogPosition) -> bool {
        let sequence = place.header.sequence;
        self.spans.iter().any(|span| span.place.header.sequence == sequence)
    }

    /// Returns the last entry whose record is in the file `segment`, which has the oldest records.
    pub fn last_in_segment(&self, segment: usize) -> Option<EntryId> {
        let spans = self.spans.iter().take_while(|span| span.place.segment == segment);
        self.id(spans.last()?.end - 1)
    }

    /// Unpins the entries before `next`: they are applied, and in a table that is durable or will
    /// be before their records are overwritten.
    pub fn unpin(&mut self, next: u64) {
        self.pinned = self.pinned.split_off(&next);
        self.move_first();
    }

    /// Keeps `entry` in memory until it is applied, wherever else it is.
    pub fn pin(&mut self, entry: Entry) {
        self.pinned.insert(entry.id.index, entry);
    }

    /// Returns the index after the last pinned entry; 0 for none.
    pub fn pinned_end(&self) -> u64 {
        self.pinned.last_key_value().map_or(0, |(index, _)| index + 1)
    }

    /// Returns the first record after `after` that holds an entry from `next` on.
    pub fn first_needed(&self, next: u64, after: u64) -> Option<u64> {
        let spans = self.spans.iter().rev().take_while(|span| span.end > next);
        let sequences = spans.map(|span| span.place.header.sequence);
        sequences.take_while(|sequence| *sequence > after).last()
    }

    /// Finds the entry at `index`.
    pub fn find(&self, index: u64) -> Option<EntryPlace> {
        if index < self.first || index >= self.next {
            return None;
        }
        if let Some(entry) = self.pinned.get(&index) {
            return Some(EntryPlace::Memory(entry.clone()));
        }
        let oldest = self.recent.front().map_or(u64::MAX, |entry| entry.id.index);
        if let Some(number) = index.checked_sub(oldest) {
            return self.recent.get(usize::try_from(number).ok()?).cloned().map(EntryPlace::Memory);
        }
        let spans = self.spans.partition_point(|span| span.end <= index);
        self.spans.get(spans).map(|span| EntryPlace::Record(span.place))
    }

    fn forget_oldest(&mut self) {
        if let Some(entry) = self.recent.pop_front() {
            self.recent_bytes -= entry.encoded_bytes();
        }
    }

    /// Updates `first` after entries that could be read may have gone.
    fn move_first(&mut self) {
        let fronts = [
            self.spans.front().map(|span| span.first),
            self.pinned.first_key_value().map(|(index, _)| *index),
            self.recent.front().map(|entry| entry.id.index),
        ];
        let first = fronts.into_iter().flatten().min().unwrap_or(self.next);
        if first <= self.first {
            return;
        }
        self.before = self.id(first - 1);
        self.first = first;
        while self.terms.get(1).is_some_and(|(start, _)| *start <= first) {
            self.terms.pop_front();
        }
        if first == self.next {
            self.terms.clear();
        }
    }
}
