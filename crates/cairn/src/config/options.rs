//! Options of a role, as clap knows them, as keys of a file.

use clap::{Arg, ArgAction, Command, ValueHint};

/// Commands that read a file of options, each the name of a section there.
pub const ROLES: [&str; 6] = ["server", "node", "master", "chunkserver", "gateway", "mount"];
/// Options of the command line only: the token of `join` is a secret, and valid once.
const NOT_IN_FILES: [&str; 4] = ["help", "version", "config", "join"];
/// Suffix of the name of an option with a secret in a file. Such an option names a file that has
/// the secret.
const OF_SECRET: &str = "-file";
/// Least similarity of a name that may have been meant.
const LIKE: f64 = 0.75;

/// Returns the options that a file may have, in the order of the help.
pub fn of(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| {
        let name = arg.get_long().unwrap_or_default();
        !arg.is_hide_set() && !NOT_IN_FILES.contains(&name)
    })
}

/// Returns the key of an option.
pub fn key(arg: &Arg) -> String {
    match arg.get_long() {
        Some(name) if is_secret(arg) => format!("{name}{OF_SECRET}"),
        Some(name) => name.to_owned(),
        None => arg.get_id().as_str().replace('_', "-"),
    }
}

/// Returns true for options that are hidden in the environment: these are secrets.
pub fn is_secret(arg: &Arg) -> bool {
    arg.is_hide_env_values_set()
}

/// Returns true for options that name a file which the role reads. They say so themselves by
/// `value_hint`, and options for files that are written have none.
pub fn is_read(arg: &Arg) -> bool {
    arg.get_value_hint() == ValueHint::FilePath
}

/// Returns true for options that are on or off.
pub fn is_switch(arg: &Arg) -> bool {
    !arg.get_action().takes_values()
}

/// Returns true for options that may be given several times.
pub fn is_list(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

/// Returns the option of a key.
///
/// # Errors
/// A sentence that says why there is none.
pub fn find<'a>(command: &'a Command, name: &str) -> Result<&'a Arg, String> {
    if let Some(arg) = of(command).find(|arg| key(arg) == name) {
        return Ok(arg);
    }
    if let Some(secret) = of(command).find(|arg| is_secret(arg) && arg.get_long() == Some(name)) {
        let key = key(secret);
        return Err(format!("{name} is a secret: write it into a file, and name that by {key}"));
    }
    Err(format!("there is no key {name}{}", nearest(name, of(command).map(key))))
}

/// Returns the name that was meant, in words; nothing if none is similar.
pub fn nearest(name: &str, known: impl Iterator<Item = String>) -> String {
    let scored = known.map(|known| (strsim::jaro_winkler(name, &known), known));
    let best = scored.max_by(|(one, _), (other, _)| one.total_cmp(other));
    match best {
        Some((score, known)) if score >= LIKE => format!(": did you mean {known}?"),
        _ => String::new(),
    }
}
