//! The state of rows in memory and at rest: one writer, any number of readers, one checkpointer.

#![expect(clippy::disallowed_methods, reason = "times of checkpoints")]

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::{Disk, DiskFile, Error, Result};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

use super::super::{Change, CommitError, Fence};
use super::backend::Failure;
use super::check::{self, Image, Pace};
use super::checkpoints::Checkpoints;
use super::inserter::Inserter;
use super::limits::Limits;
use super::mark::Mark;
use super::memtable::Memtable;
use super::reserve::{DiskSpace, Load};
use super::table::{Cold, Pending, Table};
use super::tables::Tables;
use super::{inserter, reserve};

/// Longest time that a commit is held back while there is room for it.
const PACE_MAX: Duration = Duration::from_millis(50);

/// The reason why a commit may wait: that of a stalled checkpoint.
#[derive(Clone, Debug)]
pub enum Stall {
    Full(String),
    Other(String),
}

impl Stall {
    fn error(&self) -> Error {
        match self {
            Stall::Full(text) => Error::Full(text.clone()),
            Stall::Other(text) => Error::Unavailable(text.clone()),
        }
    }
}

/// State that only the log's writer changes, and the checkpointer between two batches.
pub struct Writer {
    /// Mark that a checkpoint would leave: how far the log was added.
    pub mark: Mark,
    /// Mark that the last checkpoint left.
    pub checkpointed: Mark,
    /// The active memtable; `active_log_bytes` is what it took in the log.
    pub active: Load,
    pub active_log_bytes: u64,
    /// The frozen memtable, and the mark that it will leave.
    pub frozen_load: Load,
    pub frozen: Option<Mark>,
    pub frozen_log_bytes: u64,
    /// Bytes of the log per second that the last checkpoint moved.
    pub drained_per_second: f64,
    pub poisoned: Option<String>,
    pub stalled: Option<Stall>,
    /// Set while a commit waits for room.
    pub wanted: bool,
    pub stop: bool,
    pub last_commit: Instant,
    pub inserter: Option<Inserter>,
}

/// The state that readers see.
pub struct View {
    pub fence: Fence,
    pub tables: Arc<Tables>,
}

/// The table's file and, while it is open, its database.
pub struct TableSlot {
    pub file: Arc<dyn DiskFile>,
    pub table: Option<Table>,
}

impl TableSlot {
    fn written_bytes(&self) -> u64 {
        self.table.as_ref().map_or(0, Table::written_bytes)
    }
}

pub struct Core {
    pub disk: Arc<dyn Disk>,
    pub limits: Limits,
    pub space: DiskSpace,
    pub writer: Mutex<Writer>,
    /// Notified when a checkpoint ended.
    pub room: Condvar,
    /// Notified when there may be something to checkpoint.
    pub work: Condvar,
    pub view: RwLock<View>,
    /// The table's slot; its lock is held for a whole checkpoint.
    pub slot: Mutex<TableSlot>,
    /// First damage at rest that was found by any reader.
    pub damage: Mutex<Option<String>>,
    pub checkpoints: Mutex<Checkpoints>,
}

impl Core {
    /// Puts the rows of a batch into the active memtable while `meanwhile` makes them durable.
    /// Nobody sees them before [`Core::publish`].
    pub fn insert(
        &self,
        writer: &mut Writer,
        batch: u64,
        changes: Vec<Change>,
        meanwhile: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let (rows, active) = (changes.len(), Arc::clone(&self.view.read().tables.active));
        let insert = inserter::start(writer.inserter.as_ref(), &active, batch, changes);
        let durable = meanwhile();
        writer.active.add(rows, insert.finish());
        durable
    }

    /// Publishes the inserted rows to readers: all up to the record of `mark`, which took
    /// `log_bytes` of the log. Wakes the checkpointer.
    pub fn publish(&self, mut writer: MutexGuard<'_, Writer>, mark: Mark, log_bytes: u64) {
        let first = !writer.is_behind();
        self.view.write().fence = mark.fence;
        writer.mark = mark;
        writer.active_log_bytes += log_bytes;
        writer.last_commit = Instant::now();
        self.space.look(&*self.disk);
        if !self.limits.background {
            if self.over_limit(&writer) {
                drop(writer);
                // An error that stops it is kept in the writer and reported to later commits.
                let _ = self.checkpoint();
            }
        } else if first || self.over_limit(&writer) {
            self.work.notify_one();
        }
    }

