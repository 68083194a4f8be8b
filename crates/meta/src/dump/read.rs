//! Reads a dump section by section, and checks each section before its rows are passed on.

use std::io::{ErrorKind, Read};

use bytes::Bytes;
use cairn_base::checksum::crc32c;
use cairn_base::{Error, Result};

use super::format::{self, BODY_BYTES, HEAD_BYTES, HEADER_BYTES, Head, Header};
use super::{CLUSTER, Summary};
use crate::keys;
use crate::rows::StoreIdentity;

/// A dump that is being read.
pub struct Reader<'a> {
    input: &'a mut dyn Read,
    pub header: Header,
    previous: u32,
    sections: u64,
    last_key: Bytes,
    has_cluster: bool,
    /// Counts of the rows and bytes read.
    pub summary: Summary,
}

/// Reads a dump to its end and checks that it is complete. Calls `progress` with the number of rows
/// so far, at intervals.
///
/// # Errors
/// `Invalid` for a file that is no dump, `Corrupt` for an altered or truncated dump, `Io`.
pub fn verify(input: &mut dyn Read, progress: &mut dyn FnMut(u64)) -> Result<Summary> {
    let mut reader = Reader::open(input)?;
    while reader.section()?.is_some() {
        progress(reader.summary.rows);
    }
    Ok(reader.summary)
}

/// Reads a dump to its end and passes on each row, in the order of keys, once its section was
/// verified. Only at the end it is certain that nothing is missing.
///
/// # Errors
/// Same errors as [`verify`]; those of `visit`.
pub fn each(
    input: &mut dyn Read,
    visit: &mut dyn FnMut(Bytes, Bytes) -> Result<()>,
) -> Result<Summary> {
    let mut reader = Reader::open(input)?;
    while let Some(rows) = reader.section()? {
        rows.into_iter().try_for_each(|(key, value)| visit(key, value))?;
    }
    Ok(reader.summary)
}

impl<'a> Reader<'a> {
    pub fn open(input: &'a mut dyn Read) -> Result<Reader<'a>> {
        let mut bytes = [0; HEADER_BYTES];
        let read = fill(input, &mut bytes)?;
        // A file of another kind must not be reported as truncated.
        let parsed = Header::parse(&bytes);
        if read < bytes.len() && !matches!(parsed, Err(Error::Invalid(_))) {
            return Err(cut_off(read as u64));
        }
        let (header, previous) = parsed?;
        let Header { cluster, batch } = header;
        let bytes = HEADER_BYTES as u64;
        let summary = Summary { cluster, batch, rows: 0, bytes };
        let last_key = Bytes::new();
        Ok(Reader { input, header, previous, sections: 0, last_key, has_cluster: false, summary })
    }

    /// Returns the rows of the next section; `None` at the end of an unaltered dump.
    pub fn section(&mut self) -> Result<Option<Vec<(Bytes, Bytes)>>> {
        let mut bytes = [0; HEAD_BYTES];
        self.read(&mut bytes)?;
        let Some((head, crc)) = Head::parse(&bytes) else { return Err(self.altered()) };
        let named = std::mem::replace(&mut self.previous, crc);
        match head {
            Head::Section { number, rows, body_bytes, body_crc, previous }
                if previous == named
                    && number == self.sections + 1
                    && rows > 0
                    && body_bytes as usize <= BODY_BYTES =>
            {
                let mut body = vec![0; body_bytes as usize];
                self.read(&mut body)?;
                let rows = if crc32c(&body) == body_crc {
                    format::take_rows(body.into(), rows)
                } else {
                    None
                };
                let Some(rows) = rows else { return Err(self.altered()) };
                self.check_rows(&rows)?;
                self.sections += 1;
                Ok(Some(rows))
            }
            Head::Trailer { sections, rows, previous }
                if previous == named
                    && sections == self.sections
                    && rows == self.summary.rows
                    && self.has_cluster =>
            {
                self.expect_end()?;
                Ok(None)
            }
            _ => Err(self.altered()),
        }
    }

    fn check_rows(&mut self, rows: &[(Bytes, Bytes)]) -> Result<()> {
        let cluster = keys::config(CLUSTER);
        for (key, value) in rows {
            if *key <= self.last_key {
                return Err(self.altered());
            }
            if *key == cluster {
                if StoreIdentity::decode_cluster(value)? != self.header.cluster {
                    return Err(self.altered());
                }
                self.has_cluster = true;
            }
            // Copied, since a part of the section would keep all of it in memory.
            self.last_key = Bytes::copy_from_slice(key);
        }
        self.summary.rows += rows.len() as u64;
        Ok(())
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<()> {
        let read = fill(self.input, bytes)?;
        self.summary.bytes += read as u64;
        if read < bytes.len() { Err(cut_off(self.summary.bytes)) } else { Ok(()) }
    }

    fn expect_end(&mut self) -> Result<()> {
        match fill(self.input, &mut [0])? {
            0 => Ok(()),
            _ => Err(Error::corrupt("dump", "bytes after its end", "none")),
        }
    }

    fn altered(&self) -> Error {
        format::altered(&format!("part {}", self.sections + 1))
    }
}

fn cut_off(bytes: u64) -> Error {
    Error::corrupt("dump", format!("its end after {bytes} bytes: cut off"), "a trailer")
}

/// Fills `bytes` as far as the input goes; returns the number of bytes read.
fn fill(input: &mut dyn Read, bytes: &mut [u8]) -> Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match input.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(filled)
}
