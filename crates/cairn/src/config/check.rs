//! Faults of a file of options.

use std::ffi::OsString;
use std::path::Path;

use clap::Command;
use toml::Table;

use super::file;
use super::file_options::{self, FileOption};
use crate::failure::Result;

/// Returns one sentence for each fault.
///
/// # Errors
/// The file cannot be read, or is not TOML.
pub fn faults(path: &Path, whole: &Command) -> Result<Vec<String>> {
    let sections = file::read(path)?;
    let mut all = Vec::new();
    for (role, section) in &sections {
        all.extend(
            of_section(whole, role, section).into_iter().map(|fault| format!("[{role}] {fault}")),
        );
    }
    if sections.is_empty() {
        all.push("there is no section: begin with a line such as [server]".to_owned());
    }
    Ok(all)
}

pub fn of_section(whole: &Command, role: &str, section: &Table) -> Vec<String> {
    let Some(command) = whole.find_subcommand(role) else { return Vec::new() };
    let all = match file_options::all(command, section) {
        Ok(all) => all,
        Err(faults) => return faults,
    };
    let (mut words, mut places) = (vec![OsString::from("cairn"), role.into()], Vec::new());
    for given in all {
        match given {
            FileOption { name: None, words } => places.extend(words),
            FileOption { words: more, .. } => words.extend(more),
        }
    }
    words.push("--".into());
    // The command line may have DIR.
    words.extend(if places.is_empty() { vec!["DIR".into()] } else { places });
    match whole.clone().try_get_matches_from(words) {
        Ok(_) => Vec::new(),
        Err(error) => vec![in_a_line(&error.to_string())],
    }
}

/// Returns the words of clap, up to the usage.
fn in_a_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let lines = text.lines().take_while(|line| !line.is_empty());
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}