    /// Returns whether the active memtable is due for the table.
    pub fn over_limit(&self, writer: &Writer) -> bool {
        writer.active.bytes > self.limits.memtable_bytes
            || writer.active_log_bytes > writer.mark.log_bytes() / 4
            || !self.space.has_room(writer.active, 4)
    }

    /// Returns whether memory and disk have room for the active memtable's growth.
    fn has_room(&self, writer: &Writer) -> bool {
        let (rows, memory) = (writer.active.rows, writer.active.bytes);
        let mut both = writer.frozen_load;
        both.add(rows, memory);
        both.bytes <= self.limits.memtable_bytes.saturating_mul(4)
            && (both.rows == 0 || self.space.has_room(both, 2))
    }

    /// Slows commits down as memory fills up behind a checkpoint, from half of the limit on, so
    /// that many wait a little before one waits for all of it. `bytes`: size of the log record.
    pub fn pace(&self, writer: &mut MutexGuard<'_, Writer>, bytes: u64) {
        let limit = self.limits.memtable_bytes as f64;
        let over = (writer.active.bytes + writer.frozen_load.bytes) as f64 / limit - 2.0;
        if writer.frozen.is_none() || over <= 0.0 || !self.limits.background {
            return;
        }
        let delay = bytes as f64 / writer.drained_per_second * over;
        if writer.stalled.is_none() && writer.poisoned.is_none() && delay > 50e-6 {
            self.room.wait_for(writer, Duration::from_secs_f64(delay).min(PACE_MAX));
        }
    }

    /// Waits until memory has room for a batch, and the log has room according to `log_has_room`,
    /// which gets the number of the last record that the log need not keep.
    pub fn wait_for_room(
        &self,
        writer: &mut MutexGuard<'_, Writer>,
        log_has_room: impl Fn(u64) -> bool,
    ) -> Result<(), CommitError> {
        self.wait_until(writer, |writer| {
            self.has_room(writer) && log_has_room(writer.checkpointed.sequence)
        })
    }

    /// Waits like `wait_for_room`, for records that bring no rows yet.
    pub fn wait_for_log(
        &self,
        writer: &mut MutexGuard<'_, Writer>,
        log_has_room: impl Fn(u64) -> bool,
    ) -> Result<(), CommitError> {
        self.wait_until(writer, |writer| log_has_room(writer.checkpointed.sequence))
    }

    fn wait_until(
        &self,
        writer: &mut MutexGuard<'_, Writer>,
        has_room: impl Fn(&Writer) -> bool,
    ) -> Result<(), CommitError> {
        loop {
            if let Some(reason) = &writer.poisoned {
                let text = format!("{reason}; restart to recover");
                return Err(CommitError::Poisoned(Error::Unavailable(text)));
            }
            if has_room(writer) {
                return Ok(());
            }
            if !writer.is_behind() {
                let text = "the log is full of entries that are not committed yet";
                return Err(CommitError::Failed(Error::Unavailable(text.into())));
            }
            writer.wanted = true;
            if self.limits.background {
                self.work.notify_one();
                if let Some(stall) = &writer.stalled {
                    return Err(CommitError::Failed(stall.error()));
                }
                self.room.wait(writer);
            } else if let Err(error) = MutexGuard::unlocked(writer, || self.checkpoint())
                && writer.poisoned.is_none()
            {
                return Err(CommitError::Failed(error));
            }
        }
    }

    /// Moves the rows in memory into the table. Returns `false` if there were none.
    ///
    /// # Errors
    /// `Full` and others that may pass: nothing is lost, and it is tried again. After a failed
    /// write or sync the engine is poisoned.
    pub fn checkpoint(&self) -> Result<bool> {
        let mut slot = self.slot.lock();
        let Some((memtable, mark)) = self.freeze()? else { return Ok(false) };
        let start = Instant::now();
        let load = self.writer.lock().frozen_load;
        let before = slot.written_bytes();
        let write = |table: &Table| table.write(&memtable, &mark);
        match self.write_table(&mut slot, load, &mark, write) {
            Ok(cold) => {
                let (took, after) = (start.elapsed(), slot.written_bytes());
                // A table that was opened again counts anew.
                self.count(load, took, after.checked_sub(before).unwrap_or(after));
                self.space.set_table_bytes(slot.file.len().unwrap_or(u64::MAX));
                self.finish(cold, took);
                Ok(true)
            }
            Err(error) => {
                let failure = slot.table.as_ref().and_then(Table::failure);
                self.stall(failure.map(|(failure, _)| failure), &error);
                Err(error)
            }
        }
    }

