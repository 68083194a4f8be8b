//! The bytes of a dump. Nothing here panics on any bytes. See docs/format-dump.md.
#![deny(clippy::indexing_slicing)]

use bytes::Bytes;
use cairn_base::checksum::crc32c;
use cairn_base::{Error, Result, limits};

use crate::rest::Rest;

const MAGIC: [u8; 8] = *b"CAIRNDMP";
const VERSION: u32 = 1;
const SECTION: [u8; 4] = *b"SECT";
const TRAILER: [u8; 4] = *b"TAIL";
pub const HEADER_BYTES: usize = 36;
/// Bytes of the head of a section and of the trailer.
pub const HEAD_BYTES: usize = 32;
/// Most bytes of rows of a section.
pub const BODY_BYTES: usize = limits::BATCH_BYTES;

/// The beginning of a dump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub cluster: u64,
    pub batch: u64,
}

/// The head before the rows of a section, or the end of the dump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Head {
    Section { number: u64, rows: u32, body_bytes: u32, body_crc: u32, previous: u32 },
    Trailer { sections: u64, rows: u64, previous: u32 },
}

/// Appends a checksum, and returns the bytes with it. The next head names this checksum.
fn sealed(mut bytes: Vec<u8>) -> (Vec<u8>, u32) {
    let crc = crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    (bytes, crc)
}

/// Returns the checksum at the end, if it is right.
fn unseal(bytes: &[u8]) -> Option<u32> {
    let (covered, crc) = bytes.split_last_chunk::<4>()?;
    let crc = u32::from_le_bytes(*crc);
    (crc32c(covered) == crc).then_some(crc)
}

impl Header {
    pub fn encode(&self) -> (Vec<u8>, u32) {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
        out.extend_from_slice(&self.cluster.to_le_bytes());
        out.extend_from_slice(&self.batch.to_le_bytes());
        sealed(out)
    }

    /// Parses a header; returns it with its checksum.
    ///
    /// # Errors
    /// `Invalid` for bytes that are no dump, or a dump of a later version; `Corrupt` for an altered
    /// dump.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<(Header, u32)> {
        let mut rest = Rest(bytes);
        if rest.take() != Some(MAGIC) {
            return Err(Error::Invalid("not a dump of the metadata of a Cairn store".into()));
        }
        let version = rest.take().map(u32::from_le_bytes);
        if version != Some(VERSION) {
            return Err(Error::Invalid(format!(
                "a dump of version {}, this version of Cairn knows {VERSION}: use the one that \
                 wrote it",
                version.unwrap_or_default()
            )));
        }
        let _reserved: Option<[u8; 4]> = rest.take();
        match (rest.u64(), rest.u64(), unseal(bytes)) {
            (Some(cluster), Some(batch), Some(crc)) => Ok((Header { cluster, batch }, crc)),
            _ => Err(altered("header")),
        }
    }
}

impl Head {
    pub fn encode(&self) -> (Vec<u8>, u32) {
        let mut out = Vec::with_capacity(HEAD_BYTES);
        match *self {
            Head::Section { number, rows, body_bytes, body_crc, previous } => {
                out.extend_from_slice(&SECTION);
                out.extend_from_slice(&rows.to_le_bytes());
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(&body_bytes.to_le_bytes());
                out.extend_from_slice(&body_crc.to_le_bytes());
                out.extend_from_slice(&previous.to_le_bytes());
            }
            Head::Trailer { sections, rows, previous } => {
                out.extend_from_slice(&TRAILER);
                out.extend_from_slice(&0u32.to_le_bytes());
                out.extend_from_slice(&sections.to_le_bytes());
                out.extend_from_slice(&rows.to_le_bytes());
                out.extend_from_slice(&previous.to_le_bytes());
            }
        }
        sealed(out)
    }

    /// Parses a head; returns it with its checksum, or `None` for other bytes.
    pub fn parse(bytes: &[u8; HEAD_BYTES]) -> Option<(Head, u32)> {
        let crc = unseal(bytes)?;
        let mut rest = Rest(bytes);
        let kind: [u8; 4] = rest.take()?;
        let small = rest.u32()?;
        let number = rest.u64()?;
        let head = match kind {
            SECTION => {
                let (body_bytes, body_crc, previous) = (rest.u32()?, rest.u32()?, rest.u32()?);
                Head::Section { number, rows: small, body_bytes, body_crc, previous }
            }
            TRAILER => Head::Trailer { sections: number, rows: rest.u64()?, previous: rest.u32()? },
            _ => return None,
        };
        Some((head, crc))
    }
}

/// Appends a row to the body of a section.
///
/// # Errors
/// `TooLarge` for a row that no section could hold.
pub fn put_row(body: &mut Vec<u8>, key: &[u8], value: &[u8]) -> Result<()> {
    let too_large = || Error::TooLarge(format!("a row of {} bytes", key.len() + value.len()));
    if row_bytes(key, value) > BODY_BYTES {
        return Err(too_large());
    }
    let key_len = u16::try_from(key.len()).map_err(|_| too_large())?;
    let value_len = u32::try_from(value.len()).map_err(|_| too_large())?;
    body.extend_from_slice(&key_len.to_le_bytes());
    body.extend_from_slice(&value_len.to_le_bytes());
    body.extend_from_slice(key);
    body.extend_from_slice(value);
    Ok(())
}

/// Returns the size of a row in a body.
pub fn row_bytes(key: &[u8], value: &[u8]) -> usize {
    6 + key.len() + value.len()
}

/// Parses the rows of a body, which share its memory; `None` if it is not exactly `rows` rows.
pub fn take_rows(mut body: Bytes, rows: u32) -> Option<Vec<(Bytes, Bytes)>> {
    // A row takes at least 6 bytes, so a false count cannot make this large.
    let mut out = Vec::with_capacity((rows as usize).min(body.len() / 6));
    for _ in 0..rows {
        let mut rest = Rest(&body);
        let key_len = usize::from(u16::from_le_bytes(rest.take()?));
        let value_len = usize::try_from(rest.u32()?).ok()?;
        if body.len() - 6 < key_len.checked_add(value_len)? {
            return None;
        }
        let _ = body.split_to(6);
        let key = body.split_to(key_len);
        out.push((key, body.split_to(value_len)));
    }
    body.is_empty().then_some(out)
}

pub fn altered(what: &str) -> Error {
    Error::corrupt(format!("{what} of the dump"), "bytes that do not check out", "bytes as written")
}
