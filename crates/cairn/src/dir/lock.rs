//! Exclusive use by one process: locks that the kernel releases when their holder ends, however it
//! ends.
//!
//! Two are taken. The lock of the directory itself cannot be removed without the store. The lock of
//! the file `lock` is the only lock that earlier versions know, and the file says which process has
//! it.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::failure::{Failure, Result};

pub const NAME: &str = "lock";
/// Pause between two checks that the locks are still those of the directory.
const LOOK: Duration = Duration::from_secs(1);

/// The lock of a data directory, held until it is dropped.
pub struct Lock {
    path: PathBuf,
    directory: File,
    file: Mutex<File>,
}

impl Lock {
    pub fn take(directory: &Path) -> Result<Lock> {
        let own = lock_directory(directory)?;
        let path = directory.join(NAME);
        let file = open(&path).map_err(|error| Failure::file(&path, &error))?;
        lock_file(directory, &path, &file)?;
        // The pid is only for the text of the error; on a read-only file system it is not needed.
        let _ = note_pid(&file);
        Ok(Lock { path: directory.to_path_buf(), directory: own, file: Mutex::new(file) })
    }

    /// Takes the locks without changes: no file is made, and none changes.
    pub fn take_unchanged(directory: &Path) -> Result<Lock> {
        let own = lock_directory(directory)?;
        let path = directory.join(NAME);
        let file = match File::open(&path) {
            Ok(file) => {
                lock_file(directory, &path, &file)?;
                file
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => own.try_clone()?,
            Err(error) => return Err(Failure::file(&path, &error)),
        };
        Ok(Lock { path: directory.to_path_buf(), directory: own, file: Mutex::new(file) })
    }

    /// Waits until the directory, or its file `lock`, is no longer the locked one: then another
    /// process may be using the store. A file that was removed is put back.
    pub async fn lost(&self) -> Failure {
        loop {
            if let Err(failure) = tokio::task::block_in_place(|| self.look()) {
                return failure;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn look(&self) -> Result<()> {
        let is_it = |held: &File, path: &Path| match (held.metadata(), fs::metadata(path)) {
            (Ok(held), Ok(found)) => Ok(is_same(&held, &found)),
            (Err(error), _) | (_, Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "the lock was not looked at");
                Ok(true)
            }
            _ => Err(()),
        };
        let shown = self.path.display();
        if is_it(&self.directory, &self.path) != Ok(true) {
            let text = format!("{shown}: is not the directory that was locked at the start");
            return Err(Failure::new(text));
        }
        let path = self.path.join(NAME);
        let mut file = self.file.lock();
        match is_it(&file, &path) {
            Ok(true) => Ok(()),
            Ok(false) => Err(replaced(&path)),
            Err(()) => {
                *file = put_back(&path)?;
                tracing::warn!(path = %path.display(), "was removed, and is put back");
                Ok(())
            }
        }
    }
}

fn lock_directory(directory: &Path) -> Result<File> {
    let of_directory = |error| Failure::file(directory, &error);
    let own = File::open(directory).map_err(of_directory)?;
    match flock(&own, FlockOperation::NonBlockingLockExclusive) {
        // Network file systems cannot lock directories: there the file alone has to suffice.
        Ok(()) | Err(Errno::BADF) => Ok(own),
        Err(Errno::WOULDBLOCK) => Err(in_use(directory)),
        Err(error) => Err(of_directory(error.into())),
    }
}

/// Returns the failure that says which process has locked a directory; nothing if none has.
pub fn used(directory: &Path) -> Option<Failure> {
    let own = File::open(directory).ok()?;
    match flock(&own, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => Some(in_use(directory)),
        _ => None,
    }
}

fn lock_file(directory: &Path, path: &Path, file: &File) -> Result<()> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(in_use(directory)),
        Err(error) => Err(Failure::file(path, &error.into())),
    }
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn put_back(path: &Path) -> Result<File> {
    let made = OpenOptions::new().read(true).write(true).create_new(true).open(path);
    let file = match made {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(replaced(path)),
        Err(error) => return Err(Failure::file(path, &error)),
    };
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Err(replaced(path));
    }
    let _ = note_pid(&file);
    Ok(file)
}

fn replaced(path: &Path) -> Failure {
    let shown = path.display();
    Failure::new(format!("{shown}: was replaced: another process may be using the directory"))
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

fn in_use(directory: &Path) -> Failure {
    let pid = fs::read_to_string(directory.join(NAME)).unwrap_or_default();
    let pid = pid.trim().parse::<u32>().map_or(String::new(), |pid| format!(" (pid {pid})"));
    let shown = directory.display();
    Failure::new(format!(
        "{shown}: data directory is in use by another cairn{pid}: stop it or choose another \
         directory"
    ))
}
