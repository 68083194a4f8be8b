//! `cairn restore`: from a state in a backup to a store.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::rng::RealRng;
use cairn_base::{BlockId, BodyId, GroupId, Owner, RealDisk, Secret};
use cairn_blocks::Store;
use cairn_meta::dump::{self, Contents, Writer};
use cairn_meta::keys;
use cairn_meta::rows::{Extents, Freed, Place, Row};
use tokio::task::JoinSet;

use super::check;
use super::repository::{Item, Repository};
use super::rows::of_list;
use super::state::BackupState;
use super::target::TargetArgs;
use crate::dir::DataDir;
use crate::failure::{Failure, Result};
use crate::metadata::{MetaArgs, Metadata};
use crate::{output, secret_file};

/// Blocks that are written at the same time.
const WRITES: usize = 32;
const BUFFER: usize = 256 << 10;

/// Restore a store from a backup
///
/// DIR is a new directory, or that of the same store whose metadata are lost: move what is left of
/// DIR/meta away first. Blocks that are there stay, and none is deleted. An interrupted restore
/// goes on when it is run again.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn restore /backup/cairn /srv/cairn
  cairn restore s3://backups/cairn /srv/cairn --passphrase-file pass.txt
  cairn restore /backup/cairn --dump metadata.dump     # for cairn meta load, of a cluster")]
pub struct RestoreArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Data directory; no server may be using it
    #[arg(required_unless_present = "dump", conflicts_with = "dump")]
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
    #[arg(long, value_name = "FILE")]
    dump: Option<PathBuf>,
    #[command(flatten)]
    meta: MetaArgs,
}

pub fn run(args: &RestoreArgs) -> Result<ExitCode> {
    let passphrase = args.passphrase_file.as_deref().map(secret_file::read).transpose()?;
    let repository = Repository::open(args.target.open()?, passphrase.as_ref(), false)?;
    let state = BackupState::find(&repository, args.state.as_deref())?;
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

fn whole(
    repository: &Repository,
    state: &BackupState,
    path: &Path,
    args: &RestoreArgs,
) -> Result<()> {
    // Before anything is changed it is known that nothing is missing.
    let blocks = check::blocks(repository, state)?;
    let number = state.about.cluster;
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
            dump::load(&*metadata.engine, &mut input, &mut |rows| bar.set_position(rows))?;
        bar.finish_and_clear();
        Ok(summary)
    });
    // It may not be there, and there may be a failure to report.
    let _ = fs::remove_file(&file);
    let summary = loaded?;
    if let Some(embedded) = &metadata.embedded {
        embedded.checkpoint()?;
    }
    let id = state.id();
    output::complain(&format!("restored: {id}: {} rows, {new} blocks", summary.rows));
    Ok(())
}

/// The key of the store's secrets: that of the directory, of the option, or of the backup.
fn keep_seal(dir: &DataDir, state: &BackupState, args: &RestoreArgs) -> Result<()> {
    if dir.seal_bytes()?.is_some() {
        return Ok(());
    }
    let text = match (&args.secret_key, state.about.files.get("secret.key")) {
        (Some(path), _) => {
            let text = fs::read_to_string(path).map_err(|error| Failure::file(path, &error))?;
            Secret::new(text)
        }
        (None, Some(text)) => Secret::new(text.clone()),
        (None, None) => {
            let text = "secret.key is not in the backup, and without it no access key of the \
                        store works: name the file by --secret-key";
            return Err(Failure::new(text));
        }
    };
    dir.keep_seal_file(&text)
}

fn restore_blocks(
    repository: &Repository,
    dir: &DataDir,
    mut blocks: BTreeSet<BlockId>,
) -> Result<u64> {
    let path = dir.blocks();
    let disk = RealDisk::open(&path).map_err(|error| Failure::file(&path, &error))?;
    let config = dir.sizes.of_blocks(dir.format.cluster, dir.format.disk);
    let store = Store::open(Arc::new(disk), config)
        .map_err(|error| Failure::from(error).of(path.display()))?;
    blocks.retain(|block| store.stat(GroupId::LOCAL, *block).is_err());
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
        let store = store.clone();
        let write = async move { store.put(GroupId::LOCAL, block, owner, data).await };
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

/// The owner before the bytes of a block.
fn take_owner(bytes: Vec<u8>) -> Result<(Owner, Bytes)> {
    let mut bytes = Bytes::from(bytes);
    let bad = || Failure::new("a block in the backup has no owner: it is damaged");
    let body: [u8; 16] = bytes.get(..16).and_then(|id| id.try_into().ok()).ok_or_else(bad)?;
    let chunk: [u8; 4] = bytes.get(16..20).and_then(|at| at.try_into().ok()).ok_or_else(bad)?;
    let owner = Owner { body: BodyId::from_bytes(body), chunk: u32::from_le_bytes(chunk) };
    Ok((owner, bytes.split_off(20)))
}

/// Writes the rows of a state as a dump, as they were, or as they are for one machine.
fn write_dump(
    repository: &Repository,
    state: &BackupState,
    path: &Path,
    for_one_machine: bool,
) -> Result<()> {
    let fail = |error: std::io::Error| Failure::file(path, &error);
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    let file = file.map_err(fail)?;
    let mut out = BufWriter::with_capacity(BUFFER, &file);
    let mut dump = Writer::begin(&mut out, state.about.cluster, state.about.batch)?;
    // Lists are wanted in the order of keys, and packs have them in another one.
    for name in &state.lists {
        repository.each(std::iter::once(Item::Rows(*name)), &mut |_, list| {
            let rows =
                of_list(list).ok_or_else(|| Failure::new("a list of rows makes no sense"))?;
            for (key, value) in rows {
                let row = if for_one_machine { local(&key, value)? } else { Some(value) };
                if let Some(value) = row {
                    dump.row(&key, &value)?;
                }
            }
            Ok(())
        })?;
    }
    dump.finish()?;
    out.flush().map_err(fail)?;
    drop(out);
    file.sync_all().map_err(fail)
}

/// A row for a store on one machine, where there is one group of blocks and no other node; `None`
/// if it has none there. Holds are for backups that ended long ago.
fn local(key: &[u8], value: Bytes) -> Result<Option<Bytes>> {
    let is_of_cluster = *key == *keys::map() || key.starts_with(b"cjoin/");
    if is_of_cluster || keys::hold_id(key).is_some() {
        return Ok(None);
    }
    if keys::is_of_extents(key) {
        let mut extents = Extents::decode(&value)?;
        let mut changed = false;
        for extent in &mut extents.extents {
            if let Place::Block { group, .. } = &mut extent.place {
                changed |= *group != GroupId::LOCAL;
                *group = GroupId::LOCAL;
            }
        }
        return Ok(Some(if changed { extents.encode() } else { value }));
    }
    if keys::freed_parts(key).is_some() && key.first() == Some(&b'f') {
        let freed = Freed::decode(&value)?;
        return Ok(Some(Freed { group: GroupId::LOCAL, ..freed }.encode()));
    }
    Ok(Some(value))
}
