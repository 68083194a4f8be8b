//! A disk cache of this machine for remote blocks.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use cairn_base::RealDisk;
use cairn_blocks::{Blocks, KeptBlocks};
use cairn_fs::PIECE_BYTES;

use crate::dir::lock::Lock;
use crate::failure::{Failure, Result};

#[derive(clap::Args)]
pub struct DiskCacheArgs {
    /// Keep blocks that were read in DIR/cairn-blocks on a local disk, also over restarts
    #[arg(long, value_name = "DIR")]
    disk_cache: Option<PathBuf>,
    /// The most that the disk cache may take, MiB
    #[arg(long, value_name = "N", default_value_t = 10 << 10, requires = "disk_cache")]
    #[arg(value_parser = clap::value_parser!(u64).range(256..1 << 32))]
    disk_cache_mib: u64,
}

impl DiskCacheArgs {
    /// Puts the disk in front of `blocks`, if there is to be one. It belongs to this process until
    /// the lock is dropped. Blocks.
    pub fn before(&self, blocks: Arc<dyn Blocks>) -> Result<(Arc<dyn Blocks>, Option<Lock>)> {
        let Some(dir) = &self.disk_cache else { return Ok((blocks, None)) };
        let home = dir.join("cairn-blocks");
        let kept = home.join("kept");
        fs::create_dir_all(&kept).map_err(|error| Failure::file(&kept, &error))?;
        let lock = Lock::take(&home)?;
        let disk = RealDisk::open(&kept).map_err(|error| Failure::file(&kept, &error))?;
        let limit = self.disk_cache_mib << 20;
        let opened = KeptBlocks::open(blocks, Arc::new(disk), limit, PIECE_BYTES as u32);
        let opened = opened.map_err(|error| {
            Failure::new(format!("{}: {error}: remove that directory", kept.display()))
        })?;
        Ok((Arc::new(opened), Some(lock)))
    }
}
