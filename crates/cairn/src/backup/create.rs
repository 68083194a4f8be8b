//! Makes a backup of one state of a running store.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use cairn_meta::dump;
use parking_lot::Mutex;

use super::hold::BackupHold;
use super::repository::{Item, OWNER_BYTES, Packer, Repository};
use super::rows::{Cutter, ReferencedBlock, blocks_of};
use super::seal::hex;
use super::state::{About, BackupState, new_name};
use super::target::Again;
use crate::connection::Server;
use crate::failure::{Failure, Result};
use crate::output;

/// Files of keys, and what a restore lacks without each.
const KEYS: [(&str, &str); 2] = [
    ("secret.key", "without it no access key of the store works after a restore"),
    ("ca.key", "without it no node can join the cluster after a restore"),
];
/// Upper bound of the size of a file of keys.
const KEY_BYTES: u64 = 64 << 10;

/// Settings of a backup.
pub struct How {
    pub owner: String,
    pub hold_seconds: u32,
    pub jobs: usize,
    pub pack_bytes: usize,
    /// A directory with files of keys.
    pub keys: Option<PathBuf>,
}

pub fn run(server: Server, mut repository: Repository, how: &How) -> Result<BackupState> {
    let files = files(&repository, how.keys.as_deref())?;
    let server = Arc::new(server);
    let begun = seconds();
    let hold = BackupHold::take(&server, &how.owner, how.hold_seconds)?;
    let mut packer = Packer::new(how.pack_bytes);
    let (summary, lists, blocks) = metadata(&server, &mut repository, &mut packer, &hold)?;
    let (count, bytes) =
        (blocks.len() as u64, blocks.values().map(|named| u64::from(named.length)).sum());
    let is_new = |named: &ReferencedBlock| !repository.has_block(named.block, named.length);
    let wanted: Vec<ReferencedBlock> = blocks.into_values().filter(is_new).collect();
    copy(&server, &mut repository, &mut packer, &wanted, how.jobs, &hold)?;
    packer.flush(&mut repository)?;
    // All blocks are there. A block that was deleted before it was copied would be missing, unless
    // the hold has lasted until now.
    hold.confirm()?;
    repository.confirm()?;
    let state_batch = summary.batch;
    let about = About {
        cluster: summary.cluster,
        batch: summary.batch,
        rows: summary.rows,
        blocks: count,
        block_bytes: bytes,
        begun,
        ended: seconds(),
        files,
        ..About::default()
    };
    let state = BackupState { name: new_name(begun, state_batch)?, about, lists };
    state.put(&repository)?;
    let (new, written) = (wanted.len(), output::human_bytes(packer.bytes));
    output::complain(&format!("{new} of {count} blocks were new, {written} were written"));
    Ok(state)
}

pub fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs())
}

/// Returns the files of keys, if the backup may have them; prints what it lacks.
fn files(repository: &Repository, keys: Option<&Path>) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    if let (Some(directory), true) = (keys, repository.keys.is_encrypting()) {
        for (name, _) in KEYS {
            let path = directory.join(name);
            match fs::File::open(&path) {
                Ok(file) => {
                    let mut text = String::new();
                    let read = file.take(KEY_BYTES).read_to_string(&mut text);
                    read.map_err(|error| Failure::file(&path, &error))?;
                    files.insert(name.to_owned(), text);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Failure::file(&path, &error)),
            }
        }
    }
    if !files.contains_key(KEYS[0].0) {
        let (name, lack) = KEYS[0];
        let why = match (repository.keys.is_encrypting(), keys) {
            (false, _) => "the backup is not encrypted (--passphrase-file)",
            (true, None) => "no directory was named (--keys)",
            (true, Some(_)) => "there is none in the directory of --keys",
        };
        output::complain(&format!("{name} is not in this backup: {why}: {lack}: keep it apart"));
    }
    Ok(files)
}

type Rows = (dump::Summary, Vec<[u8; 32]>, BTreeMap<u128, ReferencedBlock>);

