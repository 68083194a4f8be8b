//! The log: a ring of preallocated, already written files, so that a commit's sync is a pure
//! flush of data. Records lie anywhere in them; their sequence numbers order them.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::disk::read_exact_at;
use cairn_base::{Disk, DiskFile, Error, Result};

use super::super::row_store::Mark;
use super::super::{Change, Fence};
use super::record::{self, ALIGN, Draft, HEADER_BYTES, Header, Kind};

/// Bytes read or zeroed at once.
const CHUNK_BYTES: usize = 1 << 20;

struct LogFile {
    file: Arc<dyn DiskFile>,
    /// The last record in it; 0 for none.
    last: u64,
}

/// The log as its one writer sees it.
pub struct Log {
    pub id: u64,
    segments: Vec<LogFile>,
    segment_bytes: u64,
    current: usize,
    offset: u64,
    /// Of the last record.
    pub sequence: u64,
    /// The crc of the last record's header.
    pub previous: u32,
    buffer: Vec<u8>,
}

/// Where a record lies.
#[derive(Clone, Copy, Debug)]
pub struct LogPosition {
    pub segment: usize,
    pub offset: u64,
    pub header: Header,
}

pub fn file_name(segment: u32) -> String {
    format!("log-{segment}")
}

/// Makes one file of the log: all zeros, and all written, durable but for its name.
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

impl Log {
    /// Opens the files that `mark` speaks of. Their contents are for `recover` to find out.
    ///
    /// # Errors
    /// `Corrupt` where one is missing or has another length.
    pub fn open(disk: &dyn Disk, mark: &Mark) -> Result<Log> {
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
        Ok(Log {
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

    /// What the table says once all up to now is in it, with `fence`.
    pub fn mark(&self, fence: Fence) -> Mark {
        Mark {
            log_id: self.id,
            sequence: self.sequence,
            previous: self.previous,
            fence,
            segments: self.segments.len() as u32,
            segment_bytes: self.segment_bytes,
        }
    }

    /// Bytes that a record of `changes` takes.
    ///
    /// # Errors
    /// `TooLarge` where it does not fit into one file.
    pub fn record_bytes(&self, changes: &[Change]) -> Result<u64> {
        let bytes = record::aligned(HEADER_BYTES + record::body_bytes(changes)) as u64;
        if bytes > self.segment_bytes {
            let limit = self.segment_bytes;
            return Err(Error::TooLarge(format!(
                "a batch of {bytes} bytes; must be at most {limit}, the size of a log file"
            )));
        }
        Ok(bytes)
    }

    /// Whether a record of `bytes` can be written when all up to `checkpointed` is in the table.
    pub fn has_room(&self, bytes: u64, checkpointed: u64) -> bool {
        self.offset + bytes <= self.segment_bytes || self.next_is_free(checkpointed)
    }

    fn next_is_free(&self, checkpointed: u64) -> bool {
        self.segments[(self.current + 1) % self.segments.len()].last <= checkpointed
    }

    /// Goes on after `last`. `is_behind`: some records up to it are not in the table. No record is
    /// written before they are: those of an earlier process may not be durable, so ours must not
    /// follow them.
    pub fn resume(&mut self, last: &Mark, is_behind: bool) {
        (self.sequence, self.previous) = (last.sequence, last.previous);
        if is_behind {
            self.offset = self.segment_bytes;
            self.segments.iter_mut().for_each(|segment| segment.last = last.sequence);
        }
    }

    /// Encodes the next record. [`Log::write`] writes it.
    ///
    /// # Errors
    /// `TooLarge`; nothing has changed then.
    pub fn encode(&mut self, kind: Kind, fence: Fence, changes: &[Change]) -> Result<Encoded> {
        let (log_id, previous) = (self.id, self.previous);
        let sequence = self.sequence + 1;
        let draft = Draft { kind, log_id, sequence, fence, previous };
        let crc = record::encode(&draft, changes, &mut self.buffer)?;
        Ok(Encoded { crc })
    }

    /// Writes the encoded record into the page cache. Room was checked before.
    /// [`Log::sync`] must follow.
    pub fn write(&mut self, encoded: Encoded) -> io::Result<u64> {
        let bytes = self.buffer.len() as u64;
        if self.offset + bytes > self.segment_bytes {
            self.current = (self.current + 1) % self.segments.len();
            self.offset = 0;
        }
        let segment = &mut self.segments[self.current];
        segment.file.write_at(&[&self.buffer], self.offset)?;
        self.sequence += 1;
        self.previous = encoded.crc;
        segment.last = self.sequence;
        self.offset += bytes;
        if self.buffer.capacity() > CHUNK_BYTES {
            self.buffer = Vec::new();
        }
        Ok(bytes)
    }

    /// Makes the record written last durable.
    pub fn sync(&self) -> io::Result<()> {
        self.segments[self.current].file.sync_data()
    }

    /// All sound headers of records after `after`, in no order.
    pub fn headers(&self, after: u64) -> Result<Vec<LogPosition>> {
        let mut places = Vec::new();
        for (index, segment) in self.segments.iter().enumerate() {
            for_each_header(&*segment.file, self.segment_bytes, |offset, bytes| {
                let Some(header) = Header::parse(bytes, self.id)? else { return Ok(()) };
                let fits = offset + header.record_bytes() <= self.segment_bytes;
                if fits && header.sequence > after {
                    places.push(LogPosition { segment: index, offset, header });
                }
                Ok(())
            })?;
        }
        Ok(places)
    }

    /// The body of a record, or `None` where it is not the one its header was written with.
    pub fn body(&self, place: &LogPosition) -> Result<Option<Bytes>> {
        let mut body = vec![0; place.header.body_bytes as usize];
        let offset = place.offset + HEADER_BYTES as u64;
        read_exact_at(&*self.segments[place.segment].file, &mut body, offset)?;
        let sound = record::body_matches(&place.header, &body);
        Ok(sound.then(|| Bytes::from(body)))
    }
}

/// Of a record that waits in the buffer to be written.
#[derive(Debug)]
pub struct Encoded {
    crc: u32,
}

/// Calls `each` with every place where a record may start, and the bytes from there on.
pub fn for_each_header(
    file: &dyn DiskFile,
    len: u64,
    mut each: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES.min(len as usize)];
    let mut offset = 0;
    while offset < len {
        let bytes = (len - offset).min(chunk.len() as u64) as usize;
        read_exact_at(file, &mut chunk[..bytes], offset)?;
        for (index, start) in chunk[..bytes].chunks(ALIGN).enumerate() {
            each(offset + (index * ALIGN) as u64, start)?;
        }
        offset += bytes as u64;
    }
    Ok(())
}
