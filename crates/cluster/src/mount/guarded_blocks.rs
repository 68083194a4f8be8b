//! Blocks in the form for mounts: every access needs a decision that it is allowed.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{BlockId, GroupId, Owner, Result};
use cairn_blocks::{BlockPlace, Blocks, Usage, Wish};

use super::rights::AccessGrant;

pub struct GuardedBlocks(Arc<dyn Blocks>);

impl GuardedBlocks {
    pub fn new(blocks: Arc<dyn Blocks>) -> GuardedBlocks {
        GuardedBlocks(blocks)
    }

    pub async fn write(
        &self,
        _: AccessGrant,
        wish: Wish,
        block: BlockId,
        owner: Owner,
        data: Bytes,
    ) -> Result<GroupId> {
        self.0.write(wish, block, owner, data).await
    }

    pub async fn read(
        &self,
        _: AccessGrant,
        group: GroupId,
        block: BlockId,
        range: Range<u32>,
    ) -> Result<Bytes> {
        match self.0.get_now(group, block, range.clone())? {
            Some(bytes) => Ok(bytes),
            None => self.0.get(group, block, range).await,
        }
    }

    pub fn place(&self, _: AccessGrant, group: GroupId, block: BlockId) -> Option<BlockPlace> {
        self.0.place(group, block)
    }

    /// Returns the used and the free space, which every mount may know.
    pub async fn room(&self) -> Result<Usage> {
        self.0.room().await
    }
}
