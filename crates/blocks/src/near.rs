//! Blocks of a store that another process of this machine has open, read from its files.
//!
//! That process says where a block lies; whether its files may be read is for the operating system
//! to say. The bytes that are read are verified against their record as ever. So a place that is no
//! longer right (the record was moved since) is an error, and never other bytes.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{BlockId, Disk, DiskFile, GroupId, Result, disk};

use crate::blocks::BlockPlace;
use crate::files::segment_name;
use crate::format::Key;
use crate::format::record::RecordPlace;
use crate::memory::ReadMemory;
use crate::read::Found;

/// Where a block lies that was found.
pub(crate) fn place_of(found: &Found) -> BlockPlace {
    let Found { place: RecordPlace { segment, salt, offset }, owner, length, .. } = *found;
    BlockPlace { segment, salt, offset, owner, length }
}

/// A mount that got fewer bytes may keep them, and would keep a whole buffer.
const SHORT_BYTES: usize = 256 << 10;

/// The directory of a store that another process has open.
#[derive(Clone)]
pub struct NearBlocks {
    disk: Arc<dyn Disk>,
    memory: ReadMemory,
}

impl NearBlocks {
    pub fn new(disk: Arc<dyn Disk>) -> NearBlocks {
        NearBlocks { disk, memory: ReadMemory::default() }
    }

    /// Bytes `range` of a block, verified. Blocks.
    ///
    /// # Errors
    /// The process that has the store open must then be asked: the block may be elsewhere by now.
    pub fn read(
        &self,
        (group, block): (GroupId, BlockId),
        place: BlockPlace,
        range: &Range<u32>,
    ) -> Result<Bytes> {
        let file = self.file(place)?;
        let read = |buf: &mut [u8], offset| disk::read_exact_at(&*file, buf, offset).map(|()| true);
        let buffers = self.memory.of(range, SHORT_BYTES);
        found(&file, Key { group, block }, place).read_or_fail(range, &read, buffers)
    }

    /// As [`NearBlocks::read`] where the bytes are in memory; `None` where not.
    ///
    /// # Errors
    /// As of [`NearBlocks::read`].
    pub fn read_now(
        &self,
        (group, block): (GroupId, BlockId),
        place: BlockPlace,
        range: &Range<u32>,
    ) -> Result<Option<Bytes>> {
        let file = self.file(place)?;
        let read = |buf: &mut [u8], offset| {
            Ok(file.read_at_nowait(buf, offset)?.is_some_and(|got| got == buf.len()))
        };
        let buffers = self.memory.of(range, SHORT_BYTES);
        found(&file, Key { group, block }, place).read(range, &read, buffers)
    }

    /// Opened for each read: one that is kept open takes its space on the disk when it has gone.
    fn file(&self, place: BlockPlace) -> Result<Arc<dyn DiskFile>> {
        Ok(self.disk.open_to_read(&segment_name(place.segment))?)
    }
}

fn found(file: &Arc<dyn DiskFile>, key: Key, place: BlockPlace) -> Found {
    let BlockPlace { segment, salt, offset, owner, length } = place;
    Found {
        file: Arc::clone(file),
        place: RecordPlace { segment, salt, offset },
        key,
        owner,
        length,
        stored: None,
    }
}
