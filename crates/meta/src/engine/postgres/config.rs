//! The database, and the use that is made of it.

use std::time::Duration;

use cairn_base::Secret;

/// The database, and the use that is made of it.
#[derive(Clone, Debug)]
pub struct Config {
    /// `postgres://user:password@host:port/database?sslmode=verify-full&sslrootcert=/ca.pem`.
    pub url: Secret<String>,
    /// The schema that holds the tables; made if there is none. Stores may share a database.
    pub schema: String,
    /// Allows asynchronous standbys, although then the failure of the primary may lose acknowledged
    /// changes.
    pub accept_lossy_failover: bool,
    /// Most connections for snapshots; commits have one more.
    pub connections: usize,
    /// Time that a call may wait for a connection after the last one was lost.
    pub patience: Duration,
    /// Time for which a master that took over may answer from memory without renewing that right,
    /// and so the shortest wait of a standby.
    pub lease: Duration,
    /// Master to take over from, see [`wait_for_turn`]. `None` takes over from any, for callers
    /// that know that no other master serves: a master that does might answer from memory for the
    /// rest of its lease.
    pub turn: Option<Turn>,
}

impl Config {
    pub fn new(url: Secret<String>) -> Config {
        Config {
            url,
            schema: "cairn".into(),
            accept_lossy_failover: false,
            connections: 8,
            patience: Duration::from_secs(30),
            lease: Duration::from_secs(3),
            turn: None,
        }
    }
}

/// The right to take over: the last state that was seen of a master that no longer serves. A
/// take-over with it is refused if anything happened since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    pub(super) epoch: i64,
    pub(super) heartbeat: i64,
    pub(super) batch: i64,
}
