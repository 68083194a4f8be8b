//! The log of a member's store: votes and entries are made durable, read again, and set aside when
//! the log is full.

use std::io;

use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Error, Result};

use super::super::CommitError;
use super::super::ring::header::RawHeader;
use super::super::ring::{LogPosition, Ring, read_body};
use super::super::row_store::Mark;
use super::entry::{Entry, EntryId, encode_pending};
use super::index::EntryPlace;
use super::record::{self, Record, Vote};
use super::store::{MemberStore, counts_on_old_files, into_error};

/// Most bytes of entries that are sent at once; a single entry may be larger.
const PORTION_MAX: usize = 1 << 20;

/// The result of a request for entries of a leader's log.
#[derive(Debug, PartialEq, Eq)]
pub enum LeaderEntries {
    /// One or more entries, starting at the first one requested.
    Some(Vec<Entry>),
    /// The first one was overwritten. A member that needs it gets a later entry that follows its
    /// log, or a snapshot.
    Overwritten,
    /// Another leader's entries have replaced part of this log since: nothing is sent from it.
    Replaced,
}

impl MemberStore {
    /// Returns the bytes of entries that are sent at once. This much fits into the log of a member
    /// that has not applied the entries before.
    pub fn portion(&self) -> usize {
        usize::try_from(self.config.log_segment_bytes / 4).unwrap_or(PORTION_MAX).min(PORTION_MAX)
    }

    /// Returns the last entry that nobody may rely on any more: entries up to it were overwritten,
    /// or will be when the current file of the ring is full. All are applied.
    pub fn purgeable(&self) -> Option<EntryId> {
        let state = self.state.lock();
        let soon = state.index.last_in_segment(state.next_segment);
        let soon = soon.filter(|id| id.index < state.held.next() && !counts_on_old_files());
        soon.max(state.index.before())
    }

    /// Notes that the consensus library asks for no entry before `next` any more.
    pub fn set_purged(&self, next: u64) {
        let mut state = self.state.lock();
        state.purged_next = state.purged_next.max(next);
    }

    /// Returns whether a record of `bytes` may have to wait until the consensus library has
    /// released the entries that are overwritten next. The library was asked to when the current
    /// file was begun.
    pub fn awaits_purge(&self, bytes: usize) -> bool {
        let ring = self.ring.lock();
        if !ring.is_half_full(bytes as u64) || counts_on_old_files() {
            return false;
        }
        let state = self.state.lock();
        let soon = state.index.last_in_segment(state.next_segment);
        soon.is_some_and(|id| id.index >= state.purged_next)
    }

    /// Makes a vote durable.
    ///
    /// # Errors
    /// Those of the disk. After a failed write the store accepts nothing more.
    pub fn save_vote(&self, vote: Vote) -> Result<()> {
        let mut ring = self.ring.lock();
        let header = record::encode_vote(&mut ring, &vote)?;
        self.put(&mut ring, header, Record::Vote(vote))
    }

    /// Makes entries durable. They follow each other, and replace all entries from the first one's
    /// index on. They become one record, unless a file of the log is too short for it.
    ///
    /// # Errors
    /// `Invalid` for entries that do not follow those before, `TooLarge` for an entry that fits
    /// into no file of the log, and those of the disk. After a failed write the store accepts
    /// nothing more.
    pub fn append(&self, mut entries: Vec<Entry>) -> Result<()> {
        let mut ring = self.ring.lock();
        while !entries.is_empty() {
            let mut fitting = entries.len();
            while fitting > 1
                && ring.record_bytes(record::record_bytes(&entries[..fitting])).is_err()
            {
                fitting = fitting.div_ceil(2);
            }
            let rest = entries.split_off(fitting);
            ring.record_bytes(record::record_bytes(&entries))?;
            self.require_following(&entries)?;
            let header = record::encode_entries(&mut ring, &entries)?;
            self.put(&mut ring, header, Record::Entries(entries))?;
            entries = rest;
        }
        Ok(())
    }

