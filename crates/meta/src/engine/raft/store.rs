//! The state on one member's disk: its vote, its log, and the rows of all entries that are
//! applied. One record and one sync make entries durable: see `store_log.rs`.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Disk, DiskFile, Error, Result};
use parking_lot::{Mutex, MutexGuard};

use super::super::config::Config;
use super::super::ring::Ring;
use super::super::row_store::{Behind, Load, Mark, Memtable, RESERVE, RowStore, Table, Writer};
use super::super::{CommitError, Fence, Snapshot, files};
use super::apply::{Outcome, Step};
use super::compared_rows::Comparison;
use super::entry::{Entry, EntryId, Proposal, encode_pending};
use super::index::Index;
use super::member_record::{MemberRecord, Membership};
use super::record::Vote;
use super::recover::{BadEnd, RecoveredLog, recover};

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
pub(super) fn counts_on_old_files() -> bool {
    is_planted(Bug::OverwrittenIsEmpty) || is_planted(Bug::OldFileCountedOn)
}

/// Returns whether a bug is planted by which one member of three applies less than the others.
fn misapplies(held: &MemberRecord, fence: Fence) -> bool {
    is_planted(Bug::RowMisapplied) && held.member.is_multiple_of(3) && fence.batch % 16 == 15
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
