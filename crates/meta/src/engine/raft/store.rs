//! The state on one member's disk: its vote, its log, and the rows of all entries that are
//! applied. One record and one sync make entries durable.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Disk, DiskFile, Error, Result};
use parking_lot::{Mutex, MutexGuard};

use super::super::config::Config;
use super::super::ring::header::RawHeader;
use super::super::ring::{LogPosition, Ring, read_body};
use super::super::row_store::{Behind, Load, Mark, Memtable, RESERVE, RowStore, Table, Writer};
use super::super::{CommitError, Fence, Snapshot, files};
use super::apply::{Outcome, Step};
use super::compared_rows::Comparison;
use super::entry::{Entry, EntryId, Proposal, encode_pending};
use super::index::{EntryPlace, Index};
use super::member_record::{MemberRecord, Membership};
use super::record::{self, Record, Vote};
use super::recover::{BadEnd, RecoveredLog, recover};

/// Most bytes of entries that are sent at once; a single entry may be larger.
const PORTION_MAX: usize = 1 << 20;

/// A member's disk. Only one may be open on a directory at a time; the caller ensures that.
pub struct MemberStore {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) config: Config,
    /// Files of the ring.
    pub(super) log_files: Vec<Arc<dyn DiskFile>>,
    /// The ring. Locks are taken in this order: `ring`, the writer of `rows`, `state`.
    pub(super) ring: Mutex<Ring>,
    pub(super) rows: RowStore,
    pub(super) state: Mutex<MemberState>,
    /// Number of the snapshot that is being received.
    pub(super) receiving: Mutex<u64>,
    /// Description of a damaged record that is needed.
    pub(super) log_damage: Mutex<Option<String>>,
    /// Set when a damaged record was read.
    pub(super) log_suspected: Mutex<bool>,
    pub(super) comparison: Mutex<Comparison>,
    /// Rows that are not those of a majority.
    pub(super) differing: Mutex<Option<String>>,
    /// Damaged record at the end of the log when it was opened, and the term of the vote then.
    bad_end: Option<(BadEnd, u64)>,
}

/// The current state of the member.
pub(super) struct MemberState {
    pub held: MemberRecord,
    pub index: Index,
    /// Number of the last record.
    pub sequence: u64,
    /// Number of the record up to which records are in the table, or their entries pinned.
    pub settled: u64,
    /// Records after the mark, and their checksums.
    pub checksums: Vec<(u64, u32)>,
    /// File of the ring that is overwritten next.
    pub next_segment: usize,
    /// Index before which the consensus library asks for no entries any more.
    pub purged_next: u64,
}

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

impl fmt::Debug for MemberStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberStore").field("config", &self.config).finish_non_exhaustive()
    }
}

impl MemberState {
    /// Returns the mark that a checkpoint would leave now: `base` with all changes since.
    pub fn mark(&mut self, base: &Mark) -> Result<Mark> {
        let needed = self.index.first_needed(self.held.next(), self.settled);
        let sequence = needed.map_or(self.sequence, |needed| needed - 1).max(base.sequence);
        self.checksums.retain(|(number, _)| *number >= sequence);
        let checksum = self.checksums.first().filter(|(number, _)| *number == sequence);
        let previous = checksum.map_or(base.previous, |(_, crc)| *crc);
        let (pending, more) = (self.index.pinned_end(), self.held.encode()?);
        Ok(Mark { sequence, previous, pending, more, ..base.clone() })
    }
}

impl MemberStore {
    /// Opens the disk of `member`; makes its files if there are none. Everything that an earlier
    /// process made durable is there again; writes that were under way may be.
    ///
    /// # Errors
    /// `Corrupt` if something durable cannot be read, `Invalid` for the disk of another member or
    /// engine and for files of a newer version, `Full` and `Io`.
    pub fn open(disk: Arc<dyn Disk>, config: Config, member: u64) -> Result<MemberStore> {
        let file = files::open_rows(&*disk, &config, MemberRecord::new(member).encode()?)?;
        MemberStore::open_rows(disk, config, file, Some(member))
    }

