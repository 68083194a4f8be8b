//! A command line with the options of a file merged into it.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command};
use toml::Table;

use super::file_options::{self, FileOption};
use super::options::{ROLES, is_switch};
use super::{ConfigArgs, ENVIRONMENT, check, file};
use crate::failure::{Failure, Result};

/// Returns the arguments of a command line, with the options of its file if it names one.
///
/// # Errors
/// The file cannot be read, or has a key or a value that no option has. A command line that makes
/// no sense ends the process.
pub fn matches(line: Vec<OsString>, whole: &Command) -> Result<ArgMatches> {
    let parsed = |words: &[OsString]| whole.clone().try_get_matches_from(words);
    let Some(file) = OfFile::find(&line, whole)? else {
        return Ok(parsed(&line).unwrap_or_else(|error| error.exit()));
    };
    let merged = file.merged(&line)?;
    parsed(&merged).or_else(|error| match check::of_section(whole, file.role, &file.section) {
        // The fault is not in the file.
        faults if faults.is_empty() => error.exit(),
        faults => Err(file.failure(&faults[0])),
    })
}

/// Returns the words of a role that runs within another role, without its name: its own words, and
/// those of its section in the file of the other role, if there is such a section.
///
/// # Errors
/// The section has a fault, or an option that `own` has, or DIR: the other role decides that.
pub fn of_role(
    config: &ConfigArgs,
    role: &str,
    own: Vec<String>,
    whole: &Command,
) -> Result<Vec<OsString>> {
    let own: Vec<OsString> = own.into_iter().map(OsString::from).collect();
    let Some(file) = &config.config else { return Ok(own) };
    let section = file::read(file)?.into_iter().find(|(name, _)| name == role);
    let Some(((_, section), command)) = section.zip(whole.find_subcommand(role)) else {
        return Ok(own);
    };
    let (path, seen) = (file.clone(), OwnArguments::of(command, &own));
    let of_file = OfFile { path, role, command, section, seen };
    let given = file_options::all(command, &of_file.section);
    let given = given.map_err(|faults| of_file.failure(&faults[0]))?;
    let is_own = |name: &String| of_file.seen.options.contains(name);
    let own_one = given.iter().find(|given| given.name.as_ref().is_none_or(is_own));
    if let Some(FileOption { name, .. }) = own_one {
        let name = name.as_deref().unwrap_or("dir");
        return Err(of_file.failure(&format!("has {name}, which `cairn node` decides")));
    }
    if let Some(fault) = check::of_section(whole, role, &of_file.section).first() {
        return Err(of_file.failure(fault));
    }
    let line: Vec<OsString> = ["cairn".into(), role.into()].into_iter().chain(own).collect();
    Ok(of_file.merged(&line)?.split_off(2))
}

/// Section for a command line.
struct OfFile<'a> {
    path: PathBuf,
    role: &'a str,
    command: &'a Command,
    section: Table,
    seen: OwnArguments,
}

impl<'a> OfFile<'a> {
    fn find(line: &'a [OsString], whole: &'a Command) -> Result<Option<OfFile<'a>>> {
        let role = line.get(1).and_then(|word| word.to_str()).filter(|word| ROLES.contains(word));
        let found = role.and_then(|role| Some((role, whole.find_subcommand(role)?)));
        let Some((role, command)) = found else { return Ok(None) };
        let mut seen = OwnArguments::of(command, &line[2..]);
        let Some(path) = seen.config.take().or_else(of_environment) else { return Ok(None) };
        let section = file::section_of(&path, role)?;
        Ok(Some(OfFile { path, role, command, section, seen }))
    }

    /// Returns the words of the line with those of the file before them.
    fn merged(&self, line: &[OsString]) -> Result<Vec<OsString>> {
        let all = file_options::all(self.command, &self.section);
        let all = all.map_err(|faults| self.failure(&faults[0]))?;
        let (mut merged, mut places) = (line[..2].to_vec(), Vec::new());
        for FileOption { name, words } in all {
            match name {
                Some(name) if self.seen.options.contains(&name) => {}
                Some(_) => merged.extend(words),
                None => places.extend(words),
            }
        }
        merged.extend_from_slice(&line[2..]);
        if !self.seen.has_places && !places.is_empty() {
            merged.push("--".into());
            merged.extend(places);
        }
        Ok(merged)
    }

    fn failure(&self, fault: &str) -> Failure {
        Failure::usage(format!("{}: [{}] {fault}", self.path.display(), self.role))
    }
}

fn of_environment() -> Option<PathBuf> {
    env::var_os(ENVIRONMENT).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Arguments of a command line without those of its file.
#[derive(Default)]
struct OwnArguments {
    /// Names of its options.
    options: BTreeSet<String>,
    /// Set if it has words that belong to no option, such as DIR.
    has_places: bool,
    config: Option<PathBuf>,
}

impl OwnArguments {
    fn of(command: &Command, words: &[OsString]) -> OwnArguments {
        let mut seen = OwnArguments::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let shown = word.to_string_lossy();
            if shown == "--" {
                seen.has_places |= words.next().is_some();
                break;
            }
            let (name, value) = match shown.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(OsString::from(value))),
                None => (shown.into_owned(), None),
            };
            let found = command.get_arguments().find(|arg| is_named(arg, &name));
            let takes_next = found.is_some_and(|arg| !is_switch(arg)) && value.is_none();
            let value = if takes_next { words.next().cloned() } else { value };
            match found.and_then(Arg::get_long) {
                Some("config") => seen.config = value.map(PathBuf::from),
                Some(long) => drop(seen.options.insert(long.to_owned())),
                None if !name.starts_with('-') => seen.has_places = true,
                None => {}
            }
        }
        seen
    }
}

/// Returns true if an option is written in this way: `--name`, or `-n`.
fn is_named(arg: &Arg, word: &str) -> bool {
    let long = word.strip_prefix("--").is_some_and(|name| arg.get_long() == Some(name));
    let mut short = word.strip_prefix('-').unwrap_or_default().chars();
    long || (arg.get_short().is_some() && arg.get_short() == short.next() && short.next().is_none())
}
