//! Rows in memory over rows at rest, for a log that makes batches durable. The log adds the rows of
//! each batch; a checkpoint moves them into redb, with a mark that records how far the log has been
//! moved. The row store knows nothing of the log except that mark.
//!
//! ```text
//!   a batch ──► active memtable ──► visible
//!                    │ over its limit, or idle
//!                    ▼
//!   snapshot ◄── frozen memtable ──► checkpoint ──► rows.redb ──► the log may be used again
//! ```
//!
//! Files and bytes: docs/format-engine.md.

#![expect(
    clippy::disallowed_methods,
    reason = "its thread writes checkpoints, not what is acknowledged"
)]

mod backend;
mod check;
mod checkpoints;
mod core;
mod header;
mod inserter;
mod limits;
mod mark;
mod memtable;
mod pages;
mod reserve;
mod snapshot;
mod table;
mod tables;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use cairn_base::{Disk, DiskFile, Error, Result};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

use self::core::{Core, TableSlot, View};
use self::inserter::Inserter;
use self::reserve::DiskSpace;
use self::snapshot::RowSnapshot;
use self::tables::Tables;
use super::{Change, CommitError, Fence, Snapshot};

pub use self::check::Pace;
pub use self::checkpoints::Checkpoints;
pub use self::core::Writer;
pub use self::limits::Limits;
pub use self::mark::Mark;
pub use self::memtable::Memtable;
pub use self::reserve::{Load, RESERVE, SUSPECT};
pub use self::table::{Pending, Table};

/// The rows of the log that are not in the table yet.
pub struct Behind {
    pub rows: Memtable,
    pub load: Load,
    /// Mark as of the last of them.
    pub mark: Mark,
}

/// All rows of one engine. Snapshots that outlive it may answer `Unavailable`.
pub struct RowStore {
    core: Arc<Core>,
    checkpointer: Option<JoinHandle<()>>,
}

impl fmt::Debug for RowStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowStore").field("limits", &self.core.limits).finish_non_exhaustive()
    }
}

impl RowStore {
    /// Opens the rows of `table`, which is in `file` on `disk`, with those of the log over them.
    /// The latter are moved into the table before anything is added, unless the disk is full.
    ///
    /// # Errors
    /// `Corrupt` and `Io`.
    pub fn open(
        disk: Arc<dyn Disk>,
        file: Arc<dyn DiskFile>,
        table: Table,
        behind: Behind,
        limits: Limits,
    ) -> Result<RowStore> {
        let cold = table.cold()?;
        let (checkpointed, mark) = (cold.mark.clone(), behind.mark);
        let fence = mark.fence;
        let is_behind = mark != checkpointed;
        let mut tables = Tables { active: Arc::default(), frozen: None, cold: Arc::new(cold) };
        let space = DiskSpace::new(&*disk, limits.reserve_bytes);
        space.set_table_bytes(file.len()?);
        if is_behind {
            tables.frozen = Some(Arc::new(behind.rows));
        }
        let writer = Writer {
            frozen: is_behind.then(|| mark.clone()),
            mark,
            checkpointed,
            active: Load::default(),
            active_log_bytes: 0,
            frozen_load: behind.load,
            frozen_log_bytes: 0,
            drained_per_second: 50e6,
            poisoned: None,
            stalled: None,
            wanted: false,
            stop: false,
            last_commit: Instant::now(),
            inserter: limits.background.then(Inserter::spawn).transpose()?,
        };
        space.restore(&*disk);
        space.look(&*disk);
        let core = Arc::new(Core {
            disk,
            limits,
            space,
            writer: Mutex::new(writer),
            room: Condvar::new(),
            work: Condvar::new(),
            view: RwLock::new(View { fence, tables: Arc::new(tables) }),
            slot: Mutex::new(TableSlot { file, table: Some(table) }),
            damage: Mutex::default(),
            checkpoints: Mutex::default(),
        });
        RowStore::start(core, is_behind)
    }

    fn start(core: Arc<Core>, is_behind: bool) -> Result<RowStore> {
        if is_behind {
            match core.checkpoint() {
                Ok(_) => {}
                // Everything is in memory: reads work, and commits do once there is space.
                Err(Error::Full(text)) => tracing::warn!("opened on a full disk: {text}"),
                Err(error) => return Err(error),
            }
        }
        let mut checkpointer = None;
        if core.limits.background {
            let core = Arc::clone(&core);
            let thread = std::thread::Builder::new().name("checkpoint".into());
            checkpointer = Some(thread.spawn(move || core.run_checkpoints())?);
        }
        Ok(RowStore { core, checkpointer })
    }

