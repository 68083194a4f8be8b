//! The first page of the redb database, kept twice. redb writes it in place and cannot be opened
//! without it; a power cut may destroy a sector that is being written. So each new version goes
//! to the place that does not hold the last durable one.
#![deny(clippy::indexing_slicing)]

use std::io;

use cairn_base::DiskFile;
use cairn_base::checksum::crc32c;

/// The part of the database that is kept twice, bytes.
pub const PAGE_BYTES: usize = 4096;
/// Page, sequence `u64`, crc32c `u32` of both, zeros.
const SLOT_BYTES: usize = 2 * PAGE_BYTES;
/// What lies at offset `n` of the database lies at `n + SHIFT` of the file.
pub const SHIFT: u64 = (2 * SLOT_BYTES - PAGE_BYTES) as u64;

/// The page as redb sees it.
pub struct HeaderPage {
    page: [u8; PAGE_BYTES],
    /// Of the durable version.
    sequence: u64,
    /// Where that lies: 0 or 1.
    slot: u64,
    dirty: bool,
}

impl HeaderPage {
    /// The newest sound version in `file`; zeros where the file is empty.
    ///
    /// # Errors
    /// `InvalidData` where no version is sound.
    pub fn load(file: &dyn DiskFile) -> io::Result<HeaderPage> {
        let mut found = None;
        for slot in 0..2 {
            let mut bytes = [0; SLOT_BYTES];
            let read = file.read_at(&mut bytes, slot * SLOT_BYTES as u64)?;
            if read < SLOT_BYTES {
                continue;
            }
            if let Some((page, sequence)) = parse(&bytes)
                && found.as_ref().is_none_or(|old: &HeaderPage| old.sequence < sequence)
            {
                found = Some(HeaderPage { page, sequence, slot, dirty: false });
            }
        }
        match found {
            Some(header) => Ok(header),
            None if file.is_empty()? => {
                Ok(HeaderPage { page: [0; PAGE_BYTES], sequence: 0, slot: 1, dirty: false })
            }
            None => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "neither copy of the table's first page checks out",
            )),
        }
    }

    /// Reads at `offset` of the database; what lies behind the page is left as it is.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        let from = usize::try_from(offset).unwrap_or(PAGE_BYTES);
        let source = self.page.get(from..).unwrap_or_default();
        out.iter_mut().zip(source).for_each(|(out, byte)| *out = *byte);
    }

    /// Writes at `offset` of the database; what lies behind the page is not written.
    pub fn write(&mut self, file: &dyn DiskFile, offset: u64, data: &[u8]) -> io::Result<()> {
        let from = usize::try_from(offset).unwrap_or(PAGE_BYTES);
        let target = self.page.get_mut(from..).unwrap_or_default();
        target.iter_mut().zip(data).for_each(|(byte, new)| *byte = *new);
        self.dirty = true;
        let mut bytes = Vec::with_capacity(SLOT_BYTES);
        bytes.extend_from_slice(&self.page);
        bytes.extend_from_slice(&(self.sequence + 1).to_le_bytes());
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        bytes.resize(SLOT_BYTES, 0);
        file.write_at(&[&bytes], (1 - self.slot) * SLOT_BYTES as u64)
    }

    /// All written so far is durable.
    pub fn synced(&mut self) {
        if std::mem::take(&mut self.dirty) {
            self.sequence += 1;
            self.slot = 1 - self.slot;
        }
    }
}

fn parse(bytes: &[u8; SLOT_BYTES]) -> Option<([u8; PAGE_BYTES], u64)> {
    let (page, tail) = bytes.split_first_chunk::<PAGE_BYTES>()?;
    let (sequence, tail) = tail.split_first_chunk::<8>()?;
    let (crc, _) = tail.split_first_chunk::<4>()?;
    let covered = bytes.get(..PAGE_BYTES + 8)?;
    (crc32c(covered) == u32::from_le_bytes(*crc)).then(|| (*page, u64::from_le_bytes(*sequence)))
}
