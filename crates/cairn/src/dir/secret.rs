//! The key that seals secrets in the metadata: 32 random bytes, readable by the owner alone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use cairn_auth::SealKey;
use cairn_base::{Rng, Secret};

use crate::failure::{Failure, Result};

const NAME: &str = "secret.key";

/// Reads the key. Where there is none it is made, but never for a store that is there already: all
/// its secrets are sealed with the key that is missing.
pub fn load_or_create(directory: &Path, has_store: bool, rng: &dyn Rng) -> Result<SealKey> {
    match load(directory)? {
        Some(bytes) => Ok(SealKey::new(&bytes)),
        None if has_store => Err(Failure::new(format!(
            "{}: missing, and all secrets are sealed with it: restore it from a backup",
            directory.join(NAME).display()
        ))),
        None => {
            let mut bytes = [0; 32];
            rng.fill(&mut bytes);
            let bytes = Secret::new(bytes);
            keep(directory, &bytes)?;
            Ok(SealKey::new(&bytes))
        }
    }
}

/// Keeps a key where there is none.
pub fn keep(directory: &Path, bytes: &Secret<[u8; 32]>) -> Result<()> {
    let path = directory.join(NAME);
    create(directory, &path, bytes).map_err(|error| Failure::file(&path, &error))
}

/// The key, if there is one.
pub fn load(directory: &Path) -> Result<Option<Secret<[u8; 32]>>> {
    let path = directory.join(NAME);
    match File::open(&path) {
        Ok(file) => read(&path, file).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::file(&path, &error)),
    }
}

fn read(path: &Path, mut file: File) -> Result<Secret<[u8; 32]>> {
    let fail = |error: io::Error| Failure::file(path, &error);
    let shown = path.display();
    let mode = file.metadata().map_err(fail)?.permissions().mode();
    if mode & 0o077 != 0 {
        let mode = mode & 0o7777;
        return Err(Failure::new(format!(
            "{shown}: mode {mode:04o} lets others read it: chmod 600 {shown}"
        )));
    }
    let mut bytes = [0; 33];
    let mut len = 0;
    while len < bytes.len() {
        match file.read(&mut bytes[len..]).map_err(fail)? {
            0 => break,
            more => len += more,
        }
    }
    let Some(key) = bytes.first_chunk::<32>().filter(|_| len == 32) else {
        return Err(Failure::new(format!("{shown}: not 32 bytes: restore it from a backup")));
    };
    Ok(Secret::new(*key))
}

/// The name appears with the bytes in it: a start that was cut off leaves no half a key.
fn create(directory: &Path, path: &Path, bytes: &Secret<[u8; 32]>) -> io::Result<()> {
    let new = directory.join("secret.new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes.expose())?;
    file.sync_all()?;
    // Unlike a rename it never replaces a key.
    fs::hard_link(&new, path)?;
    fs::remove_file(&new)?;
    File::open(directory)?.sync_all()
}