    fn count(&self, load: Load, took: Duration, bytes: u64) {
        self.checkpoints.lock().add(took, bytes);
        tracing::debug!(rows = load.rows, bytes, seconds = took.as_secs_f64(), "checkpoint");
    }

    /// Freezes the active memtable, so that commits go on in another one.
    fn freeze(&self) -> Result<Option<(Arc<Memtable>, Mark)>> {
        let mut writer = self.writer.lock();
        writer.wanted = false;
        if let Some(reason) = &writer.poisoned {
            return Err(Error::Unavailable(reason.clone()));
        }
        let mut view = self.view.write();
        if let (Some(mark), Some(frozen)) = (&writer.frozen, &view.tables.frozen) {
            return Ok(Some((Arc::clone(frozen), mark.clone())));
        }
        if !writer.is_behind() {
            return Ok(None);
        }
        let mark = writer.mark.clone();
        writer.frozen = Some(mark.clone());
        writer.frozen_load = std::mem::take(&mut writer.active);
        writer.frozen_log_bytes = std::mem::take(&mut writer.active_log_bytes);
        let frozen = Arc::clone(&view.tables.active);
        let cold = Arc::clone(&view.tables.cold);
        let active = Arc::default();
        view.tables = Arc::new(Tables { active, frozen: Some(Arc::clone(&frozen)), cold });
        Ok(Some((frozen, mark)))
    }

    fn write_table(
        &self,
        slot: &mut TableSlot,
        load: Load,
        mark: &Mark,
        write: impl FnOnce(&Table) -> Result<()>,
    ) -> Result<Cold> {
        self.space.make(&*self.disk, load)?;
        let table = self.ready(slot)?;
        let Err(error) = write(table) else { return table.cold() };
        if !matches!(table.failure(), Some((Failure::Full | Failure::Read, _))) {
            return Err(error);
        }
        // It may have failed after the point of no return.
        match self.ready(slot).and_then(|table| table.cold()) {
            Ok(cold) if cold.mark == *mark => Ok(cold),
            Ok(cold) => {
                self.show(cold, false);
                Err(error)
            }
            Err(_) => Err(error),
        }
    }

