//! The storage of a master's metadata: an ordered, transactional key-value store behind one small
//! trait. Engines know nothing of inodes; they keep rows.

mod changes;
mod config;
pub mod embedded;
mod files;
mod lease;
pub mod memory;
pub mod postgres;
pub mod raft;
mod ring;
mod row_store;
mod sole_writer;

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{Error, Result};

pub use embedded::EmbeddedEngine;
pub use lease::Lease;
pub use memory::{CommitFault, Memory};
pub use postgres::Postgres;
pub use row_store::{Checkpoints, Pace};
pub use sole_writer::SoleWriter;

/// One changed row: its key and its new value, or `None` if it was deleted.
pub type Change = (Bytes, Option<Bytes>);

/// The master that may commit (`epoch`), and the batch that it committed last (`batch`). Kept by
/// the engine together with the rows and changed in the same transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fence {
    pub epoch: u64,
    pub batch: u64,
}

/// The outcome of a commit that did not succeed.
#[non_exhaustive]
#[derive(Debug)]
pub enum CommitError {
    /// Nothing of the batch was made durable, and nothing ever will be.
    Failed(Error),
    /// The batch may be durable or not: ask [`Engine::settle`] to find out.
    Unknown(Error),
    /// The engine's fence differs from the expected one: another master took over, or memory and
    /// engine differ. The caller must drop all its state.
    Fenced { found: Fence },
    /// The engine must not be used again in this process (a write or sync failed, and the state of
    /// the disk is unknown). Restart to recover.
    Poisoned(Error),
}

/// A commit that was begun.
pub enum Commit {
    Done(Result<(), CommitError>),
    /// Other members decide about it. It goes on whether or not it is awaited.
    Later(Later<Result<(), CommitError>>),
}

/// A result that becomes known later.
pub type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// An engine. All calls block; they are made from threads of the executor, never from async
/// workers.
pub trait Engine: Send + Sync + 'static {
    /// Returns the durable fence.
    fn fence(&self) -> Result<Fence>;

    /// Raises the epoch by one, durably, and returns the new fence: from now on commits with an
    /// older epoch are refused.
    fn take_over(&self) -> Result<Fence> {
        self.take_over_at(0)
    }

    /// Takes over like `take_over`, and raises the batch to `batch` if it is lower: rows from
    /// elsewhere name batches up to that one.
    fn take_over_at(&self, batch: u64) -> Result<Fence>;

    /// Returns the lease that the latest master must hold to answer from memory; `None` if it needs
    /// no lease, since nobody else can take over.
    fn lease(&self) -> Option<Arc<Lease>> {
        None
    }

    /// Gives up the lease, as the latest master has ended: another master need not wait until it
    /// expires. Blocks briefly.
    fn give_up(&self) {}

    /// Returns all rows as of the last durable batch. Later commits do not change the snapshot.
    fn snapshot(&self) -> Result<Box<dyn Snapshot>>;

    /// Returns the rows of `keys`, in their order, as of the last durable batch, and the number of
    /// that batch: what a snapshot shows, for callers that read once.
    fn read(&self, keys: &[Bytes]) -> Result<(u64, Vec<Option<Bytes>>)> {
        let snapshot = self.snapshot()?;
        Ok((snapshot.batch(), snapshot.get(keys)?))
    }

    /// Applies `changes` (each key at most once, in any order) atomically and durably, and sets the
    /// fence to `(expected.epoch, expected.batch + 1)`. Refused unless the fence is `expected`.
    fn commit(&self, expected: Fence, changes: Vec<Change>) -> Result<(), CommitError>;

    /// Commits like `commit`; if other members decide, the caller waits without blocking.
    fn commit_later(&self, expected: Fence, changes: Vec<Change>) -> Commit {
        Commit::Done(self.commit(expected, changes))
    }

    /// Returns the fence as it stays until the next commit, after a commit of unknown outcome: that
    /// batch is either in it, or will never be applied.
    fn settle(&self) -> Later<Result<Fence>> {
        Box::pin(std::future::ready(self.fence()))
    }

    /// Returns whether the disk is so full that only operations that free space should be
    /// committed. The engine does not refuse other commits: only callers know what they are for.
    /// Does not block.
    fn is_low_on_space(&self) -> bool {
        false
    }

    /// Returns the bytes of memory that rows take which are not at rest yet.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// Returns the checkpoints since the engine was opened. Does not block.
    fn checkpoints(&self) -> Checkpoints {
        Checkpoints::default()
    }
}

/// An unchanging view of all rows.
pub trait Snapshot: Send + Sync {
    /// Returns the batch that this snapshot shows.
    fn batch(&self) -> u64;

    /// Returns the rows of `keys`, in their order.
    fn get(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>>;

    /// Returns up to `limit` rows with `start <= key < end`, in key order.
    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<(Bytes, Bytes)>>;

    /// Scans like `scan`, but leaves damaged rows out and passes their keys to `damaged`, so that
    /// checks can go on.
    fn scan_sound(
        &self,
        start: &[u8],
        end: &[u8],
        limit: usize,
        _damaged: &mut dyn FnMut(&[u8], Error),
    ) -> Result<Vec<(Bytes, Bytes)>> {
        self.scan(start, end, limit)
    }
}
