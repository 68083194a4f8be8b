//! Reads blocks of a store that another process of this machine has open, from its files.
//!
//! That process returns the place of a block; the operating system decides whether its files may be
//! read. The bytes are verified against their record as usual. So a place that is no longer right
//! (the record has moved) causes an error, and never yields other bytes.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{BlockId, Disk, DiskFile, GroupId, Result, disk};

use crate::blocks::BlockPlace;
use crate::files::segment_name;
use crate::format::Key;
use crate::format::record::RecordPlace;
use crate::memory::ReadMemory;
use crate::read::IndexedRecord;

/// Returns the place of a block that was found.
pub(crate) fn place_of(found: &IndexedRecord) -> BlockPlace {
    let IndexedRecord { place: RecordPlace { segment, salt, offset }, owner, length, .. } = *found;
    BlockPlace { segment, salt, offset, owner, length }
}

/// Reads of at most this many bytes have memory of their own: a mount may keep the bytes, and would
/// keep a whole buffer.
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

    /// Returns bytes `range` of a block, verified. Blocks the thread.
    ///
    /// # Errors
    /// On any error the process that has the store open must be asked: the block may have moved.
    pub fn read(
        &self,
        group: GroupId,
        block: BlockId,
        place: BlockPlace,
        range: &Range<u32>,
    ) -> Result<Bytes> {
        let file = self.file(place)?;
        let read = |buf: &mut [u8], offset| disk::read_exact_at(&*file, buf, offset).map(|()| true);
        let buffers = self.memory.of(range, SHORT_BYTES);
        found(&file, Key { group, block }, place).read_or_fail(range, &read, buffers)
    }

    /// Does the same as [`NearBlocks::read`] if the bytes are in memory; otherwise returns `None`.
    ///
    /// # Errors
    /// Same errors as [`NearBlocks::read`].
    pub fn read_now(
        &self,
        group: GroupId,
        block: BlockId,
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

    /// Opens a segment file, anew for each read: an open file would take space on the disk after
    /// its removal.
    fn file(&self, place: BlockPlace) -> Result<Arc<dyn DiskFile>> {
        Ok(self.disk.open_to_read(&segment_name(place.segment))?)
    }
}

fn found(file: &Arc<dyn DiskFile>, key: Key, place: BlockPlace) -> IndexedRecord {
    let BlockPlace { segment, salt, offset, owner, length } = place;
    IndexedRecord {
        file: Arc::clone(file),
        place: RecordPlace { segment, salt, offset },
        key,
        owner,
        length,
        stored: None,
    }
}
