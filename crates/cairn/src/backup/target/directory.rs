//! Backups in a directory.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::objects::{OBJECT_BYTES, Target};
use crate::failure::{Failure, Result};

/// The end of the name of a file that is being written.
const PART: &str = ".part";

pub struct Directory {
    root: PathBuf,
}

impl Directory {
    pub fn open(root: &Path) -> Result<Directory> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(root);
        made.map_err(|error| Failure::file(root, &error))?;
        Ok(Directory { root: root.to_path_buf() })
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let parent = path.parent().unwrap_or(&self.root);
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        let part = path.with_extension(&PART[1..]);
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&part, path)?;
        File::open(parent)?.sync_all()
    }
}

impl Target for Directory {
    fn put(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        let path = self.root.join(name);
        self.write(&path, &bytes).map_err(|error| Failure::file(&path, &error))
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.root.join(name);
        let fail = |error: io::Error| Failure::file(&path, &error);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fail(error)),
        };
        let mut bytes = Vec::new();
        file.take(OBJECT_BYTES).read_to_end(&mut bytes).map_err(fail)?;
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
