//! The bytes of one log record: a header of 64 bytes, a body, zeros up to the next multiple of
//! [`ALIGN`]. Nothing here panics or allocates more than its input, on any bytes.
//! See docs/format-engine.md.
#![deny(clippy::indexing_slicing)]

use bytes::Bytes;
use cairn_base::checksum::crc32c;
use cairn_base::{Error, Result};

use super::super::{Change, Fence};
use crate::rest::Rest;

/// Records start at multiples of this, bytes: a page that holds an acknowledged record is never
/// written again while the record is needed.
pub const ALIGN: usize = 4096;
pub const HEADER_BYTES: usize = 64;
pub const VERSION: u16 = 1;
const MAGIC: [u8; 4] = *b"CRNL";
/// Instead of a value's length: the row is deleted.
const DELETED: u32 = u32::MAX;
/// The longest key the log can hold, bytes.
pub const KEY_BYTES: usize = u16::MAX as usize;

/// The kind of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Changed rows; the batch number is one more than before.
    Batch,
    /// No rows; the epoch is one more than before.
    TakeOver,
    /// No rows; the epoch is one more than before, the batch number any that is higher.
    Advance,
}

/// The header of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub kind: Kind,
    /// Random, drawn when the log was made: bytes of users and of other logs are never records.
    pub log_id: u64,
    /// One more than that of the record before.
    pub sequence: u64,
    /// The fence after this record.
    pub fence: Fence,
    pub rows: u32,
    pub body_bytes: u32,
    pub body_crc: u32,
    /// [`Header::crc`] of the record before: ties each record to all of its past.
    pub previous: u32,
    /// crc32c of the first 60 bytes.
    pub crc: u32,
}

impl Header {
    /// Bytes of the whole record with its padding.
    pub fn record_bytes(&self) -> u64 {
        aligned(HEADER_BYTES + self.body_bytes as usize) as u64
    }

    /// Reads a header. `None`: these bytes are no header of the log `log_id`.
    ///
    /// # Errors
    /// `Invalid` where it is a sound header, of this log, of a version that is not known here.
    pub fn parse(bytes: &[u8], log_id: u64) -> Result<Option<Header>> {
        let Some((head, _)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let mut rest = Rest(head);
        if rest.take::<4>() != Some(MAGIC) {
            return Ok(None);
        }
        let Some(header) = rest.header(log_id) else { return Ok(None) };
        let Some((covered, _)) = head.split_last_chunk::<4>() else { return Ok(None) };
        if header.header.crc != crc32c(covered) {
            return Ok(None);
        }
        match (header.version, header.kind) {
            (VERSION, Some(kind)) => Ok(Some(Header { kind, ..header.header })),
            (version, _) => Err(Error::Invalid(format!(
                "record {} of the log has version {version}, which this version of Cairn does \
                 not know: run the newer one",
                header.header.sequence
            ))),
        }
    }
}

struct Parsed {
    version: u16,
    kind: Option<Kind>,
    header: Header,
}

impl Rest<'_> {
    fn header(&mut self, log_id: u64) -> Option<Parsed> {
        let version = u16::from_le_bytes(self.take()?);
        let kind = match u16::from_le_bytes(self.take()?) {
            1 => Some(Kind::Batch),
            2 => Some(Kind::TakeOver),
            3 => Some(Kind::Advance),
            _ => None,
        };
        if self.u64()? != log_id {
            return None;
        }
        let sequence = self.u64()?;
        let fence = Fence { epoch: self.u64()?, batch: self.u64()? };
        let (rows, body_bytes) = (self.u32()?, self.u32()?);
        let (body_crc, previous) = (self.u32()?, self.u32()?);
        let _reserved = self.u32()?;
        let crc = self.u32()?;
        let kind_or_any = kind.unwrap_or(Kind::Batch);
        let header = Header {
            kind: kind_or_any,
            log_id,
            sequence,
            fence,
            rows,
            body_bytes,
            body_crc,
            previous,
            crc,
        };
        Some(Parsed { version, kind, header })
    }
}

/// The parts of a new record beside its rows.
#[derive(Clone, Copy, Debug)]
pub struct Draft {
    pub kind: Kind,
    pub log_id: u64,
    pub sequence: u64,
    pub fence: Fence,
    pub previous: u32,
}

/// Rounds up to a multiple of [`ALIGN`].
pub fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN)
}

