//! Where the master keeps metadata: an ordered, transactional key-value store behind one small
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

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{Error, Result};

pub use embedded::Embedded;
pub use lease::Lease;
pub use memory::{CommitFault, Memory};
pub use postgres::Postgres;
pub use row_store::Pace;

/// One changed row: its key and its new value, or `None` where it was deleted.
pub type Change = (Bytes, Option<Bytes>);

/// Which master may commit (`epoch`) and which batch it committed last (`batch`). Kept by the
/// engine together with the rows and changed in the same transaction.
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
    /// The engine's fence is not the one expected: another master took over, or memory and
    /// engine differ. The caller must drop all its state.
    Fenced { found: Fence },
    /// The engine must not be used again in this process (a write or sync failed, and what is
    /// on disk is unknown). Restart to recover.
    Poisoned(Error),
}

/// A commit that was begun.
pub enum Commit {
    Done(Result<(), CommitError>),
    /// Others decide about it. It goes on whether or not it is waited for.
    Later(Later<Result<(), CommitError>>),
}

/// Something that will be known.
pub type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// An engine. All calls block; they are made from threads of the executor, never from async
/// workers.
pub trait Engine: Send + Sync + 'static {
    /// The fence as it is durable now.
    fn fence(&self) -> Result<Fence>;

    /// Raises the epoch by one, durably, and returns the new fence: from now on commits with an
    /// older epoch are refused.
    fn take_over(&self) -> Result<Fence> {
        self.take_over_at(0)
    }

    /// As `take_over`, and raises the batch to `batch` if it is lower: rows that come from
    /// elsewhere name batches up to that one.
    fn take_over_at(&self, batch: u64) -> Result<Fence>;

    /// The lease that the master that took over last must hold to answer from memory; `None`: no
    /// lease, since nobody else can take over.
    fn lease(&self) -> Option<Arc<Lease>> {
        None
    }

    /// The master that took over last has ended: another one need not wait until its lease runs
    /// out. Blocks, but not for long.
    fn give_up(&self) {}

    /// All rows as of the last durable batch. Later commits do not change what it shows.
    fn snapshot(&self) -> Result<Box<dyn Snapshot>>;

    /// The rows of `keys`, in their order, as of the last durable batch, and its number: what a
    /// snapshot shows, for those who ask once.
    fn read(&self, keys: &[Bytes]) -> Result<(u64, Vec<Option<Bytes>>)> {
        let snapshot = self.snapshot()?;
        Ok((snapshot.batch(), snapshot.get(keys)?))
    }

    /// Applies `changes` (each key at most once, in any order) atomically and durably and sets
    /// the fence to `(expected.epoch, expected.batch + 1)`. Refused unless the fence is
    /// `expected`.
    fn commit(&self, expected: Fence, changes: Vec<Change>) -> Result<(), CommitError>;

    /// As `commit`, but where others decide, the caller waits without blocking.
    fn commit_later(&self, expected: Fence, changes: Vec<Change>) -> Commit {
        Commit::Done(self.commit(expected, changes))
    }

    /// The fence as it will stay until the next commit, after one whose outcome is unknown: that
    /// batch is either in it, or will never be applied.
    fn settle(&self) -> Later<Result<Fence>> {
        Box::pin(std::future::ready(self.fence()))
    }

    /// Whether the disk is so full that only what frees space should be committed. Commits are not
    /// refused for it: who asks for them knows what they are for. Does not block.
    fn is_low_on_space(&self) -> bool {
        false
    }
}

/// An unchanging view of all rows.
pub trait Snapshot: Send + Sync {
    /// The batch this snapshot shows.
    fn batch(&self) -> u64;

    /// The rows of `keys`, in their order.
    fn get(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>>;

    /// Up to `limit` rows with `start <= key < end`, in key order.
    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<(Bytes, Bytes)>>;

    /// As `scan`, but `damaged` is told of rows that do not check out, by their keys, and these are
    /// left out. For checks, which are to go on.
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
