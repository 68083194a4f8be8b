//! Certificates and keys in a directory.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use cairn_base::Secret;

use super::sign::CertificatePair;
use crate::failure::{Failure, Result};

/// Upper bound of the size of a certificate or key, bytes.
const FILE_BYTES: u64 = 1 << 20;

/// Paths of a certificate and its key.
pub struct Pair {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Makes the directory unless it exists. Everybody reaches certificates in it; keys are for their
/// owner only.
pub fn make_directory(path: &Path) -> Result<()> {
    let fail = |error| Failure::file(path, &error);
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).create(path).map_err(fail)?;
    // Whatever the umask of the process is.
    fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(fail)
}

impl Pair {
    pub fn named(directory: &Path, name: &str) -> Pair {
        let file = |end: &str| directory.join(format!("{name}.{end}"));
        Pair { certificate: file("pem"), key: file("key") }
    }

    pub fn read(&self) -> Result<CertificatePair> {
        let certificate = read(&self.certificate);
        let certificate = certificate
            .map_err(|failure| failure.and("make an authority first: cairn cert ca DIR"))?;
        Ok(CertificatePair { certificate, key: Secret::new(read(&self.key)?) })
    }

    /// Writes the key first: a certificate without its key is of no use. `remedy` says what to do
    /// about files that are there and are not to be replaced.
    pub fn write(&self, made: &CertificatePair, replace: bool, remedy: &str) -> Result<()> {
        for path in [&self.certificate, &self.key] {
            if !replace && fs::symlink_metadata(path).is_ok() {
                let text = format!("{}: is there already: {remedy}", path.display());
                return Err(Failure::new(text));
            }
        }
        write(&self.key, made.key.expose(), 0o600)?;
        write(&self.certificate, &made.certificate, 0o644)
    }
}

fn read(path: &Path) -> Result<String> {
    let fail = |error: io::Error| Failure::file(path, &error);
    let mut text = String::new();
    File::open(path).map_err(fail)?.take(FILE_BYTES).read_to_string(&mut text).map_err(fail)?;
    Ok(text)
}

/// Writes a file, which appears with the whole text.
fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    let new = path.with_extension("new");
    let written = || -> io::Result<()> {
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        // Whatever the umask of the process is.
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    written().map_err(|error| Failure::file(path, &error))
}
