//! Files with messages and rows that were sent or stored once, as text: they must stay readable.
//!
//! `CAIRN_GOLDEN=write` lets a test write missing text. It never changes existing text.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use crate::hex::{hex, unhex};
use crate::sample::{Forms, sample};

fn may_write() -> bool {
    std::env::var("CAIRN_GOLDEN").is_ok_and(|value| value == "write")
}

/// Functions that encode and decode values of a type.
#[derive(Clone, Copy)]
pub struct Codec<T> {
    pub encode: fn(&T) -> Vec<u8>,
    pub decode: fn(&[u8]) -> T,
}

/// Returns the text of all samples of a type, each as two lines: the fields and the bytes. Each
/// sample is also decoded and encoded again.
///
/// # Panics
/// If encoding it again gives other bytes.
pub fn samples<T: Serialize + DeserializeOwned>(
    name: &str,
    codec: Codec<T>,
    forms: Forms<'_>,
) -> String {
    let (mut text, mut turn, mut turns) = (String::new(), 0, 1);
    while turn < turns {
        let made = sample::<T>(turn, forms);
        let bytes = (codec.encode)(&made.value);
        let again = (codec.encode)(&(codec.decode)(&bytes));
        assert_eq!(hex(&again), hex(&bytes), "{name}, decoded and encoded");
        let _ = writeln!(text, "{name} {turn} {}\n{}", made.text, hex(&bytes));
        (turn, turns) = (turn + 1, made.turns);
    }
    text
}

/// Compares `text` with a file.
///
/// # Errors
/// If the file has another text, or is missing and may not be written.
///
/// # Panics
/// If the file cannot be written.
pub fn compare(path: &Path, text: &str) -> Result<(), String> {
    let shown = path.display();
    match fs::read_to_string(path) {
        Ok(kept) if kept == text => Ok(()),
        Ok(kept) => {
            let line = kept.lines().zip(text.lines()).find(|(kept, text)| kept != text);
            let (kept, text) = line.unwrap_or(("", "another number of lines"));
            Err(format!("{shown} has\n  {kept}\nand now it is\n  {text}"))
        }
        Err(_) if may_write() => {
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("written");
            Ok(())
        }
        Err(error) => Err(format!("{shown}: {error}; CAIRN_GOLDEN=write makes it")),
    }
}

/// Returns the lines of a file that only grows; `line` is added if it is missing and may be
/// written.
///
/// # Errors
/// If the line is missing and may not be written.
///
/// # Panics
/// If the file cannot be written.
pub fn among(path: &Path, line: &str) -> Result<Vec<String>, String> {
    let mut kept = fs::read_to_string(path).unwrap_or_default();
    if !kept.lines().any(|known| known == line) {
        if !may_write() {
            return Err(format!("{}: no line {line}; CAIRN_GOLDEN=write adds it", path.display()));
        }
        let _ = writeln!(kept, "{line}");
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, &kept).expect("written");
    }
    Ok(kept.lines().map(str::to_owned).collect())
}
