//! `cairn restore`: makes a store from a state in a backup.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use cairn_base::rng::RealRng;
use cairn_base::{BlockId, GroupId, RealDisk, Secret};
use cairn_blocks::{How, Store};
use cairn_meta::dump::{self, Contents};
use tokio::task::JoinSet;

use super::as_dump::{no_map, write_dump};
use super::check;
use super::repository::{Access, Item, Repository, take_owner};
use super::selection::Selection;
use super::state::BackupState;
use super::target::TargetArgs;
use super::to_server::{self, Order};
use super::tree::Task;
use crate::connection::Connection;
use crate::dir::{self, DataDir, DirectoryUse};
use crate::failure::{Failure, Result};
use crate::metadata::{MetaArgs, Metadata};
use crate::offline::store::require_no_metadata;
use crate::{output, secret_file};

/// Blocks that are written at the same time.
const WRITES: usize = 32;
const BUFFER: usize = 256 << 10;

/// Restore a store from a backup
///
/// DIR is a new directory, or that of the same store whose metadata are lost: move what is left of
/// DIR/meta away first. Blocks that are there stay, and none is deleted. An interrupted restore
/// goes on when it is run again.
///
/// With --to-server, the state goes into a server that runs, or through a gateway into a cluster:
/// users, keys, buckets with their settings and all files, exports and share links; or one bucket,
/// or a part of it. What is there and differs is listed and stays, unless --replace is given: what
/// was left so does not count as a failure. In the end everything is compared, and the exit code is
/// 1 if something could not be brought back; with --check, if something is not as in the backup.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn restore /backup/cairn /srv/cairn
  cairn restore s3://backups/cairn /srv/cairn --passphrase-file pass.txt
  cairn restore /backup/cairn --dump metadata.dump     # for cairn meta load, of a cluster
  cairn restore /backup/cairn --to-server --secret-key secret.key
  cairn restore /backup/cairn --to-server --bucket photos --prefix 2024/
  cairn restore /backup/cairn --to-server --bucket photos --path 2024/cat.jpg --replace
  cairn restore /backup/cairn --to-server --bucket photos --as photos-of-monday --state ID
  cairn restore /backup/cairn --to-server --bucket photos --check")]
pub struct RestoreArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Data directory; no server may be using it
    #[arg(required_unless_present_any = ["dump", "to_server"])]
    #[arg(conflicts_with_all = ["dump", "to_server"])]
    dir: Option<PathBuf>,
    /// The state to restore, by its id [default: the last]
    #[arg(long, value_name = "ID")]
    state: Option<String>,
    /// File with the passphrase in its first line; - for stdin
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    /// The file secret.key of the store, if it is not in the backup
    #[arg(long, value_name = "FILE", conflicts_with = "dump")]
    secret_key: Option<PathBuf>,
    /// Write the metadata as a dump to this file, and restore no blocks
    #[arg(long, value_name = "FILE", conflicts_with = "to_server")]
    dump: Option<PathBuf>,
    /// Restore into a server that runs, through its HTTP door, as root (CAIRN_SERVER, CAIRN_KEY,
    /// CAIRN_SECRET)
    #[arg(long)]
    to_server: bool,
    /// Only this bucket
    #[arg(long, value_name = "BUCKET", requires = "to_server")]
    bucket: Option<String>,
    /// Only files and directories whose paths begin with this
    #[arg(long, value_name = "PREFIX", requires = "bucket", default_value = "")]
    #[arg(hide_default_value = true)]
    prefix: String,
    /// Only this file, or this directory with everything in it
    #[arg(long, value_name = "PATH", requires = "bucket", conflicts_with = "prefix")]
    path: Option<String>,
    /// The bucket, and the directory in it, that they go to; with --path, the new path itself
    /// [default: of the same names]
    #[arg(long = "as", value_name = "BUCKET[/PATH]", requires = "bucket")]
    into: Option<String>,
    /// Replace files that are there and differ, and settings of buckets that are restored whole
    #[arg(long, visible_alias = "overwrite", requires = "to_server")]
    replace: bool,
    /// Change nothing: compare with the server, byte for byte, and list what differs
    #[arg(long, requires = "to_server", conflicts_with = "replace")]
    check: bool,
    /// Files that are sent at the same time
    #[arg(long, value_name = "N", default_value_t = 8, requires = "to_server")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
    /// Directory for the metadata of the state meanwhile [default: that for temporary files]
    #[arg(long, value_name = "DIR", requires = "to_server")]
    scratch: Option<PathBuf>,
    #[command(flatten)]
    meta: MetaArgs,
    #[command(flatten)]
    connection: Connection,
}

