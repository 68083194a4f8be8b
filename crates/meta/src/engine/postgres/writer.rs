//! Makes all changes, through one connection.

#![expect(clippy::disallowed_methods, reason = "a database is not simulated")]

use std::sync::Arc;
use std::time::Instant;

use cairn_base::waits;
use cairn_base::{Error, Result};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::config::Turn;
use super::link::{DatabaseLink, Fault, Params, of_primary};
use super::target::Target;
use crate::engine::{Change, CommitError, Fence};

/// Attempts to send a repeatable statement before its connection counts as hopeless.
const ATTEMPTS: usize = 4;

pub struct Writer {
    target: Arc<Target>,
    link: Option<DatabaseLink>,
    /// Number of the attempt, named by commits. Raising it shuts out all commits sent before that
    /// are still on their way.
    attempt: i64,
    /// Epoch of a commit of unknown outcome.
    doubt: Option<u64>,
}

/// Parses the fence and the number of the attempt.
pub fn fence_of(target: &Target, rows: &[Row]) -> Result<(Fence, i64)> {
    let number = |column| rows.first().and_then(|row| row.try_get::<_, i64>(column).ok());
    let unsigned = |column| number(column).and_then(|number| u64::try_from(number).ok());
    match (unsigned(0), unsigned(1), number(2)) {
        (Some(epoch), Some(batch), Some(attempt)) => Ok((Fence { epoch, batch }, attempt)),
        _ => Err(Error::corrupt(target.shown(), "no fence", "one row in the table fence")),
    }
}

pub fn signed(number: u64) -> Result<i64> {
    let over = |_| Error::Invalid(format!("{number} is beyond the numbers of the database"));
    i64::try_from(number).map_err(over)
}

impl Writer {
    pub fn new(target: Arc<Target>, link: DatabaseLink) -> Result<Writer> {
        let mut writer = Writer { target, link: Some(link), attempt: 0, doubt: None };
        (_, writer.attempt) = writer.read()?;
        Ok(writer)
    }

    pub fn fence(&mut self) -> Result<Fence> {
        self.settle()?;
        Ok(self.read()?.0)
    }

    /// Takes over with a batch number of at least `batch`; only from `turn`, if it is given.
    pub fn take_over(&mut self, batch: u64, turn: Option<Turn>) -> Result<Fence> {
        let target = Arc::clone(&self.target);
        let batch = signed(batch)?;
        let lease_ms = i64::try_from(target.lease().as_millis()).unwrap_or(i64::MAX).max(1);
        let given: [(&(dyn ToSql + Sync), Type); 2] =
            [(&batch, Type::INT8), (&lease_ms, Type::INT8)];
        // Sent once only: it may be done although no answer came.
        let link = self.link()?;
        let answer = match &turn {
            None => link.query(&target.sql.take_over, &given),
            Some(Turn { epoch, heartbeat, batch }) => {
                let seen: [(&(dyn ToSql + Sync), Type); 3] =
                    [(epoch, Type::INT8), (heartbeat, Type::INT8), (batch, Type::INT8)];
                link.query(&target.sql.take_turn, &[&given[..], &seen[..]].concat())
            }
        };
        let rows = answer.map_err(|fault| self.fail(fault))?;
        if rows.is_empty() && turn.is_some() {
            let text = format!("{}: another master serves: wait for the turn", target.shown());
            return Err(Error::Unavailable(text));
        }
        let (fence, attempt) = fence_of(&target, &rows)?;
        self.attempt = attempt;
        // Commits of an older epoch are refused from now on.
        self.doubt = None;
        Ok(fence)
    }

