//! The engine on PostgreSQL: rows in one table, the fence in another, each batch one statement.
//!
//! ```text
//!   commit, fence ──► writer ──► one connection ──┐
//!   lease ───────────► keeper ──► one connection ──┼──► PostgreSQL, or a pooler before it
//!   snapshot ──► pool ──► some connections ───────┘
//! ```
//!
//! A commit is a single statement, and so a transaction of its own, sent and answered in one round
//! trip. It moves the fence, and only if the fence was as expected it changes rows. Nothing depends
//! on the session: no named statements, no settings beyond a transaction, no locks of a session. So
//! it works through a pooler that gives each transaction another connection.
//!
//! docs/format-postgres.md says what is stored, docs/decisions/0003 why.

mod config;
mod errors;
mod inspect;
mod keeper;
mod link;
mod pool;
mod schema;
mod snapshot;
mod sql;
mod standby;
mod target;
mod tls;
mod url;
mod writer;

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::Result;
use parking_lot::Mutex;

use super::{Change, CommitError, Engine, Fence, Lease, Snapshot};
use keeper::LeaseKeeper;
use pool::Pool;
use snapshot::ShownRows;
use target::Target;
use writer::Writer;

pub use config::{Config, Turn};
pub use standby::{Standby, wait_for_turn};

/// Rows in a PostgreSQL database.
pub struct Postgres {
    writer: Mutex<Writer>,
    pool: Arc<Pool>,
    target: Arc<Target>,
    turn: Option<Turn>,
    /// Keeper of the lease since the last take-over.
    keeper: Mutex<Option<LeaseKeeper>>,
}

impl Postgres {
    /// Connects and makes the tables if there are none.
    ///
    /// # Errors
    /// `Invalid` when the URL makes no sense or the database is not safe to use, with the remedy;
    /// `Unavailable` when it cannot be reached.
    pub fn open(config: &Config) -> Result<Postgres> {
        Postgres::start(config, true)
    }

    /// Opens like `open`, but the tables must exist.
    ///
    /// # Errors
    /// Those of `open`, and `NotFound`.
    pub fn attach(config: &Config) -> Result<Postgres> {
        Postgres::start(config, false)
    }

    /// Removes the schema with everything in it.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn remove(config: &Config) -> Result<()> {
        let target = Target::new(config)?;
        schema::remove(&target, &target.connect()?)
    }

    fn start(config: &Config, create: bool) -> Result<Postgres> {
        let target = Arc::new(Target::new(config)?);
        let link = target.connect()?;
        inspect::check_standbys(target.shown(), &link, config.accept_lossy_failover)?;
        schema::prepare(&target, &link, create)?;
        let writer = Writer::new(Arc::clone(&target), link)?;
        let pool = Arc::new(Pool::new(Arc::clone(&target), config.connections));
        let (writer, keeper) = (Mutex::new(writer), Mutex::default());
        Ok(Postgres { writer, pool, target, turn: config.turn, keeper })
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl Engine for Postgres {
    /// Reads the fence, after making sure that no commit of unknown outcome can still change
    /// anything.
    fn fence(&self) -> Result<Fence> {
        self.writer.lock().fence()
    }

    fn take_over_at(&self, batch: u64) -> Result<Fence> {
        let mut keeper = self.keeper.lock();
        drop(keeper.take());
        let sent = self.target.clock.monotonic();
        let fence = self.writer.lock().take_over(batch, self.turn)?;
        *keeper = Some(LeaseKeeper::start(Arc::clone(&self.target), fence.epoch, sent)?);
        Ok(fence)
    }

    fn lease(&self) -> Option<Arc<Lease>> {
        self.keeper.lock().as_ref().map(|keeper| Arc::clone(&keeper.lease))
    }

    fn give_up(&self) {
        let keeper = self.keeper.lock().take();
        if let Some(keeper) = keeper {
            keeper.give_up();
        }
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(Box::new(ShownRows::begin(Arc::clone(&self.pool))?))
    }

    fn read(&self, keys: &[Bytes]) -> Result<(u64, Vec<Option<Bytes>>)> {
        snapshot::read(&self.pool, keys)
    }

    fn commit(&self, expected: Fence, changes: Vec<Change>) -> Result<(), CommitError> {
        let sent = self.target.clock.monotonic();
        let result = self.writer.lock().commit(expected, &changes);
        if result.is_ok()
            && let Some(keeper) = &*self.keeper.lock()
            && keeper.epoch == expected.epoch
        {
            // A commit proves as much as a renewal does.
            keeper.lease.extend(sent);
        }
        result
    }
}
