//! The rows at rest: a redb database with the tables `rows` and `state`, changed only by
//! checkpoints.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::checksum::crc32c;
use cairn_base::{DiskFile, Error, Result};
use parking_lot::Mutex;
use redb::{
    Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, TableDefinition, WriteTransaction,
};

use super::backend::{Backend, Failure, Health};
use super::header::{HeaderPage, PAGE_BYTES};
use super::mark::Mark;
use super::memtable::Memtable;

pub(super) const ROWS_NAME: &str = "rows";
pub(super) const STATE_NAME: &str = "state";
const ROWS: TableDefinition<&[u8], &[u8]> = TableDefinition::new(ROWS_NAME);
const STATE: TableDefinition<&str, &[u8]> = TableDefinition::new(STATE_NAME);
/// Entries of a replicated log, by their index, which no record need hold any more. Each value ends
/// in the crc32c of the bytes before.
const PENDING: TableDefinition<u64, &[u8]> = TableDefinition::new("pending");
/// Row of `state` that holds the [`Mark`].
pub(super) const MARK: &str = "mark";

/// The open file of rows. Written by one thread at a time.
pub struct Table {
    /// `None` only while it is being dropped.
    database: Option<Database>,
    health: Arc<Health>,
    /// redb's first page, shared with its backend.
    header: Arc<Mutex<HeaderPage>>,
}

/// Entries of a replicated log, encoded, each with its index.
pub type Pending = Vec<(u64, Vec<u8>)>;

type Rows = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// All rows as of one checkpoint. Reads take no lock.
pub struct Cold {
    /// `None` only while it is being dropped.
    rows: Option<Rows>,
    health: Arc<Health>,
    pub mark: Mark,
}

