//! The data of a compressed block: a table, then frames of zstd that have 64 KiB of the block each,
//! so that a short range is read and unpacked without the rest.

use std::ops::Range;

use cairn_base::checksum::crc32c;
use ruzstd::decoding::FrameDecoder;
use ruzstd::encoding::{CompressionLevel, FrameCompressor};

use super::{record, take_u32};

/// Bytes of the block in one frame; the last frame may have fewer.
pub(crate) const FRAME_BYTES: usize = 64 << 10;
const ENTRY_BYTES: usize = 8;

/// The frames of one block, according to its table.
pub(crate) struct Frames {
    /// Length of the block, unpacked.
    length: usize,
    /// For each frame, its end in the data, and the crc32c of its unpacked bytes.
    entries: Vec<(usize, u32)>,
}

/// Returns the data in their compressed form, if that saves an eighth at least, and space on the
/// disk.
pub(crate) fn compress(data: &[u8]) -> Option<Vec<u8>> {
    let table_bytes = table_bytes(data.len());
    let most = data.len() - data.len() / 8;
    let (mut table, mut frames) = (Vec::with_capacity(table_bytes), Vec::new());
    let mut compressor = FrameCompressor::new(CompressionLevel::Fastest);
    for piece in data.chunks(FRAME_BYTES) {
        let start = frames.len();
        compressor.set_source(piece);
        compressor.set_drain(frames);
        compressor.compress();
        frames = compressor.take_drain()?;
        let end = table_bytes + frames.len();
        if end > most {
            return None;
        }
        if unpack(frames.get(start..)?, piece.len()).as_deref() != Some(piece) {
            tracing::error!("a block is stored plain: it did not unpack to the same bytes");
            return None;
        }
        table.extend_from_slice(&(end as u32).to_le_bytes());
        table.extend_from_slice(&crc32c(piece).to_le_bytes());
    }
    table.append(&mut frames);
    let footprint = |data: &[u8]| record::footprint(data.len() as u32);
    (footprint(&table) < footprint(data)).then_some(table)
}

fn unpack(frame: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(FRAME_BYTES as u64 * 16);
    let mut out = vec![0; length];
    (decoder.decode_all(frame, &mut out).ok()? == length).then_some(out)
}

/// Returns the bytes of the table of a block of this length.
fn table_bytes(length: usize) -> usize {
    length.div_ceil(FRAME_BYTES) * ENTRY_BYTES
}

impl Frames {
    /// Reads the table at the beginning of the data. Returns `None` if the table is impossible for
    /// a block of `length` bytes that takes `stored` bytes.
    pub(crate) fn parse(data: &[u8], length: u32, stored: u32) -> Option<Frames> {
        let length = length as usize;
        let table = data.get(..table_bytes(length))?;
        let mut end_before = table.len();
        let mut entries = Vec::with_capacity(table.len() / ENTRY_BYTES);
        for mut entry in table.chunks(ENTRY_BYTES) {
            let (end, crc) = (take_u32(&mut entry)? as usize, take_u32(&mut entry)?);
            if end <= end_before {
                return None;
            }
            entries.push((end, crc));
            end_before = end;
        }
        (end_before == stored as usize).then_some(Frames { length, entries })
    }

    /// Returns the frames that hold a range of the block, which must not be empty.
    fn holding(range: &Range<u32>) -> Range<usize> {
        range.start as usize / FRAME_BYTES..(range.end as usize).div_ceil(FRAME_BYTES)
    }

    fn start(&self, frame: usize) -> Option<usize> {
        match frame.checked_sub(1) {
            None => Some(self.entries.len() * ENTRY_BYTES),
            Some(before) => self.entries.get(before).map(|(end, _)| *end),
        }
    }

    /// Returns the range of the data that must be read for a range of the block.
    pub(crate) fn stored(&self, range: &Range<u32>) -> Option<Range<usize>> {
        let frames = Frames::holding(range);
        Some(self.start(frames.start)?..self.start(frames.end)?)
    }

    /// Returns a range of the block, unpacked from the data that [`Frames::stored`] names. `None`
    /// if these are not frames of this block.
    pub(crate) fn unpack(&self, mut data: &[u8], range: &Range<u32>) -> Option<Vec<u8>> {
        let frames = Frames::holding(range);
        let first = frames.start * FRAME_BYTES;
        let mut out = Vec::with_capacity(frames.len() * FRAME_BYTES);
        for frame in frames {
            let (end, crc) = *self.entries.get(frame)?;
            let (bytes, rest) = data.split_at_checked(end - self.start(frame)?)?;
            let length = FRAME_BYTES.min(self.length - frame * FRAME_BYTES);
            let piece = unpack(bytes, length).filter(|piece| crc32c(piece) == crc)?;
            out.extend_from_slice(&piece);
            data = rest;
        }
        out.truncate(range.end as usize - first);
        out.drain(..range.start as usize - first);
        // A small range must not keep the memory of whole frames.
        out.shrink_to_fit();
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: usize) -> Vec<u8> {
        let line = |n: usize| format!("{{\"n\":{n},\"line\":\"GET /{} 200\"}}\n", n * 7919 % 1000);
        (0..count).flat_map(|n| line(n).into_bytes()).collect()
    }

    #[test]
    fn each_range_is_what_it_was() {
        for count in [40, 2000, 9000] {
            let data = lines(count);
            let packed = compress(&data).unwrap();
            assert!(packed.len() * 2 < data.len(), "{} of {}", packed.len(), data.len());
            let frames = Frames::parse(&packed, data.len() as u32, packed.len() as u32).unwrap();
            let edges = [0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 2 * FRAME_BYTES];
            let edges = edges.into_iter().chain([data.len() - 1, data.len()]);
            let edges: Vec<usize> = edges.filter(|edge| *edge <= data.len()).collect();
            for (&start, &end) in edges.iter().flat_map(|s| edges.iter().map(move |e| (s, e))) {
                if start < end {
                    let range = start as u32..end as u32;
                    let stored = packed.get(frames.stored(&range).unwrap()).unwrap();
                    assert_eq!(frames.unpack(stored, &range).as_deref(), data.get(start..end));
                }
            }
        }
    }

    #[test]
    fn what_saves_nothing_stays_plain() {
        assert!(compress(b"x").is_none());
        // Records are multiples of 512 bytes.
        assert!(compress(&[b'x'; 300]).is_none() && compress(&[b'x'; 800]).is_some());
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        let noise: Vec<u8> = (0..300_000).map(|_| random()).collect();
        assert!(compress(&noise).is_none());
    }

    #[test]
    fn no_spoilt_byte_gives_other_bytes() {
        let data = lines(3000);
        let packed = compress(&data).unwrap();
        let all = 0..data.len() as u32;
        for at in (0..packed.len()).step_by(31).chain(0..64) {
            let mut spoilt = packed.clone();
            *spoilt.get_mut(at).unwrap() ^= 1 << (at % 8);
            let frames = Frames::parse(&spoilt, all.end, spoilt.len() as u32);
            let read =
                frames.and_then(|frames| frames.unpack(spoilt.get(frames.stored(&all)?)?, &all));
            assert!(read.is_none_or(|read| read == data), "{at}");
        }
    }
}
