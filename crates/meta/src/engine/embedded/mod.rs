//! The embedded engine: an own log for commits, redb for the rows at rest.
//!
//! ```text
//!   commit ──► log record, one fdatasync ──► active memtable ──► visible
//!                                               │ over its limit, or idle
//!                                               ▼
//!              snapshot ◄── frozen memtable ──► checkpoint ──► rows.redb ──► log reused
//! ```
//!
//! Files and bytes: docs/format-engine.md. Why so: docs/decisions/0002-embedded-engine.md.

#![expect(
    clippy::disallowed_methods,
    reason = "its thread writes checkpoints, not what is acknowledged"
)]

mod backend;
mod config;
mod core;
mod create;
mod header;
mod inserter;
mod log;
mod mark;
mod memtable;
pub mod record;
mod recover;
mod reserve;
mod snapshot;
mod table;
mod tables;
mod verify;

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use cairn_base::{Disk, Error, Result};
use parking_lot::{Condvar, Mutex, RwLock};

use self::core::{Core, TableSlot, View, Writer};
use self::inserter::Inserter;
use self::log::Log;
use self::reserve::{DiskSpace, Load};
use self::snapshot::EmbeddedSnapshot;
use self::table::Table;
use self::tables::Tables;
use super::{Change, CommitError, Engine, Fence, Snapshot};

pub use self::config::Config;
pub use self::verify::{Report, verify};

/// An engine in a directory of its own. Only one may be open on a directory at a time; the
/// caller sees to that. Snapshots that outlive it may answer `Unavailable`.
pub struct Embedded {
    core: Arc<Core>,
    checkpointer: Option<JoinHandle<()>>,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("config", &self.core.config).finish_non_exhaustive()
    }
}

impl Embedded {
    /// Opens the engine on `disk`; makes its files where there are none. All commits of an earlier
    /// process are there again; a commit that was under way may be.
    ///
    /// # Errors
    /// `Corrupt` where acknowledged rows cannot be read, `Invalid` for files of a newer version,
    /// `Full` and `Io`.
    pub fn open(disk: Arc<dyn Disk>, config: Config) -> Result<Embedded> {
        let core = Arc::new(open_core(disk, config)?);
        if core.writer.lock().frozen.is_some() {
            match core.checkpoint() {
                Ok(_) => {}
                // All is in memory: reads work, and commits once there is space.
                Err(Error::Full(text)) => tracing::warn!("opened on a full disk: {text}"),
                Err(error) => return Err(error),
            }
        }
        let mut checkpointer = None;
        if core.config.background {
            let core = Arc::clone(&core);
            let thread = std::thread::Builder::new().name("checkpoint".into());
            checkpointer = Some(thread.spawn(move || core.run_checkpoints())?);
        }
        Ok(Embedded { core, checkpointer })
    }

    /// Moves all that is committed into the table of rows, so that the next start reads no log.
    ///
    /// # Errors
    /// `Full` and `Io`; nothing is lost.
    pub fn checkpoint(&self) -> Result<()> {
        // The first may find an older one that was stalled; what came after it is still active.
        while self.core.checkpoint()? {}
        Ok(())
    }

    /// Ends the engine without a last checkpoint: the next start finds what is in the log.
    pub fn abandon(mut self) {
        self.core.writer.lock().poison("abandoned".into());
        self.stop();
    }

    fn stop(&mut self) {
        self.core.writer.lock().stop = true;
        self.core.work.notify_all();
        if let Some(thread) = self.checkpointer.take()
            && thread.join().is_err()
        {
            tracing::error!("the checkpoint thread panicked");
        }
        let inserter = self.core.writer.lock().inserter.take();
        if let Some(inserter) = inserter {
            inserter.join();
        }
    }
}

impl Drop for Embedded {
    /// Tries a last checkpoint: a start after it reads no log, and no bit of the log matters.
    fn drop(&mut self) {
        self.stop();
        let poisoned = self.core.writer.lock().poisoned.is_some();
        if !poisoned && let Err(error) = self.checkpoint() {
            tracing::warn!("closing without a checkpoint: {error}");
        }
        // A snapshot that is still held must not keep the file from being opened again.
        self.core.writer.lock().poisoned.get_or_insert_with(|| "closed".into());
        self.core.slot.lock().table = None;
    }
}

impl Engine for Embedded {
    fn fence(&self) -> Result<Fence> {
        Ok(self.core.view.read().fence)
    }

    fn take_over_at(&self, batch: u64) -> Result<Fence> {
        self.core.take_over_at(batch)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        let view = self.core.view.read();
        let tables = Arc::clone(&view.tables);
        let batch = view.fence.batch;
        drop(view);
        Ok(Box::new(EmbeddedSnapshot { core: Arc::clone(&self.core), tables, batch }))
    }

    fn commit(&self, expected: Fence, changes: Vec<Change>) -> Result<(), CommitError> {
        self.core.commit(expected, changes)
    }

    fn is_low_on_space(&self) -> bool {
        self.core.space.is_low()
    }
}

/// Recovers what is on `disk`. The records of the log are left frozen, to be checkpointed before
/// anything is appended.
fn open_core(disk: Arc<dyn Disk>, config: Config) -> Result<Core> {
    let file = create::open_rows(&*disk, &config)?;
    let table = Table::open(&file, config.cache_bytes)?;
    let cold = table.cold()?;
    let mark = cold.mark;
    let mut log = Log::open(&*disk, &mark)?;
    let recovered = recover::recover(&log, &mark)?;
    (log.sequence, log.previous) = (recovered.sequence, recovered.previous);
    let mut tables = Tables { active: Arc::default(), frozen: None, cold: Arc::new(cold) };
    let space = DiskSpace::new(&*disk, &config);
    space.set_table_bytes(file.len()?);
    let mut frozen = None;
    let fence = recovered.fence;
    if log.sequence != mark.sequence {
        log.occupy();
        let (sequence, previous) = (log.sequence, log.previous);
        frozen = Some(mark::Mark { sequence, previous, fence, ..mark });
        tables.frozen = Some(Arc::new(recovered.rows));
    }
    let writer = Writer {
        log,
        fence,
        checkpointed: mark.sequence,
        active: Load::default(),
        active_log_bytes: 0,
        frozen_load: recovered.load,
        frozen,
        frozen_log_bytes: 0,
        drained_per_second: 50e6,
        poisoned: None,
        stalled: None,
        wanted: false,
        stop: false,
        last_commit: Instant::now(),
        inserter: config.background.then(Inserter::spawn).transpose()?,
    };
    space.restore(&*disk);
    space.look(&*disk);
    Ok(Core {
        disk,
        config,
        space,
        writer: Mutex::new(writer),
        room: Condvar::new(),
        work: Condvar::new(),
        view: RwLock::new(View { fence, tables: Arc::new(tables) }),
        slot: Mutex::new(TableSlot { file, table: Some(table) }),
    })
}
