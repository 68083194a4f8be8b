//! Blocks of a backup as the blocks of a read-only store.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::{BlockId, Error, GroupId, Owner, Result};
use cairn_blocks::{BlockCounters, BlockInfo, BlockPlace, Blocks, Manner, Usage, Wish};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::repository::{Repository, take_owner};

type BlockRead = Arc<OnceCell<Bytes>>;

/// Blocks that are read from a backup when they are requested.
pub struct BackupBlocks {
    repository: Arc<Repository>,
    /// Blocks that were read last: they are requested piece by piece.
    kept: Mutex<VecDeque<(BlockId, BlockRead)>>,
    most: usize,
}

impl BackupBlocks {
    /// Makes the blocks of a repository; `most` blocks are kept in memory.
    pub fn new(repository: Repository, most: usize) -> BackupBlocks {
        BackupBlocks { repository: Arc::new(repository), kept: Mutex::default(), most }
    }

    fn kept(&self, block: BlockId) -> BlockRead {
        let mut kept = self.kept.lock();
        if let Some((_, read)) = kept.iter().find(|(id, _)| *id == block) {
            return Arc::clone(read);
        }
        if kept.len() >= self.most {
            kept.pop_front();
        }
        let read = BlockRead::default();
        kept.push_back((block, Arc::clone(&read)));
        read
    }
}

fn read_only<T>() -> Result<T> {
    Err(Error::ReadOnly("a backup".to_owned()))
}

#[async_trait]
impl Blocks for BackupBlocks {
    async fn write(&self, _: Wish, _: BlockId, _: Owner, _: Bytes) -> Result<GroupId> {
        read_only()
    }

    async fn get(&self, _: GroupId, block: BlockId, range: Range<u32>) -> Result<Bytes> {
        let read = self.kept(block);
        let repository = Arc::clone(&self.repository);
        let fetch = || async move {
            let reading = tokio::task::spawn_blocking(move || {
                repository.block(block).and_then(take_owner).map(|(_, bytes)| bytes)
            });
            match reading.await {
                Ok(Ok(bytes)) => Ok(bytes),
                Ok(Err(failure)) => Err(Error::Unavailable(failure.to_string())),
                Err(error) => Err(Error::Unavailable(error.to_string())),
            }
        };
        let bytes = read.get_or_try_init(fetch).await?;
        let (start, end) = (range.start as usize, range.end as usize);
        if start <= end && end <= bytes.len() {
            Ok(bytes.slice(start..end))
        } else {
            Err(Error::RangeNotSatisfiable { size: bytes.len() as u64 })
        }
    }

    fn get_now(&self, _: GroupId, _: BlockId, _: Range<u32>) -> Result<Option<Bytes>> {
        Ok(None)
    }

    async fn delete(&self, _: GroupId, _: &[BlockId]) -> Result<()> {
        read_only()
    }

    fn groups(&self) -> Vec<GroupId> {
        vec![GroupId::LOCAL]
    }

    async fn inventory(&self, _: GroupId, _: Option<BlockId>, _: usize) -> Result<Vec<BlockInfo>> {
        Err(Error::NotImplemented("an inventory of a backup".to_owned()))
    }

    async fn is_compressed(&self, _: GroupId, _: BlockId) -> Result<bool> {
        Ok(false)
    }

    async fn usage(&self) -> Result<Usage> {
        Ok(Usage::default())
    }

    async fn room(&self) -> Result<Usage> {
        Ok(Usage::default())
    }

    fn available(&self) -> Result<()> {
        Ok(())
    }

    fn place(&self, _: GroupId, _: BlockId) -> Option<BlockPlace> {
        None
    }

    fn manner(&self) -> Manner {
        Manner::default()
    }

    fn counted(&self) -> BlockCounters {
        BlockCounters::default()
    }
}
