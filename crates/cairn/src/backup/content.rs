//! Bytes of files: copied from a backup to a server, with holes as holes, and compared.

use std::ops::Range;

use cairn_base::{Ino, limits};
use cairn_fs::{FileWriter, Object, PACKED_RUNS, Piece, UploadedRuns};
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use indicatif::ProgressBar;

use super::destination::Destination;
use super::report::Trouble;

/// Blocks of one file that are written at the same time.
const BLOCKS_AT_ONCE: usize = 4;
const BLOCK: u64 = limits::BLOCK_BYTES as u64;

/// The data of a file between its holes, cut into parts of one block each.
struct DataRuns<'a> {
    source: &'a Object,
    /// Part of the current run that was not returned yet.
    rest: Range<u64>,
}

impl DataRuns<'_> {
    /// Returns the next runs that fit into one block; none at the end.
    async fn next(&mut self) -> cairn_base::Result<Vec<Range<u64>>> {
        let (mut runs, mut bytes): (Vec<Range<u64>>, u64) = (Vec::new(), 0);
        while runs.len() < PACKED_RUNS {
            if self.rest.is_empty() {
                let Some(start) = self.source.seek(self.rest.end, false).await? else { break };
                let end = self.source.seek(start, true).await?;
                self.rest = start..end.unwrap_or(self.source.size());
            }
            let Range { start, end } = self.rest;
            let end = end.min((start / BLOCK + 1) * BLOCK);
            let chunk = |at: u64| at / limits::CHUNK_BYTES;
            let is_near = runs.first().is_none_or(|first| chunk(first.start) == chunk(start));
            if bytes + (end - start) > BLOCK || !is_near {
                break;
            }
            bytes += end - start;
            runs.push(start..end);
            self.rest.start = end;
        }
        Ok(runs)
    }
}

/// Copies all bytes of a file in a backup into a new file, which nobody else writes.
pub async fn copy(
    source: &Object,
    there: &Destination,
    ino: Ino,
    bar: &ProgressBar,
) -> Result<(), Trouble> {
    let (writer, size) = (there.fs.writer(ino), source.size());
    let mut runs = DataRuns { source, rest: 0..0 };
    let mut end = 0;
    let mut uploads = FuturesOrdered::new();
    loop {
        let next = runs.next().await.map_err(Trouble::in_backup)?;
        if next.is_empty() || uploads.len() >= BLOCKS_AT_ONCE {
            match uploads.next().await {
                Some(uploaded) => publish(there, &writer, uploaded?).await?,
                None if next.is_empty() => break,
                None => {}
            }
        }
        if let Some(last) = next.last() {
            end = last.end;
            uploads.push_back(upload(source, there, &writer, next, bar));
        }
    }
    if end < size {
        there.fs.extend(&there.caller, ino, size).await?;
    }
    Ok(())
}

async fn upload(
    source: &Object,
    there: &Destination,
    writer: &FileWriter,
    ranges: Vec<Range<u64>>,
    bar: &ProgressBar,
) -> Result<Vec<Piece>, Trouble> {
    let mut runs = Vec::with_capacity(ranges.len());
    for range in ranges {
        let start = range.start;
        let bytes = source.read_all(range).await.map_err(Trouble::in_backup)?;
        bar.inc(bytes.len() as u64);
        runs.push((start, bytes));
    }
    if source.size() <= limits::INLINE_BYTES as u64 {
        return Ok(runs.into_iter().map(|(start, bytes)| Piece::Inline(start, bytes)).collect());
    }
    let uploaded: UploadedRuns = writer.upload(&there.caller, &runs).await?;
    Ok(vec![Piece::Block(uploaded)])
}

async fn publish(
    there: &Destination,
    writer: &FileWriter,
    pieces: Vec<Piece>,
) -> Result<(), Trouble> {
    Ok(writer.publish(&there.caller, there.fs.session(), pieces, &mut None).await?)
}

/// Returns the offset of the first piece in which two files of the same size differ.
pub async fn difference(source: &Object, other: &Object) -> Result<Option<u64>, Trouble> {
    let size = source.size();
    for start in (0..size).step_by(limits::BLOCK_BYTES) {
        let range = start..size.min(start + BLOCK);
        let wanted = source.read_all(range.clone()).await.map_err(Trouble::in_backup)?;
        if wanted != other.read_all(range).await? {
            return Ok(Some(start));
        }
    }
    Ok(None)
}
