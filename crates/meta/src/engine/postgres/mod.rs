//! The engine on PostgreSQL: rows in one table, the fence in another, each batch one statement.
//!
//! ```text
//!   commit, fence ──► writer ──► one connection ──┐
//!                                                 ├──► PostgreSQL, or a pooler before it
//!   snapshot ──► pool ──► some connections ───────┘
//! ```
//!
//! A commit is a single statement, and so a transaction of its own, sent and answered in one round
//! trip: it moves the fence, and only if that was as expected it changes rows. Nothing depends on
//! the session: no named statements, no settings beyond a transaction, no locks of a session. So
//! it works through a pooler that gives each transaction another connection.
//!
//! docs/format-postgres.md says what is stored, docs/decisions/0003 why.

mod inspect;
mod link;
mod pool;
mod schema;
mod snapshot;
mod tls;
mod url;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{Result, Secret};
use parking_lot::Mutex;

use super::{Change, CommitError, Engine, Fence, Snapshot};
use link::Target;
use pool::Pool;
use snapshot::Shown;
use writer::Writer;

/// Which database, and how it is used.
#[derive(Clone, Debug)]
pub struct Config {
    /// `postgres://user:password@host:port/database?sslmode=verify-full&sslrootcert=/ca.pem`.
    pub url: Secret<String>,
    /// The schema that holds the tables; made if there is none. Stores may share a database.
    pub schema: String,
    /// Work although the failure of the primary may lose acknowledged changes, because it has
    /// asynchronous standbys.
    pub accept_lossy_failover: bool,
    /// Connections for snapshots, at most; commits have one more.
    pub connections: usize,
    /// How long a call may wait for a connection after the last one was lost.
    pub patience: Duration,
}

impl Config {
    pub fn new(url: Secret<String>) -> Config {
        Config {
            url,
            schema: "cairn".into(),
            accept_lossy_failover: false,
            connections: 8,
            patience: Duration::from_secs(30),
        }
    }
}

/// Rows in a PostgreSQL database.
pub struct Postgres {
    writer: Mutex<Writer>,
    pool: Arc<Pool>,
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

    /// As `open`, but the tables must be there.
    ///
    /// # Errors
    /// Those of `open`, and `NotFound`.
    pub fn attach(config: &Config) -> Result<Postgres> {
        Postgres::start(config, false)
    }

    fn start(config: &Config, create: bool) -> Result<Postgres> {
        let target = Arc::new(Target::new(config)?);
        let link = target.connect()?;
        inspect::check_standbys(&target, &link, config.accept_lossy_failover)?;
        schema::prepare(&target, &link, create)?;
        let writer = Writer::new(Arc::clone(&target), link)?;
        let pool = Arc::new(Pool::new(target, config.connections));
        Ok(Postgres { writer: Mutex::new(writer), pool })
    }
}

impl Engine for Postgres {
    /// Also makes sure that no commit of unknown outcome changes anything after this.
    fn fence(&self) -> Result<Fence> {
        self.writer.lock().fence()
    }

    fn take_over(&self) -> Result<Fence> {
        self.writer.lock().take_over()
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(Box::new(Shown::begin(Arc::clone(&self.pool))?))
    }

    fn read(&self, keys: &[Bytes]) -> Result<(u64, Vec<Option<Bytes>>)> {
        snapshot::read(&self.pool, keys)
    }

    fn commit(&self, expected: Fence, changes: Vec<Change>) -> Result<(), CommitError> {
        self.writer.lock().commit(expected, &changes)
    }
}