    pub fn commit(&mut self, expected: Fence, changes: &[Change]) -> Result<(), CommitError> {
        self.settle().map_err(CommitError::Failed)?;
        let (epoch, batch) = (signed(expected.epoch), signed(expected.batch));
        let (epoch, batch) =
            (epoch.map_err(CommitError::Failed)?, batch.map_err(CommitError::Failed)?);
        let (mut deleted, mut keys, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (key, value) in changes {
            match value {
                None => deleted.push(&key[..]),
                Some(value) => {
                    keys.push(&key[..]);
                    values.push(&value[..]);
                }
            }
        }
        let (target, attempt) = (Arc::clone(&self.target), self.attempt);
        let params: &Params<'_> = &[
            (&epoch, Type::INT8),
            (&batch, Type::INT8),
            (&attempt, Type::INT8),
            (&deleted, Type::BYTEA_ARRAY),
            (&keys, Type::BYTEA_ARRAY),
            (&values, Type::BYTEA_ARRAY),
        ];
        let link = self.link().map_err(CommitError::Failed)?;
        match link.query(&target.sql.commit, params) {
            Ok(rows) if rows.len() == 1 => Ok(()),
            Ok(_) => self.not_expected(),
            Err(fault @ (Fault::Refused { .. } | Fault::Standby { .. })) => {
                self.refused(expected, fault)
            }
            Err(fault @ Fault::Lost { .. }) => {
                self.doubt = Some(expected.epoch);
                Err(CommitError::Unknown(self.fail(fault)))
            }
        }
    }

    /// Handles a fence other than expected: nothing was changed.
    fn not_expected(&mut self) -> Result<(), CommitError> {
        match self.read() {
            Ok((found, _)) => Err(CommitError::Fenced { found }),
            Err(unread) => Err(CommitError::Failed(unread)),
        }
    }

    /// Handles an error from the server. Almost always nothing was changed, but the server may also
    /// fail after the commit, so it is asked.
    fn refused(&mut self, expected: Fence, fault: Fault) -> Result<(), CommitError> {
        let error = self.fail(fault);
        match self.read() {
            Ok((found, _)) if found == expected => Err(CommitError::Failed(error)),
            Ok((Fence { epoch, batch }, _))
                if epoch == expected.epoch && batch == expected.batch + 1 =>
            {
                tracing::warn!(%error, batch, "the database failed after a commit");
                Ok(())
            }
            Ok((found, _)) => Err(CommitError::Fenced { found }),
            Err(_) => {
                self.doubt = Some(expected.epoch);
                Err(CommitError::Unknown(error))
            }
        }
    }

    /// Makes sure that a commit of unknown outcome is done or never will be. It may still be on its
    /// way, in the network, in a pooler or in a process of the database. Raising the number of the
    /// attempt waits until the commit has released the fence, or else the commit comes too late.
    fn settle(&mut self) -> Result<()> {
        let Some(epoch) = self.doubt else { return Ok(()) };
        let (target, attempt) = (Arc::clone(&self.target), self.attempt + 1);
        let epoch = signed(epoch)?;
        let params: &Params<'_> = &[(&epoch, Type::INT8), (&attempt, Type::INT8)];
        self.repeatedly(|link| link.query(&target.sql.raise_attempt, params))?;
        self.attempt = attempt;
        self.doubt = None;
        Ok(())
    }

    fn read(&mut self) -> Result<(Fence, i64)> {
        let target = Arc::clone(&self.target);
        let read = |link: &DatabaseLink| link.query(&target.sql.fence, &[]).and_then(of_primary);
        fence_of(&target, &self.repeatedly(read)?)
    }

    /// Sends a repeatable statement until the primary answers it.
    fn repeatedly(
        &mut self,
        send: impl Fn(&DatabaseLink) -> Result<Vec<Row>, Fault>,
    ) -> Result<Vec<Row>> {
        let (mut lost, deadline) = (0, Instant::now() + self.target.patience());
        loop {
            let fault = match send(self.link()?) {
                Ok(rows) => return Ok(rows),
                Err(fault) => fault,
            };
            let again = match &fault {
                Fault::Lost { again, .. } => {
                    lost += 1;
                    *again && lost < ATTEMPTS
                }
                Fault::Standby { .. } => Instant::now() < deadline,
                Fault::Refused { .. } => false,
            };
            let is_standby = matches!(fault, Fault::Standby { .. });
            let error = self.fail(fault);
            if !again {
                return Err(error);
            }
            if is_standby {
                std::thread::sleep(waits::DATABASE_RETRY);
            }
        }
    }

    fn link(&mut self) -> Result<&DatabaseLink> {
        match self.link.take() {
            Some(link) => Ok(self.link.insert(link)),
            None => Ok(self.link.insert(self.target.reconnect()?)),
        }
    }

    /// Drops a connection that is lost, or leads to a standby.
    fn fail(&mut self, fault: Fault) -> Error {
        if matches!(fault, Fault::Lost { .. } | Fault::Standby { .. }) {
            self.link = None;
        }
        fault.at(self.target.shown())
    }
}
