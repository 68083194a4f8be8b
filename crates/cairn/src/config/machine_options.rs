//! Options of a server as those of a machine of a cluster.

use std::path::Path;

use clap::{Arg, Command};
use toml::{Table, Value};

use super::options::{self, find, is_list, is_switch, key};
use super::{check, file};
use crate::failure::{Failure, Result};

/// Roles of a machine. An option goes to the first of them that has it.
const TARGETS: [&str; 4] = ["node", "gateway", "chunkserver", "master"];
/// Options of a server that a machine has no use for, or has from elsewhere, and the reasons.
const LEFT_OUT: [(&str, &str); 7] = [
    ("dir", "`cairn node` takes its directory from the command line"),
    ("durability", "blocks of a cluster are always on the disk when they are acknowledged"),
    ("root-key", "set it once with `cairn key create --id` while the machine runs"),
    ("root-secret-file", "set it once with `cairn key create --secret-file`"),
    ("meta-file", "the metadata of this store are not in a database"),
    ("meta-schema", "the metadata of this store are not in a database"),
    ("accept-lossy-failover", "the metadata of this store are not in a database"),
];

/// Options of a machine.
pub struct MachineOptions {
    /// File of options.
    pub text: String,
    /// Options of the server that are not in it, each with the reason.
    pub left_out: Vec<String>,
}

/// Translates the section of a server in a file of options. Where the defaults of a machine are
/// others, it gets those of the server.
///
/// # Errors
/// The file cannot be read, has no such section, or has a fault there.
pub fn of_server(path: &Path, whole: &Command) -> Result<MachineOptions> {
    let section = file::section_of(path, "server")?;
    if let Some(fault) = check::of_section(whole, "server", &section).first() {
        return Err(Failure::usage(format!("{}: [server] {fault}", path.display())));
    }
    let Some(server) = whole.find_subcommand("server") else {
        return Err(Failure::new("this program has no `cairn server`"));
    };
    let (mut sections, mut left_out) = (Table::new(), Vec::new());
    for arg in options::of(server) {
        let name = key(arg);
        let given = section.get(&name);
        if let Some((_, why)) = LEFT_OUT.iter().find(|(one, _)| *one == name) {
            left_out.extend(given.map(|_| format!("{name}: {why}")));
            continue;
        }
        let target = TARGETS.into_iter().find_map(|role| {
            let found = find(whole.find_subcommand(role)?, &name).ok()?;
            Some((role, found))
        });
        match target {
            None => left_out.extend(given.map(|_| format!("{name}: a machine has no such option"))),
            Some((role, other)) => {
                let is_other = default(arg) != default(other);
                let value = given.cloned().or_else(|| default(arg).filter(|_| is_other));
                if let Some(value) = value {
                    insert(&mut sections, role, &name, value);
                }
            }
        }
    }
    for (role, section) in &sections {
        let section = section.as_table().cloned().unwrap_or_default();
        let faults = check::of_section(whole, role, &section);
        left_out.extend(faults.into_iter().map(|fault| format!("[{role}] {fault}")));
    }
    let text = toml::to_string(&sections).map_err(|error| Failure::new(error.to_string()))?;
    Ok(MachineOptions { text, left_out })
}

fn insert(sections: &mut Table, role: &str, name: &str, value: Value) {
    let section = sections.entry(role).or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(section) = section {
        section.insert(name.to_owned(), value);
    }
}

/// Returns the default of an option with one value.
fn default(arg: &Arg) -> Option<Value> {
    if is_switch(arg) || is_list(arg) {
        return None;
    }
    let text = arg.get_default_values().first()?.to_string_lossy().into_owned();
    let number = text.parse::<i64>().map(Value::Integer);
    Some(number.unwrap_or(Value::String(text)))
}
