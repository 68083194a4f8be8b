//! The options that clap knows of a role, as keys of a file.

use clap::{Arg, ArgAction, Command};

/// Commands that read a file of options, each the name of a section there.
pub const ROLES: [&str; 6] = ["server", "node", "master", "chunkserver", "gateway", "mount"];
/// Options of the command line alone: the token of `join` is a secret, and good once.
const NOT_IN_FILES: [&str; 4] = ["help", "version", "config", "join"];
/// The end of the name that an option with a secret has in a file. There it names a file that has
/// the secret.
const OF_SECRET: &str = "-file";
/// The least likeness of a name that may have been meant.
const LIKE: f64 = 0.75;

/// The options that a file may have, in the order of the help.
pub fn of(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| {
        let name = arg.get_long().unwrap_or_default();
        !arg.is_hide_set() && !NOT_IN_FILES.contains(&name)
    })
}

/// The key of an option.
pub fn key(arg: &Arg) -> String {
    match arg.get_long() {
        Some(name) if is_secret(arg) => format!("{name}{OF_SECRET}"),
        Some(name) => name.to_owned(),
        None => arg.get_id().as_str().replace('_', "-"),
    }
}

/// Options that are hidden in the environment are secrets.
pub fn is_secret(arg: &Arg) -> bool {
    arg.is_hide_env_values_set()
}

/// Options that are on or off.
pub fn is_switch(arg: &Arg) -> bool {
    !arg.get_action().takes_values()
}

/// Options that may be given several times.
pub fn is_list(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

/// The option of a key.
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

/// The name that was meant, in words; nothing if none is near.
pub fn nearest(name: &str, known: impl Iterator<Item = String>) -> String {
    let scored = known.map(|known| (strsim::jaro_winkler(name, &known), known));
    let best = scored.max_by(|(one, _), (other, _)| one.total_cmp(other));
    match best {
        Some((score, known)) if score >= LIKE => format!(": did you mean {known}?"),
        _ => String::new(),
    }
}
