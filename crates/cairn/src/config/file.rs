//! A file of options: TOML with a section for each role.

use std::fs;
use std::path::Path;

use toml::{Table, Value};

use super::options::{ROLES, nearest};
use crate::failure::{Failure, Result};

/// Size above which a file is refused, bytes.
const FILE_BYTES: u64 = 1 << 20;

/// Reads all sections of a file, by role.
pub fn read(path: &Path) -> Result<Vec<(String, Table)>> {
    sections(path)?.into_iter().collect()
}

/// Reads all sections of a file like [`read`], each with its own failure.
pub fn sections(path: &Path) -> Result<Vec<Result<(String, Table)>>> {
    let shown = path.display();
    let length = fs::metadata(path).map_err(|error| Failure::file(path, &error))?.len();
    if length > FILE_BYTES {
        return Err(Failure::new(format!("{shown}: {length} bytes are no file of options")));
    }
    let text = fs::read_to_string(path).map_err(|error| Failure::file(path, &error))?;
    // Without the lines themselves: they may contain a secret, even though it is refused there.
    let table: Table = toml::from_str(&text).map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        Failure::new(format!("{shown}: line {line}: {}", error.message().replace('\n', " ")))
    })?;
    Ok(table.into_iter().map(|(role, value)| section(role, value, path)).collect())
}

fn section(role: String, value: Value, path: &Path) -> Result<(String, Table)> {
    let shown = path.display();
    match value {
        _ if !ROLES.contains(&role.as_str()) => Err(Failure::new(match value {
            Value::Table(_) => {
                let meant = nearest(&role, ROLES.into_iter().map(str::to_owned));
                format!("{shown}: there is no role [{role}]{meant}")
            }
            _ => format!("{shown}: {role} is in no section: begin with a line such as [server]"),
        })),
        Value::Table(table) => Ok((role, table)),
        _ => Err(Failure::new(format!("{shown}: {role} is a section: write [{role}]"))),
    }
}

/// Reads the section of one role.
///
/// # Errors
/// Also if there is none: a role must not start without its options.
pub fn section_of(path: &Path, role: &str) -> Result<Table> {
    let found = read(path)?.into_iter().find(|(name, _)| name == role);
    found
        .map(|(_, table)| table)
        .ok_or_else(|| Failure::new(format!("{}: has no section [{role}]", path.display())))
}
