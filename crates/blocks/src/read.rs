//! Reads blocks: every byte that is returned was verified against its record.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use cairn_base::checksum::crc32c;
use cairn_base::limits::SUB_BLOCK_BYTES;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Buffers, DiskFile, Error, Owner, PooledBytes, Result};

use crate::format::Key;
use crate::format::frames::Frames;
use crate::format::record::{self, HEADER_BYTES, Kind, RecordHeader, RecordPlace};
use crate::index::Location;
use crate::shared::StoreShared;

/// If the requested data begin this close to the record's header, bytes, one read gets both.
const NEAR_BYTES: u64 = 64 << 10;

/// Reads of at most this many bytes have memory of their own: the caller of a store may keep the
/// bytes, and would keep a whole buffer.
const KEPT_BYTES: usize = 768 << 10;

/// Fills a buffer from an offset; returns false if it would have to wait.
pub(crate) type ReadAt<'a> = &'a dyn Fn(&mut [u8], u64) -> std::io::Result<bool>;

/// A record as the index knows it.
pub(crate) struct IndexedRecord {
    pub file: Arc<dyn DiskFile>,
    pub place: RecordPlace,
    pub key: Key,
    pub owner: Owner,
    pub length: u32,
    /// Length of the data as they are in the record, if that is known.
    pub stored: Option<u32>,
}

impl StoreShared {
    pub(crate) fn find(&self, key: Key) -> Result<IndexedRecord> {
        let state = self.state.read();
        let missing = || Error::NotFound(format!("block {} of group {}", key.block, key.group));
        let (location, owner) = state.index.get(key).ok_or_else(missing)?;
        let Location { segment, length, stored, .. } = location;
        let (file, salt) = state.file(segment).ok_or_else(missing)?;
        let place = RecordPlace { segment, salt, offset: location.offset() };
        Ok(IndexedRecord { file, place, key, owner, length, stored: Some(stored) })
    }

    pub(crate) fn read(&self, key: Key, range: &Range<u32>) -> Result<Bytes> {
        let found = self.find(key)?;
        let read = |buf: &mut [u8], offset| {
            cairn_base::disk::read_exact_at(&*found.file, buf, offset).map(|()| true)
        };
        self.counted(found.read_or_fail(range, &read, self.memory.of(range, KEPT_BYTES)))
    }

    pub(crate) fn read_now(&self, key: Key, range: &Range<u32>) -> Result<Option<Bytes>> {
        let found = self.find(key)?;
        let read = |buf: &mut [u8], offset| match found.file.read_at_nowait(buf, offset)? {
            None => Ok(false),
            Some(got) if got == buf.len() => Ok(true),
            // A short read: at the end of the file, or of the bytes in memory. The blocking read
            // finds out.
            Some(_) => Ok(false),
        };
        self.counted(found.read(range, &read, self.memory.of(range, KEPT_BYTES)))
    }

    fn counted<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(Error::Corrupt { what, .. }) = &result {
            self.corrupt_reads.fetch_add(1, Ordering::Relaxed);
            tracing::error!(what, "stored bytes do not check out");
        }
        if let Err(Error::Io(_)) = &result {
            self.health.note_failed_read();
        }
        result
    }
}

impl IndexedRecord {
    /// Does the same as [`IndexedRecord::read`], with a `read` that waits.
    pub(crate) fn read_or_fail(
        &self,
        range: &Range<u32>,
        read: ReadAt<'_>,
        buffers: Option<&Buffers>,
    ) -> Result<Bytes> {
        let waits = || Error::Unavailable(format!("block {} waits for its disk", self.key.block));
        let waited = match self.read(range, read, buffers)? {
            None => match self.compressed(read) {
                Some(stored) => self.read_compressed(range, stored, read)?,
                None => None,
            },
            read => read,
        };
        waited.ok_or_else(waits)
    }

    /// Returns bytes of a block. Returns `None` if it would have to wait, or if the block is
    /// compressed: unpacking takes as long as handing the read to another thread. The bytes are in
    /// one of `buffers`, or in memory of their own.
    pub(crate) fn read(
        &self,
        range: &Range<u32>,
        read: ReadAt<'_>,
        buffers: Option<&Buffers>,
    ) -> Result<Option<Bytes>> {
        if range.start > range.end || range.end > self.length {
            return Err(Error::RangeNotSatisfiable { size: u64::from(self.length) });
        }
        if range.is_empty() {
            return Ok(Some(Bytes::new()));
        }
        if self.stored.is_some_and(|stored| stored != self.length) {
            return Ok(None);
        }
        match self.read_plain(range, read, buffers) {
            // The block was assumed to be plain.
            Err(Error::Corrupt { .. })
                if self.stored.is_none() && self.compressed(read).is_some() =>
            {
                Ok(None)
            }
            plain => plain,
        }
    }

    /// Returns the stored length of a compressed block; `None` if it is plain or its length is
    /// unknown.
    fn compressed(&self, read: ReadAt<'_>) -> Option<u32> {
        let stored = match self.stored {
            Some(stored) => stored,
            None => {
                let mut head = [0; HEADER_BYTES];
                let is_read = self.fill(&mut head, self.place.offset, read).ok()?;
                let header = RecordHeader::decode_at(&head, self.place).filter(|_| is_read)?;
                header.stored
            }
        };
        (stored != self.length).then_some(stored)
    }

