//! Writes the rows of a body that is put together.

use cairn_base::{BodyId, limits};

use crate::ops::namespace::{chunk_of, load_extents, store_extents};
use crate::rows::{Extent, Extents};
use crate::{Stop, View};

/// Writes extents in order into the chunk rows of a body, cut at the borders of chunks.
pub struct ChunkWriter {
    body: BodyId,
    chunk: u32,
    extents: Extents,
}

impl ChunkWriter {
    pub fn new(body: BodyId) -> ChunkWriter {
        ChunkWriter { body, chunk: 0, extents: Extents::default() }
    }

    /// Continues a body whose last chunk may hold extents already.
    pub fn resume(view: &mut View<'_>, body: BodyId, offset: u64) -> Result<ChunkWriter, Stop> {
        let chunk = chunk_of(offset);
        Ok(ChunkWriter { body, chunk, extents: load_extents(view, body, chunk)? })
    }

    pub fn push(&mut self, view: &mut View<'_>, extent: Extent) -> Result<(), Stop> {
        let mut start = extent.offset;
        while start < extent.end() {
            let chunk = chunk_of(start);
            if chunk != self.chunk {
                self.flush(view)?;
                self.chunk = chunk;
            }
            let border = (u64::from(chunk) + 1) * limits::CHUNK_BYTES;
            self.extents.extents.extend(extent.slice(start, border));
            start = border;
        }
        Ok(())
    }

    fn flush(&mut self, view: &mut View<'_>) -> Result<(), Stop> {
        let extents = std::mem::take(&mut self.extents);
        if extents != Extents::default() {
            store_extents(view, self.body, self.chunk, &extents)?;
        }
        Ok(())
    }

    pub fn finish(mut self, view: &mut View<'_>) -> Result<(), Stop> {
        self.flush(view)
    }
}
