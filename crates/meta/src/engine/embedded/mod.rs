//! The embedded engine: an own log for commits, a row store for what is committed.
//!
//! ```text
//!   commit ──► log record, one fdatasync ──► row store ──► visible
//!      ▲                                         │
//!      └──────────── log reused ◄── checkpoint ──┘
//! ```
//!
//! Files and bytes: docs/format-engine.md. Why so: docs/decisions/0002-embedded-engine.md.

pub mod record;
mod recover;
mod verify;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{Disk, Error, Result};
use parking_lot::{Mutex, MutexGuard};

use self::record::{Draft, Kind};
use super::files;
use super::ring::Ring;
use super::row_store::{Mark, Pace, RowStore, Table, Writer};
use super::{Change, Checkpoints, CommitError, Engine, Fence, Snapshot};

pub use self::verify::{Report, verify};
pub use super::config::Config;

/// An engine in a directory of its own. Only one may be open on a directory at a time; the caller
/// ensures that. Snapshots that outlive it may answer `Unavailable`.
pub struct EmbeddedEngine {
    /// Locked before the writer of `rows`.
    log: Mutex<Ring>,
    rows: RowStore,
    config: Config,
}

impl fmt::Debug for EmbeddedEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedEngine").field("config", &self.config).finish_non_exhaustive()
    }
}

impl EmbeddedEngine {
    /// Opens the engine on `disk`; makes its files if there are none. All commits of an earlier
    /// process are there again; a commit that was under way may be.
    ///
    /// # Errors
    /// `Corrupt` if acknowledged rows cannot be read, `Invalid` for files of a newer version,
    /// `Full` and `Io`.
    pub fn open(disk: Arc<dyn Disk>, config: Config) -> Result<EmbeddedEngine> {
        let file = files::open_rows(&*disk, &config, Bytes::new())?;
        let table = Table::open(&file, config.cache_bytes)?;
        let mark = table.cold()?.mark.clone();
        require_embedded(&mark)?;
        let mut log = Ring::open(&*disk, &mark)?;
        let behind = recover::recover(&log, &mark)?;
        log.resume(&behind.mark, behind.mark.sequence != mark.sequence);
        let rows = RowStore::open(disk, file, table, behind, config.limits())?;
        Ok(EmbeddedEngine { log: Mutex::new(log), rows, config })
    }

    /// Moves all committed rows into the table, so that the next start reads no log.
    ///
    /// # Errors
    /// `Full` and `Io`; nothing is lost.
    pub fn checkpoint(&self) -> Result<()> {
        self.rows.checkpoint()
    }

    /// Checks all rows at rest, and every page of their table, while the engine is in use.
    ///
    /// # Errors
    /// `Corrupt` for the first damaged row or page; `Io`; `Unavailable` if the check was stopped.
    pub fn check_rows(&self, pace: &Pace) -> Result<()> {
        self.rows.check(pace)
    }

    /// Checks a portion of all rows at rest: those from the key `from` on. Returns the key at which
    /// the next portion begins, or `None` after the last. Nothing is held between two of them.
    ///
    /// # Errors
    /// Those of `check_rows`.
    pub fn check_portion(&self, from: &[u8], pace: &Pace) -> Result<Option<Vec<u8>>> {
        self.rows.check_portion(from, pace)
    }

    /// Ends the engine without a last checkpoint: the next start reads the log.
    pub fn abandon(self) {
        self.rows.abandon();
    }

    /// Writes one record, makes it durable and shows its rows.
    fn append(
        &self,
        log: &mut Ring,
        mut writer: MutexGuard<'_, Writer>,
        kind: Kind,
        fence: Fence,
        changes: Vec<Change>,
    ) -> Result<(), CommitError> {
        let (log_id, previous, sequence) = (log.id, log.previous, log.sequence + 1);
        let draft = Draft { kind, log_id, sequence, fence, previous };
        let encoded = record::encode(&draft, &changes, &mut log.buffer);
        let header = encoded.map_err(CommitError::Failed)?;
        let durable = log
            .write(header)
            .and_then(|_| self.rows.insert(&mut writer, fence.batch, changes, || log.sync()));
        match durable {
            Ok(()) => {
                let mark = Mark { sequence, previous: header.crc, fence, ..writer.mark.clone() };
                self.rows.publish(writer, mark, header.record_bytes());
                Ok(())
            }
            Err(error) => {
                writer.poison(format!("writing the log: {error}"));
                Err(CommitError::Poisoned(Error::Io(error)))
            }
        }
    }
}

/// Checks that the mark is that of an embedded engine.
///
/// # Errors
/// `Invalid` for the directory of a member of a cluster's masters.
fn require_embedded(mark: &Mark) -> Result<()> {
    if !mark.is_replicated() {
        return Ok(());
    }
    let text = "these metadata are replicated on several masters: the embedded engine cannot open \
                them";
    Err(Error::Invalid(text.into()))
}

impl Engine for EmbeddedEngine {
    fn fence(&self) -> Result<Fence> {
        Ok(self.rows.fence())
    }

    fn take_over_at(&self, batch: u64) -> Result<Fence> {
        let mut log = self.log.lock();
        let mut writer = self.rows.writer();
        let result =
            log.record_bytes(record::record_bytes(&[])).map_err(CommitError::Failed).and_then(
                |bytes| self.rows.wait_for_room(&mut writer, |done| log.needs(bytes) <= done),
            );
        let Fence { epoch, batch: last } = writer.mark.fence;
        let fence = Fence { epoch: epoch + 1, batch: last.max(batch) };
        let kind = if batch > last { Kind::Advance } else { Kind::TakeOver };
        match result.and_then(|()| self.append(&mut log, writer, kind, fence, vec![])) {
            Ok(()) => Ok(fence),
            Err(CommitError::Failed(error) | CommitError::Poisoned(error)) => Err(error),
            Err(error) => Err(Error::Unavailable(format!("taking over the metadata: {error:?}"))),
        }
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(self.rows.snapshot())
    }

    fn commit(&self, expected: Fence, changes: Vec<Change>) -> Result<(), CommitError> {
        let mut log = self.log.lock();
        let bytes = log.record_bytes(record::record_bytes(&changes));
        let bytes = bytes.map_err(CommitError::Failed)?;
        let mut writer = self.rows.writer();
        self.rows.pace(&mut writer, bytes);
        self.rows.wait_for_room(&mut writer, |done| log.needs(bytes) <= done)?;
        if writer.mark.fence != expected {
            return Err(CommitError::Fenced { found: writer.mark.fence });
        }
        let fence = Fence { batch: expected.batch + 1, ..expected };
        self.append(&mut log, writer, Kind::Batch, fence, changes)
    }

    fn is_low_on_space(&self) -> bool {
        self.rows.is_low_on_space()
    }

    fn memory_bytes(&self) -> u64 {
        self.rows.memory_bytes()
    }

    fn checkpoints(&self) -> Checkpoints {
        self.rows.checkpoints()
    }
}
