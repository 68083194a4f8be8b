//! The mark: how far the table of rows has come, and which log it belongs to.
#![deny(clippy::indexing_slicing)]

use bytes::Bytes;
use cairn_base::checksum::crc32c;
use cairn_base::{Error, Result};

use super::super::Fence;
use crate::rest::Rest;

/// Version of a mark with only the fields of the embedded engine.
const VERSION: u32 = 1;
/// Version of a mark with `pending` and `more`.
const REPLICATED: u32 = 2;
const BYTES: usize = 60;
/// Bytes of version, numbers and checksum of the record before, with which both versions begin.
const COMMON_BYTES: usize = 52;

/// The mark is kept in the table, and changed in the transaction that writes the rows up to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    pub log_id: u64,
    /// Number of the last log record that is in the table; 0 before the first.
    pub sequence: u64,
    /// crc of that record's header; 0 before the first.
    pub previous: u32,
    pub fence: Fence,
    pub segments: u32,
    pub segment_bytes: u64,
    /// Index after the last valid entry beside the rows; 0 if none is valid, and they are removed.
    pub pending: u64,
    /// Fields of a replicated log. Empty only in the embedded engine.
    pub more: Bytes,
}

impl Mark {
    /// Returns the bytes of the whole log.
    pub fn log_bytes(&self) -> u64 {
        self.segment_bytes * u64::from(self.segments)
    }

    pub fn is_replicated(&self) -> bool {
        !self.more.is_empty()
    }

    /// Encodes the mark as described in docs/format-engine.md.
    pub fn encode(&self) -> Vec<u8> {
        let version = if self.is_replicated() { REPLICATED } else { VERSION };
        let mut out = Vec::with_capacity(BYTES);
        out.extend_from_slice(&version.to_le_bytes());
        let numbers =
            [self.log_id, self.sequence, self.fence.epoch, self.fence.batch, self.segment_bytes];
        for number in numbers {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.segments.to_le_bytes());
        out.extend_from_slice(&self.previous.to_le_bytes());
        if self.is_replicated() {
            out.extend_from_slice(&self.pending.to_le_bytes());
            out.extend_from_slice(&(self.more.len() as u32).to_le_bytes());
            out.extend_from_slice(&self.more);
        }
        out.extend_from_slice(&crc32c(&out).to_le_bytes());
        // Room for fields of later versions.
        out.resize(out.len().max(BYTES), 0);
        out
    }

    /// Parses a mark.
    ///
    /// # Errors
    /// `Corrupt` for damaged bytes, `Invalid` for a newer version.
    pub fn parse(bytes: &[u8]) -> Result<Mark> {
        let bad = || Error::corrupt("mark of the table of rows", "bytes that do not check", "it");
        let more_bytes = |bytes: &[u8]| {
            let (_, rest) = bytes.split_at_checked(COMMON_BYTES + 8)?;
            usize::try_from(Rest(rest).u32()?).ok()
        };
        let version = Rest(bytes).u32().ok_or_else(bad)?;
        let covered_bytes = match version {
            VERSION => COMMON_BYTES,
            REPLICATED => (COMMON_BYTES + 12)
                .checked_add(more_bytes(bytes).ok_or_else(bad)?)
                .ok_or_else(bad)?,
            _ => {
                let text = format!("the table of rows has version {version}: run the newer Cairn");
                return Err(Error::Invalid(text));
            }
        };
        let (covered, rest) = bytes.split_at_checked(covered_bytes).ok_or_else(bad)?;
        if Rest(rest).u32() != Some(crc32c(covered)) {
            return Err(bad());
        }
        parse_fields(covered, version).ok_or_else(bad)
    }
}

fn parse_fields(covered: &[u8], version: u32) -> Option<Mark> {
    let mut rest = Rest(covered);
    let _version = rest.u32()?;
    let (log_id, sequence) = (rest.u64()?, rest.u64()?);
    let fence = Fence { epoch: rest.u64()?, batch: rest.u64()? };
    let segment_bytes = rest.u64()?;
    let (segments, previous) = (rest.u32()?, rest.u32()?);
    let (mut pending, mut more) = (0, Bytes::new());
    if version == REPLICATED {
        pending = rest.u64()?;
        let _length = rest.u32()?;
        more = Bytes::copy_from_slice(rest.0);
    }
    Some(Mark { log_id, sequence, previous, fence, segments, segment_bytes, pending, more })
}
