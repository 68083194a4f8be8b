//! Mounts of volumes by `cairn mount`: a process for each volume of a node, which is a child of
//! this one. It shows all buckets at a place of the driver's own; only one of them is bound to the
//! path that a caller wants.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::fs::{CWD, Mode, OFlags, openat, syncfs};
use rustix::mount::{MountFlags, UnmountFlags, unmount};
use tonic::Status;

use crate::mounts;
use crate::volume::VolumeId;

/// Longest output of a process before it ends, bytes.
const SAID_BYTES: u64 = 64 << 10;

/// Settings by which mounts are made.
#[derive(Clone, Debug)]
pub struct Fuse {
    /// Program and its first arguments; the mount point is added. It stays in the foreground, and
    /// prints a line when it has mounted.
    pub command: Vec<OsString>,
    /// Directory in which the driver mounts, before it binds.
    pub places: PathBuf,
}

impl Fuse {
    /// Makes the directory of the driver's own mounts, which only root can read.
    ///
    /// # Errors
    /// In words.
    pub fn prepare(&self) -> Result<(), String> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.places);
        made.map_err(|error| format!("{}: {error}", self.places.display()))
    }

    fn place(&self, volume: &VolumeId) -> Result<PathBuf, Status> {
        let places = self.places.canonicalize();
        let places = places.map_err(|error| mounts::failed(&self.places, "look at", &error))?;
        Ok(places.join(volume.as_str()))
    }

    /// Mounts at the driver's own place, unless it is mounted there, and binds the bucket.
    pub fn mount(&self, volume: &VolumeId, at: &Path, flags: MountFlags) -> Result<(), Status> {
        let place = self.place(volume)?;
        if mounts::at(&place)?.is_some() && mounts::is_dead(&place) {
            tracing::warn!(%volume, "its mount has died, and is made again");
            take_away(&place)?;
        }
        if mounts::at(&place)?.is_none() {
            mounts::make_directory(&place)?;
            self.start(volume, &place).inspect_err(|_| drop(fs::remove_dir(&place)))?;
        }
        let bucket = place.join(volume.as_str());
        let bound = match fs::symlink_metadata(&bucket) {
            Ok(found) if found.is_dir() => mounts::bind(&bucket, at, flags),
            Ok(_) => Err(Status::not_found(format!("volume {volume}: it is no bucket"))),
            Err(error) => Err(Status::not_found(format!("volume {volume}: {error}"))),
        };
        bound.inspect_err(|_| drop(self.end(volume)))
    }

    fn start(&self, volume: &VolumeId, place: &Path) -> Result<(), Status> {
        let (program, arguments) = self.command.split_first().unwrap_or((&EMPTY, &[]));
        let mut command = Command::new(program);
        command.args(arguments).arg(place).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // Signals of the driver's terminal are not for it: it outlives a driver that is restarted,
        // unless something else ends it.
        command.process_group(0);
        let failed = |error| mounts::failed(place, "cairn mount", &error);
        let mut child = command.spawn().map_err(failed)?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            let _ = BufReader::new(stdout.take(SAID_BYTES)).read_line(&mut line);
        }
        if line.is_empty() {
            return Err(Status::unavailable(last_words(&mut child)));
        }
        tracing::info!(%volume, pid = child.id(), "mounted");
        let volume = volume.clone();
        thread::spawn(move || {
            if let Some(mut stderr) = child.stderr.take() {
                let _ = std::io::copy(&mut stderr, &mut std::io::stderr());
            }
            match child.wait() {
                Ok(status) if status.success() => tracing::info!(%volume, "unmounted"),
                ended => tracing::error!(%volume, ?ended, "the process of a mount has died"),
            }
        });
        Ok(())
    }

    /// Ends the driver's own mount, once its bytes have reached the server.
    pub fn end(&self, volume: &VolumeId) -> Result<(), Status> {
        let place = self.place(volume)?;
        if mounts::at(&place)?.is_some() {
            if !mounts::is_dead(&place) {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let opened = openat(CWD, &place, flags, Mode::empty());
                let synced = opened.and_then(syncfs);
                synced.map_err(|error| mounts::failed(&place, "sync", &error.into()))?;
            }
            take_away(&place)?;
        }
        mounts::remove_directory(&place)
    }
}

/// Stands for a command without a program.
static EMPTY: std::sync::LazyLock<OsString> = std::sync::LazyLock::new(OsString::new);

fn take_away(place: &Path) -> Result<(), Status> {
    unmount(place, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)
        .map_err(|error| mounts::failed(place, "umount", &error.into()))
}

/// Returns the reason why a process ended before it had mounted.
fn last_words(child: &mut Child) -> String {
    let mut said = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(SAID_BYTES).read_to_end(&mut said);
    }
    let _ = child.wait();
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().last().unwrap_or("cairn mount ended without a word");
    last.strip_prefix("cairn: ").unwrap_or(last).to_owned()
}
