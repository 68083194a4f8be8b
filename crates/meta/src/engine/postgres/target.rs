//! The target of connections.

#![expect(clippy::disallowed_methods, reason = "a database is not simulated")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::clock::RealClock;
use cairn_base::waits;
use cairn_base::{Clock, Error, Result};

use super::config::Config;
use super::inspect;
use super::link::{ANSWER_TIMEOUT, DatabaseLink, Fault};
use super::sql::Sql;
use super::tls::Tls;
use super::url::Url;

/// The target of connections.
pub struct Target {
    url: Url,
    tls: Tls,
    patience: Duration,
    lease: Duration,
    /// Clock by which leases are measured.
    pub clock: Arc<dyn Clock>,
    pub sql: Sql,
}

impl Target {
    pub fn new(config: &Config) -> Result<Target> {
        let sql = Sql::new(&config.schema)?;
        let url = Url::parse(config.url.expose())?;
        let tls = Tls::new(&url.trust)?;
        let Config { patience, lease, .. } = *config;
        if lease.is_zero() {
            return Err(Error::Invalid("the lease of a master is 0: must be longer".into()));
        }
        let clock = Arc::new(RealClock::default());
        Ok(Target { url, tls, patience, lease, clock, sql })
    }

    /// Returns host, port and database, for messages.
    pub fn shown(&self) -> &str {
        &self.url.shown
    }

    /// Connects to a server that is fit for use.
    pub fn connect(&self) -> Result<DatabaseLink> {
        self.connect_within(ANSWER_TIMEOUT)
    }

    /// Connects like `connect`; an attempt that takes longer than `limit` counts as lost.
    pub fn connect_within(&self, limit: Duration) -> Result<DatabaseLink> {
        self.attempt(limit).map_err(|fault| match fault {
            // Reported to the operator who named it: it may remain a standby.
            Fault::Standby { text } => Error::Invalid(format!("{}: {text}", self.shown())),
            fault => fault.at(self.shown()),
        })?
    }

    /// Connects like `connect`, but tries again while the server cannot be reached, or is a
    /// standby.
    pub fn reconnect(&self) -> Result<DatabaseLink> {
        let deadline = Instant::now() + self.patience;
        loop {
            match self.attempt(ANSWER_TIMEOUT) {
                Err(Fault::Lost { again: true, .. } | Fault::Standby { .. })
                    if Instant::now() < deadline =>
                {
                    std::thread::sleep(waits::DATABASE_RETRY);
                }
                Err(fault) => return Err(fault.at(self.shown())),
                Ok(verdict) => return verdict,
            }
        }
    }

    /// Connects once. Returns a working connection, or the reason why its server is not fit for
    /// use.
    fn attempt(&self, limit: Duration) -> Result<Result<DatabaseLink>, Fault> {
        let link = DatabaseLink::open(&self.url, &self.tls, limit)?;
        Ok(inspect::check_settings(self.shown(), &link)?.map(|()| link))
    }

    /// Returns the time that a call may wait.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Returns the time for which a master may answer from memory without renewing that right.
    pub fn lease(&self) -> Duration {
        self.lease
    }
}
