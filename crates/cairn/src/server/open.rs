//! Opening of a store in a directory, and closing it.

use std::sync::Arc;

use cairn_auth::{Caller, SealKey};
use cairn_base::clock::RealClock;
use cairn_base::rng::RealRng;
use cairn_base::{CapabilitySet, Clock, RealDisk, Rng};
use cairn_blocks::Store;
use cairn_doors::admit::Admit;
use cairn_fs::Fs;
use cairn_fs::ops::credentials::{FindAccessKey, ListCredentials};
use cairn_fs::ops::sessions::Format;
use cairn_meta::engine::Engine;
use cairn_meta::engine::{embedded::EmbeddedEngine, postgres};
use cairn_meta::master::host::Sessions;
use cairn_meta::{Master, capabilities};

use tokio::task;

use super::args::{Durability, ServerArgs};
use crate::dir::{DataDir, DirectoryUse};
use crate::failure::{Failure, Result};
use crate::memory::{Part, ProcessSizes};
use crate::metadata::Metadata;

/// The store, from the disk up. Closed in the opposite order.
pub struct Parts {
    pub admit: Arc<Admit>,
    pub fs: Fs,
    pub master: Master,
    /// Sessions of mounts.
    pub sessions: Arc<Sessions>,
    pub blocks: Store,
    pub engine: Arc<dyn Engine>,
    /// Capabilities that are on: whoever reads rows must have them.
    pub capabilities: CapabilitySet,
    /// The engine, if it is the embedded one.
    embedded: Option<Arc<EmbeddedEngine>>,
    pub dir: DataDir,
    pub sizes: ProcessSizes,
}

impl Parts {
    /// Returns the engine, if only this server has the metadata.
    pub fn embedded(&self) -> Option<Arc<EmbeddedEngine>> {
        self.embedded.clone()
    }

    pub async fn open(args: &ServerArgs) -> Result<Parts> {
        let sizes = args.sizes()?;
        sizes.announce();
        let rng: Arc<dyn Rng> = Arc::new(RealRng);
        let clock: Arc<dyn Clock> = Arc::new(RealClock::default());
        let place = args.meta.place();
        let dir = DataDir::open_or_create(&args.dir, DirectoryUse::Server, place, &*rng)?;
        let seal = dir.seal_key(&*rng)?;
        let (metadata, blocks) = open_both(&dir, args, &sizes).await?;
        let master = start_master(&metadata, Arc::clone(&clock), &sizes).await?;
        let format = Format { cluster: dir.format.cluster_number() };
        let (cluster, _) = master.run(&Caller::system(), format).await?;
        if cluster != dir.format.cluster_number() {
            return Err(metadata.foreign("holds the metadata of another store"));
        }
        require_opened(&dir, &master, &seal).await?;
        let Metadata { engine, embedded, .. } = metadata;
        let capabilities = task::block_in_place(|| capabilities::enabled(&*engine))?;
        let cache_bytes = sizes.bytes(Part::Blocks);
        let config = cairn_fs::Config { cache_bytes, ..cairn_fs::Config::default() };
        let opened = cairn_roles::server::open(&master, &blocks, clock, &*rng, config);
        let (fs, sessions) = opened.await?;
        let admit = Arc::new(Admit::new(fs.clone(), seal, rng));
        Ok(Parts {
            admit,
            fs,
            master,
            sessions,
            blocks,
            engine,
            capabilities,
            embedded,
            dir,
            sizes,
        })
    }

    /// Ends the master, then the block store, then the engine: each leaves the disk so that the
    /// next start is fast. Tasks that still hold a clone find it ended.
    pub async fn close(self) -> Result<()> {
        let Parts { admit, fs, master, sessions, blocks, engine, embedded, dir, .. } = self;
        drop((admit, fs, sessions));
        let closing = task::spawn_blocking(move || {
            master.stop();
            drop(master);
            blocks.close()?;
            if let Some(embedded) = embedded {
                embedded.checkpoint()?;
            }
            drop(engine);
            drop(dir);
            Ok::<(), cairn_base::Error>(())
        });
        match closing.await {
            Ok(closed) => Ok(closed?),
            Err(error) => Err(Failure::new(format!("closing the store: {error}"))),
        }
    }
}

/// Refuses a key that opens no secret of the store: no user could log in.
pub async fn require_opened(dir: &DataDir, master: &Master, seal: &SealKey) -> Result<()> {
    let system = Caller::system();
    let listed = master.read(&system, ListCredentials).await?;
    let ids: Vec<String> =
        listed.into_iter().filter(|one| !one.is_token).map(|one| one.id).collect();
    for id in &ids {
        let found = master.read(&system, FindAccessKey { id: id.clone() }).await?;
        let Some(key) = found else { continue };
        match seal.open(id, &key.sealed) {
            Ok(_) => return Ok(()),
            Err(error) => tracing::warn!(%error, "an access key cannot be used"),
        }
    }
    dir.require_opened(ids.len(), false)
}

/// Makes the failure for a join of tasks that failed.
fn ended(error: task::JoinError) -> Failure {
    Failure::new(format!("opening the store: {error}"))
}

async fn start_master(
    metadata: &Metadata,
    clock: Arc<dyn Clock>,
    sizes: &ProcessSizes,
) -> Result<Master> {
    let engine = Arc::clone(&metadata.engine);
    let config = sizes.master(metadata.config.clone());
    let starting = task::spawn_blocking(move || Master::start(engine, clock, config));
    Ok(starting.await.map_err(ended)??)
}

/// Opens metadata and blocks at the same time: after a crash each may have to be read.
async fn open_both(
    dir: &DataDir,
    args: &ServerArgs,
    sizes: &ProcessSizes,
) -> Result<(Metadata, Store)> {
    let path = dir.blocks();
    let disk = RealDisk::open(&path).map_err(|error| Failure::file(&path, &error))?;
    let mut config = dir.sizes.of_blocks(dir.format.cluster, dir.format.disk);
    config.durability = match args.durability {
        Durability::Sync => cairn_blocks::Durability::Sync,
        Durability::Async => cairn_blocks::Durability::Async,
    };
    let blocks = task::spawn_blocking(move || Store::open(Arc::new(disk), config));
    let metadata = task::block_in_place(|| open_metadata(dir, args, sizes));
    let blocks = blocks.await.map_err(ended)?;
    let blocks = blocks.map_err(|error| Failure::from(error).of(path.display()))?;
    let report = blocks.open_report();
    if report.damaged_segments > 0 {
        let segments = report.damaged_segments;
        tracing::error!(segments, "segments are damaged: stop, and run cairn fsck");
    }
    tracing::info!(blocks = report.blocks, segments = report.segments, "store opened");
    let (metadata, has_store) = metadata?;
    if !has_store && report.blocks > 0 {
        return Err(metadata.foreign("has no metadata, but the directory has blocks"));
    }
    Ok((metadata, blocks))
}

/// Opens the metadata. Also returns whether there are any.
fn open_metadata(
    dir: &DataDir,
    args: &ServerArgs,
    sizes: &ProcessSizes,
) -> Result<(Metadata, bool)> {
    let metadata = match args.meta.database() {
        None => Metadata::to_serve(dir, sizes)?,
        Some(config) => {
            let accept_lossy_failover = args.accept_lossy_failover;
            Metadata::in_database(&postgres::Config { accept_lossy_failover, ..config })?
        }
    };
    let has_store = metadata.has_store(dir)?;
    Ok((metadata, has_store))
}
