//! From a directory to a store, and back.

use std::sync::Arc;

use cairn_auth::Caller;
use cairn_base::clock::RealClock;
use cairn_base::rng::RealRng;
use cairn_base::{Clock, RealDisk, Rng};
use cairn_blocks::Store;
use cairn_doors::admit::Admit;
use cairn_fs::Fs;
use cairn_fs::ops::sessions::Format;
use cairn_meta::Master;
use cairn_meta::engine::Engine;
use cairn_meta::engine::embedded::Embedded;
use cairn_meta::master;

use super::{Args, Durability};
use crate::dir::DataDir;
use crate::failure::{Failure, Result};

/// The store, from the disk up. Closed in the opposite order.
pub struct Parts {
    pub admit: Arc<Admit>,
    pub fs: Fs,
    pub master: Master,
    pub blocks: Store,
    pub engine: Arc<Embedded>,
    pub dir: DataDir,
}

impl Parts {
    pub async fn open(args: &Args) -> Result<Parts> {
        let rng: Arc<dyn Rng> = Arc::new(RealRng);
        let clock: Arc<dyn Clock> = Arc::new(RealClock::default());
        let dir = DataDir::open_or_create(&args.dir, &*rng)?;
        let seal = dir.seal_key(&*rng)?;
        let (engine, blocks) = open_disks(&dir, args.durability).await?;
        let shared: Arc<dyn Engine> = engine.clone();
        let master = Master::start(shared, Arc::clone(&clock), master::Config::default())?;
        let format = Format { cluster: dir.format.cluster_number() };
        let (cluster, _) = master.run(&Caller::system(), format).await?;
        if cluster != dir.format.cluster_number() {
            let shown = dir.meta().display().to_string();
            let text = "is the metadata of another store: put back the one that was here";
            return Err(Failure::new(format!("{shown}: {text}")));
        }
        let config =
            cairn_fs::Config { cache_bytes: args.cache_mib << 20, ..cairn_fs::Config::default() };
        let parts = Arc::new(blocks.clone());
        let fs = Fs::start(master.clone(), parts, clock, &*rng, config).await?;
        let admit = Arc::new(Admit::new(fs.clone(), seal, rng));
        Ok(Parts { admit, fs, master, blocks, engine, dir })
    }

    /// Ends the master, then the block store, then the engine: each leaves the disk so that the
    /// next start is fast. Tasks that still hold a clone find it ended.
    pub async fn close(self) -> Result<()> {
        let Parts { admit, fs, master, blocks, engine, dir } = self;
        drop((admit, fs));
        let closing = tokio::task::spawn_blocking(move || {
            master.stop();
            drop(master);
            blocks.close()?;
            engine.checkpoint()?;
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

/// Opens both disks at the same time: after a crash each may have to be read.
async fn open_disks(dir: &DataDir, durability: Durability) -> Result<(Arc<Embedded>, Store)> {
    let disk = |path: std::path::PathBuf| {
        RealDisk::open(&path).map(Arc::new).map_err(|error| Failure::file(&path, &error))
    };
    let (meta, blocks) = (disk(dir.meta())?, disk(dir.blocks())?);
    let mut config = dir.sizes.of_blocks(dir.format.cluster, dir.format.disk);
    config.durability = match durability {
        Durability::Sync => cairn_blocks::Durability::Sync,
        Durability::Async => cairn_blocks::Durability::Async,
    };
    let of_meta = dir.sizes.of_meta();
    let engine = tokio::task::spawn_blocking(|| Embedded::open(meta, of_meta));
    let blocks = tokio::task::spawn_blocking(move || Store::open(blocks, config));
    let (engine, blocks) = tokio::join!(engine, blocks);
    let ended = |error| Failure::new(format!("opening the store: {error}"));
    let engine = engine.map_err(ended)?;
    let engine = engine.map_err(|error| Failure::from(error).of(dir.meta().display()))?;
    let blocks = blocks.map_err(ended)?;
    let blocks = blocks.map_err(|error| Failure::from(error).of(dir.blocks().display()))?;
    let report = blocks.open_report();
    if report.damaged_segments > 0 {
        let segments = report.damaged_segments;
        tracing::error!(segments, "segments are damaged: stop, and run cairn fsck");
    }
    tracing::info!(blocks = report.blocks, segments = report.segments, "store opened");
    Ok((Arc::new(engine), blocks))
}