    /// Locks the writer, for adding batches: no checkpoint begins meanwhile.
    pub fn writer(&self) -> MutexGuard<'_, Writer> {
        self.core.writer.lock()
    }

    /// See [`Core::pace`].
    pub fn pace(&self, writer: &mut MutexGuard<'_, Writer>, log_bytes: u64) {
        self.core.pace(writer, log_bytes);
    }

    /// See [`Core::wait_for_room`].
    ///
    /// # Errors
    /// `Failed` if there will be no room by itself, `Poisoned`.
    pub fn wait_for_room(
        &self,
        writer: &mut MutexGuard<'_, Writer>,
        log_has_room: impl Fn(u64) -> bool,
    ) -> Result<(), CommitError> {
        self.core.wait_for_room(writer, log_has_room)
    }

    /// See [`Core::wait_for_log`].
    ///
    /// # Errors
    /// Those of `wait_for_room`.
    pub fn wait_for_log(
        &self,
        writer: &mut MutexGuard<'_, Writer>,
        log_has_room: impl Fn(u64) -> bool,
    ) -> Result<(), CommitError> {
        self.core.wait_for_log(writer, log_has_room)
    }

    /// See [`Core::insert`].
    ///
    /// # Errors
    /// That of `meanwhile`.
    pub fn insert(
        &self,
        writer: &mut Writer,
        batch: u64,
        changes: Vec<Change>,
        meanwhile: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        self.core.insert(writer, batch, changes, meanwhile)
    }

    /// See [`Core::publish`].
    pub fn publish(&self, writer: MutexGuard<'_, Writer>, mark: Mark, log_bytes: u64) {
        self.core.publish(writer, mark, log_bytes);
    }

    /// Returns the fence as readers see it.
    pub fn fence(&self) -> Fence {
        self.core.view.read().fence
    }

    pub fn snapshot(&self) -> Box<dyn Snapshot> {
        let view = self.core.view.read();
        let tables = Arc::clone(&view.tables);
        let batch = view.fence.batch;
        drop(view);
        Box::new(RowSnapshot { core: Arc::clone(&self.core), tables, batch })
    }

    /// Returns the reason why nothing more is accepted, if so.
    pub fn failure(&self) -> Option<String> {
        self.core.writer.lock().poisoned.clone()
    }

    /// Returns the length of the file of rows after the last checkpoint.
    pub fn table_bytes(&self) -> u64 {
        self.core.space.table_bytes()
    }

    pub fn is_low_on_space(&self) -> bool {
        self.core.space.is_low()
    }

    /// Returns the bytes of memory that rows take which are not in the table yet.
    pub fn memory_bytes(&self) -> u64 {
        let tables = Arc::clone(&self.core.view.read().tables);
        let frozen = tables.frozen.as_ref().map_or(0, |frozen| frozen.bytes());
        (tables.active.bytes() + frozen) as u64
    }

    /// Returns the same as `is_low_on_space`, by the state of the disk now and not at the last
    /// batch or checkpoint.
    pub fn is_low_on_space_now(&self) -> bool {
        self.core.space.look(&*self.core.disk);
        self.core.space.is_low()
    }

    /// See [`Core::replace`].
    ///
    /// # Errors
    /// That of `swap`; the row store is poisoned then.
    pub fn replace(
        &self,
        swap: impl FnOnce(&Mark) -> Result<Option<(Arc<dyn DiskFile>, Table)>>,
    ) -> Result<()> {
        self.core.replace(swap)
    }

    /// See [`Core::set_aside`].
    ///
    /// # Errors
    /// Those of `entries`, and of `checkpoint`.
    pub fn set_aside<T>(
        &self,
        entries: impl FnOnce(&Mark) -> Result<(Pending, Mark, T)>,
        kept: impl FnOnce(T),
    ) -> Result<()> {
        self.core.set_aside(entries, kept)
    }

    /// Returns the first damage that was found at rest, if any.
    pub fn damage(&self) -> Option<String> {
        self.core.damage.lock().clone()
    }

    /// See [`Core::check`].
    ///
    /// # Errors
    /// `Corrupt` for damage, `Io`, `Unavailable`.
    pub fn check(&self, pace: &Pace) -> Result<()> {
        self.core.check(pace)
    }

    /// See [`Core::check_portion`].
    ///
    /// # Errors
    /// `Corrupt` for damage, `Io`, `Unavailable`.
    pub fn check_portion(&self, from: &[u8], pace: &Pace) -> Result<Option<Vec<u8>>> {
        self.core.check_portion(from, pace)
    }

    /// Moves all added rows into the table.
    ///
    /// # Errors
    /// `Full` and `Io`; nothing is lost.
    pub fn checkpoint(&self) -> Result<()> {
        // The first may find an older memtable that was stalled; later rows are still active then.
        while self.core.checkpoint()? {}
        Ok(())
    }

    /// Returns the checkpoints since the store was opened.
    pub fn checkpoints(&self) -> Checkpoints {
        *self.core.checkpoints.lock()
    }

    /// Ends the store without a last checkpoint.
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

impl Drop for RowStore {
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
