//! Which database, and how it is used.

use std::time::Duration;

use cairn_base::Secret;

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
    /// How long a master that took over may answer from memory without having renewed that right,
    /// and so the least that a standby waits.
    pub lease: Duration,
    /// The master to take over from, see [`wait_for_turn`]. `None`: whatever there is, for who
    /// knows that no other master serves; one that does might answer from memory for a lease.
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

/// The right to take over: what was seen last of a master that serves no more. A take-over with it
/// is refused if anything happened since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    pub(super) epoch: i64,
    pub(super) heartbeat: i64,
    pub(super) batch: i64,
}
