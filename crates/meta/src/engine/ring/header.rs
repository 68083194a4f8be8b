//! The first 64 bytes of a record of a log, of any version. Nothing here panics, on any bytes. See
//! docs/format-engine.md.
#![deny(clippy::indexing_slicing)]

use cairn_base::checksum::crc32c;
use cairn_base::{Error, Result};

use crate::rest::Rest;

/// Records start at multiples of this, bytes: a page that holds an acknowledged record is never
/// written again while the record is needed.
pub const ALIGN: usize = 4096;
pub const HEADER_BYTES: usize = 64;
const MAGIC: [u8; 4] = *b"CRNL";

/// The header of a record, common to all versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawHeader {
    pub version: u16,
    pub kind: u16,
    /// Random number of the log: bytes of users and of other logs are never taken for records.
    pub log_id: u64,
    /// Number of the record, one more than that of the record before.
    pub sequence: u64,
    /// Bytes 24 to 39; their meaning depends on the version.
    pub numbers: [u64; 2],
    /// Number of rows or entries in the body.
    pub count: u32,
    pub body_bytes: u32,
    pub body_crc: u32,
    /// `crc` of the record before, which ties each record to all of its past.
    pub previous: u32,
    /// crc32c of the first 60 bytes.
    pub crc: u32,
}

impl RawHeader {
    /// Returns the bytes of the whole record with its padding.
    pub fn record_bytes(&self) -> u64 {
        aligned(HEADER_BYTES + self.body_bytes as usize) as u64
    }

    /// Reads a header. Returns `None` for bytes that are no header of the log `log_id`.
    pub fn parse(bytes: &[u8], log_id: u64) -> Option<RawHeader> {
        let (head, _) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let mut rest = Rest(head);
        if rest.take::<4>()? != MAGIC {
            return None;
        }
        let header = rest.header()?;
        let (covered, _) = head.split_last_chunk::<4>()?;
        (header.log_id == log_id && header.crc == crc32c(covered)).then_some(header)
    }

    /// Encodes this header; computes `crc` and returns it.
    pub fn encode(&self) -> ([u8; HEADER_BYTES], u32) {
        let mut head = Vec::with_capacity(HEADER_BYTES);
        head.extend_from_slice(&MAGIC);
        head.extend_from_slice(&self.version.to_le_bytes());
        head.extend_from_slice(&self.kind.to_le_bytes());
        for number in [self.log_id, self.sequence, self.numbers[0], self.numbers[1]] {
            head.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.count, self.body_bytes, self.body_crc, self.previous, 0] {
            head.extend_from_slice(&number.to_le_bytes());
        }
        let crc = crc32c(&head);
        head.extend_from_slice(&crc.to_le_bytes());
        let mut out = [0; HEADER_BYTES];
        out.copy_from_slice(&head);
        (out, crc)
    }

    /// Returns whether this header was written with `body`.
    pub fn matches(&self, body: &[u8]) -> bool {
        body.len() == self.body_bytes as usize && crc32c(body) == self.body_crc
    }

    /// Makes the error for a sound header that this version of Cairn cannot read.
    pub fn unknown(&self) -> Error {
        let (sequence, version, kind) = (self.sequence, self.version, self.kind);
        Error::Invalid(format!(
            "record {sequence} of the log has version {version} and kind {kind}, which this \
             version of Cairn does not know: run the newer one"
        ))
    }
}

impl Rest<'_> {
    fn header(&mut self) -> Option<RawHeader> {
        let version = u16::from_le_bytes(self.take()?);
        let kind = u16::from_le_bytes(self.take()?);
        let (log_id, sequence) = (self.u64()?, self.u64()?);
        let numbers = [self.u64()?, self.u64()?];
        let (count, body_bytes) = (self.u32()?, self.u32()?);
        let (body_crc, previous) = (self.u32()?, self.u32()?);
        let _reserved = self.u32()?;
        let crc = self.u32()?;
        Some(RawHeader {
            version,
            kind,
            log_id,
            sequence,
            numbers,
            count,
            body_bytes,
            body_crc,
            previous,
            crc,
        })
    }
}

/// Rounds up to a multiple of [`ALIGN`].
pub fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN)
}

/// Completes a record: `out` holds [`HEADER_BYTES`] arbitrary bytes and the body. Writes the
/// header, whose fields for the body are filled in here, and zeros up to the end. Returns the
/// header as written.
///
/// # Errors
/// `TooLarge` for a body whose length does not fit its field.
pub fn seal(header: RawHeader, out: &mut Vec<u8>) -> Result<RawHeader> {
    let body = out.get(HEADER_BYTES..).unwrap_or_default();
    let body_bytes = u32::try_from(body.len()).map_err(|_| too_large("a batch", body.len()))?;
    let header = RawHeader { body_bytes, body_crc: crc32c(body), ..header };
    let (head, crc) = header.encode();
    if let Some(place) = out.first_chunk_mut::<HEADER_BYTES>() {
        *place = head;
    }
    out.resize(aligned(out.len()), 0);
    Ok(RawHeader { crc, ..header })
}

/// Makes the error for something that does not fit into a record.
pub fn too_large(what: &str, bytes: usize) -> Error {
    Error::TooLarge(format!("{what} of {bytes} bytes does not fit into the log"))
}