/// Reads one state, stores the lists of rows that are new, and finds the blocks that it names.
fn metadata(
    server: &Server,
    repository: &mut Repository,
    packer: &mut Packer,
    hold: &BackupHold,
) -> Result<Rows> {
    let reply = server.send("GET", "/admin/meta/dump")?;
    let (_, mut input) = reply.into_reader();
    let bar = output::count_bar(0, "metadata rows");
    let mut cutter = Cutter::default();
    let (mut lists, mut blocks) = (Vec::new(), BTreeMap::new());
    let mut failed = None;
    let mut add = |list: Vec<u8>| -> Result<()> {
        hold.check()?;
        let name = repository.keys.named(&list);
        lists.push(name);
        packer.add(repository, Item::Rows(name), list)
    };
    let mut row = |key: &[u8], value: &bytes::Bytes| -> Result<()> {
        for named in blocks_of(key, value)? {
            let id = u128::from_be_bytes(named.block.to_bytes());
            let known = blocks.entry(id).or_insert(named);
            known.length = known.length.max(named.length);
        }
        bar.inc(1);
        cutter.row(key, value)?.into_iter().flatten().try_for_each(&mut add)
    };
    let summary = dump::each(&mut input, &mut |key, value| {
        row(&key, &value).map_err(|failure| {
            failed = Some(failure);
            cairn_base::Error::Unavailable("the backup failed".to_owned())
        })
    });
    if let Some(failure) = failed {
        return Err(failure);
    }
    let summary = summary?;
    cutter.finish().into_iter().try_for_each(&mut add)?;
    bar.finish_and_clear();
    Ok((summary, lists, blocks))
}

/// Fetches a block of the server, with its owner before it.
fn fetch(server: &Server, named: &ReferencedBlock) -> Result<Vec<u8>> {
    let ReferencedBlock { group, block, length, owner } = named;
    let path = format!("/admin/blocks/{}/{}/{length}", group.0, hex(&block.to_bytes()));
    let reply = server.send("GET", &path);
    let reply = reply.map_err(|failure| failure.of(format!("block {block}")))?;
    let mut bytes = Vec::with_capacity(OWNER_BYTES + *length as usize);
    bytes.extend_from_slice(&owner.body.to_bytes());
    bytes.extend_from_slice(&owner.chunk.to_le_bytes());
    let (_, body) = reply.into_reader();
    let cut = |why: &str| Failure::new(format!("block {block}: {why}")).passing();
    let read = body.take(u64::from(*length) + 1).read_to_end(&mut bytes);
    read.map_err(|error| cut(&error.to_string()))?;
    if bytes.len() == OWNER_BYTES + *length as usize {
        Ok(bytes)
    } else {
        Err(cut("the reply has another length"))
    }
}

/// Copies blocks, several at a time.
fn copy(
    server: &Arc<Server>,
    repository: &mut Repository,
    packer: &mut Packer,
    wanted: &[ReferencedBlock],
    jobs: usize,
    hold: &BackupHold,
) -> Result<()> {
    let total = wanted.iter().map(|named| u64::from(named.length)).sum();
    let bar = output::bytes_bar(total, "blocks");
    let queue = Mutex::new(wanted.iter());
    // The server may be restarted meanwhile: the hold is a row there.
    let again = Again::reached();
    let (sender, fetched) = sync_channel(jobs);
    thread::scope(|scope| {
        for _ in 0..jobs {
            let (queue, again, sender) = (&queue, &again, sender.clone());
            scope.spawn(move || {
                while let Some(named) = { queue.lock().next() } {
                    let bytes = again.run(|| fetch(server, named));
                    let failed = bytes.is_err();
                    // The receiver is gone after a failure.
                    if sender.send((*named, bytes)).is_err() || failed {
                        return;
                    }
                }
            });
        }
        drop(sender);
        // The receiver is dropped before the threads are joined.
        let fetched = fetched;
        for (named, bytes) in fetched {
            hold.check()?;
            packer.add(repository, Item::Block(named.block), bytes?)?;
            bar.inc(u64::from(named.length));
        }
        Ok::<(), Failure>(())
    })?;
    bar.finish_and_clear();
    Ok(())
}
