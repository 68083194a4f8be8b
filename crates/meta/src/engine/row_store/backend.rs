//! redb's storage on a file behind the seam `DiskFile`.

use std::fmt;
use std::io;
use std::sync::Arc;

use cairn_base::DiskFile;
use cairn_base::disk::read_exact_at;
use parking_lot::Mutex;

use super::header::{HeaderPage, PAGE_BYTES, SHIFT};

/// The first thing that went wrong with a file. redb refuses all work after it; this says what
/// may be done next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Nothing was changed: open the table again.
    Read,
    /// The last write did not fit: open the table again.
    Full,
    /// The contents of the disk are unknown.
    Write,
}

/// The health of a file, shared by its backend and the table above.
#[derive(Default, Debug)]
pub struct Health {
    first: Mutex<Option<(Failure, String)>>,
}

impl Health {
    pub fn failure(&self) -> Option<(Failure, String)> {
        self.first.lock().clone()
    }

    /// The database behind this file must not be used again.
    pub fn condemn(&self, text: String) {
        *self.first.lock() = Some((Failure::Write, text));
    }

    /// Remembers the first failure, or the worse one of two.
    pub fn note<T>(&self, failure: Failure, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| {
            let mut first = self.first.lock();
            let text = error.to_string();
            match &mut *first {
                // Of two failures the worse one counts.
                Some((Failure::Read | Failure::Full, _)) if failure == Failure::Write => {
                    *first = Some((failure, text));
                }
                Some(_) => {}
                none => *none = Some((failure, text)),
            }
        })
    }
}

/// redb's database in a file: its first page as [`HeaderPage`] keeps it, the rest as it is.
pub struct Backend {
    file: Arc<dyn DiskFile>,
    health: Arc<Health>,
    header: Arc<Mutex<HeaderPage>>,
}

impl Backend {
    pub fn open(file: Arc<dyn DiskFile>, health: Arc<Health>) -> io::Result<Backend> {
        let header = Arc::new(Mutex::new(HeaderPage::load(&*file)?));
        Ok(Backend { file, health, header })
    }

    pub fn header(&self) -> Arc<Mutex<HeaderPage>> {
        Arc::clone(&self.header)
    }

    fn read_both(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (first, rest) = split(offset, out.len());
        let (head, tail) = out.split_at_mut(first);
        if !head.is_empty() {
            self.header.lock().read(offset, head);
        }
        if tail.is_empty() { Ok(()) } else { read_exact_at(&*self.file, tail, rest) }
    }

    fn write_both(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (first, rest) = split(offset, data.len());
        let (head, tail) = data.split_at(first);
        if !head.is_empty() {
            self.header.lock().write(&*self.file, offset, head)?;
        }
        if tail.is_empty() { Ok(()) } else { self.file.write_at(&[tail], rest) }
    }
}

/// How many of `len` bytes at `offset` lie in the first page, and where in the file the others
/// start.
fn split(offset: u64, len: usize) -> (usize, u64) {
    let first = (PAGE_BYTES as u64).saturating_sub(offset).min(len as u64);
    (first as usize, offset + first + SHIFT)
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend").field("health", &self.health).finish_non_exhaustive()
    }
}

/// The failure of a file after this write.
fn kind(result: &io::Result<()>) -> Failure {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    match result {
        Err(error) if full.contains(&error.kind()) => Failure::Full,
        _ => Failure::Write,
    }
}

impl redb::StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.health.note(Failure::Read, self.file.len().map(|len| len.saturating_sub(SHIFT)))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.health.note(Failure::Read, self.read_both(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let result = self.file.set_len(len + SHIFT);
        self.health.note(kind(&result), result)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut header = self.header.lock();
        let result = self.file.sync_data();
        if result.is_ok() {
            header.synced();
        }
        // Even when it says "full": what of the earlier writes is on disk is unknown.
        self.health.note(Failure::Write, result)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let result = self.write_both(offset, data);
        self.health.note(kind(&result), result)
    }
}