impl Table {
    /// Opens the table in `file`, or makes a table if the file is empty.
    ///
    /// # Errors
    /// `Corrupt`, `Io`, `Full`.
    pub fn open(file: &Arc<dyn DiskFile>, cache_bytes: usize) -> Result<Table> {
        // Bytes that an earlier process wrote but did not sync are seen from here on, so they must
        // last.
        file.sync_data()?;
        let health = Arc::new(Health::default());
        let backend = Backend::open(Arc::clone(file), Arc::clone(&health));
        let backend = backend.map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidData => corrupt(error),
            _ => Error::from(error),
        })?;
        let header = backend.header();
        let mut builder = Database::builder();
        builder.set_cache_size(cache_bytes);
        let database = guard(&health, || {
            builder.create_with_backend(backend).map_err(|error| failed(&health, error))
        })?;
        Ok(Table { database: Some(database), health, header })
    }

    /// Writes the rows of `memtable` and the mark in one transaction. Durable on return.
    ///
    /// # Errors
    /// See [`Table::failure`] for what may be done next.
    pub fn write(&self, memtable: &Memtable, mark: &Mark) -> Result<()> {
        guard(&self.health, || {
            let written = self.database()?.begin_write().map_err(redb::Error::from);
            let written = written.and_then(|transaction| write(transaction, memtable, mark));
            written.map_err(|error| failed(&self.health, error))
        })
    }

    /// Replaces all pending entries by `entries`, and the mark, in one transaction. Durable on
    /// return.
    ///
    /// # Errors
    /// Same errors as [`Table::write`].
    pub fn write_pending(&self, entries: &[(u64, Vec<u8>)], mark: &Mark) -> Result<()> {
        guard(&self.health, || {
            let written = self.database()?.begin_write().map_err(redb::Error::from);
            let written = written.and_then(|transaction| write_pending(transaction, entries, mark));
            written.map_err(|error| failed(&self.health, error))
        })
    }

    /// Returns the pending entries before the index `end`, by index.
    ///
    /// # Errors
    /// `Corrupt` and `Io`.
    pub fn pending(&self, end: u64) -> Result<Vec<(u64, Bytes)>> {
        guard(&self.health, || {
            let opened = self.database()?.begin_read().map_err(redb::Error::from);
            let rows = opened.and_then(|transaction| read_pending(transaction, end));
            let rows = rows.map_err(|error| failed(&self.health, error))?;
            let unsealed = rows.into_iter().map(|(index, value)| {
                let (body, crc) = value.split_last_chunk::<4>().unwrap_or((&[], &[0; 4]));
                if crc32c(body) == u32::from_le_bytes(*crc) {
                    Ok((index, Bytes::copy_from_slice(body)))
                } else {
                    Err(corrupt(format!("a pending entry {index} that does not check")))
                }
            });
            unsealed.collect()
        })
    }

    /// Returns the rows that the last checkpoint left.
    pub fn cold(&self) -> Result<Cold> {
        let health = Arc::clone(&self.health);
        guard(&self.health, || {
            let opened = self.database()?.begin_read().map_err(redb::Error::from);
            let opened = opened.and_then(read);
            let (rows, mark) = opened.map_err(|error| failed(&self.health, error))?;
            let mark = mark.ok_or_else(|| corrupt("no mark"))?;
            Ok(Cold { rows: Some(rows), health, mark: Mark::parse(&mark)? })
        })
    }

    /// Returns the durable first page of redb. No checkpoint may run.
    ///
    /// # Errors
    /// `Corrupt` if its newest copy in `file` is damaged, `Io`.
    pub fn first_page(&self, file: &dyn DiskFile) -> Result<[u8; PAGE_BYTES]> {
        let header = self.header.lock();
        header.check(file).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidData => corrupt(error),
            _ => Error::from(error),
        })
    }

    /// Rewrites the first page of redb durably. No checkpoint may run.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn write_first_page(&self, file: &dyn DiskFile) -> Result<()> {
        let mut header = self.header.lock();
        header.write(file, 0, &[])?;
        file.sync_data()?;
        header.synced();
        Ok(())
    }

    fn database(&self) -> Result<&Database> {
        self.database.as_ref().ok_or_else(|| Error::Unavailable("table of rows: closed".into()))
    }

    /// Returns the failure that stopped this table, if any.
    pub fn failure(&self) -> Option<(Failure, String)> {
        self.health.failure()
    }

    /// Returns the bytes that redb wrote to the file since this table was opened.
    pub fn written_bytes(&self) -> u64 {
        self.health.written_bytes()
    }

    /// Checks every page. Returns `false` if damage was found and repaired.
    pub fn check(&mut self) -> Result<bool> {
        let Some(database) = &mut self.database else { return Ok(false) };
        let health = &self.health;
        guard(health, || database.check_integrity().map_err(|error| failed(health, error)))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let database = self.database.take();
        let _ = guard(&self.health, || {
            drop(database);
            Ok(())
        });
    }
}

fn write(
    mut transaction: WriteTransaction,
    memtable: &Memtable,
    mark: &Mark,
) -> Result<(), redb::Error> {
    // Else the next start after a crash reads the whole file.
    transaction.set_quick_repair(true);
    {
        let mut rows = transaction.open_table(ROWS)?;
        let mut sealed = Vec::new();
        memtable.for_each(|key, value| match value {
            Some(value) => {
                seal(key, value, &mut sealed);
                rows.insert(key, &sealed[..]).map(drop)
            }
            None => rows.remove(key).map(drop),
        })?;
        transaction.open_table(STATE)?.insert(MARK, &mark.encode()[..])?;
        if mark.is_replicated() && mark.pending == 0 {
            transaction.delete_table(PENDING)?;
        }
    }
    Ok(transaction.commit()?)
}

fn write_pending(
    mut transaction: WriteTransaction,
    entries: &[(u64, Vec<u8>)],
    mark: &Mark,
) -> Result<(), redb::Error> {
    transaction.set_quick_repair(true);
    transaction.delete_table(PENDING)?;
    {
        let mut pending = transaction.open_table(PENDING)?;
        for (index, entry) in entries {
            let mut sealed = entry.clone();
            sealed.extend_from_slice(&crc32c(entry).to_le_bytes());
            pending.insert(index, &sealed[..])?;
        }
        transaction.open_table(STATE)?.insert(MARK, &mark.encode()[..])?;
    }
    Ok(transaction.commit()?)
}