    /// Opens the disk of any member; makes no files.
    ///
    /// # Errors
    /// Those of `open`; `NotFound` if there is no member.
    pub fn open_any(disk: Arc<dyn Disk>, config: Config) -> Result<MemberStore> {
        if !disk.list()?.iter().any(|name| name == files::ROWS) {
            return Err(Error::NotFound("there are no metadata of a member".into()));
        }
        let file = files::open_rows(&*disk, &config, Bytes::new())?;
        MemberStore::open_rows(disk, config, file, None)
    }

    fn open_rows(
        disk: Arc<dyn Disk>,
        config: Config,
        file: Arc<dyn DiskFile>,
        member: Option<u64>,
    ) -> Result<MemberStore> {
        if disk.list()?.iter().any(|name| name == files::ROWS_NEW) {
            // Remains of a snapshot that was being received.
            disk.remove(files::ROWS_NEW)?;
        }
        let mut table = Table::open(&file, config.cache_bytes)?;
        let old = table.cold()?.mark.clone();
        let held = require_member(&old, member)?;
        let mut ring = Ring::open(&*disk, &old)?;
        let recovered = recover(&ring, &old, &held, table.pending(old.pending)?)?;
        let mark = settle(&old, &held, &recovered)?;
        if mark != old {
            table = move_pending(&*disk, &file, table, &config, &recovered, &mark)?;
        }
        ring.resume(&mark, true);
        ring.go_on_after(recovered.segment);
        let bad_end = recovered.bad_end.map(|end| (end, recovered.vote.term));
        let mut index = recovered.index;
        index.keep_recent(config.memtable_bytes);
        recovered.unapplied.into_values().for_each(|entry| index.pin(entry));
        if !counts_on_old_files() {
            // The next record goes there. Nobody may rely on the records that it overwrites.
            index.forget_segment(ring.next_segment());
        }
        let state = MemberState {
            held: MemberRecord { vote: recovered.vote, ..held },
            index,
            sequence: mark.sequence,
            settled: mark.sequence,
            checksums: Vec::new(),
            next_segment: ring.next_segment(),
            purged_next: 0,
        };
        let behind = Behind { rows: Memtable::default(), load: Load::default(), mark };
        let rows = RowStore::open(Arc::clone(&disk), file, table, behind, config.limits())?;
        Ok(MemberStore {
            disk,
            config,
            log_files: ring.files(),
            ring: Mutex::new(ring),
            rows,
            state: Mutex::new(state),
            receiving: Mutex::new(0),
            log_damage: Mutex::default(),
            log_suspected: Mutex::default(),
            comparison: Mutex::default(),
            differing: Mutex::default(),
            bad_end,
        })
    }

    /// Returns what the last record held if it did not check out when the log was opened: this
    /// member may have lost what it had confirmed last.
    pub fn bad_end(&self) -> Option<BadEnd> {
        self.bad_end.map(|(end, _)| end)
    }

    /// Returns whether this member has what it may have lost, after entries of the leader with
    /// `vote` were appended, of which those up to `committed` are committed. A leader that has
    /// committed an entry of its own term has all entries that were committed before it. A lost
    /// vote is of a later term than the known one, and void once a leader of such a term is known.
    pub fn has_regained(&self, vote: Vote, committed: Option<EntryId>) -> bool {
        let Some((end, term)) = self.bad_end else { return true };
        let Some(committed) = committed.filter(|id| id.term == vote.term) else { return false };
        let is_past_vote = end == BadEnd::Entries || vote.term > term;
        is_past_vote && self.state.lock().index.id(committed.index) == Some(committed)
    }

    /// Returns the id under which this member votes.
    pub fn member(&self) -> u64 {
        self.state.lock().held.member
    }

