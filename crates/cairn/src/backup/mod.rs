//! `cairn backup`: copies of a store that runs, at another place. docs/format-backup.md has every
//! byte of them.
//!
//! ```text
//!   server ── hold ── dump ──► rows: lists ──┐
//!      └───────────── blocks ────────────────┴─► repository: packs, index, states ──► target
//!   restore: repository ──► blocks, then rows, in a data directory
//!                   └─────► names, files, settings, one by one, in a server that runs
//! ```

mod seal;

mod frames;
mod renewing;
mod rows;
mod time;

mod target;

mod hold;

mod place_lock;

mod repository;

mod state;

mod as_dump;
mod blocks;
mod check;

mod create;
mod destination;
mod difference;
mod prune;
mod report;
mod selection;
mod stored;

mod content;

mod tree;

mod accounts;
mod hidden;
mod settings;

mod to_server;

pub mod restore;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::client::key::parse_seconds;
use crate::connection::Connection;
use crate::dir::DirectoryUse;
use crate::failure::Result;
use crate::{output, secret_file};
use create::How;
use place_lock::Purpose;
use prune::Keep;
use repository::{Access, Repository};
use state::BackupState;
use target::TargetArgs;
use time::compact_time;

/// Back up a store that runs
///
/// A backup has the metadata of one moment and all blocks that they name. Blocks of an earlier
/// backup at the same place are not copied again, also if that one was interrupted.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn backup create /backup/cairn
  cairn backup create s3://backups/cairn --passphrase-file pass.txt --keys /srv/cairn
  cairn backup check /backup/cairn
  cairn restore /backup/cairn /srv/cairn-restored")]
pub struct BackupArgs {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Back up the store of a server, asked as root
    #[command(after_help = "Examples:
  cairn backup create /backup/cairn
  cairn backup create https://other:8080/storage/backups/cairn --passphrase-file pass.txt")]
    Create(CreateArgs),
    /// List the states in a backup
    #[command(after_help = "Example:\n  cairn backup list /backup/cairn --json")]
    List {
        #[command(flatten)]
        place: Place,
        /// Print one line of JSON for each
        #[arg(long)]
        json: bool,
    },
    /// Read a backup back and check all of it
    #[command(after_help = "Examples:
  cairn backup check /backup/cairn
  cairn backup check /backup/cairn --newest-within 2d")]
    Check {
        #[command(flatten)]
        place: Place,
        /// Forget damaged items, so that the next backup writes them again
        #[arg(long)]
        repair: bool,
        /// Complain if a store has no state of the last so many s, m, h or d: without this, who
        /// removes the newest states leaves a backup that is sound
        #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
        newest_within: Option<u32>,
    },
    /// Remove old states, and all that only they need
    ///
    /// At least one of --keep-last, --keep-daily and --keep-weekly is needed; days and weeks are
    /// those of UTC. Nothing is removed while a backup to the same place runs.
    #[command(after_help = "Examples:
  cairn backup prune /backup/cairn --keep-last 3 --keep-daily 14 --keep-weekly 8
  cairn backup prune /backup/cairn --keep-last 1 --dry-run")]
    Prune {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        keep: Keep,
        /// Show what would be removed, and remove nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// List the locks of a place, or end one that nobody has any more
    #[command(after_help = "Examples:
  cairn backup locks /backup/cairn
  cairn backup locks /backup/cairn --end 0123456789abcdef")]
    Locks {
        #[command(flatten)]
        target: TargetArgs,
        /// End this lock: a backup that has it fails
        #[arg(long, value_name = "ID")]
        end: Option<String>,
        /// Print one line of JSON for each
        #[arg(long)]
        json: bool,
    },
    /// List the holds of backups that run, or end one
    #[command(after_help = "Examples:
  cairn backup holds
  cairn backup holds --end 0123456789abcdef
  cairn backup holds --end ad09700000000001 --of-adoption")]
    Holds {
        /// End this hold: its backup fails, and blocks that it kept are deleted
        #[arg(long, value_name = "ID")]
        end: Option<String>,
        /// End the hold of an adoption, which has no way back afterwards: if `cairn cluster
        /// finalize` cannot, since the machine is gone or the metadata came from a dump
        #[arg(long, requires = "end")]
        of_adoption: bool,
        /// Print one line of JSON for each
        #[arg(long)]
        json: bool,
    },
}

#[derive(clap::Args)]
struct Place {
    #[command(flatten)]
    target: TargetArgs,
    /// File with the passphrase in its first line; - for stdin
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

#[derive(clap::Args)]
struct CreateArgs {
    #[command(flatten)]
    place: Place,
    /// Directory with secret.key, and ca.key of a master: they go into encrypted backups only
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
    /// How long deleted blocks are kept if this backup is heard of no more: a number of s, m, h, d
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_seconds)]
    hold: u32,
    /// Blocks that are copied at the same time
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
    /// Size of the objects at the target, MiB
    #[arg(long, value_name = "MIB", default_value_t = 32)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    pack_mib: u16,
}

/// Size of new packs when packs are rewritten, MiB.
const REWRITTEN_MIB: usize = 32;
/// Time after which a lock for removals ends unless it is renewed, seconds.
const REMOVING_SECONDS: u32 = 300;

impl Place {
    fn open(&self, access: Access<'_>) -> Result<Repository> {
        let passphrase = self.passphrase_file.as_deref().map(secret_file::read).transpose()?;
        Repository::open(self.target.open()?, passphrase.as_ref(), access)
    }

