//! Faults of a file of options.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::path::Path;

use clap::Command;
use clap::error::{ContextKind, ContextValue};
use toml::{Table, Value};

use super::file;
use super::file_options::{self, FileOption};
use super::options::{find, is_read};
use crate::failure::Result;

/// Returns one sentence for each fault.
///
/// # Errors
/// The file cannot be read, or is not TOML.
pub fn faults(path: &Path, whole: &Command) -> Result<Vec<String>> {
    let sections = file::sections(path)?;
    let mut all = Vec::new();
    if sections.is_empty() {
        all.push("there is no section: begin with a line such as [server]".to_owned());
    }
    for section in sections {
        match section {
            Err(failure) => {
                let text = failure.to_string();
                let of_file = format!("{}: ", path.display());
                all.push(text.strip_prefix(&of_file).unwrap_or(&text).to_owned());
            }
            Ok((role, section)) => {
                let found = of_section(whole, &role, &section).into_iter();
                let found = found.chain(of_files(whole, &role, &section));
                all.extend(found.map(|fault| format!("[{role}] {fault}")));
            }
        }
    }
    Ok(all)
}

/// Returns one sentence for each fault of keys and values, all of them.
pub fn of_section(whole: &Command, role: &str, section: &Table) -> Vec<String> {
    let Some(command) = whole.find_subcommand(role) else { return Vec::new() };
    let (mut given, mut faults) = file_options::each(command, section);
    let mut left_out = Vec::new();
    // Clap tells one fault at a time: the option that has it is left out, and the others are tried.
    while let Err(error) = parse(whole, role, &given) {
        let named = named(&error);
        let is_missing = !named.is_empty() && named.iter().all(|name| left_out.contains(name));
        if !is_missing {
            faults.push(in_a_line(&error.to_string()));
        }
        let before = given.len();
        given.retain(|option| option.name.as_ref().is_none_or(|name| !named.contains(name)));
        if given.len() == before {
            break;
        }
        left_out.extend(named);
    }
    faults
}

fn parse(whole: &Command, role: &str, given: &[FileOption]) -> Result<(), clap::Error> {
    let (mut words, mut places) = (vec![OsString::from("cairn"), role.into()], Vec::new());
    for FileOption { name, words: of_one } in given {
        let more = if name.is_none() { &mut places } else { &mut words };
        more.extend(of_one.iter().cloned());
    }
    words.push("--".into());
    // The command line may have DIR.
    words.extend(if places.is_empty() { vec!["DIR".into()] } else { places });
    whole.clone().try_get_matches_from(words).map(|_| ())
}

/// Returns the names of the options that an error is about.
fn named(error: &clap::Error) -> Vec<String> {
    let shown: &[String] = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(one)) => std::slice::from_ref(one),
        Some(ContextValue::Strings(all)) => all,
        _ => &[],
    };
    // They are shown as `--name <VALUE>`.
    let name = |shown: &String| {
        let long = shown.strip_prefix("--")?;
        Some(long.split([' ', '=']).next().unwrap_or_default().to_owned())
    };
    shown.iter().filter_map(name).collect()
}

/// Returns one sentence for each file that the role would read and that cannot be read.
fn of_files(whole: &Command, role: &str, section: &Table) -> Vec<String> {
    let Some(command) = whole.find_subcommand(role) else { return Vec::new() };
    let read = section.iter().filter_map(|(name, value)| match value {
        Value::String(path) if find(command, name).is_ok_and(is_read) => Some((name, path)),
        _ => None,
    });
    let fault = |(name, path): (&String, &String)| {
        let error = read_one(Path::new(path)).err()?;
        Some(format!("{name}: {path}: {error}: name a file that the user of the process can read"))
    };
    read.filter_map(fault).collect()
}

/// Reads the first byte of a file.
fn read_one(path: &Path) -> std::io::Result<()> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "not a plain file"));
    }
    match File::open(path)?.read(&mut [0])? {
        0 => Err(Error::new(ErrorKind::UnexpectedEof, "the file is empty")),
        _ => Ok(()),
    }
}

/// Returns the words of clap, up to the usage.
fn in_a_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let lines = text.lines().take_while(|line| !line.is_empty());
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}