/// Bytes of the body that [`encode`] makes of `changes`.
pub fn body_bytes(changes: &[Change]) -> usize {
    let row = |(key, value): &Change| 6 + key.len() + value.as_ref().map_or(0, Bytes::len);
    changes.iter().map(row).sum()
}

/// Writes the whole record into `out`, padding included, and returns the header's crc.
///
/// # Errors
/// `TooLarge` for a key, a value or a body whose length does not fit its field.
pub fn encode(draft: &Draft, changes: &[Change], out: &mut Vec<u8>) -> Result<u32> {
    let body_len = body_bytes(changes);
    let body_field = u32::try_from(body_len).map_err(|_| too_large("a batch", body_len))?;
    out.clear();
    out.reserve(aligned(HEADER_BYTES + body_len));
    out.resize(HEADER_BYTES, 0);
    for (key, value) in changes {
        let key_len = u16::try_from(key.len()).map_err(|_| too_large("a key", key.len()))?;
        out.extend_from_slice(&key_len.to_le_bytes());
        let value_len = match value {
            None => DELETED,
            Some(value) => match u32::try_from(value.len()) {
                Ok(len) if len != DELETED => len,
                _ => return Err(too_large("a value", value.len())),
            },
        };
        out.extend_from_slice(&value_len.to_le_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(value.as_deref().unwrap_or_default());
    }
    let body_crc = crc32c(out.get(HEADER_BYTES..).unwrap_or_default());
    let (head, crc) = header_bytes(draft, changes.len() as u32, body_field, body_crc);
    if let Some(place) = out.first_chunk_mut::<HEADER_BYTES>() {
        *place = head;
    }
    out.resize(aligned(out.len()), 0);
    Ok(crc)
}

fn header_bytes(
    draft: &Draft,
    rows: u32,
    body_bytes: u32,
    body_crc: u32,
) -> ([u8; HEADER_BYTES], u32) {
    let kind: u16 = match draft.kind {
        Kind::Batch => 1,
        Kind::TakeOver => 2,
        Kind::Advance => 3,
    };
    let mut head = Vec::with_capacity(HEADER_BYTES);
    head.extend_from_slice(&MAGIC);
    head.extend_from_slice(&VERSION.to_le_bytes());
    head.extend_from_slice(&kind.to_le_bytes());
    for number in [draft.log_id, draft.sequence, draft.fence.epoch, draft.fence.batch] {
        head.extend_from_slice(&number.to_le_bytes());
    }
    for number in [rows, body_bytes, body_crc, draft.previous, 0] {
        head.extend_from_slice(&number.to_le_bytes());
    }
    let crc = crc32c(&head);
    head.extend_from_slice(&crc.to_le_bytes());
    let mut out = [0; HEADER_BYTES];
    out.copy_from_slice(&head);
    (out, crc)
}

fn too_large(what: &str, bytes: usize) -> Error {
    Error::TooLarge(format!("{what} of {bytes} bytes does not fit into the log"))
}

/// Whether `body` is the one that `header` was written with.
pub fn body_matches(header: &Header, body: &[u8]) -> bool {
    body.len() == header.body_bytes as usize && crc32c(body) == header.body_crc
}

/// The rows in `body`, which share its memory.
///
/// # Errors
/// `Corrupt` where it is not exactly `header.rows` well-formed rows.
pub fn parse_rows(header: &Header, body: &Bytes) -> Result<Vec<Change>> {
    let bad = |got: &str| {
        let what = format!("record {} of the log", header.sequence);
        Error::corrupt(what, got, "well-formed rows")
    };
    // A row takes 6 bytes at least, so a false count cannot make this large.
    let mut changes = Vec::with_capacity((header.rows as usize).min(body.len() / 6));
    let mut rest = body.clone();
    for _ in 0..header.rows {
        let change = take_row(&mut rest).ok_or_else(|| bad("a row that is cut short"))?;
        changes.push(change);
    }
    if rest.is_empty() { Ok(changes) } else { Err(bad("bytes after the last row")) }
}

fn take_row(rest: &mut Bytes) -> Option<Change> {
    let mut fields = Rest(rest);
    let key_len = usize::from(u16::from_le_bytes(fields.take()?));
    let value_len = fields.u32()?;
    let _ = rest.split_to(6);
    let key = take(rest, key_len)?;
    if value_len == DELETED {
        return Some((key, None));
    }
    let value = take(rest, usize::try_from(value_len).ok()?)?;
    Some((key, Some(value)))
}

fn take(rest: &mut Bytes, len: usize) -> Option<Bytes> {
    (len <= rest.len()).then(|| rest.split_to(len))
}
