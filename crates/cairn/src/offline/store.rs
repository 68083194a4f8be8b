//! A store opened without a server, read-only.

use std::path::Path;
use std::sync::Arc;

use cairn_blocks::Store;
use cairn_meta::engine::embedded::{self, Embedded};
use cairn_meta::engine::{Engine, Snapshot};

use super::frozen::FrozenDisk;
use crate::dir::DataDir;
use crate::failure::{Failure, Result};

/// The parts of a store as they are on the disk now. Nothing done to them reaches it.
pub struct Frozen {
    pub blocks: Store,
    engine: Embedded,
    _dir: DataDir,
}

impl Frozen {
    pub fn open(path: &Path) -> Result<Frozen> {
        let dir = DataDir::open(path)?;
        for part in [dir.meta(), dir.blocks()] {
            if !part.is_dir() {
                let text = format!("{}: missing: restore it from a backup", part.display());
                return Err(Failure::new(text));
            }
        }
        let config = embedded::Config { background: false, ..embedded::Config::default() };
        let meta = Arc::new(FrozenDisk::open(&dir.meta()));
        let engine = Embedded::open(meta, config)
            .map_err(|error| Failure::from(error).of(dir.meta().display()))?;
        let config = cairn_blocks::Config::new(dir.format.cluster, dir.format.disk);
        let blocks = Store::open(Arc::new(FrozenDisk::open(&dir.blocks())), config)
            .map_err(|error| Failure::from(error).of(dir.blocks().display()))?;
        Ok(Frozen { blocks, engine, _dir: dir })
    }

    pub fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(self.engine.snapshot()?)
    }
}
