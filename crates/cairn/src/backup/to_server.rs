//! Objects of one bucket, out of a state in a backup, into a server that runs.
//!
//! ```text
//!   repository ── rows ──► metadata in a scratch directory ──► Fs ──► PUT at the HTTP door
//!        └────────────── blocks, when they are read ────────────┘
//! ```

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use bytes::{Buf, Bytes};
use cairn_auth::Caller;
use cairn_base::clock::RealClock;
use cairn_base::rng::RealRng;
use cairn_base::{Clock, UserId};
use cairn_fs::ops::list_objects::ListObjects;
use cairn_fs::rows::ObjectAttributes;
use cairn_fs::{Config, Fs, Object};
use cairn_meta::{Master, dump};
use futures_util::StreamExt;
use tokio::runtime::Runtime;

use super::as_dump::{no_map, write_dump};
use super::blocks::BackupBlocks;
use super::repository::Repository;
use super::seal::{hex, random};
use super::state::BackupState;
use crate::client::address::{Address, bucket_path};
use crate::client::pool;
use crate::connection::Server;
use crate::connection::http::Outgoing;
use crate::dir::{DataDir, MetaPlace};
use crate::failure::{Failure, Result};
use crate::metadata::Metadata;
use crate::output;

/// Objects of a page of a listing.
const PAGE: usize = 1000;
/// Pieces of an object that wait to be sent, at most.
const PIECES: usize = 4;
const BUFFER: usize = 256 << 10;

/// Objects to restore, and their target.
pub struct Selection {
    pub bucket: String,
    pub prefix: String,
    /// Bucket of the server.
    pub into: String,
    /// Set if existing objects are replaced.
    pub overwrite: bool,
    pub jobs: usize,
    /// Directory for the metadata while this runs.
    pub scratch: PathBuf,
}

/// Counts of restored objects.
#[derive(Default)]
pub struct RestoreCounts {
    pub objects: AtomicU64,
    pub bytes: AtomicU64,
    /// Objects that existed already and stayed as they are.
    pub left: AtomicU64,
    /// Names that are no keys of objects.
    pub hidden: AtomicU64,
}

/// A directory that is removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn make(parent: &Path) -> Result<Scratch> {
        let path = parent.join(format!("cairn-restore-{}", hex(&random::<6>()?)));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| Failure::file(&path, &error))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One state of a store, opened for reading.
struct StoredState {
    runtime: Runtime,
    fs: Fs,
    master: Master,
    caller: Caller,
}

pub fn run(
    repository: Repository,
    state: &BackupState,
    server: &Server,
    selection: &Selection,
) -> Result<RestoreCounts> {
    let scratch = Scratch::make(&selection.scratch)?;
    let stored = open(repository, state, &scratch.0, selection.jobs)?;
    let sent = send_all(&stored, server, selection);
    let StoredState { runtime, fs, master, .. } = stored;
    drop(fs);
    master.stop();
    drop(master);
    drop(runtime);
    sent
}

/// Opens the metadata of a state in a directory, over the blocks of the backup.
fn open(
    repository: Repository,
    state: &BackupState,
    scratch: &Path,
    jobs: usize,
) -> Result<StoredState> {
    let dump = scratch.join("rows.dump");
    write_dump(&repository, state, &dump, true)?;
    let path = scratch.join("store");
    let dir = DataDir::of_restored(&path, state.about.cluster, MetaPlace::Directory, &RealRng)?;
    let metadata = Metadata::in_directory(&dir)?;
    let input = File::open(&dump).map_err(|error| Failure::file(&dump, &error))?;
    let bar = output::count_bar(state.about.rows, "loading rows");
    let mut input = BufReader::with_capacity(BUFFER, input);
    dump::load(&*metadata.engine, &mut input, &no_map, &mut |rows| bar.set_position(rows))?;
    bar.finish_and_clear();
    fs::remove_file(&dump).map_err(|error| Failure::file(&dump, &error))?;
    // There is one thread for each object that waits to be sent, and some for everything else.
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(jobs + 2).enable_all().build()?;
    let clock: Arc<dyn Clock> = Arc::new(RealClock::default());
    let blocks = Arc::new(BackupBlocks::new(repository, 2 * jobs));
    let (fs, master) = runtime.block_on(async {
        let (engine, of_master) = (Arc::clone(&metadata.engine), Arc::clone(&clock));
        let config = metadata.config.clone();
        let starting =
            tokio::task::spawn_blocking(move || Master::start(engine, of_master, config));
        let master = starting.await.map_err(|error| Failure::new(error.to_string()))??;
        let fs = Fs::start(master.clone(), blocks, clock, &RealRng, Config::default()).await?;
        Ok::<_, Failure>((fs, master))
    })?;
    Ok(StoredState { runtime, fs, master, caller: Caller::verified(UserId::ROOT) })
}

