//! The library's log, kept on the member's disk.

use std::fmt::Debug;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Error, Result};
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{AnyError, LogId, LogState, RaftLogReader, StorageError, StorageIOError};

use super::entry::Entry;
use super::record::Vote;
use super::shared::MemberShared;
use super::store::MemberStore;
use super::store_log::LeaderEntries;
use super::types::{LogEntry, Types, entry_of, library_vote, log_entry, log_id, vote_of};

/// Interval between two looks whether there is room.
const ROOM_RETRY: Duration = Duration::from_millis(20);

/// The index after the last entry that a snapshot covers, as ordered by the library.
#[derive(Clone, Default)]
pub struct CoveredIndex(Arc<AtomicU64>);

pub struct Log {
    shared: Arc<MemberShared>,
    /// Entries after it must wait until the snapshot is in place.
    covered: CoveredIndex,
    /// Number of removals as of which the log is read for the leader.
    removals: Option<u64>,
}

impl Log {
    pub fn new(shared: Arc<MemberShared>) -> Log {
        Log { shared, covered: CoveredIndex::default(), removals: None }
    }

    /// Makes entries durable, when there is room for them.
    async fn put(&self, entries: Vec<Entry>) -> Result<()> {
        let shared = &self.shared;
        while shared.store.next() < self.covered.0.load(Ordering::Acquire) {
            shared.rest(ROOM_RETRY).await?;
        }
        let entries = Arc::new(entries);
        self.when_there_is_room(move |store| store.append(entries.to_vec())).await
    }

    /// Runs work that needs room in the log, once there is some. The library's core waits for it.
    /// If no entry is applied meanwhile, the log makes room itself.
    async fn when_there_is_room(
        &self,
        work: impl Fn(&MemberStore) -> Result<()> + Clone + Send + 'static,
    ) -> Result<()> {
        let shared = &self.shared;
        let mut begun = shared.now();
        loop {
            match shared.with_store(work.clone()).await {
                Err(error) if shared.passes(&error) => {}
                done => return done,
            }
            if shared.now().saturating_sub(begun) > shared.timing.room() {
                match shared.with_store(MemberStore::set_aside).await {
                    Err(error) if shared.passes(&error) => begun = shared.now(),
                    done => done?,
                }
            }
            shared.rest(ROOM_RETRY).await?;
        }
    }
}

impl RaftLogReader<Types> for Log {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: R,
    ) -> Result<Vec<LogEntry>, StorageError<u64>> {
        let (from, end) = ends(&range);
        let entries = self.shared.store.entries(from, end, usize::MAX).map_err(unread)?;
        Ok(entries.into_iter().map(log_entry).collect())
    }

    /// Reads entries for another member. An error would end the leader's core, so only damage is
    /// one. The library takes an empty answer for a heartbeat and asks for the same entries again.
    /// If they were overwritten, the call with that heartbeat fails, which ends it
    /// ([`super::transfers`]).
    async fn limited_get_log_entries(
        &mut self,
        from: u64,
        end: u64,
    ) -> Result<Vec<LogEntry>, StorageError<u64>> {
        let store = &self.shared.store;
        let (removals, bytes) =
            (self.removals.unwrap_or_else(|| store.removals()), store.portion());
        let entries = match store.leader_entries(removals, from, end, bytes).map_err(unread)? {
            LeaderEntries::Some(mut entries) => {
                if is_planted(Bug::GapSent) && entries.len() > 1 {
                    entries.remove(0);
                }
                entries
            }
            LeaderEntries::Overwritten => {
                self.shared.transfers.note_overwritten(from);
                Vec::new()
            }
            LeaderEntries::Replaced => Vec::new(),
        };
        Ok(entries.into_iter().map(log_entry).collect())
    }
}

impl RaftLogStorage<Types> for Log {
    type LogReader = Log;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError<u64>> {
        let store = &self.shared.store;
        let last_purged_log_id = store.before().map(log_id);
        store.set_purged(store.before().map_or(0, |id| id.index + 1));
        let last_log_id = store.last().map(log_id).or(last_purged_log_id);
        Ok(LogState { last_purged_log_id, last_log_id })
    }

    async fn get_log_reader(&mut self) -> Log {
        let removals = Some(self.shared.store.removals());
        Log { shared: Arc::clone(&self.shared), covered: self.covered.clone(), removals }
    }

    async fn save_vote(&mut self, vote: &openraft::Vote<u64>) -> Result<(), StorageError<u64>> {
        if is_planted(Bug::VoteForgotten) {
            return Ok(());
        }
        let vote = vote_of(vote);
        self.when_there_is_room(move |store| store.save_vote(vote)).await.map_err(unsaved)
    }

    async fn read_vote(&mut self) -> Result<Option<openraft::Vote<u64>>, StorageError<u64>> {
        let vote = self.shared.store.vote();
        // The library has a former leader lead at once. A leader whose log may have lost its end
        // has to be elected anew, by members that know what it has confirmed.
        let leads_on = self.shared.store.bad_end().is_none() || vote.member != self.shared.me;
        Ok(Some(library_vote(Vote { committed: vote.committed && leads_on, ..vote })))
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<Types>,
    ) -> Result<(), StorageError<u64>>
    where
        I: IntoIterator<Item = LogEntry> + Send,
        I::IntoIter: Send,
    {
        let entries = entries.into_iter().map(entry_of).collect();
        self.put(entries).await.map_err(unwritten)?;
        callback.log_io_completed(Ok(()));
        Ok(())
    }

    async fn truncate(&mut self, from: LogId<u64>) -> Result<(), StorageError<u64>> {
        self.shared.store.truncate(from.index).map_err(unwritten)
    }

    /// Purges entries. The ring decides which entries go. The library asks for this after a
    /// snapshot, before the snapshot is in place.
    async fn purge(&mut self, upto: LogId<u64>) -> Result<(), StorageError<u64>> {
        self.covered.0.fetch_max(upto.index + 1, Ordering::AcqRel);
        self.shared.store.set_purged(upto.index + 1);
        Ok(())
    }
}

fn ends(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let from = match range.start_bound() {
        Bound::Included(from) => *from,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    (from, end)
}

fn unread(error: Error) -> StorageError<u64> {
    StorageIOError::read_logs(AnyError::error(error)).into()
}

fn unwritten(error: Error) -> StorageError<u64> {
    StorageIOError::write_logs(AnyError::error(error)).into()
}

fn unsaved(error: Error) -> StorageError<u64> {
    StorageIOError::write_vote(AnyError::error(error)).into()
}
