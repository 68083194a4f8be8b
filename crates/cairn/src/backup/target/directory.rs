//! Backups in a directory.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::super::seal::{hex, random};
use super::objects::{OBJECT_BYTES, Target};
use crate::failure::{Failure, Result};

/// The end of the name of a file that is being written.
const PART: &str = ".part";

pub struct Directory {
    root: PathBuf,
}

fn to_io(failure: Failure) -> io::Error {
    io::Error::other(failure.to_string())
}

impl Directory {
    /// It is made when the first object is put there.
    pub fn open(root: &Path) -> Directory {
        Directory { root: root.to_path_buf() }
    }

    /// Writes a file beside `path`, and gives it this name by `place`.
    fn write(
        &self,
        path: &Path,
        bytes: &[u8],
        place: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let parent = path.parent().unwrap_or(&self.root);
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        // Another process may write the same object.
        let number = hex(&random::<4>().map_err(to_io)?);
        let part = path.with_extension(format!("{number}{PART}"));
        let written = write_part(&part, bytes).and_then(|()| place(&part));
        if written.is_err() {
            // There is a failure to report already.
            let _ = fs::remove_file(&part);
        }
        written?;
        File::open(parent)?.sync_all()
    }

    /// `None` if there is no such file.
    fn file(&self, path: &Path) -> Result<Option<File>> {
        match File::open(path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::file(path, &error)),
        }
    }
}

fn write_part(part: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(part)?;
    file.write_all(bytes)?;
    file.sync_all()
}

impl Target for Directory {
    fn put(&self, name: &str, bytes: &Bytes) -> Result<()> {
        let path = self.root.join(name);
        let written = self.write(&path, bytes, |part| fs::rename(part, &path));
        written.map_err(|error| Failure::file(&path, &error))
    }

    fn put_new(&self, name: &str, bytes: &Bytes) -> Result<bool> {
        let path = self.root.join(name);
        let link = |part: &Path| {
            fs::hard_link(part, &path)?;
            fs::remove_file(part)
        };
        match self.write(&path, bytes, link) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            // A file system without hard links.
            Err(error)
                if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported) =>
            {
                if path.exists() {
                    Ok(false)
                } else {
                    self.put(name, bytes).map(|()| true)
                }
            }
            Err(error) => Err(Failure::file(&path, &error)),
        }
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.root.join(name);
        let Some(file) = self.file(&path)? else { return Ok(None) };
        let mut bytes = Vec::new();
        let read = file.take(OBJECT_BYTES).read_to_end(&mut bytes);
        read.map_err(|error| Failure::file(&path, &error))?;
        Ok(Some(bytes))
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        let path = self.root.join(name);
        let Some(file) = self.file(&path)? else { return Ok(None) };
        let fail = |error: io::Error| Failure::file(&path, &error);
        let length = file.metadata().map_err(fail)?.len().min(OBJECT_BYTES);
        let end = range.end.min(length);
        let mut bytes = vec![0; end.saturating_sub(range.start) as usize];
        file.read_exact_at(&mut bytes, range.start).map_err(fail)?;
        Ok(Some(bytes))
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let path = self.root.join(prefix);
        let fail = |error: io::Error| Failure::file(&path, &error);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(fail(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(fail)?.file_name();
            if let Some(name) = name.to_str().filter(|name| !name.ends_with(PART)) {
                names.push(format!("{prefix}{name}"));
            }
        }
        Ok(names)
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.root.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Failure::file(&path, &error)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_many_makes_a_new_object() {
        let root = tempfile::tempdir().unwrap();
        let directory = Directory::open(root.path());
        let made: Vec<bool> = std::thread::scope(|scope| {
            let make = |n: u8| {
                let directory = &directory;
                move || directory.put_new("head", &Bytes::from(vec![n; 1000])).unwrap()
            };
            let threads: Vec<_> = (0..8).map(|n| scope.spawn(make(n))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let first = made.iter().position(|made| *made).unwrap();
        assert_eq!(made.iter().filter(|made| **made).count(), 1);
        assert_eq!(directory.get("head").unwrap().unwrap(), vec![first as u8; 1000]);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
        assert_eq!(directory.get_range("head", 990..2000).unwrap().unwrap().len(), 10);
        assert_eq!(directory.get_range("head", 3000..3001).unwrap().unwrap().len(), 0);
        assert_eq!(directory.get_range("tail", 0..1).unwrap(), None);
    }
}
