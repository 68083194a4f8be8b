//! Sockets of processes. The socket of a directory is in the directory. The socket of a mount is
//! among the user's run-time files, and is found by the path alone, since the mount may not answer.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use cairn_base::checksum::crc32c;
use cairn_base::waits;
use rustix::fs::{Mode, OFlags};

use super::form::{ANSWER_BYTES, Report};
use crate::failure::{Failure, Result};

/// Name of the socket in a data directory.
const NAME: &str = "inflight.sock";
/// Symbolic links that are followed, at most.
const LINKS: usize = 16;

/// A socket: names of sockets are short, so the directory is opened and named by its descriptor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    directory: PathBuf,
    name: String,
}

impl Place {
    pub fn of_directory(directory: &Path) -> Place {
        Place { directory: directory.to_owned(), name: NAME.to_owned() }
    }

    /// Returns the socket of this user's mount at a path without symbolic links.
    fn of_mount(directory: PathBuf, at: &Path) -> Place {
        Place { directory, name: format!("{:08x}.sock", crc32c(at.as_os_str().as_bytes())) }
    }

    /// Returns the socket for a mount of this process, and makes its directory.
    pub fn for_mount(at: &Path) -> io::Result<Place> {
        let uid = rustix::process::geteuid().as_raw();
        let mut last = io::Error::from(ErrorKind::NotFound);
        for directory in runtime_directories(uid) {
            match make_private(&directory, uid) {
                Ok(()) => return Ok(Place::of_mount(directory, at)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// Opens the directory, and returns a path that is valid while it is open.
    fn short(&self) -> io::Result<(File, PathBuf)> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = File::from(rustix::fs::open(&self.directory, flags, Mode::empty())?);
        let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        Ok((directory, path.join(&self.name)))
    }

    /// Takes over the socket of a process that is gone: the caller has the directory to itself.
    pub fn listen(&self) -> io::Result<UnixListener> {
        let (_directory, path) = self.short()?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => {
                let listener = UnixListener::bind(&path)?;
                fs::set_permissions(&path, Permissions::from_mode(0o600))?;
                Ok(listener)
            }
        }
    }

    /// Requests the report of the process.
    pub fn ask(&self, target: &Path) -> Result<Report> {
        let shown = target.display();
        let absent = |error: io::Error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => Failure::not_found(format!(
                "{shown}: no process of Cairn serves it on this machine, or one of an older version"
            )),
            _ => Failure::file(&self.path(), &error),
        };
        let (_directory, path) = self.short().map_err(absent)?;
        let stream = UnixStream::connect(&path).map_err(absent)?;
        stream.set_read_timeout(Some(waits::INFLIGHT))?;
        let mut text = Vec::new();
        stream.take(ANSWER_BYTES).read_to_end(&mut text).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Failure::new(format!(
                "{shown}: its process does not answer within {:?}: it is stopped, or has \
                 no processor time",
                waits::INFLIGHT
            )),
            _ => Failure::file(&self.path(), &error),
        })?;
        serde_json::from_slice(&text).map_err(|error| {
            Failure::new(format!("{shown}: its process answers with no report: {error}"))
        })
    }
}

/// Returns the directories in which sockets of a user's mounts may be; the first that exists is
/// used.
fn runtime_directories(uid: u32) -> [PathBuf; 2] {
    let own = match uid {
        0 => PathBuf::from("/run/cairn-mounts"),
        _ => PathBuf::from(format!("/run/user/{uid}/cairn-mounts")),
    };
    [own, PathBuf::from(format!("/tmp/cairn-mounts-{uid}"))]
}

/// Makes a directory that no other user can use; a directory of another user is refused.
fn make_private(directory: &Path, uid: u32) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(directory)?;
    if found.is_dir() && found.uid() == uid && found.mode() & 0o077 == 0 {
        Ok(())
    } else {
        Err(io::Error::new(ErrorKind::PermissionDenied, "is not private to this user"))
    }
}

/// A mount of Cairn, as the kernel lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct MountEntry {
    at: PathBuf,
    uid: u32,
}

/// Parses `/proc/self/mountinfo`.
fn mounts(text: &str) -> Vec<MountEntry> {
    text.lines().filter_map(mount).collect()
}

fn mount(line: &str) -> Option<MountEntry> {
    let (fields, rest) = line.split_once(" - ")?;
    let at = fields.split(' ').nth(4)?;
    let mut rest = rest.split(' ');
    if rest.next()? != "fuse.cairn" {
        return None;
    }
    let options = rest.nth(1).unwrap_or_default();
    let uid = options.split(',').find_map(|option| option.strip_prefix("user_id="));
    Some(MountEntry { at: unescaped(at), uid: uid.and_then(|uid| uid.parse().ok()).unwrap_or(0) })
}

