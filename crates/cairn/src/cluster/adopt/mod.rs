//! `cairn cluster adopt`: makes the directory of a stopped server, in place, the first machine of a
//! cluster. Decision 0063 has the reasons.
//!
//! ```text
//!   DIR/format, blocks, scrub   of the server           ──►  DIR/disk/, by renames
//!   DIR/meta, secret.key        stay until finalized, and are compared with:
//!   DIR/master, gateway, disk   parts of the machine    made before anything is renamed
//!   DIR/adoption.dump           all rows of the server
//!   DIR/adoption.toml           the step (crate::dir::adoption)
//! ```

mod later;
mod moves;
mod parts;
mod survey;
mod undo;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Command;

use crate::config::machine_options::{self, MachineOptions};
use crate::dir::adoption::{Adoption, AdoptionStep};
use crate::dir::{DataDir, DirectoryUse, MetaPlace, lock::Lock};
use crate::failure::{Failure, Result};
use crate::node::Machine;
use crate::output;
pub use parts::remove_all;
use survey::Survey;

/// Port of the master, unless another is given.
const PORT: u16 = 7400;
const REPLICAS: u8 = 3;

/// Make a stopped server, in place, the first machine of a cluster
///
/// Blocks stay on their disk and are not copied. The metadata of the cluster are made beside those
/// of the server and compared with them row by row. Until `cairn cluster finalize`, --undo gives
/// the server back as it was. If the command is interrupted, run it again, or with --undo. Start
/// the machine with `cairn node DIR` afterwards; keys, tokens, share links, exports and mounts go
/// on. docs/from-one-to-three.md has the whole way.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn cluster adopt /srv/cairn --address 10.0.0.1 --dry-run
  cairn cluster adopt /srv/cairn --address 10.0.0.1 --options /etc/cairn/server.toml \\
      --node-options /etc/cairn/adopted.toml
  cairn cluster adopt /srv/cairn --undo --dry-run
  cairn cluster adopt /srv/cairn --undo")]
pub struct AdoptArgs {
    /// The data directory of the server, which is stopped
    dir: PathBuf,
    /// Name or address under which the other machines will reach this one
    #[arg(long, value_name = "HOST")]
    address: Option<String>,
    /// Port of the master of this machine; its chunkserver takes the one after it [default: 7400]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..65535))]
    port: Option<u16>,
    /// Number of replicas of each block once there are as many machines, 1 to 5 [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=5))]
    replicas: Option<u8>,
    /// File with the options of `cairn server`: those of the machine that stand for them are
    /// printed, and those without an equal are named
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    options: Option<PathBuf>,
    /// Write the options of the machine to this new file instead
    #[arg(long, value_name = "FILE", requires = "options")]
    node_options: Option<PathBuf>,
    /// Show what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Go back: the directory becomes that of the server again, with all that was written before
    /// the adoption
    #[arg(long, conflicts_with_all = ["address", "port", "replicas", "options"])]
    undo: bool,
    /// With --undo: lose what was written after the adoption
    #[arg(long, requires = "undo")]
    accept_loss: bool,
}

pub fn run(args: &AdoptArgs, whole: &Command) -> Result<ExitCode> {
    if args.undo {
        undo::run(&args.dir, args.dry_run, args.accept_loss)?;
        return Ok(ExitCode::SUCCESS);
    }
    let read = |file: &PathBuf| machine_options::of_server(file, whole);
    let options = args.options.as_ref().map(read).transpose()?;
    if let Some(file) = args.node_options.as_deref().filter(|file| file.exists()) {
        return Err(Failure::new(format!(
            "{}: is there already: name a new file for the options. Nothing was changed",
            file.display()
        )));
    }
    let found = Adoption::read(&args.dir)?;
    if found.as_ref().is_some_and(|found| found.step.is_of_machine()) {
        let shown = args.dir.display();
        output::line(format!("{shown} is adopted already: start it with `cairn node {shown}`"))?;
        let file = args.node_options.as_deref();
        options.as_ref().map_or(Ok(()), |options| show_options(options, file))?;
        return Ok(ExitCode::SUCCESS);
    }
    DirectoryUse::Adopt.require(&args.dir)?;
    refuse_database(&args.dir)?;
    let mut adoption = args.adoption(found.as_ref())?;
    let machine = Machine::new(&adoption.host, adoption.port)?;
    if adoption.step == AdoptionStep::Moving {
        let _lock = Lock::take(&args.dir)?;
        Adoption::require_unchanged(&args.dir, found.as_ref())?;
        if args.dry_run {
            output::line("the parts of the machine are made: blocks would be moved into place")?;
            return Ok(ExitCode::SUCCESS);
        }
        finish(&args.dir, &machine, &mut adoption)?;
    } else {
        let server = DataDir::open(&args.dir, MetaPlace::Directory)?;
        Adoption::require_unchanged(&args.dir, found.as_ref())?;
        let survey = Survey::of(&args.dir, &server, found.is_some())?;
        survey.show(&machine, &adoption)?;
        if args.dry_run {
            options.as_ref().map_or(Ok(()), |options| show_options(options, None))?;
            return output::line("nothing was changed").map(|()| ExitCode::SUCCESS);
        }
        survey.require_room()?;
        adoption.enter(&args.dir, AdoptionStep::Preparing)?;
        parts::remove(&args.dir)?;
        parts::make(&args.dir, &server, &machine, &adoption)?;
        adoption.enter(&args.dir, AdoptionStep::Moving)?;
        finish(&args.dir, &machine, &mut adoption)?;
    }
    if let Some(options) = &options {
        show_options(options, args.node_options.as_deref())?;
    }
    show_next(&args.dir)?;
    Ok(ExitCode::SUCCESS)
}

