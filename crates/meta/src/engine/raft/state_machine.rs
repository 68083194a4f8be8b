//! The library's state machine, kept in the row store.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::Error;
use openraft::storage::RaftStateMachine;
use openraft::{
    AnyError, EmptyNode, LogId, RaftSnapshotBuilder, Snapshot, SnapshotMeta, StorageError,
    StorageIOError,
};

use super::apply::Outcome;
use super::entry::Entry;
use super::shared::MemberShared;
use super::types::{
    LibraryMembership, LogEntry, Rows, Types, entry_of, library_membership, log_id, meta_of,
};

/// Interval between two looks whether there is room.
const ROOM_RETRY: Duration = Duration::from_millis(100);

#[derive(Clone)]
pub struct StateMachine {
    shared: Arc<MemberShared>,
}

impl StateMachine {
    pub fn new(shared: Arc<MemberShared>) -> StateMachine {
        StateMachine { shared }
    }

    fn take_snapshot(&self) -> Option<Snapshot<Types>> {
        let outgoing = self.shared.store.take_snapshot()?;
        let meta = meta_of(&outgoing.taken);
        Some(Snapshot { meta, snapshot: Box::new(Rows::Sent(outgoing)) })
    }

    /// Applies entries. Where there is no room, this waits for it: an error would end the library's
    /// core, and the member with it. Only this member is late then.
    async fn apply_portion(&self, entries: Vec<Entry>) -> Result<Vec<Outcome>, StorageError<u64>> {
        let shared = &self.shared;
        let mut warned = false;
        loop {
            let batch = entries.clone();
            match shared.with_store(move |store| store.apply(batch)).await {
                Ok(outcomes) => return Ok(outcomes),
                Err(error) if shared.passes(&error) => {
                    if !std::mem::replace(&mut warned, true) {
                        tracing::warn!(%error, "entries wait for room");
                    }
                    shared.rest(ROOM_RETRY).await.map_err(unwritten)?;
                }
                Err(error) => return Err(unwritten(error)),
            }
        }
    }
}

impl RaftSnapshotBuilder<Types> for StateMachine {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError<u64>> {
        let nothing = || Error::NotFound("a snapshot: nothing is applied yet".into());
        self.take_snapshot().ok_or_else(|| unread(nothing()))
    }
}

impl RaftStateMachine<Types> for StateMachine {
    type SnapshotBuilder = StateMachine;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogId<u64>>, LibraryMembership), StorageError<u64>> {
        let (applied, membership) = self.shared.store.applied();
        Ok((applied.map(log_id), library_membership(&membership)))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Outcome>, StorageError<u64>>
    where
        I: IntoIterator<Item = LogEntry> + Send,
        I::IntoIter: Send,
    {
        let mut entries: Vec<Entry> = entries.into_iter().map(entry_of).collect();
        let mut outcomes = Vec::with_capacity(entries.len());
        while !entries.is_empty() {
            let portion = self.shared.store.split_portion(&mut entries);
            outcomes.extend(self.apply_portion(portion).await?);
        }
        Ok(outcomes)
    }

    async fn get_snapshot_builder(&mut self) -> StateMachine {
        self.clone()
    }

    /// Never called: snapshots are not received by the library (`receive.rs`).
    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Rows>, StorageError<u64>> {
        Err(unwritten(Error::NotImplemented("snapshots that the library receives".into())))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, EmptyNode>,
        snapshot: Box<Rows>,
    ) -> Result<(), StorageError<u64>> {
        let Rows::Received(received) = *snapshot else {
            return Err(unwritten(Error::Invalid(format!("snapshot {meta} is of this member"))));
        };
        let (taken, incoming) = *received;
        let installing =
            self.shared.with_store(move |store| store.install_snapshot(&taken, incoming));
        installing.await.map(drop).map_err(unwritten)
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, StorageError<u64>> {
        Ok(self.take_snapshot())
    }
}

fn unread(error: Error) -> StorageError<u64> {
    StorageIOError::read_state_machine(AnyError::error(error)).into()
}

fn unwritten(error: Error) -> StorageError<u64> {
    StorageIOError::write_state_machine(AnyError::error(error)).into()
}