    fn require_following(&self, entries: &[Entry]) -> Result<()> {
        let state = self.state.lock();
        let ids = || entries.iter().map(|entry| entry.id);
        let first = ids().next().map_or(0, |id| id.index);
        let follow = ids().zip(first..).all(|(id, index)| id.index == index)
            && ids().zip(ids().skip(1)).all(|(one, other)| one.term <= other.term);
        let before = first.checked_sub(1).and_then(|index| state.index.id(index));
        let terms = before.zip(ids().next()).is_none_or(|(before, id)| before.term <= id.term);
        if follow && terms && first <= state.index.next() && first >= state.held.next() {
            return Ok(());
        }
        let (last, applied) = (state.index.last(), state.held.applied);
        Err(Error::Invalid(format!(
            "log: entries from {:?} on do not follow {last:?}, or are applied ({applied:?})",
            ids().next()
        )))
    }

    /// Writes the record in the ring's buffer and makes it durable.
    fn put(&self, ring: &mut Ring, header: RawHeader, record: Record) -> Result<()> {
        let bytes = header.record_bytes();
        let mut writer = self.rows.writer();
        let needs = ring.needs(bytes);
        self.rows.wait_for_log(&mut writer, |done| needs <= done).map_err(into_error)?;
        drop(writer);
        if let Some(segment) = ring.overwrites(bytes)
            && !is_planted(Bug::OldFileCountedOn)
        {
            self.state.lock().index.forget_segment(segment);
        }
        let place = match ring.write(header).and_then(|place| ring.sync().map(|()| place)) {
            Ok(place) => place,
            Err(error) => {
                self.rows.writer().poison(format!("writing the log: {error}"));
                return Err(Error::Io(error));
            }
        };
        let writer = self.rows.writer();
        let mut state = self.state.lock();
        state.sequence = header.sequence;
        state.next_segment = ring.next_segment();
        state.checksums.push((header.sequence, header.crc));
        match record {
            Record::Vote(vote) => state.held.vote = vote,
            Record::Entries(entries) => state.index.append(Some(place), entries)?,
        }
        self.publish(writer, state, bytes)
    }

    /// Forgets the entries from `from` on. Nothing is written: if the power fails before other
    /// entries are appended in their place, they are back, as if they had never been removed.
    ///
    /// # Errors
    /// `Invalid` for entries that are applied.
    pub fn truncate(&self, from: u64) -> Result<()> {
        let _ring = self.ring.lock();
        let mut state = self.state.lock();
        if from < state.held.next() {
            let text = format!("log: entry {from} is applied and cannot be removed");
            return Err(Error::Invalid(text));
        }
        state.index.truncate(from)
    }

    /// Returns a number that changes whenever entries are removed or replaced. The log of a leader
    /// only grows, so entries are sent by the number as of its election.
    pub fn removals(&self) -> u64 {
        self.state.lock().index.removals()
    }

    /// Returns the entries `from <= index < end` that can be read, up to `max_bytes` of them, but
    /// at least one. Returns none if the first of them cannot be read any more. All are of the same
    /// log.
    ///
    /// # Errors
    /// `Corrupt` and `Io`.
    pub fn entries(&self, from: u64, end: u64, max_bytes: usize) -> Result<Vec<Entry>> {
        loop {
            let removals = self.removals();
            let entries = self.find(from, end, max_bytes)?;
            if self.removals() == removals {
                return Ok(entries);
            }
        }
    }

    /// Returns the entries `from <= index < end` of the log as of `removals`, up to `max_bytes` of
    /// them, but at least one. A damaged record counts as overwritten: an error would end the
    /// leader.
    ///
    /// # Errors
    /// `Io`.
    pub fn leader_entries(
        &self,
        removals: u64,
        from: u64,
        end: u64,
        max_bytes: usize,
    ) -> Result<LeaderEntries> {
        let entries = match self.find(from, end, max_bytes) {
            Err(error) if is_damage(&error) => {
                self.suspect_log();
                Vec::new()
            }
            found => found?,
        };
        let state = self.state.lock();
        Ok(match state.index.removals() == removals && from < state.index.next() {
            false => LeaderEntries::Replaced,
            true if entries.is_empty() => LeaderEntries::Overwritten,
            true => LeaderEntries::Some(entries),
        })
    }

