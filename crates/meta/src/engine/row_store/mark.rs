//! How far the table of rows has come, and where the log is.
#![deny(clippy::indexing_slicing)]

use cairn_base::checksum::crc32c;
use cairn_base::{Error, Result};

use super::super::Fence;

const VERSION: u32 = 1;
const BYTES: usize = 60;

/// Kept in the table, changed in the transaction that writes the rows it speaks of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    pub log_id: u64,
    /// The last log record that is in the table; 0 before the first.
    pub sequence: u64,
    /// The crc of that record's header; 0 before the first.
    pub previous: u32,
    pub fence: Fence,
    pub segments: u32,
    pub segment_bytes: u64,
}

impl Mark {
    /// Bytes of the whole log.
    pub fn log_bytes(&self) -> u64 {
        self.segment_bytes * u64::from(self.segments)
    }

    /// `version u32, log id, sequence, epoch, batch, segment bytes u64, segments, previous,
    /// crc32c u32`, little endian.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BYTES);
        out.extend_from_slice(&VERSION.to_le_bytes());
        let numbers =
            [self.log_id, self.sequence, self.fence.epoch, self.fence.batch, self.segment_bytes];
        for number in numbers {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.segments.to_le_bytes());
        out.extend_from_slice(&self.previous.to_le_bytes());
        out.extend_from_slice(&crc32c(&out).to_le_bytes());
        // Room for what a later version may add.
        out.resize(BYTES, 0);
        out
    }

    /// # Errors
    /// `Corrupt` for bytes that do not check out, `Invalid` for a newer version.
    pub fn parse(bytes: &[u8]) -> Result<Mark> {
        let bad = || Error::corrupt("mark of the table of rows", "bytes that do not check", "it");
        let (covered, rest) = bytes.split_at_checked(52).ok_or_else(bad)?;
        let crc = rest.first_chunk::<4>().ok_or_else(bad)?;
        if crc32c(covered) != u32::from_le_bytes(*crc) {
            return Err(bad());
        }
        let (version, numbers) = covered.split_first_chunk::<4>().ok_or_else(bad)?;
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            let text = format!("the table of rows has version {version}: run the newer Cairn");
            return Err(Error::Invalid(text));
        }
        let (wide, narrow) = numbers.split_at_checked(40).ok_or_else(bad)?;
        let (wide, _) = wide.as_chunks::<8>();
        let (narrow, _) = narrow.as_chunks::<4>();
        match (wide, narrow) {
            (&[log_id, sequence, epoch, batch, segment_bytes], &[segments, previous]) => Ok(Mark {
                log_id: u64::from_le_bytes(log_id),
                sequence: u64::from_le_bytes(sequence),
                previous: u32::from_le_bytes(previous),
                fence: Fence { epoch: u64::from_le_bytes(epoch), batch: u64::from_le_bytes(batch) },
                segments: u32::from_le_bytes(segments),
                segment_bytes: u64::from_le_bytes(segment_bytes),
            }),
            _ => Err(bad()),
        }
    }
}