    /// Returns the table, and opens it again if it was stopped by a failure that this cures.
    fn ready<'a>(&self, slot: &'a mut TableSlot) -> Result<&'a mut Table> {
        if let Some(table) = &slot.table
            && matches!(table.failure(), Some((Failure::Full | Failure::Read, _)))
        {
            slot.table = None;
        }
        if slot.table.is_none() {
            slot.table = Some(Table::open(&slot.file, self.limits.cache_bytes)?);
        }
        slot.table
            .as_mut()
            .ok_or_else(|| Error::Unavailable("the table of rows is not open".into()))
    }

    /// Shows `cold` to readers from here on; `done`: it has everything that was frozen.
    fn show(&self, cold: Cold, done: bool) {
        let mut view = self.view.write();
        let frozen = view.tables.frozen.clone().filter(|_| !done);
        let active = Arc::clone(&view.tables.active);
        let tables = Arc::new(Tables { active, frozen, cold: Arc::new(cold) });
        let old = std::mem::replace(&mut view.tables, tables);
        drop(view);
        // Freeing a whole memtable takes a while, so it is not done under the lock.
        drop(old);
    }

    fn finish(&self, cold: Cold, took: Duration) {
        let mark = cold.mark.clone();
        self.show(cold, true);
        let mut writer = self.writer.lock();
        writer.checkpointed = mark;
        writer.frozen = None;
        writer.frozen_load = Load::default();
        writer.stalled = None;
        let log_bytes = std::mem::take(&mut writer.frozen_log_bytes) as f64;
        writer.drained_per_second = (log_bytes / took.as_secs_f64().max(1e-6)).max(1e6);
        self.room.notify_all();
        drop(writer);
        self.space.set_short(false);
        self.look_for_space();
        // If somebody else made this checkpoint, the checkpointer waits for finished work.
        self.work.notify_one();
    }

    /// Reserves space if there is some again. The caller holds the slot.
    fn look_for_space(&self) {
        self.space.restore(&*self.disk);
        self.space.look(&*self.disk);
    }

    fn stall(&self, failure: Option<Failure>, error: &Error) {
        let mut writer = self.writer.lock();
        let text = format!("moving the log into the table of rows: {error}");
        tracing::warn!("{text}");
        match (failure, error) {
            (Some(Failure::Write), _) => {
                reserve::mark_suspect(&*self.disk);
                writer.poison(text);
            }
            (_, Error::Corrupt { .. }) => {
                self.note_damage(error);
                writer.poison(text);
            }
            (_, Error::Full(_)) => {
                self.space.set_short(true);
                writer.stalled = Some(Stall::Full(text));
            }
            _ => writer.stalled = Some(Stall::Other(text)),
        }
        self.room.notify_all();
        drop(writer);
        self.space.look(&*self.disk);
    }

    /// Notes the error, if it is damage and the first.
    pub fn note_damage(&self, error: &Error) {
        if let Error::Corrupt { .. } = error {
            self.damage.lock().get_or_insert_with(|| error.to_string());
        }
    }

    /// Checks all rows and pages at rest, while rows are read and added, in portions.
    ///
    /// # Errors
    /// Same errors as [`Core::check_portion`].
    pub fn check(&self, pace: &Pace) -> Result<()> {
        let mut from = Vec::new();
        while let Some(next) = self.check_portion(&from, pace)? {
            from = next;
        }
        Ok(())
    }

    /// Checks a portion of what the last checkpoint left: the rows from the key `from` on. Returns
    /// the key at which the next portion begins, or `None` after the last; nothing is held between
    /// two of them. Damage is checked again while no checkpoint runs, and noted.
    ///
    /// # Errors
    /// Same errors as [`check::check_rows`].
    pub fn check_portion(&self, from: &[u8], pace: &Pace) -> Result<Option<Vec<u8>>> {
        let at_once = Pace { rate: None, ..pace.clone() };
        let note = |error: &Error| self.note_damage(error);
        let (image, reader) = {
            let mut slot = self.slot.lock();
            let image = self.image(&mut slot)?;
            if from.is_empty() {
                check::check_system(&image, &at_once).inspect_err(note)?;
            }
            // A reader as of that checkpoint, so that its pages stay as they are.
            (image, Arc::clone(&self.view.read().tables.cold))
        };
        match check::check_rows(&image, from, pace) {
            Err(Error::Corrupt { .. }) => {}
            other => return other,
        }
        drop(reader);
        let mut slot = self.slot.lock();
        let image = self.image(&mut slot)?;
        check::check_rows(&image, from, &at_once).inspect_err(note)
    }

    /// Returns the file of rows as the last checkpoint left it. The caller holds the slot. A
    /// damaged copy of its first page is written anew: there are others.
    fn image(&self, slot: &mut TableSlot) -> Result<Image> {
        let table = slot.table.as_ref().filter(|table| table.failure().is_none());
        let closed = || Error::Unavailable("table of rows: closed, or it has failed".into());
        let table = table.ok_or_else(closed)?;
        let first_page = match table.first_page(&*slot.file) {
            Err(Error::Corrupt { what, got, .. }) => {
                tracing::warn!("{what}: {got}: it is written anew");
                table.write_first_page(&*slot.file)?;
                table.first_page(&*slot.file)?
            }
            other => other?,
        };
        let mark = self.view.read().tables.cold.mark.clone();
        let file = Arc::clone(&slot.file);
        Ok(Image { len: file.len()?, file, first_page, mark })
    }

    /// Replaces all rows by another table. `swap` gets the mark, gives the table its name and
    /// returns it, or returns `None` to leave everything unchanged. If it fails, the engine is
    /// poisoned. No checkpoint runs and no batch is added meanwhile.
    pub fn replace(
        &self,
        swap: impl FnOnce(&Mark) -> Result<Option<(Arc<dyn DiskFile>, Table)>>,
    ) -> Result<()> {
        let mut slot = self.slot.lock();
        let mut writer = self.writer.lock();
        if let Some(reason) = &writer.poisoned {
            return Err(Error::Unavailable(format!("{reason}; restart to recover")));
        }
        let swapped = swap(&writer.mark).and_then(|swapped| match swapped {
            None => Ok(None),
            Some((file, table)) => {
                let cold = table.cold()?;
                Ok(Some((file, table, cold)))
            }
        });
        let (file, table, cold) = match swapped {
            Ok(Some(swapped)) => swapped,
            Ok(None) => return Ok(()),
            Err(error) => {
                writer.poison(format!("putting a snapshot in the place of the rows: {error}"));
                return Err(error);
            }
        };
        self.space.set_table_bytes(file.len().unwrap_or(u64::MAX));
        writer.mark = cold.mark.clone();
        writer.checkpointed = cold.mark.clone();
        (writer.active, writer.active_log_bytes) = (Load::default(), 0);
        (writer.frozen_load, writer.frozen_log_bytes) = (Load::default(), 0);
        (writer.frozen, writer.stalled) = (None, None);
        let mut view = self.view.write();
        view.fence = cold.mark.fence;
        *self.damage.lock() = None;
        let tables = Tables { active: Arc::default(), frozen: None, cold: Arc::new(cold) };
        let old = std::mem::replace(&mut view.tables, Arc::new(tables));
        drop(view);
        *slot = TableSlot { file, table: Some(table) };
        self.room.notify_all();
        drop((writer, slot));
        drop(old);
        Ok(())
    }

    /// Puts entries of the log beside the rows, after which the log need keep none of its records.
    /// `entries` gets the mark, and returns the mark to leave; once that is durable, `kept` gets
    /// the other value that it returned. No checkpoint runs and no batch is added meanwhile. Does
    /// nothing if a checkpoint would make room.
    pub fn set_aside<T>(
        &self,
        entries: impl FnOnce(&Mark) -> Result<(Pending, Mark, T)>,
        kept: impl FnOnce(T),
    ) -> Result<()> {
        let mut slot = self.slot.lock();
        let mut writer = self.writer.lock();
        if let Some(reason) = &writer.poisoned {
            return Err(Error::Unavailable(format!("{reason}; restart to recover")));
        }
        if writer.is_behind() {
            return Ok(());
        }
        let (pending, mark, more) = entries(&writer.mark)?;
        let mut load = Load::default();
        load.add(pending.len(), pending.iter().map(|(_, entry)| entry.len()).sum());
        let write = |table: &Table| table.write_pending(&pending, &mark);
        match self.write_table(&mut slot, load, &mark, write) {
            Ok(cold) => {
                kept(more);
                self.space.set_table_bytes(slot.file.len().unwrap_or(u64::MAX));
                self.show(cold, false);
                writer.mark = mark.clone();
                writer.checkpointed = mark;
                writer.active_log_bytes = 0;
                writer.stalled = None;
                self.room.notify_all();
                drop(writer);
                self.space.set_short(false);
                self.look_for_space();
                Ok(())
            }
            Err(error) => {
                drop(writer);
                let failure = slot.table.as_ref().and_then(Table::failure);
                self.stall(failure.map(|(failure, _)| failure), &error);
                Err(error)
            }
        }
    }

    /// Returns the rows at rest as of `mark`, after a failure that opening the table again cures.
    pub fn revive(&self, mark: &Mark) -> Option<Arc<Cold>> {
        let mut slot = self.slot.lock();
        if self.writer.lock().poisoned.is_none() {
            let stopped = slot.table.as_ref().is_none_or(|table| table.failure().is_some());
            if stopped {
                let cold = self.ready(&mut slot).and_then(|table| table.cold()).ok()?;
                self.show(cold, false);
            }
        }
        let cold = Arc::clone(&self.view.read().tables.cold);
        (cold.mark == *mark).then_some(cold)
    }

    /// Runs the checkpointer's thread.
    pub fn run_checkpoints(&self) {
        let mut retry = false;
        while self.wait_for_work(std::mem::take(&mut retry)) {
            retry = self.checkpoint().is_err();
        }
    }

    /// Waits for work. Returns `false` if the engine is being closed.
    fn wait_for_work(&self, retry: bool) -> bool {
        /// Pause after a failed checkpoint unless a commit asks for room, and interval between
        /// looks whether a full disk still is full.
        const RETRY: Duration = Duration::from_secs(1);
        let mut writer = self.writer.lock();
        if retry && !writer.stop {
            self.work.wait_for(&mut writer, RETRY);
        }
        while !writer.stop {
            if writer.poisoned.is_some() || !writer.is_behind() {
                if self.space.is_low() {
                    self.work.wait_for(&mut writer, RETRY);
                    MutexGuard::unlocked(&mut writer, || {
                        let _slot = self.slot.lock();
                        self.look_for_space();
                    });
                } else {
                    self.work.wait(&mut writer);
                }
                continue;
            }
            let idle = writer.last_commit.elapsed();
            if retry || writer.wanted || self.over_limit(&writer) || idle >= self.limits.idle {
                return true;
            }
            self.work.wait_for(&mut writer, self.limits.idle - idle);
        }
        false
    }
}

impl Writer {
    /// Returns whether a checkpoint would change anything.
    pub fn is_behind(&self) -> bool {
        self.mark != self.checkpointed
    }

    /// Refuses all later commits.
    pub fn poison(&mut self, reason: String) {
        tracing::error!("the metadata engine stops: {reason}");
        self.poisoned.get_or_insert(reason);
    }
}
