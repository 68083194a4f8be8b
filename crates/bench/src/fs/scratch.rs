//! A directory that is removed in the end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;

use crate::error::{Error, Result};
use crate::values::human_size;

/// A directory that is removed when this is dropped, with all that is in it.
pub struct Scratch {
    path: PathBuf,
    is_removed: bool,
}

impl Scratch {
    /// Makes a directory in `parent`, which must have room for `needed` bytes.
    pub fn new(parent: &Path, needed: u64) -> Result<Scratch> {
        let remedy = "free some, or give a smaller --size, fewer --files or --threads";
        Scratch::with_remedy(parent, needed, remedy)
    }

    /// Makes one like [`Scratch::new`]; the error says what to do if there is no room.
    pub fn with_remedy(parent: &Path, needed: u64, remedy: &str) -> Result<Scratch> {
        let room = statvfs(parent).map_err(|error| {
            let error = io::Error::from(error);
            let remedy = "give a directory that exists";
            Error::file(parent, format!("{error}: {remedy}"))
        })?;
        let free = room.f_bavail.saturating_mul(room.f_frsize);
        // Some file systems that are not disks report 0 for everything.
        if room.f_blocks > 0 && free < needed {
            let (needed, free) = (human_size(needed), human_size(free));
            let text = format!("{needed} are needed, {free} are free: {remedy}");
            return Err(Error::file(parent, text));
        }
        let path = parent.canonicalize().map_err(|error| Error::file(parent, error))?;
        let path = path.join(format!("cairn-bench-{}", std::process::id()));
        let made = fs::create_dir(&path);
        made.map_err(|error| Error::file(&path, format!("{error}: give a writable directory")))?;
        Ok(Scratch { path, is_removed: false })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn remove(mut self) -> Result<()> {
        self.is_removed = true;
        let removed = fs::remove_dir_all(&self.path);
        removed.map_err(|error| Error::file(&self.path, format!("{error}: remove it yourself")))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.is_removed {
            // An earlier failure is being reported already.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
