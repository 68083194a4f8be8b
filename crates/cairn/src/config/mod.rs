//! Options of servers, nodes and mounts in a file, and `cairn config`.
//!
//! ```text
//!   cairn ROLE --config FILE ── file: [ROLE] ──► options: keys ─► words ──► line ──► clap
//!   cairn config check FILE ─────────────────────── the same, for each role ────────┘
//!   cairn config example ROLE ◄── example ◄── the options that clap knows
//! ```
//!
//! A key of the file is an option of the command line without its `--`. So there is no second list
//! of options that could differ from the first.

mod options;

mod file;
mod file_options;

mod check;
mod example;
pub mod machine_options;

mod line;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::failure::Result;
use crate::output;
use options::ROLES;

pub use line::{matches, of_role};

/// Beside `--config`, for units.
const ENVIRONMENT: &str = "CAIRN_CONFIG";

/// The file with options of a role. [`matches`] has read it before.
#[derive(Args)]
pub struct ConfigArgs {
    /// Read options from this file, in the section of this command. Options of the command line
    /// and of the environment take precedence. `cairn config example ROLE` has all keys; ROLE is
    /// server, node, master, chunkserver, gateway or mount
    #[arg(long, value_name = "FILE", env = ENVIRONMENT)]
    config: Option<PathBuf>,
}

impl ConfigArgs {
    /// Logs which file was read.
    pub fn announce(&self) {
        if let Some(file) = &self.config {
            tracing::info!(file = %file.display(), "options were read from a file");
        }
    }
}

/// Check a file of options, or show all options that one can have
#[derive(Args)]
#[command(after_help = "Examples:
  cairn config example server > /etc/cairn/server.toml
  cairn config check /etc/cairn/server.toml
  cairn server --config /etc/cairn/server.toml")]
pub struct ConfigCommandArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand)]
enum ConfigCommand {
    Check(CheckArgs),
    Example(ExampleArgs),
}

/// Check a file of options: keys, values, and the files that it names to be read
///
/// Nothing is started. Each fault is a line, and all are named at once. Whether files can be read
/// is tried as the user of this command.
#[derive(Args)]
#[command(after_help = "Exit codes: 0 no fault, 1 a fault.

Example:
  cairn config check /etc/cairn/server.toml")]
struct CheckArgs {
    /// The file of options
    file: PathBuf,
}

/// Print a section with all options of a role, their meanings and defaults, as comments
#[derive(Args)]
#[command(after_help = "Example:\n  cairn config example gateway > /etc/cairn/gateway.toml")]
struct ExampleArgs {
    /// The command that reads the section
    #[arg(value_parser = ROLES)]
    role: String,
}

pub fn run(args: &ConfigCommandArgs, whole: &clap::Command) -> Result<ExitCode> {
    match &args.command {
        ConfigCommand::Check(CheckArgs { file }) => {
            let faults = check::faults(file, whole)?;
            let shown = file.display();
            faults.iter().try_for_each(|fault| output::line(format!("{shown}: {fault}")))?;
            Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        ConfigCommand::Example(ExampleArgs { role }) => {
            if let Some(command) = whole.find_subcommand(role) {
                output::line(example::section(command).trim_end())?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}
