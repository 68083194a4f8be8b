//! Files of many small writes are rewritten in the background: each run of extents that fits in a
//! block becomes one compressed block. Readers of the file see no change.

use bytes::BytesMut;
use cairn_auth::Caller;
use cairn_base::{Ino, Owner, Result, limits};

use crate::Fs;
use crate::ops::coalesce::ReadChunk;
use crate::rows::{Extent, Place};

/// The result of one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoalesceStep {
    /// Offset at which the next step continues; `None` at the end.
    pub next: Option<u64>,
    /// End of the part that was looked at, which need not be looked at again unless it changes.
    pub settled: u64,
    /// Number of bytes that were rewritten.
    pub bytes: u64,
}

impl Fs {
    /// Rewrites the first run at or after `from` of a file of `size` bytes that is not one
    /// compressed block already. If the file `grows`, its last run stays as it is. Concurrent
    /// changes of the file are kept.
    ///
    /// # Errors
    /// Those of reading and writing; the file is unchanged then.
    pub async fn coalesce_step(
        &self,
        ino: Ino,
        size: u64,
        from: u64,
        grows: bool,
    ) -> Result<CoalesceStep> {
        let caller = &Caller::system();
        let chunk = (from / limits::CHUNK_BYTES) as u32;
        let end = (u64::from(chunk) + 1) * limits::CHUNK_BYTES;
        let Some((body, extents)) = self.read(caller, ReadChunk { ino, chunk }).await? else {
            return Ok(CoalesceStep { next: None, settled: from, bytes: 0 });
        };
        let runs = runs(extents);
        let stays = runs.len() - usize::from(grows && end >= size && !runs.is_empty());
        let mut settled = from;
        for run in &runs[..stays] {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            if first.offset < from || self.is_settled(run).await? {
                settled = settled.max(last.end());
                continue;
            }
            let (start, settled, bytes) = (first.offset, last.end(), last.end() - first.offset);
            let mut data = BytesMut::with_capacity(bytes as usize);
            for extent in run {
                data.extend_from_slice(&self.read_extent(extent).await?);
            }
            let owner = Owner { body, chunk };
            let block = self.write_block(caller, ino, owner, true, data.freeze()).await?;
            let with = Extent { offset: start, ..block };
            return if self.replace(caller, ino, body, chunk, run.clone(), with).await? {
                Ok(CoalesceStep { next: Some(settled), settled, bytes })
            } else {
                // Another client changed it, or it is shared: the following runs may fail, too.
                Ok(CoalesceStep { next: None, settled: start, bytes: 0 })
            };
        }
        let next = (end < size).then_some(end);
        Ok(CoalesceStep { next, settled: next.unwrap_or(settled), bytes: 0 })
    }

    async fn is_settled(&self, run: &[Extent]) -> Result<bool> {
        match run {
            [Extent { place: Place::Block { group, block, .. }, .. }] => {
                self.inner.blocks.is_compressed(*group, *block).await
            }
            _ => Ok(false),
        }
    }

    async fn read_extent(&self, extent: &Extent) -> Result<bytes::Bytes> {
        match &extent.place {
            Place::Inline(bytes) => Ok(bytes.clone()),
            Place::Block { group, block, offset } => {
                let range = *offset..*offset + extent.len as u32;
                self.inner.blocks.get(*group, *block, range).await
            }
            Place::Body { body, .. } => unreachable!("no run has a part of body {body}"),
        }
    }
}

/// Returns runs of adjacent extents, each run at most as long as a block can be. Extents that are
/// shared with other files are in none.
fn runs(extents: Vec<Extent>) -> Vec<Vec<Extent>> {
    let mut runs: Vec<Vec<Extent>> = Vec::new();
    for extent in extents {
        if matches!(extent.place, Place::Body { .. }) {
            continue;
        }
        let fits = |run: &&mut Vec<Extent>| {
            let start = run.first().map_or(0, |first| first.offset);
            run.last().is_some_and(|last| last.end() == extent.offset)
                && extent.end() - start <= limits::BLOCK_BYTES as u64
        };
        match runs.last_mut().filter(fits) {
            Some(run) => run.push(extent),
            None => runs.push(vec![extent]),
        }
    }
    runs
}