impl AdoptArgs {
    /// Returns the adoption that the command line asks for, or goes on with.
    fn adoption(&self, found: Option<&Adoption>) -> Result<Adoption> {
        let host = self.address.clone().or_else(|| found.map(|found| found.host.clone()));
        let host = host.ok_or_else(|| {
            Failure::usage(
                "say by --address HOST under which name the other machines will reach this one",
            )
        })?;
        let port = self.port.or(found.map(|found| found.port)).unwrap_or(PORT);
        let replicas = self.replicas.or(found.map(|found| found.replicas)).unwrap_or(REPLICAS);
        match found {
            // Its parts are made for this address.
            Some(moving) if moving.step == AdoptionStep::Moving => Ok(moving.clone()),
            _ => Ok(Adoption::new(&host, port, replicas)),
        }
    }
}

/// Refuses a store whose metadata are in a database, and says how they come into the directory.
fn refuse_database(dir: &Path) -> Result<()> {
    let shown = dir.display();
    match crate::dir::place(dir)? {
        Some((MetaPlace::Postgres, _)) => Err(Failure::new(format!(
            "{shown}: its metadata are in a PostgreSQL database. Bring them into the directory \
             first: `cairn meta dump FILE` with CAIRN_META, remove the line `meta postgres` from \
             {shown}/format, `cairn meta load FILE {shown}` without CAIRN_META, and run this again"
        ))),
        _ => Ok(()),
    }
}

/// Does what remains when all parts are there: each part of it can be repeated.
fn finish(dir: &Path, machine: &Machine, adoption: &mut Adoption) -> Result<()> {
    moves::forward(dir)?;
    machine.save(dir)?;
    adoption.enter(dir, AdoptionStep::Adopted)
}

fn show_options(options: &MachineOptions, file: Option<&Path>) -> Result<()> {
    let MachineOptions { text, left_out } = options;
    match file {
        None => output::line(format!("\nOptions for `cairn node`:\n\n{}", text.trim_end()))?,
        Some(file) => {
            let mut new = fs::OpenOptions::new();
            let opened = new.write(true).create_new(true).open(file);
            let written = opened.and_then(|mut new| {
                std::io::Write::write_all(&mut new, text.as_bytes())?;
                new.sync_all()
            });
            match written {
                Ok(()) => output::line(format!("Options for `cairn node`: {}", file.display()))?,
                // The adoption is done: its options are not lost for that.
                Err(error) => {
                    output::complain(&Failure::file(file, &error).to_string());
                    output::line(format!("\nOptions for `cairn node`:\n\n{}", text.trim_end()))?;
                }
            }
        }
    }
    if !left_out.is_empty() {
        output::line("\nOptions of the server that are not taken over:\n")?;
    }
    left_out.iter().try_for_each(|one| output::line(format!("  {one}")))
}

fn show_next(dir: &Path) -> Result<()> {
    let shown = dir.display();
    output::line(format!(
        "
Adopted. Nothing of the server is removed yet. Next:

  cairn node {shown}                        its doors are on all addresses unless options say else
  cairn cluster token {shown} --machine     for each further machine, while this one runs
  cairn cluster replicas {shown} 3          when three are there: writes then need two replicas
  cairn cluster finalize {shown}            when all is well: frees what only a way back needs
  cairn cluster adopt {shown} --undo        until then, with the machine stopped: the server again"
    ))
}
