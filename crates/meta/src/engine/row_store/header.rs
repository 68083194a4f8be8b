//! The first page of the redb database, kept several times. Redb writes it in place and cannot be
//! opened without it; a power cut may destroy a sector that is being written. So each new version
//! goes to the place of the oldest one. Four places, since the newest that an earlier process left
//! may not be durable although it can be read (its sync failed), nor what a process after it left.
#![deny(clippy::indexing_slicing)]

use std::io;

use cairn_base::DiskFile;
use cairn_base::checksum::crc32c;

/// Size of the part of the database that is kept several times, bytes.
pub const PAGE_BYTES: usize = 4096;
/// Bytes of a copy: page, sequence `u64`, crc32c `u32` of both, zeros.
const SLOT_BYTES: usize = 2 * PAGE_BYTES;
const SLOTS: usize = 4;
/// Distance between the offset of a byte in the database and in the file.
pub const SHIFT: u64 = (SLOTS * SLOT_BYTES - PAGE_BYTES) as u64;

/// The page, as redb sees it.
pub struct HeaderPage {
    page: [u8; PAGE_BYTES],
    /// Number of the last durable version.
    sequence: u64,
    dirty: bool,
}

impl HeaderPage {
    /// Loads the newest sound version in `file`, and makes it durable; zeros if the file is empty.
    ///
    /// # Errors
    /// `InvalidData` if no version is sound.
    pub fn load(file: &dyn DiskFile) -> io::Result<HeaderPage> {
        let mut header = HeaderPage { page: [0; PAGE_BYTES], sequence: 0, dirty: false };
        if file.is_empty()? {
            return Ok(header);
        }
        for slot in 0..SLOTS as u64 {
            let mut bytes = [0; SLOT_BYTES];
            let read = file.read_at(&mut bytes, slot * SLOT_BYTES as u64)?;
            if read == SLOT_BYTES
                && let Some((page, sequence)) = parse(&bytes)
                && sequence % SLOTS as u64 == slot
                && sequence > header.sequence
            {
                header = HeaderPage { page, sequence, dirty: false };
            }
        }
        if header.sequence == 0 {
            let text = "no copy of the table's first page checks out";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        header.write(file, 0, &[])?;
        file.sync_data()?;
        header.synced();
        Ok(header)
    }

    /// Returns the page. Its newest copy in `file` must be this page, unless it is being changed.
    ///
    /// # Errors
    /// `InvalidData` if it is not.
    pub fn check(&self, file: &dyn DiskFile) -> io::Result<[u8; PAGE_BYTES]> {
        let mut bytes = [0; SLOT_BYTES];
        let slot = self.sequence % SLOTS as u64;
        let read = file.read_at(&mut bytes, slot * SLOT_BYTES as u64)?;
        if self.dirty || read == SLOT_BYTES && parse(&bytes) == Some((self.page, self.sequence)) {
            return Ok(self.page);
        }
        let text = "the newest copy of the table's first page does not check out";
        Err(io::Error::new(io::ErrorKind::InvalidData, text))
    }

    /// Reads at `offset` of the database; bytes of `out` beyond the page are left unchanged.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        let from = usize::try_from(offset).unwrap_or(PAGE_BYTES);
        let source = self.page.get(from..).unwrap_or_default();
        out.iter_mut().zip(source).for_each(|(out, byte)| *out = *byte);
    }

    /// Writes at `offset` of the database; bytes beyond the page are not written.
    pub fn write(&mut self, file: &dyn DiskFile, offset: u64, data: &[u8]) -> io::Result<()> {
        let from = usize::try_from(offset).unwrap_or(PAGE_BYTES);
        let target = self.page.get_mut(from..).unwrap_or_default();
        target.iter_mut().zip(data).for_each(|(byte, new)| *byte = *new);
        self.dirty = true;
        let sequence = self.sequence + 1;
        let mut bytes = Vec::with_capacity(SLOT_BYTES);
        bytes.extend_from_slice(&self.page);
        bytes.extend_from_slice(&sequence.to_le_bytes());
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        bytes.resize(SLOT_BYTES, 0);
        file.write_at(&[&bytes], sequence % SLOTS as u64 * SLOT_BYTES as u64)
    }

    /// Notes that everything written so far is durable.
    pub fn synced(&mut self) {
        self.sequence += u64::from(std::mem::take(&mut self.dirty));
    }
}

fn parse(bytes: &[u8; SLOT_BYTES]) -> Option<([u8; PAGE_BYTES], u64)> {
    let (page, tail) = bytes.split_first_chunk::<PAGE_BYTES>()?;
    let (sequence, tail) = tail.split_first_chunk::<8>()?;
    let (crc, _) = tail.split_first_chunk::<4>()?;
    let covered = bytes.get(..PAGE_BYTES + 8)?;
    (crc32c(covered) == u32::from_le_bytes(*crc)).then(|| (*page, u64::from_le_bytes(*sequence)))
}