    /// Opens it exclusively, to remove something.
    fn open_alone(&self, what: &str) -> Result<Repository> {
        let owner = format!("{what}, of {}", host());
        self.open(Access::Change(Purpose::Remove, &owner, REMOVING_SECONDS))
    }
}

/// Returns the name of this machine.
fn host() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    host.trim().chars().filter(|c| !c.is_control()).take(64).collect()
}

pub fn run(args: &BackupArgs) -> Result<ExitCode> {
    match &args.command {
        Command::Create(create) => {
            let state = make(create, &args.connection)?;
            output::line(state.id())?;
        }
        Command::List { place, json } => list(&place.open(Access::Read)?, *json)?,
        Command::Check { place, repair, newest_within } => {
            let repository = if *repair {
                place.open_alone("cairn backup check --repair")?
            } else {
                place.open(Access::Read)?
            };
            return check(&repository, *repair, *newest_within);
        }
        Command::Prune { place, keep, dry_run } => prune(place, keep, *dry_run)?,
        Command::Locks { target, end: Some(id), .. } => place_lock::end(&*target.open()?, id)?,
        Command::Locks { target, end: None, json } => locks(target, *json)?,
        Command::Holds { end: Some(id), of_adoption, .. } => {
            hold::end(&args.connection.open()?, id, *of_adoption)?;
        }
        Command::Holds { end: None, json, .. } => holds(&args.connection, *json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn make(args: &CreateArgs, connection: &Connection) -> Result<BackupState> {
    let target = Path::new(args.place.target.shown());
    let target = target.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let mut owner = format!("backup to {target}, of {}", host());
    owner.retain(|c| !c.is_control());
    args.place.target.directory().map_or(Ok(()), |place| DirectoryUse::Backup.require(place))?;
    let owner: String = owner.chars().take(100).collect();
    let repository = args.place.open(Access::Change(Purpose::Add, &owner, args.hold))?;
    let how = How {
        owner,
        hold_seconds: args.hold,
        jobs: usize::from(args.jobs),
        pack_bytes: usize::from(args.pack_mib) << 20,
        keys: args.keys.clone(),
    };
    create::run(connection.open()?, repository, &how)
}

fn prune(place: &Place, keep: &Keep, dry_run: bool) -> Result<()> {
    let mut repository =
        if dry_run { place.open(Access::Read)? } else { place.open_alone("cairn backup prune")? };
    let pruned = prune::run(&mut repository, keep, REWRITTEN_MIB << 20, dry_run)?;
    let what = if dry_run { "would remove" } else { "removed" };
    pruned.states.iter().try_for_each(|id| output::line(format!("{what} {id}")))?;
    let (states, packs, bytes) =
        (pruned.states.len(), pruned.packs, output::human_bytes(pruned.bytes));
    let rewritten = pruned.rewritten;
    output::complain(&format!(
        "{what} {states} states and {packs} packs ({rewritten} were needed in part), {bytes}"
    ));
    Ok(())
}

fn locks(target: &TargetArgs, json: bool) -> Result<()> {
    let locks = place_lock::locks(&*target.open()?)?;
    if json {
        return locks.iter().try_for_each(|lock| {
            let place_lock::ShownLock { id, owner, kind, ends } = lock;
            let shown = serde_json::json!({"id": id, "owner": owner, "kind": kind, "ends": ends});
            output::json(&shown)
        });
    }
    let row = |lock: place_lock::ShownLock| {
        vec![lock.id, lock.kind.to_owned(), compact_time(lock.ends), lock.owner]
    };
    output::table(&["ID", "KIND", "ENDS", "OWNER"], locks.into_iter().map(row).collect())
}

fn list(repository: &Repository, json: bool) -> Result<()> {
    let mut rows = Vec::new();
    for name in repository.states()? {
        let state = BackupState::get(repository, &name)?;
        let about = &state.about;
        if json {
            output::json(&serde_json::json!({
                "id": state.id(),
                "store": format!("{:016x}", about.cluster),
                "begun": about.begun,
                "ended": about.ended,
                "rows": about.rows,
                "blocks": about.blocks,
                "bytes": about.block_bytes,
                "files": about.files.keys().collect::<Vec<_>>(),
            }))?;
            continue;
        }
        let bytes = output::human_bytes(about.block_bytes);
        let id = state.id().to_owned();
        rows.push(vec![id, about.rows.to_string(), about.blocks.to_string(), bytes]);
    }
    output::table(&["STATE", "ROWS", "BLOCKS", "BYTES"], rows)
}

fn check(repository: &Repository, repair: bool, within: Option<u32>) -> Result<ExitCode> {
    let since = within.map(|within| create::seconds().saturating_sub(u64::from(within)));
    let checked = check::run(repository, repair, since)?;
    checked.findings.iter().try_for_each(output::line)?;
    let (states, packs, damage) = (checked.states, checked.packs, checked.findings.len());
    output::complain(&format!("checked: {states} states, {packs} packs, {damage} findings"));
    Ok(if damage == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn holds(connection: &Connection, json: bool) -> Result<()> {
    let holds = hold::list(&connection.open()?)?;
    if json {
        return holds.iter().try_for_each(output::json);
    }
    let row = |hold: hold::ShownHold| vec![hold.id, hold.owner, hold.begun, hold.ends];
    output::table(&["ID", "OWNER", "BEGUN", "ENDS"], holds.into_iter().map(row).collect())
}