fn read_pending(transaction: ReadTransaction, end: u64) -> Result<Pending, redb::Error> {
    let pending = match transaction.open_table(PENDING) {
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        other => other?,
    };
    let mut out = Vec::new();
    for row in pending.range(..end)? {
        let (index, value) = row?;
        out.push((index.value(), value.value().to_vec()));
    }
    Ok(out)
}

fn read(transaction: ReadTransaction) -> Result<(Rows, Option<Vec<u8>>), redb::Error> {
    let rows = transaction.open_table(ROWS)?;
    let mark = transaction.open_table(STATE)?.get(MARK)?;
    Ok((rows, mark.map(|mark| mark.value().to_vec())))
}

impl Cold {
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        guard(&self.health, || {
            let value = self.rows()?.get(key).map_err(|e| failed(&self.health, e))?;
            value.map(|value| unseal(key, value.value()).map(Bytes::copy_from_slice)).transpose()
        })
    }

    /// Calls `each` with the rows `start <= key < end` in key order until it returns `false`.
    /// `damaged` decides what happens to a damaged row.
    pub fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        mut each: impl FnMut(&[u8], &[u8]) -> bool,
        mut damaged: impl FnMut(&[u8], Error) -> Result<()>,
    ) -> Result<()> {
        if start >= end {
            return Ok(());
        }
        guard(&self.health, || {
            let range = self.rows()?.range(start..end).map_err(|e| failed(&self.health, e))?;
            for row in range {
                let (key, value) = row.map_err(|e| failed(&self.health, e))?;
                match unseal(key.value(), value.value()) {
                    Ok(value) if !each(key.value(), value) => break,
                    Ok(_) => {}
                    Err(error) => damaged(key.value(), error)?,
                }
            }
            Ok(())
        })
    }

    fn rows(&self) -> Result<&Rows> {
        self.rows.as_ref().ok_or_else(|| Error::Unavailable("table of rows: closed".into()))
    }

    /// Returns whether opening the table again may cure the failure that stopped this one.
    pub fn curable(&self) -> bool {
        matches!(self.health.failure(), Some((Failure::Read | Failure::Full, _)))
    }
}

impl Drop for Cold {
    fn drop(&mut self) {
        let rows = self.rows.take();
        let _ = guard(&self.health, || {
            drop(rows);
            Ok(())
        });
    }
}

/// Runs code of redb. It asserts on some damaged pages, which must not end the process.
fn guard<T>(health: &Health, run: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown");
        health.condemn(format!("redb panicked: {text}"));
        Err(corrupt(format!("redb panicked: {text}")))
    })
}

pub(super) fn corrupt(got: impl std::fmt::Display) -> Error {
    Error::corrupt("table of rows", got, "a sound file")
}

/// Appends the crc32c of key and value to a value at rest: redb itself checks pages only on demand.
fn seal(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(key);
    out.extend_from_slice(value);
    let crc = crc32c(out);
    out.drain(..key.len());
    out.extend_from_slice(&crc.to_le_bytes());
}

pub(super) fn unseal<'a>(key: &[u8], sealed: &'a [u8]) -> Result<&'a [u8]> {
    let (value, crc) = sealed.split_last_chunk::<4>().unwrap_or((&[], &[0; 4]));
    let mut covered = Vec::with_capacity(key.len() + value.len());
    covered.extend_from_slice(key);
    covered.extend_from_slice(value);
    let (got, expected) = (crc32c(&covered), u32::from_le_bytes(*crc));
    if got == expected {
        return Ok(value);
    }
    let what = format!("checksum of the row {}", key.escape_ascii());
    Err(Error::corrupt(what, format!("{got:08x}"), format!("{expected:08x}")))
}

fn failed(health: &Health, error: impl Into<redb::Error>) -> Error {
    let error = error.into();
    match (health.failure(), error) {
        (_, redb::Error::Corrupted(got)) => corrupt(got),
        (_, redb::Error::DatabaseClosed) => Error::Unavailable("table of rows: closed".into()),
        (Some((Failure::Full, text)), _) => Error::Full(format!("table of rows: {text}")),
        (_, redb::Error::Io(error)) => Error::from(error),
        (Some((_, text)), error) => {
            Error::Io(std::io::Error::other(format!("table of rows: {text}; {error}")))
        }
        (None, error) => corrupt(error),
    }
}