fn send_all(stored: &StoredState, server: &Server, selection: &Selection) -> Result<RestoreCounts> {
    let sent = RestoreCounts::default();
    let page = |after: String| {
        let verb = ListObjects {
            bucket: selection.bucket.clone(),
            prefix: selection.prefix.clone(),
            delimiter: String::new(),
            after,
            max_keys: PAGE,
        };
        let read = stored.runtime.block_on(stored.fs.read(&stored.caller, verb));
        read.map_err(|error| Failure::from(error).of("in the backup"))
    };
    let mut first = Some(page(String::new())?);
    make_bucket(server, &selection.into)?;
    let bar = output::bytes_bar(0, &selection.into);
    let feed = |send: &mut dyn FnMut(String) -> Result<()>| {
        while let Some(page_now) = first.take() {
            sent.hidden.fetch_add(page_now.hidden, Ordering::Relaxed);
            for listed in page_now.objects {
                bar.inc_length(listed.inode.size);
                send(listed.key)?;
            }
            first = page_now.next.map(&page).transpose()?;
        }
        Ok(())
    };
    pool::run(selection.jobs, feed, |key: String| {
        let size = send_one(stored, server, selection, &key);
        match size.map_err(|failure| failure.of(&key))? {
            Some(size) => {
                sent.objects.fetch_add(1, Ordering::Relaxed);
                sent.bytes.fetch_add(size, Ordering::Relaxed);
                bar.inc(size);
            }
            None => {
                sent.left.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    })?;
    bar.finish_and_clear();
    Ok(sent)
}

/// Makes a private bucket, unless it is there.
fn make_bucket(server: &Server, bucket: &str) -> Result<()> {
    match server.send("GET", &bucket_path(bucket)) {
        Err(failure) if failure.is_not_found() => {
            server.send("PUT", &bucket_path(bucket))?;
            output::complain(&format!("made bucket {bucket}, which is private"));
            Ok(())
        }
        found => found.map(drop),
    }
}

/// Sends an object. Returns its size; `None` if it exists on the server and stays.
fn send_one(
    stored: &StoredState,
    server: &Server,
    selection: &Selection,
    key: &str,
) -> Result<Option<u64>> {
    let Selection { bucket, into, overwrite, .. } = selection;
    let object = stored.runtime.block_on(stored.fs.open(&stored.caller, bucket, key))?;
    let target = Address { bucket: into.clone(), key: key.to_owned() };
    // Checked even though the condition would refuse it, so that no body is sent in vain.
    if !overwrite {
        match server.send("HEAD", &format!("{}?no-redirect", target.path())) {
            Err(failure) if failure.is_not_found() => {}
            found => return found.map(|_| None),
        }
    }
    let size = object.size();
    let named = headers(object.attributes());
    let mut headers: Vec<(&str, &str)> =
        named.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    if !overwrite {
        headers.push(("if-none-match", "*"));
    }
    let mut body = Pieces::of(stored, object);
    let outgoing = match size {
        0 => Outgoing::Bytes(Bytes::new()),
        _ => Outgoing::Reader(&mut body, Some(size)),
    };
    match server.request_with("PUT", target.path().as_str(), outgoing, &headers) {
        Err(failure) if failure.is_unmet() => Ok(None),
        put => put.map(|_| Some(size)),
    }
}

/// Returns the headers that tell the HTTP door what is stored with an object.
fn headers(attributes: Option<&ObjectAttributes>) -> Vec<(String, String)> {
    let Some(object) = attributes else { return Vec::new() };
    let plain = [
        ("content-type", &object.content_type),
        ("content-encoding", &object.content_encoding),
        ("content-disposition", &object.content_disposition),
        ("content-language", &object.content_language),
        ("cache-control", &object.cache_control),
        ("expires", &object.expires),
    ];
    let plain = plain.into_iter().filter(|(_, value)| !value.is_empty());
    let mut headers: Vec<(String, String)> =
        plain.map(|(name, value)| (name.to_owned(), value.clone())).collect();
    let own = object.user_metadata.iter();
    headers.extend(own.map(|(name, value)| (format!("x-cairn-meta-{name}"), value.clone())));
    headers
}

/// Bytes of an object as they arrive.
struct Pieces {
    pieces: Receiver<cairn_base::Result<Bytes>>,
    rest: Bytes,
}

impl Pieces {
    fn of(stored: &StoredState, object: Object) -> Pieces {
        let (sender, pieces) = sync_channel(PIECES);
        stored.runtime.spawn(async move {
            let mut stream = object.read(0..object.size());
            while let Some(piece) = stream.next().await {
                // The reader is gone after a failure.
                if sender.send(piece).is_err() {
                    return;
                }
            }
        });
        Pieces { pieces, rest: Bytes::new() }
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.pieces.recv() {
                Ok(Ok(piece)) => self.rest = piece,
                Ok(Err(error)) => return Err(io::Error::other(error.to_string())),
                Err(_) => return Ok(0),
            }
        }
        let read = self.rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&self.rest[..read]);
        self.rest.advance(read);
        Ok(read)
    }
}
