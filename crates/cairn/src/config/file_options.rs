//! Options of a section as words of a command line.

use std::env;
use std::ffi::OsString;
use std::path::Path;

use clap::{Arg, Command};
use toml::{Table, Value};

use super::options::{find, is_list, is_secret, is_switch, key};
use crate::secret_file;

/// Environment variables that have the meaning of an option without being its own.
const VARIABLES: [(&str, &str); 2] =
    [("root-key", "CAIRN_ROOT_KEY"), ("root-secret-file", "CAIRN_ROOT_SECRET")];

/// An option in the form in which the file gives it.
pub struct FileOption {
    /// Name of the option on the command line; none for an option that has no name there, such as
    /// DIR.
    pub name: Option<String>,
    pub words: Vec<OsString>,
}

/// Returns all options of a section, except those that the environment has too.
///
/// # Errors
/// One sentence for each fault.
pub fn all(command: &Command, section: &Table) -> Result<Vec<FileOption>, Vec<String>> {
    let (all, faults) = each(command, section);
    if faults.is_empty() { Ok(all) } else { Err(faults) }
}

/// Returns the options of a section like [`all`], and one sentence for each fault of the others.
pub fn each(command: &Command, section: &Table) -> (Vec<FileOption>, Vec<String>) {
    let (mut all, mut faults) = (Vec::new(), Vec::new());
    for (name, value) in section {
        match find(command, name).and_then(|arg| given(arg, name, value)) {
            Ok(Some(given)) => all.push(given),
            Ok(None) => {}
            Err(fault) => faults.push(fault),
        }
    }
    (all, faults)
}

fn given(arg: &Arg, name: &str, value: &Value) -> Result<Option<FileOption>, String> {
    if is_in_environment(arg) {
        return Ok(None);
    }
    if is_switch(arg) {
        let Value::Boolean(on) = value else { return Err(format!("{name} is true or false")) };
        let word = format!("--{}", key(arg));
        return Ok(on.then(|| FileOption { name: Some(key(arg)), words: vec![word.into()] }));
    }
    let values = match value {
        Value::Array(values) if is_list(arg) => {
            values.iter().map(|value| text(name, value)).collect::<Result<_, _>>()?
        }
        Value::Array(_) => return Err(format!("{name} has one value, and no list")),
        value => vec![text(name, value)?],
    };
    let Some(long) = arg.get_long() else {
        let words = values.into_iter().map(OsString::from).collect();
        return Ok(Some(FileOption { name: None, words }));
    };
    let words = values.into_iter().map(|value| {
        let value = if is_secret(arg) { secret(name, &value)? } else { value };
        Ok(format!("--{long}={value}").into())
    });
    let words = words.collect::<Result<_, String>>()?;
    Ok(Some(FileOption { name: Some(long.to_owned()), words }))
}

fn is_in_environment(arg: &Arg) -> bool {
    let same = VARIABLES.iter().find(|(name, _)| arg.get_long() == Some(name));
    let own = arg.get_env().is_some_and(|name| env::var_os(name).is_some());
    own || same.is_some_and(|(_, name)| env::var_os(name).is_some())
}

fn text(name: &str, value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        _ => Err(format!("{name} is a text or a number")),
    }
}

fn secret(name: &str, path: &str) -> Result<String, String> {
    let read = secret_file::read(Path::new(path)).map_err(|failure| format!("{name}: {failure}"));
    Ok(read?.expose().clone())
}
