//! The mounts of this machine, and the places of volumes.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};
use tonic::Status;

use crate::volume::VolumeId;

const LIST: &str = "/proc/self/mountinfo";
/// Mounts at one place, one above the other, at most.
const STACKED: usize = 16;

/// A mount as the kernel lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Directory within the mounted file system.
    pub root: PathBuf,
    pub at: PathBuf,
    pub is_read_only: bool,
    pub kind: String,
    pub source: String,
}

impl Mount {
    fn parse(line: &[u8]) -> Option<Mount> {
        let mut fields = line.split(|byte| *byte == b' ').skip(3);
        let (root, at, options) = (fields.next()?, fields.next()?, fields.next()?);
        // A hyphen ends the optional fields.
        let mut system = fields.skip_while(|field| *field != b"-").skip(1);
        let (kind, source) = (system.next()?, system.next()?);
        Some(Mount {
            root: unescaped(root),
            at: unescaped(at),
            is_read_only: options.split(|byte| *byte == b',').any(|option| option == b"ro"),
            kind: String::from_utf8_lossy(kind).into_owned(),
            source: unescaped(source).to_string_lossy().into_owned(),
        })
    }

    /// Returns true if it is this volume, mounted over NFS or by `cairn mount`.
    pub fn is_of(&self, volume: &VolumeId) -> bool {
        let name = Path::new("/").join(volume.as_str());
        match self.kind.as_str() {
            "nfs" => {
                let exported = self.source.rsplit_once(':').map(|(_, path)| Path::new(path));
                self.root == Path::new("/") && exported == Some(&name)
            }
            kind if kind.starts_with("fuse") => self.root == name,
            _ => false,
        }
    }
}

/// Returns the uppermost mount at a path, which is written as the kernel writes it.
pub fn at(path: &Path) -> Result<Option<Mount>, Status> {
    // Names of other mounts need not be UTF-8.
    let list = fs::read(LIST);
    let list = list.map_err(|error| Status::internal(format!("{LIST}: {error}")))?;
    let mut mounts = list.split(|byte| *byte == b'\n').filter_map(Mount::parse);
    Ok(mounts.rfind(|mount| mount.at == path))
}

/// Decodes a path in the list of mounts, in which the kernel writes some bytes as three octal
/// digits.
fn unescaped(bytes: &[u8]) -> PathBuf {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 4;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    Path::new(OsStr::from_bytes(&plain)).to_owned()
}

/// Returns the mount of a volume at a path, if there is one.
///
/// # Errors
/// `FailedPrecondition` if something else is mounted there.
pub fn of_volume(path: &Path, volume: &VolumeId) -> Result<Option<Mount>, Status> {
    match at(path)? {
        Some(mount) if !mount.is_of(volume) => {
            let text = format!(
                "{}: {} is mounted there, no volume {volume}",
                path.display(),
                mount.source
            );
            Err(Status::failed_precondition(text))
        }
        found => Ok(found),
    }
}

/// Returns true if the process of a mount has died.
pub fn is_dead(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_err_and(|error| error == Errno::NOTCONN)
}

/// Makes a directory unless it exists. Returns true if it made one.
pub fn make_directory(path: &Path) -> Result<bool, Status> {
    match fs::create_dir(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if path.is_dir() {
                Ok(false)
            } else {
                let text = format!("{}: is not a directory", path.display());
                Err(Status::failed_precondition(text))
            }
        }
        Err(error) => Err(failed(path, "mkdir", &error)),
    }
}

/// Shows a directory at a second place.
pub fn bind(from: &Path, to: &Path, flags: MountFlags) -> Result<(), Status> {
    mount_bind(from, to).map_err(|error| failed(to, "mount --bind", &error.into()))?;
    // The first call takes no flags.
    let flags = MountFlags::BIND | flags;
    mount_remount(to, flags, "").map_err(|error| {
        let _ = unmount(to, UnmountFlags::NOFOLLOW);
        failed(to, "mount -o remount", &error.into())
    })
}

/// Unmounts all mounts of a volume at a path, one above the other. There may be none.
pub fn take_away(path: &Path, volume: &VolumeId) -> Result<(), Status> {
    for _ in 0..STACKED {
        if of_volume(path, volume)?.is_none() {
            return Ok(());
        }
        unmount(path, UnmountFlags::NOFOLLOW)
            .map_err(|error| failed(path, "umount", &error.into()))?;
    }
    Err(Status::internal(format!("{}: more than {STACKED} mounts", path.display())))
}

/// Removes an empty directory. It may be gone already.
pub fn remove_directory(path: &Path) -> Result<(), Status> {
    match fs::remove_dir(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(path, "rmdir", &error)),
    }
}

pub fn failed(path: &Path, what: &str, error: &io::Error) -> Status {
    Status::internal(format!("{what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NFS: &str =
        "610 29 0:52 / /kubelet/a\\040b ro,nosuid,nodev - nfs [fd00::1]:/csi-a rw,vers=3";
    const FUSE: &str =
        "611 29 0:53 /csi-a /kubelet/c rw,nosuid shared:7 - fuse.cairn http://s:8080 rw";

    fn parse(line: &str) -> Mount {
        Mount::parse(line.as_bytes()).unwrap()
    }

    #[test]
    fn a_volume_is_known_by_its_mount() {
        let (nfs, fuse) = (parse(NFS), parse(FUSE));
        assert_eq!((nfs.at.as_path(), nfs.is_read_only), (Path::new("/kubelet/a b"), true));
        assert_eq!((fuse.at.as_path(), fuse.is_read_only), (Path::new("/kubelet/c"), false));
        let (one, other) = (VolumeId::parse("csi-a").unwrap(), VolumeId::parse("csi-b").unwrap());
        for mount in [nfs, fuse] {
            assert!(mount.is_of(&one) && !mount.is_of(&other), "{mount:?}");
        }
        let disk = "612 29 8:1 /csi-a /kubelet/d rw - ext4 /dev/sda rw";
        assert!(!parse(disk).is_of(&one));
        let below = FUSE.replace(" /csi-a ", " /photos/csi-a ");
        assert!(!parse(&below).is_of(&one));
    }

    #[test]
    fn names_of_mounts_need_not_be_utf8() {
        let line =
            b"613 29 8:1 /\xff /kubelet/\xfe\\040d rw master:1 shared:2 - ext4 /dev/s\xfd rw";
        let mount = Mount::parse(line).unwrap();
        assert_eq!(mount.at.as_os_str().as_bytes(), b"/kubelet/\xfe d");
        assert_eq!(mount.kind, "ext4");
    }

    #[test]
    fn the_kernel_escapes_some_bytes() {
        assert_eq!(unescaped(b"/a\\040b\\134c"), Path::new("/a b\\c"));
        assert_eq!(unescaped("/ü\\04".as_bytes()), Path::new("/ü\\04"));
    }

    #[test]
    fn what_is_no_mount_of_a_volume_stays() {
        let volume = VolumeId::parse("csi-a").unwrap();
        let why = take_away(Path::new("/proc"), &volume).unwrap_err();
        assert_eq!(why.code(), tonic::Code::FailedPrecondition);
        assert!(take_away(Path::new("/nonexistent"), &volume).is_ok());
    }
}