/// Decodes a path, in which the kernel writes spaces and the like as `\040`.
fn unescaped(text: &str) -> PathBuf {
    let (mut bytes, mut out) = (text.as_bytes(), Vec::new());
    while let [first, rest @ ..] = bytes {
        let digits = rest.get(..3).filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        out.push(code.unwrap_or(*first));
        bytes = if code.is_some() { &rest[3..] } else { rest };
    }
    PathBuf::from(OsStr::from_bytes(&out))
}

/// Returns the mount that contains a path, if any: the deepest one.
fn mount_of<'a>(mounts: &'a [MountEntry], path: &Path) -> Option<&'a MountEntry> {
    let within = mounts.iter().filter(|mount| path.starts_with(&mount.at));
    within.max_by_key(|mount| mount.at.as_os_str().len())
}

/// Finds the socket of the process that serves a directory or mount point. Accesses nothing in a
/// mount.
pub fn find(target: &Path) -> Result<Place> {
    let listed = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts = mounts(&listed);
    let mut path = std::path::absolute(target).map_err(|error| Failure::file(target, &error))?;
    for _ in 0..LINKS {
        if let Some(mount) = mount_of(&mounts, &path) {
            return Ok(of_mounted(mount));
        }
        // For a mount point the kernel answers this without asking the mount.
        match (fs::read_link(&path), path.parent()) {
            (Ok(to), Some(parent)) => path = parent.join(to),
            _ => break,
        }
    }
    if let (Some(parent), Some(name)) = (path.parent(), path.file_name())
        && let Ok(parent) = parent.canonicalize()
        && let Some(mount) = mount_of(&mounts, &parent.join(name))
    {
        return Ok(of_mounted(mount));
    }
    Ok(Place::of_directory(&path))
}

fn of_mounted(mount: &MountEntry) -> Place {
    let places = runtime_directories(mount.uid).map(|within| Place::of_mount(within, &mount.at));
    let [first, second] = places;
    if first.path().exists() { first } else { second }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
        22 1 0:20 / /proc rw,nosuid - proc proc rw\n\
        90 1 0:44 / /mnt/a\\040b rw,nosuid shared:1 - fuse.cairn http://h rw,user_id=1000,x=0\n\
        91 90 0:45 / /mnt/a\\040b/in rw - fuse.cairn http://h rw,user_id=0\n\
        92 1 0:46 / /mnt/c rw - fuse.sshfs x rw,user_id=5\n\
        odd\n";

    #[test]
    fn mounts_are_found_by_their_paths() {
        let mounts = mounts(MOUNTS);
        let find = |path: &str| mount_of(&mounts, Path::new(path)).map(|found| found.uid);
        assert_eq!(find("/mnt/a b"), Some(1000));
        assert_eq!(find("/mnt/a b/x/y"), Some(1000));
        assert_eq!(find("/mnt/a b/in/x"), Some(0));
        assert_eq!(find("/mnt/a bc"), None);
        assert_eq!(find("/mnt/c"), None);
    }

    #[test]
    fn odd_escapes_are_taken_as_they_are() {
        for (text, path) in [("/a\\134b", "/a\\b"), ("/a\\", "/a\\"), ("/a\\99x", "/a\\99x")] {
            assert_eq!(unescaped(text), Path::new(path));
        }
    }

    #[test]
    fn a_directory_that_others_can_use_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let own = place.path().join("own");
        make_private(&own, uid).unwrap();
        make_private(&own, uid).unwrap();
        assert!(make_private(&own, uid + 1).is_err());
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(make_private(&own, uid).is_err());
        let link = place.path().join("link");
        std::os::unix::fs::symlink(place.path(), &link).unwrap();
        assert!(make_private(&link, uid).is_err());
    }

    #[test]
    fn who_serves_nothing_is_told_so() {
        let place = tempfile::tempdir().unwrap();
        let said = find(place.path()).unwrap().ask(place.path()).unwrap_err().to_string();
        assert!(said.contains("no process of Cairn serves it"), "{said}");
        // It was killed.
        drop(Place::of_directory(place.path()).listen().unwrap());
        let said = find(place.path()).unwrap().ask(place.path()).unwrap_err().to_string();
        assert!(said.contains("no process of Cairn serves it"), "{said}");
    }
}
