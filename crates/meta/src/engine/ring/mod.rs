//! The files of a log: a ring of preallocated, already written files, so that a commit's sync is a
//! pure flush of data. Records lie anywhere in them; their sequence numbers order them. The engine
//! above defines what a record holds.

pub mod header;

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::disk::read_exact_at;
use cairn_base::{Disk, DiskFile, Error, Result};

use self::header::{ALIGN, HEADER_BYTES, RawHeader};
use super::row_store::Mark;

/// Bytes read or zeroed at once.
const CHUNK_BYTES: usize = 1 << 20;

struct LogFile {
    file: Arc<dyn DiskFile>,
    /// Number of the last record in it; 0 for none.
    last: u64,
}

/// The log, for its single writer.
pub struct Ring {
    pub id: u64,
    segments: Vec<LogFile>,
    segment_bytes: u64,
    current: usize,
    offset: u64,
    /// Number of the last record.
    pub sequence: u64,
    /// crc of the last record's header.
    pub previous: u32,
    /// The whole next record, for [`Ring::write`].
    pub buffer: Vec<u8>,
}

/// The place of a record.
#[derive(Clone, Copy, Debug)]
pub struct LogPosition {
    pub segment: usize,
    pub offset: u64,
    pub header: RawHeader,
}

pub fn file_name(segment: u32) -> String {
    format!("log-{segment}")
}

/// Makes one file of the log and writes zeros to all of it. It is durable except for its name.
pub fn create_file(disk: &dyn Disk, segment: u32, segment_bytes: u64) -> Result<()> {
    let file = disk.create(&file_name(segment))?;
    file.allocate(segment_bytes)?;
    let zeros = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    while offset < segment_bytes {
        let len = (segment_bytes - offset).min(CHUNK_BYTES as u64) as usize;
        file.write_at(&[&zeros[..len]], offset)?;
        offset += len as u64;
    }
    Ok(file.sync_data()?)
}

