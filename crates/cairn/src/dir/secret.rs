//! The key that seals secrets in the metadata: 32 random bytes, readable by the owner alone.
//!
//! ```text
//! cairn-secret-key 2
//! key 64 hexadecimal digits
//! crc32c 8 hexadecimal digits, of the 32 bytes
//! ```
//!
//! Version 1 was the 32 bytes alone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use cairn_auth::SealKey;
use cairn_base::checksum::crc32c;
use cairn_base::{Rng, Secret};

use crate::failure::{Failure, Result};

const NAME: &str = "secret.key";
const MAGIC: &str = "cairn-secret-key ";
/// Version that is written.
const VERSION: &str = "2";
/// Upper bound of the size of any version, bytes.
const FILE_BYTES: u64 = 4096;

/// Reads the key. If there is none it is made, but never for an existing store: all its secrets are
/// sealed with the missing key.
pub fn load_or_create(directory: &Path, has_store: bool, rng: &dyn Rng) -> Result<SealKey> {
    match load(directory)? {
        Some(bytes) => Ok(SealKey::new(&bytes)),
        None if has_store => Err(missing(directory)),
        None => {
            let mut bytes = [0; 32];
            rng.fill(&mut bytes);
            let bytes = Secret::new(bytes);
            keep(directory, &bytes)?;
            Ok(SealKey::new(&bytes))
        }
    }
}

pub fn missing(directory: &Path) -> Failure {
    Failure::new(format!(
        "{}: missing, and all secrets are sealed with it: restore it from a backup",
        directory.join(NAME).display()
    ))
}

/// Makes the failure for a key whose file is intact, and that opens nothing.
pub fn opens_none(directory: &Path, sealed: usize) -> Failure {
    Failure::new(format!(
        "{}: opens none of the {sealed} sealed secrets of access keys: it is the key of another \
         store, or damaged: restore it from a backup",
        directory.join(NAME).display()
    ))
}

/// Keeps a key if there is none.
pub fn keep(directory: &Path, bytes: &Secret<[u8; 32]>) -> Result<()> {
    let path = directory.join(NAME);
    create(directory, &path, bytes).map_err(|error| Failure::file(&path, &error))
}

/// Returns the key, if there is one.
pub fn load(directory: &Path) -> Result<Option<Secret<[u8; 32]>>> {
    let path = directory.join(NAME);
    match File::open(&path) {
        Ok(file) => read(&path, file).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::file(&path, &error)),
    }
}

fn read(path: &Path, file: File) -> Result<Secret<[u8; 32]>> {
    let fail = |error: io::Error| Failure::file(path, &error);
    let shown = path.display();
    let mode = file.metadata().map_err(fail)?.permissions().mode();
    if mode & 0o077 != 0 {
        let mode = mode & 0o7777;
        return Err(Failure::new(format!(
            "{shown}: mode {mode:04o} lets others read it: chmod 600 {shown}"
        )));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES).read_to_end(&mut bytes).map_err(fail)?;
    let parsed = parse(&Secret::new(bytes));
    parsed.map_err(|what| Failure::new(format!("{shown}: {what}")))
}

/// Returns the key in the text of such a file.
pub fn parse_text(text: &Secret<String>) -> Result<Secret<[u8; 32]>> {
    let bytes = Secret::new(text.expose().as_bytes().to_vec());
    parse(&bytes).map_err(|what| Failure::new(format!("{NAME}: {what}")))
}

fn parse(bytes: &Secret<Vec<u8>>) -> Result<Secret<[u8; 32]>, &'static str> {
    let bytes = bytes.expose();
    if !bytes.starts_with(MAGIC.as_bytes()) {
        let former = bytes.first_chunk::<32>().filter(|_| bytes.len() == 32);
        return former.map(|key| Secret::new(*key)).ok_or("not a key: restore it from a backup");
    }
    let cut = "cut off, or damaged: restore it from a backup";
    let text = std::str::from_utf8(bytes).map_err(|_| cut)?;
    let (version, rest) = text[MAGIC.len()..].split_once('\n').ok_or(cut)?;
    if version != VERSION {
        return Err("of another version: use the cairn that wrote it");
    }
    let rest = rest.strip_prefix("key ").and_then(|rest| rest.split_once("\ncrc32c "));
    let (digits, crc) = rest.ok_or(cut)?;
    let key = unhex(digits).ok_or(cut)?;
    if crc.strip_suffix('\n') != Some(&format!("{:08x}", crc32c(&key))) {
        return Err("its checksum does not match: it is damaged: restore it from a backup");
    }
    Ok(Secret::new(key))
}

fn unhex(digits: &str) -> Option<[u8; 32]> {
    let digits: &[u8; 64] = digits.as_bytes().try_into().ok()?;
    let (pairs, _) = digits.as_chunks::<2>();
    let mut key = [0; 32];
    for (byte, [high, low]) in key.iter_mut().zip(pairs) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = (digit(*high)? * 16 + digit(*low)?) as u8;
    }
    Some(key)
}

fn text(bytes: &Secret<[u8; 32]>) -> Secret<String> {
    let key = bytes.expose();
    let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let crc = crc32c(key);
    Secret::new(format!("{MAGIC}{VERSION}\nkey {digits}\ncrc32c {crc:08x}\n"))
}

/// Makes a file that appears with all its bytes: an interrupted start leaves no half of a key.
fn create(directory: &Path, path: &Path, bytes: &Secret<[u8; 32]>) -> io::Result<()> {
    let new = directory.join("secret.new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(text(bytes).expose().as_bytes())?;
    file.sync_all()?;
    // A link, unlike a rename, never replaces a key.
    fs::hard_link(&new, path)?;
    fs::remove_file(&new)?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let key = [0x5a; 32];
        let whole = text(&Secret::new(key)).expose().clone().into_bytes();
        let parsed = |bytes: &[u8]| parse(&Secret::new(bytes.to_vec()));
        assert_eq!(parsed(&whole).unwrap().expose(), &key);
        assert_eq!(parsed(&key).unwrap().expose(), &key, "version 1");
        for at in 0..whole.len() {
            assert!(parsed(&whole[..at]).is_err(), "{at}");
            for bit in 0..8 {
                let mut bad = whole.clone();
                bad[at] ^= 1 << bit;
                // The case of a digit does not matter.
                assert!(
                    parsed(&bad).is_ok_and(|same| *same.expose() == key) || parsed(&bad).is_err()
                );
            }
        }
        let mut other = whole.clone();
        other[25] = if other[25] == b'0' { b'1' } else { b'0' };
        assert!(parsed(&other).unwrap_err().contains("checksum"));
        assert!(parsed(b"cairn-secret-key 3\n").unwrap_err().contains("version"));
    }
}
