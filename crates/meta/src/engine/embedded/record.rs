//! The records of the embedded engine's log. Nothing here panics or allocates more than its
//! input, on any bytes. See docs/format-engine.md.
#![deny(clippy::indexing_slicing)]

use bytes::Bytes;
use cairn_base::{Error, Result};

use super::super::changes;
use super::super::ring::header::seal;
use super::super::{Change, Fence};

pub use super::super::ring::header::{ALIGN, HEADER_BYTES, RawHeader};

pub const VERSION: u16 = 1;

/// The kind of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Changed rows; the batch number grows by one.
    Batch,
    /// No rows; the epoch grows by one.
    TakeOver,
    /// No rows; the epoch grows by one, and the batch number by any amount.
    Advance,
}

/// The header of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub kind: Kind,
    /// Fence after this record.
    pub fence: Fence,
    pub raw: RawHeader,
}

impl Header {
    /// Reads a header. Returns `None` for bytes that are no header of the log `log_id`.
    ///
    /// # Errors
    /// `Invalid` for a sound header of this log whose version is unknown.
    pub fn parse(bytes: &[u8], log_id: u64) -> Result<Option<Header>> {
        RawHeader::parse(bytes, log_id).map(Header::read).transpose()
    }

    /// Converts a header of any version.
    ///
    /// # Errors
    /// `Invalid` for an unknown version or kind.
    pub fn read(raw: RawHeader) -> Result<Header> {
        let kind = match (raw.version, raw.kind) {
            (VERSION, 1) => Kind::Batch,
            (VERSION, 2) => Kind::TakeOver,
            (VERSION, 3) => Kind::Advance,
            _ => return Err(raw.unknown()),
        };
        let [epoch, batch] = raw.numbers;
        Ok(Header { kind, fence: Fence { epoch, batch }, raw })
    }
}

/// The parts of a new record apart from its rows.
#[derive(Clone, Copy, Debug)]
pub struct Draft {
    pub kind: Kind,
    pub log_id: u64,
    pub sequence: u64,
    pub fence: Fence,
    pub previous: u32,
}

/// Returns the bytes of the record that [`encode`] makes of `changes`, without its padding.
pub fn record_bytes(changes: &[Change]) -> usize {
    HEADER_BYTES + changes::encoded_bytes(changes)
}

/// Writes the whole record into `out`, padding included, and returns its header.
///
/// # Errors
/// `TooLarge` for a key, a value or a body whose length does not fit its field.
pub fn encode(draft: &Draft, changes: &[Change], out: &mut Vec<u8>) -> Result<RawHeader> {
    out.clear();
    out.reserve(record_bytes(changes).next_multiple_of(ALIGN));
    out.resize(HEADER_BYTES, 0);
    changes::encode(changes, out)?;
    let header = RawHeader {
        version: VERSION,
        kind: match draft.kind {
            Kind::Batch => 1,
            Kind::TakeOver => 2,
            Kind::Advance => 3,
        },
        log_id: draft.log_id,
        sequence: draft.sequence,
        numbers: [draft.fence.epoch, draft.fence.batch],
        count: changes.len() as u32,
        body_bytes: 0,
        body_crc: 0,
        previous: draft.previous,
        crc: 0,
    };
    seal(header, out)
}

/// Parses the rows in `body`, which share its memory.
///
/// # Errors
/// `Corrupt` if it is not exactly `header.count` well-formed rows.
pub fn parse_rows(header: &RawHeader, body: &Bytes) -> Result<Vec<Change>> {
    changes::parse(header.count, body).map_err(|got| {
        let what = format!("record {} of the log", header.sequence);
        Error::corrupt(what, got, "well-formed rows")
    })
}
