//! Secrets that commands read from a file, so that neither the command line nor its history has
//! them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use cairn_base::Secret;

use crate::failure::{Failure, Result};

/// Upper bound of the size of such a file, bytes.
const SECRET_BYTES: u64 = 4096;

/// Reads the first line of a file, or of stdin for `-`.
pub fn read(path: &Path) -> Result<Secret<String>> {
    let fail = |error: io::Error| Failure::file(path, &error);
    let mut text = String::new();
    let read = if path.as_os_str() == "-" {
        io::stdin().lock().take(SECRET_BYTES).read_to_string(&mut text)
    } else {
        File::open(path).map_err(fail)?.take(SECRET_BYTES).read_to_string(&mut text)
    };
    let text = Secret::new(text);
    read.map_err(fail)?;
    let line = text.expose().lines().next().unwrap_or_default();
    if line.is_empty() {
        Err(Failure::new(format!("{}: its first line is empty", path.display())))
    } else {
        Ok(Secret::new(line.to_owned()))
    }
}
