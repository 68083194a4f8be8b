//! Writes a snapshot as a dump.

use std::io::Write;

use cairn_base::checksum::crc32c;
use cairn_base::{Error, Result};

use super::format::{self, Head, Header};
use super::{CLUSTER, END, FIRST, Summary};
use crate::engine::Snapshot;
use crate::keys;
use crate::rows::StoreIdentity;

/// Rows read at a time.
const PAGE: usize = 500;
/// Size of a section beyond which it takes no further row, bytes.
const SECTION_BYTES: usize = 1 << 20;

/// Writes a dump row by row.
pub struct Writer<'a> {
    out: &'a mut dyn Write,
    /// Last checksum written.
    previous: u32,
    sections: u64,
    body: Vec<u8>,
    body_rows: u32,
    summary: Summary,
}

/// Writes all rows of `snapshot`. Calls `progress` with the number of rows so far, at intervals.
///
/// # Errors
/// `NotFound` if they are no store; those of the snapshot; `Io`.
pub fn write(
    snapshot: &dyn Snapshot,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> Result<Summary> {
    let cluster = snapshot.get(&[keys::config(CLUSTER)])?.pop().flatten();
    let Some(cluster) = cluster else {
        return Err(Error::NotFound("these metadata hold no store".into()));
    };
    let mut dump = Writer::begin(out, StoreIdentity::decode_cluster(&cluster)?, snapshot.batch())?;
    let mut next = FIRST.to_vec();
    loop {
        let page = snapshot.scan(&next, END, PAGE)?;
        for (key, value) in &page {
            dump.row(key, value)?;
        }
        progress(dump.summary.rows);
        match page.last() {
            Some((key, _)) if page.len() == PAGE => next = [key, &b"\0"[..]].concat(),
            _ => return dump.finish(),
        }
    }
}

impl<'a> Writer<'a> {
    /// Begins a dump of the store `cluster` in the state of `batch`.
    ///
    /// # Errors
    /// `Io`.
    pub fn begin(out: &'a mut dyn Write, cluster: u64, batch: u64) -> Result<Writer<'a>> {
        let (bytes, previous) = Header { cluster, batch }.encode();
        let summary = Summary { cluster, batch, ..Summary::default() };
        let (sections, body, body_rows) = (0, Vec::new(), 0);
        let mut dump = Writer { out, previous, sections, body, body_rows, summary };
        dump.put(&bytes)?;
        Ok(dump)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.summary.bytes += bytes.len() as u64;
        Ok(self.out.write_all(bytes)?)
    }

    /// Adds a row. Keys must ascend.
    ///
    /// # Errors
    /// `TooLarge` for a row that no section can hold; `Io`.
    pub fn row(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.body.len() + format::row_bytes(key, value) > SECTION_BYTES {
            self.section()?;
        }
        format::put_row(&mut self.body, key, value)?;
        self.body_rows += 1;
        self.summary.rows += 1;
        Ok(())
    }

    fn section(&mut self) -> Result<()> {
        if self.body_rows == 0 {
            return Ok(());
        }
        self.sections += 1;
        let mut body = std::mem::take(&mut self.body);
        let head = Head::Section {
            number: self.sections,
            rows: std::mem::take(&mut self.body_rows),
            body_bytes: body.len() as u32,
            body_crc: crc32c(&body),
            previous: self.previous,
        };
        self.head(&head)?;
        self.put(&body)?;
        body.clear();
        self.body = body;
        Ok(())
    }

    fn head(&mut self, head: &Head) -> Result<()> {
        let (bytes, crc) = head.encode();
        self.previous = crc;
        self.put(&bytes)
    }

    /// Ends the dump.
    ///
    /// # Errors
    /// `Io`.
    pub fn finish(mut self) -> Result<Summary> {
        self.section()?;
        let (sections, rows, previous) = (self.sections, self.summary.rows, self.previous);
        self.head(&Head::Trailer { sections, rows, previous })?;
        self.out.flush()?;
        Ok(self.summary)
    }
}