pub fn run(args: &RestoreArgs) -> Result<ExitCode> {
    if let Some(dir) = &args.dir {
        DirectoryUse::Restore.require(dir)?;
    }
    let passphrase = args.passphrase_file.as_deref().map(secret_file::read).transpose()?;
    let repository = Repository::open(args.target.open()?, passphrase.as_ref(), Access::Read)?;
    let state = BackupState::find(&repository, args.state.as_deref())?;
    if args.to_server {
        return send(repository, &state, args);
    }
    match (&args.dump, &args.dir) {
        (Some(file), _) => {
            write_dump(&repository, &state, file, false)?;
            output::complain(&format!("{}: a dump, for cairn meta load", file.display()));
        }
        (None, Some(dir)) => whole(&repository, &state, dir, args)?,
        (None, None) => return Err(Failure::usage("name DIR, or a file by --dump")),
    }
    Ok(ExitCode::SUCCESS)
}

/// Restores into a server.
fn send(repository: Repository, state: &BackupState, args: &RestoreArgs) -> Result<ExitCode> {
    let (selection, into) =
        Selection::new(&args.prefix, args.path.as_deref(), args.into.as_deref())?;
    let task = if args.check {
        Task::Compare { bytes: true }
    } else {
        Task::Restore { replace: args.replace }
    };
    let seal = seal_text(state, args)?.map(|text| dir::seal_of_text(&text)).transpose()?;
    let order = Order {
        bucket: args.bucket.clone(),
        into,
        selection,
        task,
        jobs: usize::from(args.jobs),
        scratch: args.scratch.clone().unwrap_or_else(std::env::temp_dir),
        seal,
    };
    let report = to_server::run(repository, state, &args.connection, &order)?;
    let (id, word) = (state.id(), if args.check { "compared" } else { "restored" });
    output::complain(&format!("{word}: {id}: {}", report.summary(args.check)));
    Ok(if report.has_failures() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn whole(
    repository: &Repository,
    state: &BackupState,
    path: &Path,
    args: &RestoreArgs,
) -> Result<()> {
    // Checks that nothing is missing, before anything is changed.
    let blocks = check::blocks(repository, state)?;
    let number = state.about.cluster;
    require_no_metadata(path, Some(number))?;
    let dir = DataDir::of_restored(path, number, args.meta.place(), &RealRng)?;
    keep_seal(&dir, state, args)?;
    let metadata = match args.meta.database() {
        None => Metadata::in_directory(&dir)?,
        Some(config) => Metadata::in_database(&config)?,
    };
    match dump::contents(&*metadata.engine)? {
        Contents::Nothing => {}
        Contents::Store(_) => return Err(metadata.occupied()),
        Contents::Part => return Err(metadata.unfinished()),
    }
    let new = restore_blocks(repository, &dir, blocks)?;
    let file = path.join("restore.dump");
    let loaded = write_dump(repository, state, &file, true).and_then(|()| {
        let input = File::open(&file).map_err(|error| Failure::file(&file, &error))?;
        let bar = output::count_bar(state.about.rows, "loading rows");
        let mut input = BufReader::with_capacity(BUFFER, input);
        let summary =
            dump::load(&*metadata.engine, &mut input, &no_map, &mut |rows| bar.set_position(rows))?;
        bar.finish_and_clear();
        Ok(summary)
    });
    // The file may be absent, and there may be a failure to report.
    let _ = fs::remove_file(&file);
    let summary = loaded?;
    if let Some(embedded) = &metadata.embedded {
        embedded.checkpoint()?;
    }
    let id = state.id();
    output::complain(&format!("restored: {id}: {} rows, {new} blocks", summary.rows));
    Ok(())
}

/// Keeps the key of the store's secrets: that of the directory, of the option, or of the backup.
fn keep_seal(dir: &DataDir, state: &BackupState, args: &RestoreArgs) -> Result<()> {
    if dir.seal_bytes()?.is_some() {
        return Ok(());
    }
    let text = seal_text(state, args)?.ok_or_else(|| {
        Failure::new(
            "secret.key is not in the backup, and without it no access key of the store works: \
             name the file by --secret-key",
        )
    })?;
    dir.keep_seal_file(&text)
}

/// Returns the text of the file secret.key: of the option, or of the backup.
fn seal_text(state: &BackupState, args: &RestoreArgs) -> Result<Option<Secret<String>>> {
    let Some(path) = &args.secret_key else {
        return Ok(state.about.files.get("secret.key").cloned().map(Secret::new));
    };
    let text = fs::read_to_string(path).map_err(|error| Failure::file(path, &error))?;
    Ok(Some(Secret::new(text)))
}

fn restore_blocks(
    repository: &Repository,
    dir: &DataDir,
    blocks: BTreeMap<BlockId, u32>,
) -> Result<u64> {
    let path = dir.blocks();
    let disk = RealDisk::open(&path).map_err(|error| Failure::file(&path, &error))?;
    let config = dir.sizes.of_blocks(dir.format.cluster, dir.format.disk);
    let store = Store::open(Arc::new(disk), config)
        .map_err(|error| Failure::from(error).of(path.display()))?;
    let (blocks, damaged) = lacking(&store, blocks);
    let bar = output::count_bar(blocks.len() as u64, "blocks");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let mut writes = JoinSet::new();
    let wait = |writes: &mut JoinSet<cairn_base::Result<()>>| -> Result<()> {
        match runtime.block_on(writes.join_next()) {
            None => Ok(()),
            Some(written) => Ok(written.map_err(|error| Failure::new(error.to_string()))??),
        }
    };
    let new = blocks.len() as u64;
    repository.each(blocks.into_iter().map(Item::Block), &mut |item, bytes| {
        let Item::Block(block) = item else { return Ok(()) };
        let (owner, data) = take_owner(bytes)?;
        while writes.len() >= WRITES {
            wait(&mut writes)?;
        }
        let (store, over) = (store.clone(), damaged.contains(&block));
        let write = async move {
            let how = How { over, ..How::default() };
            store.put_as(GroupId::LOCAL, block, owner, data, how).await
        };
        writes.spawn_on(write, runtime.handle());
        bar.inc(1);
        Ok(())
    })?;
    while !writes.is_empty() {
        wait(&mut writes)?;
    }
    bar.finish_and_clear();
    store.close()?;
    Ok(new)
}

/// Returns the blocks that are not there as they should be: first all of them, then those of which
/// there is a damaged part, or a part that is too short for this state.
fn lacking(store: &Store, blocks: BTreeMap<BlockId, u32>) -> (Vec<BlockId>, BTreeSet<BlockId>) {
    let bar = output::count_bar(blocks.len() as u64, "blocks that are there");
    let (mut lacking, mut damaged) = (Vec::new(), BTreeSet::new());
    for (block, length) in blocks {
        bar.inc(1);
        if store.stat(GroupId::LOCAL, block).is_err() {
            lacking.push(block);
            continue;
        }
        match store.verify(GroupId::LOCAL, block) {
            Ok(info) if info.length >= length => {}
            _ => {
                lacking.push(block);
                damaged.insert(block);
            }
        }
    }
    bar.finish_and_clear();
    if !damaged.is_empty() {
        let count = damaged.len();
        output::complain(&format!("{count} blocks that are there are damaged: they are replaced"));
    }
    (lacking, damaged)
}
