//! One state of a store in a backup, opened for reading.

use std::fs::{self, DirBuilder, File};
use std::io::BufReader;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::clock::RealClock;
use cairn_base::rng::RealRng;
use cairn_base::{Clock, UserId};
use cairn_fs::{Config, Fs, WireVerb};
use cairn_meta::engine::Engine;
use cairn_meta::{Master, dump};
use tokio::runtime::Runtime;

use super::as_dump::{no_map, write_dump};
use super::blocks::BackupBlocks;
use super::repository::Repository;
use super::seal::{hex, random};
use super::state::BackupState;
use crate::dir::{DataDir, MetaPlace};
use crate::failure::{Failure, Result};
use crate::metadata::Metadata;
use crate::output;

const BUFFER: usize = 256 << 10;
/// Rows of a scan.
const PAGE: usize = 1000;

/// A directory that is removed in the end.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn make(parent: &Path) -> Result<Scratch> {
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
pub struct StoredState {
    pub runtime: Runtime,
    pub fs: Fs,
    master: Master,
    /// Root, without an identity of POSIX.
    pub caller: Caller,
    /// Rows of users, credentials, exports and share links.
    pub accounts: Vec<(Bytes, Bytes)>,
}

impl StoredState {
    /// Opens the metadata of a state in a directory, over the blocks of the backup.
    pub fn open(
        repository: Repository,
        state: &BackupState,
        scratch: &Scratch,
        jobs: usize,
    ) -> Result<StoredState> {
        let metadata = load(&repository, state, &scratch.0)?;
        let accounts = accounts(&*metadata.engine)?;
        // There is one thread for each request that waits, and some for everything else.
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
        let caller = Caller::verified(UserId::ROOT);
        Ok(StoredState { runtime, fs, master, caller, accounts })
    }

    pub async fn read<V: WireVerb>(&self, verb: V) -> cairn_base::Result<V::Reply> {
        self.fs.read(&self.caller, verb).await
    }

    pub fn close(self) {
        let StoredState { runtime, fs, master, .. } = self;
        drop(fs);
        master.stop();
        drop(master);
        drop(runtime);
    }
}

fn load(repository: &Repository, state: &BackupState, scratch: &Path) -> Result<Metadata> {
    let dump = scratch.join("rows.dump");
    write_dump(repository, state, &dump, true)?;
    let path = scratch.join("store");
    let dir = DataDir::of_restored(&path, state.about.cluster, MetaPlace::Directory, &RealRng)?;
    let metadata = Metadata::in_directory(&dir)?;
    let input = File::open(&dump).map_err(|error| Failure::file(&dump, &error))?;
    let bar = output::count_bar(state.about.rows, "loading rows");
    let mut input = BufReader::with_capacity(BUFFER, input);
    dump::load(&*metadata.engine, &mut input, &no_map, &mut |rows| bar.set_position(rows))?;
    bar.finish_and_clear();
    fs::remove_file(&dump).map_err(|error| Failure::file(&dump, &error))?;
    Ok(metadata)
}

/// Reads the rows `k`.
fn accounts(engine: &dyn Engine) -> Result<Vec<(Bytes, Bytes)>> {
    let snapshot = engine.snapshot()?;
    let (mut rows, mut start) = (Vec::new(), b"k".to_vec());
    loop {
        let page = snapshot.scan(&start, b"l", PAGE)?;
        let is_last = page.len() < PAGE;
        if let Some((key, _)) = page.last() {
            start = [&key[..], b"\0"].concat();
        }
        rows.extend(page);
        if is_last {
            return Ok(rows);
        }
    }
}
