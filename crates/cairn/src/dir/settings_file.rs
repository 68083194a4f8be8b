//! Files of settings in a directory, in TOML, with a version. They are replaced as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::ops::RangeInclusive;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::failure::{Failure, Result};

/// Reads a file; `None` if it is not there.
///
/// # Errors
/// It cannot be read, or its version is not one of those that are known.
pub fn read<T: DeserializeOwned>(path: &Path, known: RangeInclusive<u32>) -> Result<Option<T>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::file(path, &error)),
    };
    let shown = path.display();
    let of_file = |error: toml::de::Error| Failure::new(format!("{shown}: {error}"));
    // A newer version may have other fields, so its number is looked at first.
    let table: toml::Table = toml::from_str(&text).map_err(of_file)?;
    let is_known = |version| u32::try_from(version).is_ok_and(|version| known.contains(&version));
    match table.get("version").and_then(toml::Value::as_integer) {
        Some(version) if !is_known(version) => Err(Failure::new(format!(
            "{shown}: version {version}, this cairn knows {}: use the newer one, which wrote it",
            known.end()
        ))),
        _ => toml::from_str(&text).map(Some).map_err(of_file),
    }
}

/// Replaces the file `name` of a directory, durably, by way of the file `new`. It belongs to the
/// owner of the directory.
pub fn replace(dir: &Path, name: &str, new: &str, text: &str) -> io::Result<()> {
    let new = dir.join(new);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // A link that is put there meanwhile is not followed.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    let owner = fs::metadata(dir)?;
    fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
    file.sync_all()?;
    fs::rename(&new, dir.join(name))?;
    File::open(dir)?.sync_all()
}
