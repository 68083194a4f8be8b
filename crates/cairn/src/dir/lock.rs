//! One process at a time: a lock that the kernel gives back when its holder ends, however it ends.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::failure::{Failure, Result};

pub const NAME: &str = "lock";

/// The lock of a data directory, held until it is dropped.
pub struct Lock {
    _file: File,
}

impl Lock {
    pub fn take(directory: &Path) -> Result<Lock> {
        let path = directory.join(NAME);
        let file = open(&path).map_err(|error| Failure::file(&path, &error))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(in_use(directory, &path)),
            Err(error) => return Err(Failure::file(&path, &error.into())),
        }
        // For the text of the error alone; on a read-only file system nobody reads it.
        let _ = note_pid(&file);
        Ok(Lock { _file: file })
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    match options.read(true).write(true).create(true).truncate(false).open(path) {
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => File::open(path),
        opened => opened,
    }
}

fn note_pid(mut file: &File) -> io::Result<()> {
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())
}

fn in_use(directory: &Path, path: &Path) -> Failure {
    let pid = fs::read_to_string(path).unwrap_or_default();
    let pid = pid.trim().parse::<u32>().map_or(String::new(), |pid| format!(" (pid {pid})"));
    let shown = directory.display();
    Failure::new(format!(
        "{shown}: data directory is in use by another cairn{pid}: stop it or choose another \
         directory"
    ))
}