    /// Returns the generation; messages of another generation are refused.
    pub fn generation(&self) -> u64 {
        self.state.lock().held.generation
    }

    /// Returns why the store accepts nothing until it is opened again, if so.
    pub fn failure(&self) -> Option<String> {
        self.rows.failure()
    }

    /// Returns the bytes of entries that are sent at once. This much fits into the log of a member
    /// that has not applied the entries before.
    pub fn portion(&self) -> usize {
        usize::try_from(self.config.log_segment_bytes / 4).unwrap_or(PORTION_MAX).min(PORTION_MAX)
    }

    pub fn vote(&self) -> Vote {
        self.state.lock().held.vote
    }

    /// Returns the index after the last entry.
    pub fn next(&self) -> u64 {
        self.state.lock().index.next()
    }

    /// Returns the last entry, applied or not.
    pub fn last(&self) -> Option<EntryId> {
        self.state.lock().index.last()
    }

    /// Returns the entry before the first that [`MemberStore::entries`] can return; `None` if there
    /// is none.
    pub fn before(&self) -> Option<EntryId> {
        self.state.lock().index.before()
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

    /// Returns the last applied entry, and the members as of it.
    pub fn applied(&self) -> (Option<EntryId>, Membership) {
        let state = self.state.lock();
        (state.held.applied, state.held.membership.clone())
    }

    /// Returns the index after the last applied entry.
    pub fn applied_next(&self) -> u64 {
        self.state.lock().held.next()
    }

    /// Returns the fence as of the last applied entry.
    pub fn fence(&self) -> Fence {
        self.rows.fence()
    }

    /// Returns all rows as of the last applied entry.
    pub fn snapshot(&self) -> Box<dyn Snapshot> {
        self.rows.snapshot()
    }

    pub fn is_low_on_space(&self) -> bool {
        self.rows.is_low_on_space()
    }

    /// See [`RowStore::memory_bytes`].
    pub fn memory_bytes(&self) -> u64 {
        self.rows.memory_bytes()
    }

    /// Returns whether the disk works, has no known damage, and has room now.
    pub fn is_fit(&self) -> bool {
        let is_whole = self.damage().is_none() || is_planted(Bug::DamagedLeads);
        self.failure().is_none() && is_whole && !self.rows.is_low_on_space_now()
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

    /// Publishes to the row store how far the log has come.
    pub(super) fn publish(
        &self,
        writer: MutexGuard<'_, Writer>,
        mut state: MutexGuard<'_, MemberState>,
        log_bytes: u64,
    ) -> Result<()> {
        let mark = state.mark(&writer.mark)?;
        drop(state);
        self.rows.publish(writer, mark, log_bytes);
        Ok(())
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

    /// Applies committed entries, in their order. Readers see them all at once.
    ///
    /// # Errors
    /// `Invalid` for entries that do not follow those applied; `Full` and others if memory has no
    /// room because the table cannot grow. Nothing is applied then.
    pub fn apply(&self, entries: Vec<Entry>) -> Result<Vec<Outcome>> {
        let mut writer = self.rows.writer();
        self.rows.wait_for_room(&mut writer, |_| true).map_err(into_error)?;
        let mut state = self.state.lock();
        let next = state.held.next();
        if !entries.iter().map(|entry| entry.id.index).zip(next..).all(|(id, next)| id == next) {
            let first = entries.first().map(|entry| entry.id);
            return Err(Error::Invalid(format!("entry {first:?} was to be applied after {next}")));
        }
        let ends_empty = entries.last().is_some_and(|last| last.proposal == Proposal::Empty);
        let mut outcomes = Vec::with_capacity(entries.len());
        for entry in entries {
            let mut step = Step::of(entry, &mut state.held, writer.mark.fence);
            if misapplies(&state.held, step.fence) {
                step.changes.pop();
            }
            if !step.changes.is_empty() {
                let done = || io::Result::Ok(());
                self.rows.insert(&mut writer, step.fence.batch, step.changes, done)?;
            }
            writer.mark.fence = step.fence;
            outcomes.push(step.outcome);
        }
        let next = state.held.next();
        state.index.unpin(next);
        self.publish(writer, state, 0)?;
        if ends_empty {
            self.keep_compared_rows();
        }
        Ok(outcomes)
    }

    /// Moves the rows of all applied entries into the table.
    ///
    /// # Errors
    /// `Full` and `Io`; nothing is lost.
    pub fn checkpoint(&self) -> Result<()> {
        self.rows.checkpoint()
    }

    /// Ends the store without a last checkpoint: the next start reads the log.
    pub fn abandon(self) {
        self.rows.abandon();
    }
}

/// Returns whether a bug is planted that shows only if entries are overwritten that the library has
/// not released.
fn counts_on_old_files() -> bool {
    is_planted(Bug::OverwrittenIsEmpty) || is_planted(Bug::OldFileCountedOn)
}

/// Returns whether a bug is planted by which one member of three applies less than the others.
fn misapplies(held: &MemberRecord, fence: Fence) -> bool {
    is_planted(Bug::RowMisapplied) && held.member.is_multiple_of(3) && fence.batch % 16 == 15
}

/// Returns whether the error of a read means that the record is damaged, or its file was cut short.
fn is_damage(error: &Error) -> bool {
    match error {
        Error::Corrupt { .. } => true,
        Error::Io(error) => error.kind() == io::ErrorKind::UnexpectedEof,
        _ => false,
    }
}

fn require_member(mark: &Mark, member: Option<u64>) -> Result<MemberRecord> {
    if !mark.is_replicated() {
        let text = "these metadata are not replicated: they belong to the embedded engine. Dump \
                    them and load the dump";
        return Err(Error::Invalid(text.into()));
    }
    let held = MemberRecord::parse(&mark.more)?;
    if let Some(member) = member.filter(|member| held.member != *member) {
        let found = held.member;
        let text = format!("these metadata belong to member {found}, not to member {member}");
        return Err(Error::Invalid(text));
    }
    Ok(held)
}

/// Returns the mark after recovery: all records are at or before it, and the entries that are not
/// applied are beside the rows.
fn settle(old: &Mark, held: &MemberRecord, recovered: &RecoveredLog) -> Result<Mark> {
    let held = MemberRecord { vote: recovered.vote, ..held.clone() };
    let pending = recovered.unapplied.last_key_value().map_or(0, |(index, _)| index + 1);
    let RecoveredLog { sequence, previous, .. } = *recovered;
    Ok(Mark { sequence, previous, pending, more: held.encode()?, ..old.clone() })
}

/// Makes the recovered records durable before anything is appended: an earlier process may have
/// left them in the page cache only.
fn move_pending(
    disk: &dyn Disk,
    file: &Arc<dyn DiskFile>,
    table: Table,
    config: &Config,
    recovered: &RecoveredLog,
    mark: &Mark,
) -> Result<Table> {
    let entries = encode_pending(recovered.unapplied.values())?;
    match table.write_pending(&entries, mark) {
        Ok(()) => Ok(table),
        Err(Error::Full(_)) if disk.open(RESERVE).is_ok() => {
            drop(table);
            disk.remove(RESERVE)?;
            disk.sync()?;
            let table = Table::open(file, config.cache_bytes)?;
            table.write_pending(&entries, mark)?;
            Ok(table)
        }
        Err(error) => Err(error),
    }
}

pub(super) fn into_error(error: CommitError) -> Error {
    match error {
        CommitError::Failed(error) | CommitError::Unknown(error) | CommitError::Poisoned(error) => {
            error
        }
        CommitError::Fenced { found } => Error::Conflict(format!("the fence is at {found:?}")),
    }
}
