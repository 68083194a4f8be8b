//! Reads of whole blocks, for backups.

use bytes::Bytes;
use cairn_auth::{Action, Caller, Resource, authorize};
use cairn_base::{BlockId, Error, GroupId, Result, limits};

use crate::Fs;

impl Fs {
    /// Returns the first `length` bytes of a block, verified. Only root may call this.
    ///
    /// # Errors
    /// `NotFound` if there is no such block, which is possible once no state of the metadata names
    /// it and no hold keeps it.
    pub async fn read_block(
        &self,
        caller: &Caller,
        group: GroupId,
        block: BlockId,
        length: u32,
    ) -> Result<Bytes> {
        let context = caller.context(self.inner.clock.now());
        authorize(caller, Action::DumpMetadata, Resource::Store, &context)?;
        if length == 0 || length as usize > limits::BLOCK_BYTES {
            return Err(Error::Invalid(format!("{length} bytes of a block")));
        }
        self.inner.blocks.get(group, block, 0..length).await
    }
}
