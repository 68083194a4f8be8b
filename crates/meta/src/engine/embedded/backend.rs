//! redb's storage on a file behind the seam `DiskFile`.

use std::fmt;
use std::io;
use std::sync::Arc;

use cairn_base::DiskFile;
use cairn_base::disk::read_exact_at;
use parking_lot::Mutex;

/// The first thing that went wrong with a file. redb refuses all work after it; this says what
/// may be done next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Nothing was changed: open the table again.
    Read,
    /// What was written last did not fit: open the table again.
    Full,
    /// What is on disk is unknown.
    Write,
}

/// What became of a file, shared by its backend and the table above.
#[derive(Default, Debug)]
pub struct Health {
    first: Mutex<Option<(Failure, String)>>,
}

impl Health {
    pub fn failure(&self) -> Option<(Failure, String)> {
        self.first.lock().clone()
    }

    fn note<T>(&self, failure: Failure, result: io::Result<T>) -> io::Result<T> {
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

pub struct Backend {
    pub file: Arc<dyn DiskFile>,
    pub health: Arc<Health>,
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend").field("health", &self.health).finish_non_exhaustive()
    }
}

fn kind(result: &io::Result<()>) -> Failure {
    match result {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            ) =>
        {
            Failure::Full
        }
        _ => Failure::Write,
    }
}

impl redb::StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.health.note(Failure::Read, self.file.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.health.note(Failure::Read, read_exact_at(&*self.file, out, offset))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let result = self.file.set_len(len);
        self.health.note(kind(&result), result)
    }

    fn sync_data(&self) -> io::Result<()> {
        // Even when it says "full": what of the earlier writes is on disk is unknown.
        self.health.note(Failure::Write, self.file.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let result = self.file.write_at(&[data], offset);
        self.health.note(kind(&result), result)
    }
}