impl Ring {
    /// Opens the files that `mark` names. `recover` examines their contents.
    ///
    /// # Errors
    /// `Corrupt` if a file is missing or has another length.
    pub fn open(disk: &dyn Disk, mark: &Mark) -> Result<Ring> {
        let mut segments = Vec::new();
        for segment in 0..mark.segments {
            let name = file_name(segment);
            let file = match disk.open(&name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(Error::corrupt(format!("log file {name}"), "nothing", "a file"));
                }
                other => other?,
            };
            let len = file.len()?;
            if len != mark.segment_bytes {
                let what = format!("length of log file {name}");
                return Err(Error::corrupt(what, len, mark.segment_bytes));
            }
            segments.push(LogFile { file, last: 0 });
        }
        Ok(Ring {
            id: mark.log_id,
            segments,
            segment_bytes: mark.segment_bytes,
            current: 0,
            offset: 0,
            sequence: mark.sequence,
            previous: mark.previous,
            buffer: Vec::new(),
        })
    }

    /// Returns the bytes in the log of a record that takes `bytes` without its padding.
    ///
    /// # Errors
    /// `TooLarge` if it does not fit into one file.
    pub fn record_bytes(&self, bytes: usize) -> Result<u64> {
        let bytes = header::aligned(bytes) as u64;
        if bytes > self.segment_bytes {
            let limit = self.segment_bytes;
            return Err(Error::TooLarge(format!(
                "a batch of {bytes} bytes; must be at most {limit}, the size of a log file"
            )));
        }
        Ok(bytes)
    }

    /// Returns the last record that the log must be allowed to drop before a record of `bytes` can
    /// be written.
    pub fn needs(&self, bytes: u64) -> u64 {
        if self.offset + bytes <= self.segment_bytes {
            0
        } else {
            self.segments[self.next_segment()].last
        }
    }

    /// Continues after `last`. `is_behind`: some records up to it are not in the table. No record
    /// is written before they are: records of an earlier process may not be durable, so new ones
    /// must not follow them.
    pub fn resume(&mut self, last: &Mark, is_behind: bool) {
        (self.sequence, self.previous) = (last.sequence, last.previous);
        if is_behind {
            self.offset = self.segment_bytes;
            self.segments.iter_mut().for_each(|segment| segment.last = last.sequence);
        }
    }

    /// Continues in the file after `segment`, so that the records in all others stay longest.
    pub fn go_on_after(&mut self, segment: usize) {
        (self.current, self.offset) = (segment, self.segment_bytes);
    }

    /// Returns the file that a record of `bytes` overwrites from its start; `None` if the record
    /// goes behind the one before.
    pub fn overwrites(&self, bytes: u64) -> Option<usize> {
        match (self.offset, self.offset + bytes > self.segment_bytes) {
            (0, false) => Some(self.current),
            (_, true) => Some(self.next_segment()),
            (_, false) => None,
        }
    }

    /// Returns the file that is overwritten when the current one is full.
    pub fn next_segment(&self) -> usize {
        (self.current + 1) % self.segments.len()
    }

    /// Returns whether less than half of the current file is left after a record of `bytes`.
    pub fn is_half_full(&self, bytes: u64) -> bool {
        self.offset + bytes > self.segment_bytes / 2
    }

    /// Writes the record in `buffer`, which has this header, into the page cache. The caller has
    /// checked the room, and must call [`Ring::sync`] afterwards.
    pub fn write(&mut self, header: RawHeader) -> io::Result<LogPosition> {
        let bytes = self.buffer.len() as u64;
        if self.offset + bytes > self.segment_bytes {
            self.current = self.next_segment();
            self.offset = 0;
        }
        let offset = self.offset;
        let segment = &mut self.segments[self.current];
        segment.file.write_at(&[&self.buffer], offset)?;
        self.sequence += 1;
        self.previous = header.crc;
        segment.last = self.sequence;
        self.offset += bytes;
        if self.buffer.capacity() > CHUNK_BYTES {
            self.buffer = Vec::new();
        }
        Ok(LogPosition { segment: self.current, offset, header })
    }

    /// Makes the last written record durable.
    pub fn sync(&self) -> io::Result<()> {
        self.segments[self.current].file.sync_data()
    }

    /// Returns all sound headers of this log, of any version, in no order.
    ///
    /// # Errors
    /// `Io`.
    pub fn headers(&self) -> Result<Vec<LogPosition>> {
        let mut places = Vec::new();
        for (index, segment) in self.segments.iter().enumerate() {
            for_each_header(&*segment.file, self.segment_bytes, |offset, bytes| {
                if let Some(header) = RawHeader::parse(bytes, self.id)
                    && offset + header.record_bytes() <= self.segment_bytes
                {
                    places.push(LogPosition { segment: index, offset, header });
                }
            })?;
        }
        Ok(places)
    }

    /// Reads a body, see [`read_body`].
    ///
    /// # Errors
    /// `Io`.
    pub fn body(&self, place: &LogPosition) -> Result<Option<Bytes>> {
        read_body(&*self.segments[place.segment].file, place)
    }

    /// Returns the files, in order, for reading bodies while records are written.
    pub fn files(&self) -> Vec<Arc<dyn DiskFile>> {
        self.segments.iter().map(|segment| Arc::clone(&segment.file)).collect()
    }
}

/// Reads the body of a record; `None` if it is not the body that its header was written with.
///
/// # Errors
/// `Io`.
pub fn read_body(file: &dyn DiskFile, place: &LogPosition) -> Result<Option<Bytes>> {
    let mut body = vec![0; place.header.body_bytes as usize];
    read_exact_at(file, &mut body, place.offset + HEADER_BYTES as u64)?;
    Ok(place.header.matches(&body).then(|| Bytes::from(body)))
}

/// Calls `each` with every place where a record may start, and the bytes from there on.
pub fn for_each_header(
    file: &dyn DiskFile,
    len: u64,
    mut each: impl FnMut(u64, &[u8]),
) -> Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES.min(len as usize)];
    let mut offset = 0;
    while offset < len {
        let bytes = (len - offset).min(chunk.len() as u64) as usize;
        read_exact_at(file, &mut chunk[..bytes], offset)?;
        for (index, start) in chunk[..bytes].chunks(ALIGN).enumerate() {
            each(offset + (index * ALIGN) as u64, start);
        }
        offset += bytes as u64;
    }
    Ok(())
}
