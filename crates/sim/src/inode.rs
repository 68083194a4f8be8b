//! One file: the bytes that its readers see, the bytes that survive a power cut, and all in
//! between.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::SECTOR_BYTES;
use crate::image::Image;

pub(crate) type Sector = [u8; SECTOR_BYTES];

/// The contents that a sector was given since it was last known to be durable, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dirty {
    pub(crate) versions: Vec<Arc<Sector>>,
    /// Set if a sync of it failed: no later sync makes it durable, only writing it again does.
    lost: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Inode {
    pub(crate) live: Image,
    pub(crate) live_len: u64,
    pub(crate) durable: Image,
    pub(crate) durable_len: u64,
    pub(crate) dirty: BTreeMap<u64, Dirty>,
    /// Lengths since the last sync, oldest first.
    pub(crate) dirty_lens: Vec<u64>,
    pub(crate) reserved: u64,
    /// Number of failed syncs. Every open file reports each of them once.
    pub(crate) sync_errors: u64,
}

impl Inode {
    pub(crate) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let len = self.live_len.saturating_sub(offset).min(buf.len() as u64) as usize;
        self.live.read(&mut buf[..len], offset);
        len
    }

    pub(crate) fn write(&mut self, bytes: &[u8], offset: u64) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len() as u64;
        self.live.write(bytes, offset);
        for sector in offset / SECTOR_BYTES as u64..end.div_ceil(SECTOR_BYTES as u64) {
            self.touch(sector);
        }
        if end > self.live_len {
            self.change_len(end);
        }
    }

    fn touch(&mut self, sector: u64) {
        let mut now = [0; SECTOR_BYTES];
        self.live.read(&mut now, sector * SECTOR_BYTES as u64);
        let dirty = self.dirty.entry(sector).or_default();
        dirty.versions.push(Arc::new(now));
        dirty.lost = false;
    }

    fn change_len(&mut self, len: u64) {
        self.live_len = len;
        self.dirty_lens.push(len);
    }

    pub(crate) fn set_len(&mut self, len: u64) {
        if len < self.live_len {
            self.live.cut(len);
            self.reserved = self.reserved.min(len);
            let first = len / SECTOR_BYTES as u64;
            let cut: Vec<u64> = self.dirty.range(first..).map(|(&sector, _)| sector).collect();
            cut.into_iter().for_each(|sector| self.touch(sector));
            // Bytes of the durable image beyond the new length must not come back.
            for sector in first..self.durable_len.div_ceil(SECTOR_BYTES as u64) {
                self.touch(sector);
            }
        }
        if len != self.live_len {
            self.change_len(len);
        }
    }

    pub(crate) fn allocate(&mut self, len: u64) {
        self.reserved = self.reserved.max(len);
        if len > self.live_len {
            self.change_len(len);
        }
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.reserved + self.live.used_bytes_from(self.reserved)
    }

    pub(crate) fn sync(&mut self) {
        let durable = &mut self.durable;
        self.dirty.retain(|sector, dirty| {
            if let (false, Some(last)) = (dirty.lost, dirty.versions.last()) {
                durable.write(&last[..], sector * SECTOR_BYTES as u64);
            }
            dirty.lost
        });
        self.durable_len = self.live_len;
        self.durable.cut(self.live_len);
        self.dirty_lens.clear();
    }

    /// Fails a sync like Linux: the pages count as clean from here on, whether they reached the
    /// disk or not.
    pub(crate) fn fail_sync(&mut self) {
        self.sync_errors += 1;
        self.dirty.values_mut().for_each(|dirty| dirty.lost = true);
    }

    /// Changes the medium, unknown to all handles.
    pub(crate) fn overwrite(&mut self, bytes: &[u8], offset: u64) {
        self.live.write(bytes, offset);
        self.durable.write(bytes, offset);
        let end = offset + bytes.len() as u64;
        for sector in offset / SECTOR_BYTES as u64..end.div_ceil(SECTOR_BYTES as u64) {
            self.dirty.remove(&sector);
        }
        self.live_len = self.live_len.max(end);
        self.durable_len = self.durable_len.max(end);
    }
}