    /// Announces to the system that a range will be read soon. Blocks the thread.
    pub(crate) fn will_read(&self, range: &Range<u32>) {
        let stored = self.stored.unwrap_or(self.length);
        // Any part of a compressed block may be needed.
        let (start, end) =
            if stored == self.length { (range.start, range.end) } else { (0, stored) };
        let data = self.place.offset + (HEADER_BYTES + record::table_bytes(stored)) as u64;
        self.file.will_read(data + u64::from(start), u64::from(end.saturating_sub(start)));
    }

    fn read_compressed(
        &self,
        range: &Range<u32>,
        stored: u32,
        read: ReadAt<'_>,
    ) -> Result<Option<Bytes>> {
        let (offset, all) = (self.place.offset, stored as usize);
        let head = HEADER_BYTES + record::table_bytes(stored);
        // The table of frames is in the first sub-block.
        let first = if u64::from(stored) <= NEAR_BYTES { all } else { SUB_BLOCK_BYTES };
        let mut buf = PooledBytes::zeros(head + first);
        if !self.fill(&mut buf, offset, read)? {
            return Ok(None);
        }
        self.check_head(&buf[..head], stored)?;
        let (table, data) = (&buf[HEADER_BYTES..head], &buf[head..]);
        self.check_data(table, 0, data)?;
        let bad = || self.corrupt("frames that do not check out", "those of the block");
        let frames = Frames::parse(data, self.length, stored).ok_or_else(bad)?;
        let wanted = frames.stored(range).ok_or_else(bad)?;
        let unpacked = match data.get(wanted.clone()) {
            Some(wanted) => frames.unpack(wanted, range),
            None => {
                let from = wanted.start / SUB_BLOCK_BYTES;
                let start = from * SUB_BLOCK_BYTES;
                let end = wanted.end.next_multiple_of(SUB_BLOCK_BYTES).min(all);
                let mut rest = PooledBytes::zeros(end - start);
                if !self.fill(&mut rest, offset + (head + start) as u64, read)? {
                    return Ok(None);
                }
                self.check_data(table, from as u32, &rest)?;
                frames.unpack(&rest[wanted.start - start..wanted.end - start], range)
            }
        };
        Ok(Some(Bytes::from(unpacked.ok_or_else(bad)?)))
    }

    fn read_plain(
        &self,
        range: &Range<u32>,
        read: ReadAt<'_>,
        buffers: Option<&Buffers>,
    ) -> Result<Option<Bytes>> {
        let unit = SUB_BLOCK_BYTES as u32;
        let first = range.start / unit;
        let start = first * unit;
        let end = range.end.div_ceil(unit).saturating_mul(unit).min(self.length);
        let len = (end - start) as usize;
        let head = HEADER_BYTES + record::table_bytes(self.length);
        let near = u64::from(start) <= NEAR_BYTES;
        let skip = head + start as usize;
        let take = |len, at| match buffers {
            Some(buffers) => buffers.take(len, at),
            None => PooledBytes::zeros(len),
        };

        let mut buf = if near { take(skip + len, skip) } else { PooledBytes::zeros(head) };
        if !self.fill(&mut buf, self.place.offset, read)? {
            return Ok(None);
        }
        self.check_head(&buf[..head], self.length)?;
        let (bytes, data_at) = if near {
            self.check_data(&buf[HEADER_BYTES..head], first, &buf[skip..])?;
            (buf, skip)
        } else {
            let mut data = take(len, 0);
            if !self.fill(&mut data, self.place.offset + skip as u64, read)? {
                return Ok(None);
            }
            self.check_data(&buf[HEADER_BYTES..], first, &data)?;
            (data, 0)
        };
        let from = data_at + (range.start - start) as usize;
        Ok(Some(Bytes::from_owner(bytes).slice(from..from + range.len())))
    }

    fn fill(&self, buf: &mut [u8], offset: u64, read: ReadAt<'_>) -> Result<bool> {
        match read(buf, offset) {
            Ok(filled) => Ok(filled),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(self.corrupt("the end of the file", "a whole record"))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn check_head(&self, head: &[u8], stored: u32) -> Result<()> {
        let header = RecordHeader::decode_at(head, self.place);
        let header = header
            .ok_or_else(|| self.corrupt("bytes that are no header", "the record's header"))?;
        let ours = header.kind == Kind::Block
            && (header.key, header.owner) == (self.key, self.owner)
            && (header.length, header.stored) == (self.length, stored);
        if !ours {
            let got = format!("the header of block {}", header.key.block);
            return Err(self.corrupt(&got, "the header of this block"));
        }
        if crc32c(&head[HEADER_BYTES..]) != header.table_crc {
            return Err(self.corrupt("a damaged checksum table", "that of the record"));
        }
        Ok(())
    }

    fn check_data(&self, table: &[u8], first: u32, data: &[u8]) -> Result<()> {
        if record::verify(table, first as usize, data) || is_planted(Bug::ChecksumUnchecked) {
            return Ok(());
        }
        Err(self.corrupt("data with another CRC-32C", "the CRC-32C in the checksum table"))
    }

    fn corrupt(&self, got: &str, expected: &str) -> Error {
        let IndexedRecord { place, key, owner, .. } = self;
        let what = format!(
            "block {} of group {}, owned by body {} chunk {}, in segment {:08x} at {}",
            key.block, key.group, owner.body, owner.chunk, place.segment, place.offset
        );
        Error::corrupt(what, got, expected)
    }
}
