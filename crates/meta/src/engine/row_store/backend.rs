//! redb's storage on a file behind the seam `DiskFile`.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_base::DiskFile;
use cairn_base::disk::read_exact_at;
use parking_lot::Mutex;

use super::header::{HeaderPage, PAGE_BYTES, SHIFT};

/// The first failure of a file. redb refuses all work after it; the kind decides what may be done
/// next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// A read failed, and nothing was changed: open the table again.
    Read,
    /// The last write did not fit: open the table again.
    Full,
    /// A write failed, and the contents of the disk are unknown.
    Write,
}

/// The health of a file and the bytes written to it, shared by its backend and the table above.
#[derive(Default, Debug)]
pub struct Health {
    first: Mutex<Option<(Failure, String)>>,
    written_bytes: AtomicU64,
}

impl Health {
    pub fn failure(&self) -> Option<(Failure, String)> {
        self.first.lock().clone()
    }

    /// Returns the bytes that were written so far.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Forbids further use of the database behind this file.
    pub fn condemn(&self, text: String) {
        *self.first.lock() = Some((Failure::Write, text));
    }

    /// Records the failure of `result`: the first one, or the worse of two.
    pub fn note<T>(&self, failure: Failure, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| {
            let mut first = self.first.lock();
            let text = error.to_string();
            match &mut *first {
                // The worse of two failures counts.
                Some((Failure::Read | Failure::Full, _)) if failure == Failure::Write => {
                    *first = Some((failure, text));
                }
                Some(_) => {}
                none => *none = Some((failure, text)),
            }
        })
    }
}

/// redb's database in a file: its first page is kept by [`HeaderPage`], the rest is unchanged.
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

/// Splits `len` bytes at `offset`: returns the number of bytes in the first page, and the offset in
/// the file of the others.
fn split(offset: u64, len: usize) -> (usize, u64) {
    let first = (PAGE_BYTES as u64).saturating_sub(offset).min(len as u64);
    (first as usize, offset + first + SHIFT)
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend").field("health", &self.health).finish_non_exhaustive()
    }
}

/// Returns the kind of failure after this write.
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
        // Even when it says "full", it is unknown which earlier writes are on disk.
        self.health.note(Failure::Write, result)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let result = self.write_both(offset, data);
        self.health.written_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.health.note(kind(&result), result)
    }
}
