//! Snapshots for a member that is too far behind for the log: taken here, and installed there in
//! place of that member's rows.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{DiskFile, Error, Result};

use super::super::row_store::{Mark, Memtable, Table};
use super::super::{Change, files};
use super::entry::encode_pending;
use super::index::Index;
use super::member_record::MemberRecord;
use super::outgoing::{Outgoing, SnapshotState};
use super::store::{MemberState, MemberStore};

/// Bytes of memory of the rows that are written in one transaction. Each transaction writes the
/// state of the allocator whole, which grows with the file: one for each page would make the bytes
/// that are written grow with the square of the rows.
const GATHERED_BYTES: usize = 16 << 20;

/// A snapshot of another member's rows while it is received.
pub struct Incoming {
    number: u64,
    file: Arc<dyn DiskFile>,
    table: Table,
    /// Rows that are not in the table yet.
    gathered: Memtable,
    /// Placeholder mark of incomplete rows: it never counts.
    mark: Mark,
}

impl Incoming {
    /// Adds the next page.
    ///
    /// # Errors
    /// `Full` and others of the disk.
    pub fn add(&mut self, page: Vec<(Bytes, Bytes)>) -> Result<()> {
        let changes: Vec<Change> = page.into_iter().map(|(key, row)| (key, Some(row))).collect();
        self.gathered.insert(0, changes);
        if self.gathered.bytes() < GATHERED_BYTES { Ok(()) } else { self.write_gathered() }
    }

    fn write_gathered(&mut self) -> Result<()> {
        if self.gathered.bytes() == 0 {
            return Ok(());
        }
        self.table.write(&self.gathered, &self.mark)?;
        self.gathered = Memtable::default();
        Ok(())
    }

    /// Makes all pages durable, so that [`MemberStore::install_snapshot`], which holds locks that
    /// votes need, has little left to do.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn sync(&mut self) -> Result<()> {
        self.write_gathered()?;
        Ok(self.file.sync_data()?)
    }
}

impl MemberStore {
    /// Takes a snapshot of the applied rows; `None` if nothing is applied.
    pub fn take_snapshot(&self) -> Option<Outgoing> {
        let writer = self.rows.writer();
        let held = self.state.lock().held.clone();
        let rows = self.rows.snapshot();
        let MemberRecord { given_up, membership, .. } = held;
        let taken = SnapshotState {
            applied: held.applied?,
            fence: writer.mark.fence,
            given_up,
            membership,
        };
        Some(Outgoing::new(taken, rows))
    }

    /// Begins to receive a snapshot, in a file beside the rows. A snapshot that was begun before
    /// can no longer be installed.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn receive_snapshot(&self) -> Result<Incoming> {
        let mut number = self.receiving.lock();
        if self.disk.list()?.iter().any(|name| name == files::ROWS_NEW) {
            self.disk.remove(files::ROWS_NEW)?;
        }
        *number += 1;
        let file = self.disk.create(files::ROWS_NEW)?;
        let table = Table::open(&file, self.config.cache_bytes)?;
        let mark = self.rows.writer().mark.clone();
        Ok(Incoming { number: *number, file, table, gathered: Memtable::default(), mark })
    }

    /// Replaces all rows by those of `incoming`. Later entries in the log stay if the log has the
    /// last entry of the snapshot. Returns `false` without any change if this member has applied as
    /// much already.
    ///
    /// # Errors
    /// `Unavailable` if another snapshot was begun meanwhile; those of the disk, after which the
    /// store accepts nothing more.
    pub fn install_snapshot(&self, taken: &SnapshotState, mut incoming: Incoming) -> Result<bool> {
        incoming.write_gathered()?;
        // Nothing is appended meanwhile.
        let ring = self.ring.lock();
        let receiving = self.receiving.lock();
        if *receiving != incoming.number {
            return Err(Error::Unavailable("a newer snapshot is being received".into()));
        }
        let mut installed = false;
        self.rows.replace(|base| {
            let (next, held, known) = {
                let state = self.state.lock();
                let known = state.index.id(taken.applied.index);
                (state.index.next(), state.held.clone(), known)
            };
            if held.next() > taken.applied.index {
                return Ok(None);
            }
            let is_same = known == Some(taken.applied) && !is_planted(Bug::NewerEntriesDropped);
            let kept = if is_same {
                self.entries(taken.applied.index + 1, next, usize::MAX)?
            } else {
                Vec::new()
            };
            let held = MemberRecord {
                applied: Some(taken.applied),
                membership: taken.membership.clone(),
                given_up: taken.given_up,
                first_record: ring.sequence + 1,
                ..held
            };
            let mut index = Index::after(held.applied);
            index.append(None, kept.clone())?;
            let mark = Mark {
                sequence: ring.sequence,
                previous: ring.previous,
                fence: taken.fence,
                pending: index.pinned_end(),
                more: held.encode()?,
                ..base.clone()
            };
            let Incoming { file, table, .. } = incoming;
            table.write_pending(&encode_pending(&kept)?, &mark)?;
            file.sync_data()?;
            self.disk.rename(files::ROWS_NEW, files::ROWS)?;
            self.disk.sync()?;
            let (sequence, settled) = (ring.sequence, ring.sequence);
            let checksums = vec![(ring.sequence, ring.previous)];
            let mut state = self.state.lock();
            let index = index.replacing(&state.index);
            let (next_segment, purged_next) = (state.next_segment, state.purged_next);
            *state = MemberState {
                held,
                index,
                sequence,
                settled,
                checksums,
                next_segment,
                purged_next,
            };
            installed = true;
            Ok(Some((file, table)))
        })?;
        if installed {
            self.forget_comparison();
        }
        Ok(installed)
    }
}