    /// Finds entries; may mix entries from before and after a removal.
    fn find(&self, from: u64, end: u64, max_bytes: usize) -> Result<Vec<Entry>> {
        let (mut out, mut bytes) = (Vec::new(), 0);
        let mut next = from;
        while next < end && (bytes < max_bytes || out.is_empty()) {
            let found = self.state.lock().index.find(next);
            let entries = match found {
                None => break,
                Some(EntryPlace::Memory(entry)) => vec![entry],
                Some(EntryPlace::Record(place)) => self.read(next, &place)?,
            };
            if entries.is_empty() {
                break;
            }
            for entry in entries.into_iter().take_while(|entry| entry.id.index < end) {
                bytes += entry.encoded_bytes();
                if bytes > max_bytes && !out.is_empty() {
                    break;
                }
                next = entry.id.index + 1;
                out.push(entry);
            }
        }
        Ok(out)
    }

    /// Reads the entries from `from` on in the record at `place` that are in effect; none if that
    /// record was overwritten.
    fn read(&self, from: u64, place: &LogPosition) -> Result<Vec<Entry>> {
        let number = place.header.sequence;
        let file =
            self.log_files.get(place.segment).ok_or_else(|| Error::NotFound("log".into()))?;
        let body = read_body(&**file, place)?;
        let state = self.state.lock();
        let is_there = |index| match state.index.find(index) {
            Some(EntryPlace::Record(place)) => place.header.sequence == number,
            _ => false,
        };
        match body {
            _ if !is_there(from) => Ok(Vec::new()),
            None => {
                let what = format!("body of record {number} of the log");
                Err(Error::corrupt(what, "bytes that do not check out", "it"))
            }
            Some(body) => match record::parse(&place.header, &body)? {
                Record::Vote(_) => Ok(Vec::new()),
                Record::Entries(mut entries) => {
                    entries.retain(|entry| entry.id.index >= from && is_there(entry.id.index));
                    Ok(entries)
                }
            },
        }
    }

    /// Puts all entries that are not applied beside the rows, as a start does, so that the log has
    /// room: if they are never committed, no checkpoint makes any. Does nothing if a checkpoint
    /// would make room.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn set_aside(&self) -> Result<()> {
        let ring = self.ring.lock();
        let unapplied = |base: &Mark| {
            let (from, end, more) = {
                let state = self.state.lock();
                (state.held.next(), state.index.next(), state.held.encode()?)
            };
            let entries = self.entries(from, end, usize::MAX)?;
            if entries.len() as u64 != end.saturating_sub(from) {
                let what = format!("entries {from} to {end} of the log");
                return Err(Error::corrupt(what, "a gap", "all entries after those applied"));
            }
            let (sequence, previous) = (ring.sequence, ring.previous);
            let pending = if entries.is_empty() { 0 } else { end };
            let mark = Mark { sequence, previous, pending, more, ..base.clone() };
            Ok((encode_pending(&entries)?, mark, entries))
        };
        self.rows.set_aside(unapplied, |entries| {
            tracing::warn!(entries = entries.len(), "the log was full of uncommitted entries");
            let mut state = self.state.lock();
            entries.into_iter().for_each(|entry| state.index.pin(entry));
            state.settled = ring.sequence;
            state.checksums = vec![(ring.sequence, ring.previous)];
        })
    }

    /// Waits until there is room for a batch whose record takes `bytes`, for the master that is
    /// about to propose it: then no member need wait when it is appended, unless it is slower.
    ///
    /// # Errors
    /// `Failed` if there will be no room by itself, `Poisoned`.
    pub fn wait_for_room(&self, bytes: usize) -> Result<(), CommitError> {
        let ring = self.ring.lock();
        let bytes = ring.record_bytes(bytes).map_err(CommitError::Failed)?;
        let needs = ring.needs(bytes);
        drop(ring);
        let mut writer = self.rows.writer();
        self.rows.pace(&mut writer, bytes);
        self.rows.wait_for_room(&mut writer, |done| needs <= done)
    }
}

/// Returns whether the error of a read means that the record is damaged, or its file was cut short.
fn is_damage(error: &Error) -> bool {
    match error {
        Error::Corrupt { .. } => true,
        Error::Io(error) => error.kind() == io::ErrorKind::UnexpectedEof,
        _ => false,
    }
}
