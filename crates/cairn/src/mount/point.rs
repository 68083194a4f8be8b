//! Where a file system can be mounted.

use std::fs;
use std::io;
use std::path::Path;

use rustix::mount::{UnmountFlags, unmount};

use crate::failure::{Failure, Result};

/// Checks a mount point. One whose process has died is taken away first.
pub fn check(at: &Path, nonempty: bool) -> Result<()> {
    let of = |error: &io::Error| Failure::file(at, error);
    clean_up(at);
    let metadata = fs::metadata(at).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let shown = at.display();
            Failure::new(format!("{shown}: there is no such directory: mkdir -p {shown}"))
        }
        _ => of(&error),
    })?;
    if !metadata.is_dir() {
        return Err(Failure::new(format!("{}: is not a directory", at.display())));
    }
    let mut entries = fs::read_dir(at).map_err(|error| of(&error))?;
    if !nonempty && entries.next().is_some() {
        let shown = at.display();
        return Err(Failure::new(format!("{shown}: is not empty: choose another, or --nonempty")));
    }
    if !Path::new("/dev/fuse").exists() {
        return Err(Failure::new("/dev/fuse: does not exist: modprobe fuse"));
    }
    Ok(())
}

/// Takes away what a process that died left mounted there.
pub fn clean_up(at: &Path) {
    let is_dead =
        |error: io::Error| error.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error());
    if fs::metadata(at).is_err_and(is_dead) {
        // Whoever has files open there gets errors until they are closed.
        let _ = unmount(at, UnmountFlags::DETACH);
    }
}
