//! Failing disks: small trial writes find out whether a disk takes writes.

use std::io::{self, ErrorKind};

use cairn_base::Disk;
use parking_lot::Mutex;

/// Name of the file of a trial. A leftover file is replaced by the next trial.
const TRIAL: &str = "trial";
/// Number of trials in a row that must succeed after a failed write: a dying disk takes a write now
/// and then.
const TRIALS: u32 = 5;

/// The errors of a disk that matter for writes.
#[derive(Default)]
pub(crate) struct DiskHealth {
    known: Mutex<FailureState>,
    /// Held during a trial, which may hang.
    trying: Mutex<()>,
}

#[derive(Default)]
struct FailureState {
    /// True if a read failed since the last trial.
    is_suspect: bool,
    /// The error of the last write that failed.
    failure: Option<String>,
    /// Number of trials that have succeeded since then.
    trials: u32,
}

impl DiskHealth {
    /// Notes that a write, a sync or the making of a file failed. A full disk is no failure.
    pub(crate) fn note_failed_write(&self, error: &io::Error) {
        if !is_full(error) {
            *self.known.lock() =
                FailureState { failure: Some(error.to_string()), ..FailureState::default() };
        }
    }

    /// Notes that a read failed: a trial will find out whether writes fail, too.
    pub(crate) fn note_failed_read(&self) {
        self.known.lock().is_suspect = true;
    }

    /// Returns the error because of which the disk takes no writes, until trials succeed.
    pub(crate) fn failure(&self) -> Option<String> {
        self.known.lock().failure.clone()
    }

    /// Writes a little to the disk if a call to it has failed before. Only one trial runs at a
    /// time.
    pub(crate) fn try_disk(&self, disk: &dyn Disk) {
        let Some(_alone) = self.trying.try_lock() else { return };
        {
            let known = self.known.lock();
            if !known.is_suspect && known.failure.is_none() {
                return;
            }
        }
        match write_trial(disk) {
            Err(error) if !is_full(&error) => self.note_failed_write(&error),
            _ => self.note_trial(),
        }
    }

    fn note_trial(&self) {
        let mut known = self.known.lock();
        known.is_suspect = false;
        known.trials += 1;
        if known.trials >= TRIALS {
            *known = FailureState::default();
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Makes a file, writes to it and syncs, like the making of a segment.
fn write_trial(disk: &dyn Disk) -> io::Result<()> {
    let _ = disk.remove(TRIAL);
    let file = disk.create(TRIAL)?;
    let written = file.write_at(&[TRIAL.as_bytes()], 0).and_then(|()| file.sync_data());
    written.and_then(|()| disk.sync()).and(disk.remove(TRIAL))
}
