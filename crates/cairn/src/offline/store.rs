//! A store opened without a server, read-only.

use std::path::Path;
use std::sync::Arc;

use cairn_blocks::Store;
use cairn_meta::dump::{self, Contents};
use cairn_meta::engine::embedded::{self, EmbeddedEngine};
use cairn_meta::engine::raft::FrozenMember;
use cairn_meta::engine::{Engine, Snapshot, postgres};

use super::frozen_disk::FrozenDisk;
use crate::dir::{CLUSTER_FILE, DataDir, DirectoryKind, DirectoryUse, Format, MACHINE, MetaPlace};
use crate::failure::{Failure, Result};
use crate::metadata::{MetaArgs, Metadata, occupied_directory};

/// Parts of a store in its present state on the disk. Nothing done to them reaches the disk.
pub struct Frozen {
    pub blocks: Store,
    engine: Arc<dyn Engine>,
    pub dir: DataDir,
}

/// Refuses the directory of a node. In a cluster no directory has both names and blocks, and other
/// nodes go on while one is examined.
pub fn refuse_node(path: &Path) -> Result<()> {
    let kinds = DirectoryKind::of(path)?;
    let is_of_node = path.join(MACHINE).exists() || path.join(CLUSTER_FILE).exists();
    if !is_of_node || kinds.contains(&DirectoryKind::Server) {
        return Ok(());
    }
    if kinds.contains(&DirectoryKind::OverwrittenServer) {
        return DirectoryUse::Server.require(path);
    }
    let shown = path.display();
    Err(Failure::new(format!(
        "{shown}: belongs to a node of a cluster, and this command is for the directory of one \
         server: cairn cluster fsck {shown} and cairn cluster scrub {shown}, with the directory of \
         a master or a gateway, check a cluster while it serves"
    )))
}

impl Frozen {
    pub fn open(path: &Path, meta: &MetaArgs) -> Result<Frozen> {
        refuse_node(path)?;
        let dir = DataDir::open(path, meta.place())?;
        require(&dir.blocks())?;
        let engine = match meta.database() {
            None => frozen_engine(&dir)?,
            Some(config) => {
                // Nothing is written, so nothing can be lost.
                let config = postgres::Config { accept_lossy_failover: true, ..config };
                let metadata = Metadata::in_known_database(&config)?;
                if !metadata.has_store(&dir)? {
                    return Err(metadata.foreign("holds no metadata"));
                }
                metadata.engine
            }
        };
        let blocks = frozen_blocks(&dir.blocks(), &dir.format)?;
        Ok(Frozen { blocks, engine, dir })
    }

    pub fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(self.engine.snapshot()?)
    }

    /// Whether the last master counted what belongs to users: one of a version before did not.
    pub fn is_counted(&self, snapshot: &dyn Snapshot) -> Result<bool> {
        // What cannot be read is a finding of the check.
        let epoch = self.engine.fence()?.epoch;
        Ok(cairn_meta::check::is_counted(snapshot, epoch).unwrap_or(true))
    }
}

/// Checks that the store in a directory has no metadata that a load could replace, and that its
/// number is this one. Changes nothing there.
pub fn require_no_metadata(path: &Path, number: Option<u64>) -> Result<()> {
    if !path.join("format").exists() {
        return Ok(());
    }
    let place = Format::read(path)?.meta;
    let dir = DataDir::look(path, place)?;
    number.map_or(Ok(()), |number| dir.require_number(number))?;
    let shown = dir.meta().display().to_string();
    match place {
        MetaPlace::Postgres => Ok(()),
        _ if !dir.meta().exists() => Ok(()),
        MetaPlace::Members => Err(occupied_directory(&shown)),
        MetaPlace::Directory => match dump::contents(&*frozen_engine(&dir)?)? {
            Contents::Store(_) => Err(occupied_directory(&shown)),
            Contents::Nothing | Contents::Part => Ok(()),
        },
    }
}

fn require(part: &Path) -> Result<()> {
    if part.is_dir() {
        return Ok(());
    }
    Err(Failure::new(format!("{}: missing: restore it from a backup", part.display())))
}

/// Returns the metadata in a directory.
pub fn frozen_engine(dir: &DataDir) -> Result<Arc<dyn Engine>> {
    require(&dir.meta())?;
    if let Some(failure) = dir.overwritten() {
        return Err(failure);
    }
    frozen_rows(&dir.meta(), dir.format.meta)
}

/// Returns the metadata in a directory of their own. Nothing there changes.
pub fn frozen_rows(meta: &Path, place: MetaPlace) -> Result<Arc<dyn Engine>> {
    require(meta)?;
    let config = embedded::Config { background: false, ..embedded::Config::default() };
    let disk = Arc::new(FrozenDisk::open(meta));
    let engine: cairn_base::Result<Arc<dyn Engine>> = match place {
        MetaPlace::Members => FrozenMember::open(disk, config).map(|engine| Arc::new(engine) as _),
        _ => EmbeddedEngine::open(disk, config).map(|engine| Arc::new(engine) as _),
    };
    engine.map_err(|error| Failure::from(error).of(meta.display()))
}

/// Returns the blocks in a directory of their own. Nothing there changes.
pub fn frozen_blocks(blocks: &Path, format: &Format) -> Result<Store> {
    require(blocks)?;
    let config = cairn_blocks::Config::new(format.cluster, format.disk);
    let opened = Store::open(Arc::new(FrozenDisk::open(blocks)), config);
    opened.map_err(|error| Failure::from(error).of(blocks.display()))
}
