//! Reads a segment record by record, past broken parts: used if there is no hint.

use cairn_base::checksum::crc32c;
use cairn_base::{DiskFile, Result};

use crate::format::ALIGN;
use crate::format::hint::{BlockEntry, HintEntry};
use crate::format::record::{self, HEADER_BYTES, Kind, RecordHeader, RecordPlace, Tombstone};
use crate::format::segment::RECORDS_OFFSET;

const WINDOW_BYTES: u64 = 128 << 10;
/// Bytes of the pieces that are tried one by one after a failed read.
const PIECE_BYTES: usize = 4096;

/// The contents of a segment.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub entries: Vec<HintEntry>,
    /// Offset after the last good record.
    pub end: u64,
    /// Offset after the last byte that is not zero.
    pub used_end: u64,
    /// True if bytes that had been durable fail verification.
    pub damaged: bool,
    /// Number of records whose write was cut off, as far as can be known: such records were not
    /// acknowledged.
    pub torn: u64,
}

/// Reads the segment. Its last bytes may be in the page cache only, and are synced, so that
/// everything in `entries` is durable. Bytes below `known_durable` are durable already.
pub(crate) fn scan(
    file: &dyn DiskFile,
    place: RecordPlace,
    len: u64,
    known_durable: u64,
) -> Result<Scan> {
    let found = Headers::read(file, place, len);
    let durable_end = found.headers.iter().map(|header| header.synced).max();
    let durable_end = durable_end.unwrap_or(0).max(known_durable).max(RECORDS_OFFSET);
    let mut scan = Scan {
        end: RECORDS_OFFSET,
        used_end: found.used_end,
        damaged: found.unread || found.gaps.iter().any(|gap| *gap < durable_end),
        ..Scan::default()
    };
    let headers_end = found.headers.last().map(|header| header.place.offset + header.footprint());
    scan.torn += u64::from(found.used_end > headers_end.unwrap_or(0));
    let mut unsynced = false;
    for header in &found.headers {
        let end = header.place.offset + header.footprint();
        let acknowledged = end <= durable_end;
        if header.kind == Kind::Block && acknowledged {
            scan.entries.push(entry(header));
        } else if !read_record(file, header, &mut scan, acknowledged) {
            continue;
        }
        unsynced |= !acknowledged;
        scan.end = end;
    }
    if unsynced {
        // The bytes are not written again: acknowledged bytes are never overwritten, not even with
        // the same bytes.
        file.sync_data()?;
    }
    Ok(scan)
}

fn entry(header: &RecordHeader) -> HintEntry {
    HintEntry::Block(BlockEntry {
        key: header.key,
        owner: header.owner,
        position: crate::state::position(header.place.offset),
        length: header.length,
        stored: header.stored,
        sequence: header.sequence,
    })
}

/// Reads a whole record and adds its entries. Returns false if it fails verification.
fn read_record(
    file: &dyn DiskFile,
    header: &RecordHeader,
    scan: &mut Scan,
    acknowledged: bool,
) -> bool {
    let mut bytes = vec![0; header.footprint() as usize];
    if cairn_base::disk::read_exact_at(file, &mut bytes, header.place.offset).is_err() {
        // The record may be readable next time; until then the block exists, and reading it fails.
        scan.damaged = true;
        if header.kind == Kind::Block {
            scan.entries.push(entry(header));
        }
        return header.kind == Kind::Block;
    }
    match (header.kind, data(header, &bytes)) {
        (Kind::Block, Some(_)) => scan.entries.push(entry(header)),
        (Kind::Tombstones, Some(data)) => {
            let all = Tombstone::decode_all(data).unwrap_or_default();
            scan.entries.extend(all.into_iter().map(HintEntry::Tombstone));
        }
        (_, None) if acknowledged => {
            scan.damaged = true;
            return false;
        }
        (_, None) => {
            scan.torn += 1;
            return false;
        }
    }
    true
}

/// Returns the stored data in `bytes`, a whole record, if they pass verification.
pub(crate) fn data<'a>(header: &RecordHeader, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let (table, rest) = bytes.get(HEADER_BYTES..)?.split_at_checked(table_len(header))?;
    let data = rest.get(..header.stored as usize)?;
    (crc32c(table) == header.table_crc && record::verify(table, 0, data)).then_some(data)
}

fn table_len(header: &RecordHeader) -> usize {
    record::table_bytes(header.stored)
}

/// All headers of a segment that belong there.
struct Headers {
    headers: Vec<RecordHeader>,
    /// Offsets at which a record was expected and none was found, although a record follows.
    gaps: Vec<u64>,
    used_end: u64,
    unread: bool,
}

impl Headers {
    fn read(file: &dyn DiskFile, place: RecordPlace, len: u64) -> Headers {
        let mut found =
            Headers { headers: Vec::new(), gaps: Vec::new(), used_end: 0, unread: false };
        let mut window = ScanWindow { file, len, bytes: Vec::new(), start: 0, unread: false };
        let mut offset = RECORDS_OFFSET;
        let mut gap = None;
        while offset < len {
            let bytes = window.at(offset);
            let header = RecordHeader::decode_at(bytes, RecordPlace { offset, ..place });
            match header.filter(|header| offset + header.footprint() <= len) {
                Some(header) => {
                    found.gaps.extend(gap.take());
                    offset += header.footprint();
                    found.used_end = offset;
                    found.headers.push(header);
                }
                None => {
                    gap = gap.or(Some(offset));
                    offset += ALIGN;
                    if bytes.iter().take(ALIGN as usize).any(|byte| *byte != 0) {
                        found.used_end = offset.min(len);
                    }
                }
            }
        }
        found.unread = window.unread;
        found
    }
}

/// A part of a file in memory.
struct ScanWindow<'a> {
    file: &'a dyn DiskFile,
    len: u64,
    bytes: Vec<u8>,
    start: u64,
    unread: bool,
}

impl ScanWindow<'_> {
    /// Returns the bytes from `offset` on: at least a sector, or fewer at the end of the file.
    fn at(&mut self, offset: u64) -> &[u8] {
        let end = self.start + self.bytes.len() as u64;
        let wanted = (offset + ALIGN).min(self.len);
        if offset < self.start || wanted > end {
            self.start = offset;
            self.bytes.resize(WINDOW_BYTES.min(self.len - offset) as usize, 0);
            self.fill();
        }
        self.bytes.get((offset - self.start) as usize..).unwrap_or_default()
    }

    fn fill(&mut self) {
        if cairn_base::disk::read_exact_at(self.file, &mut self.bytes, self.start).is_ok() {
            return;
        }
        let mut offset = self.start;
        for piece in self.bytes.chunks_mut(PIECE_BYTES) {
            if cairn_base::disk::read_exact_at(self.file, piece, offset).is_err() {
                piece.fill(0);
                self.unread = true;
            }
            offset += piece.len() as u64;
        }
    }
}
