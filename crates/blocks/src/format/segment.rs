//! The header of a segment file, stored twice: at byte 0 and at byte 4,096.

use cairn_base::{Error, Result};

use super::{checked, seal, take, take_u32, take_u64};

const MAGIC: [u8; 8] = *b"CairnSeg";
const VERSION: u32 = 1;
/// Version of segments whose records may be compressed.
const VERSION_CODECS: u32 = 2;
/// Bytes of one copy.
pub(crate) const HEADER_BYTES: usize = 64;
/// Offsets of the copies, which are on two sectors of any disk.
pub(crate) const HEADER_OFFSETS: [u64; 2] = [0, 4096];
/// Offset of the first record.
pub(crate) const RECORDS_OFFSET: u64 = 8192;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHeader {
    pub cluster: [u8; 16],
    pub disk: [u8; 16],
    pub number: u32,
    /// Random number: no record of another segment, even of the same number, is valid here.
    pub salt: u64,
    /// True if records may be compressed: programs that know no codecs refuse the segment.
    pub codecs: bool,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        let version = if self.codecs { VERSION_CODECS } else { VERSION };
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.cluster);
        out.extend_from_slice(&self.disk);
        out.extend_from_slice(&self.salt.to_le_bytes());
        out.resize(HEADER_BYTES - 4, 0);
        seal(&mut out);
        out
    }

    /// Decodes a header. Returns `None` if these bytes are no header.
    ///
    /// # Errors
    /// The header has a version that is unknown here.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<SegmentHeader>> {
        let Some(mut rest) = bytes.get(..HEADER_BYTES).and_then(checked) else { return Ok(None) };
        let rest = &mut rest;
        if take(rest) != Some(MAGIC) {
            return Ok(None);
        }
        let codecs = match take_u32(rest) {
            Some(VERSION) => false,
            Some(VERSION_CODECS) => true,
            Some(other) => {
                let text = format!("segment format {other}: a newer Cairn wrote it; use that one");
                return Err(Error::Invalid(text));
            }
            None => return Ok(None),
        };
        Ok((|| {
            let number = take_u32(rest)?;
            let cluster = take(rest)?;
            let disk = take(rest)?;
            Some(SegmentHeader { cluster, disk, number, salt: take_u64(rest)?, codecs })
        })())
    }
}
