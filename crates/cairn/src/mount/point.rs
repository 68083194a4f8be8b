//! Checks of the directory at which a file system is to be mounted.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dev, StatxFlags, makedev, statx};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::failure::{Failure, Result};

const DEVICE: &str = "/dev/fuse";

/// Checks a mount point. A mount whose process has died is unmounted first.
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
        return Err(Failure::new(format!(
            "{}: is not a directory: mount on a directory",
            at.display()
        )));
    }
    let mut entries = fs::read_dir(at).map_err(|error| of(&error))?;
    if !nonempty && entries.next().is_some() {
        let shown = at.display();
        return Err(Failure::new(format!("{shown}: is not empty: choose another, or --nonempty")));
    }
    check_device(Path::new(DEVICE))
}

/// Checks that mounting is possible. If root mounts, this process opens the device; other users
/// need `fusermount3`.
fn check_device(device: &Path) -> Result<()> {
    let opened = OpenOptions::new().read(true).write(true).open(device);
    let found = opened.and_then(|file| file.metadata());
    let why = match found {
        Ok(found) if found.file_type().is_char_device() && found.rdev() == makedev(10, 229) => {
            return Ok(());
        }
        Ok(_) => "is not the device of FUSE".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(Failure::new(format!(
        "cannot open {}: {why}: load the module (modprobe fuse), install fuse3; a container needs \
         --device /dev/fuse --cap-add SYS_ADMIN",
        device.display()
    )))
}

/// Unmounts the remains of a process that died.
pub fn clean_up(at: &Path) {
    let is_dead =
        |error: io::Error| error.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error());
    if fs::metadata(at).is_err_and(is_dead) {
        // A program that has files open there gets errors until it closes them.
        let _ = unmount(at, UnmountFlags::DETACH);
    }
}

/// Returns the device number of what is mounted there, if it can be seen. Does not ask the mount.
pub fn device(at: &Path) -> Option<Dev> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let found = statx(CWD, at, flags, StatxFlags::empty()).ok()?;
    Some(makedev(found.stx_dev_major, found.stx_dev_minor))
}

/// Removes the mount from its mount point, unless that was done: programs keep the files that they
/// have open there.
pub fn detach(at: &Path) -> Result<()> {
    match unmount(at, UnmountFlags::DETACH) {
        Err(error) if error != Errno::INVAL => Err(Failure::file(at, &error.into())),
        // It may go on for other mount namespaces, or for programs.
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_device_is_told_with_a_remedy() {
        for (device, why) in [("/dev/null", "is not the device"), ("/nonexistent", "No such file")]
        {
            let said = check_device(Path::new(device)).unwrap_err().to_string();
            assert!(said.contains(why) && said.contains("--device /dev/fuse"), "{said}");
        }
    }
}
