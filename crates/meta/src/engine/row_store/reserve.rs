//! Space for a full disk: the needs of a checkpoint, and a reserve file so that deletes go on when
//! there is no more space. Also the note that the table's last write failed.
//!
//! The table is changed by copies of its pages, so a delete takes space before it frees any. Once
//! less is free than the size of the reserve, or the reserve is in use, the engine is *low*: only
//! operations that free space should be committed. Commits then wait for small checkpoints, each of
//! which finds room in the reserve and gives it back, within the table, to the one after the next.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cairn_base::{Disk, Result};

pub const RESERVE: &str = "reserve";
pub const SUSPECT: &str = "suspect";

/// Bytes that a changed row may need: a copied page of the table, and a share of the pages above
/// it.
const ROW_COPY_BYTES: u64 = 8 << 10;
/// Bytes that every checkpoint writes.
const CHECKPOINT_BYTES: u64 = 128 << 10;

/// Rows in memory that a checkpoint has to move.
#[derive(Clone, Copy, Default, Debug)]
pub struct Load {
    pub rows: usize,
    /// Bytes of memory that they take.
    pub bytes: usize,
}

impl Load {
    pub fn add(&mut self, rows: usize, bytes: usize) {
        self.rows += rows;
        self.bytes += bytes;
    }

    /// Returns the free space that moving them into a table of `table_bytes` may take: no page is
    /// copied twice.
    fn needed(self, table_bytes: u64) -> u64 {
        let copied = (self.rows as u64 * ROW_COPY_BYTES).min(table_bytes);
        CHECKPOINT_BYTES + 2 * self.bytes as u64 + copied
    }
}

/// The known space on the disk.
pub struct DiskSpace {
    reserve_bytes: u64,
    /// Set while the reserve exists.
    held: AtomicBool,
    /// Set if the last checkpoint found too little space.
    short: AtomicBool,
    free_bytes: AtomicU64,
    table_bytes: AtomicU64,
}

impl DiskSpace {
    pub fn new(disk: &dyn Disk, reserve_bytes: u64) -> DiskSpace {
        let space = DiskSpace {
            reserve_bytes,
            held: AtomicBool::new(disk.open(RESERVE).is_ok()),
            short: AtomicBool::new(false),
            free_bytes: AtomicU64::new(0),
            table_bytes: AtomicU64::new(0),
        };
        space.look(disk);
        space
    }

    /// Updates the number of free bytes.
    pub fn look(&self, disk: &dyn Disk) {
        if self.reserve_bytes > 0 {
            self.free_bytes.store(disk.free_bytes().unwrap_or(0), Ordering::Relaxed);
        }
    }

    pub fn set_table_bytes(&self, bytes: u64) {
        self.table_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns the length of the file of rows after the last checkpoint.
    pub fn table_bytes(&self) -> u64 {
        self.table_bytes.load(Ordering::Relaxed)
    }

    /// Returns whether only operations that free space should be committed.
    pub fn is_low(&self) -> bool {
        let free_bytes = self.free_bytes.load(Ordering::Relaxed);
        let in_use = !self.held.load(Ordering::Relaxed) || free_bytes < self.reserve_bytes;
        self.short.load(Ordering::Relaxed) || self.reserve_bytes > 0 && in_use
    }

    /// Notes whether a checkpoint found too little space.
    pub fn set_short(&self, short: bool) {
        self.short.store(short, Ordering::Relaxed);
    }

    /// Returns whether a checkpoint of `load` takes at most the `part`th of the space available to
    /// it.
    pub fn has_room(&self, load: Load, part: u64) -> bool {
        let free_bytes = self.free_bytes.load(Ordering::Relaxed);
        let needed = load.needed(self.table_bytes());
        self.reserve_bytes == 0 || needed <= free_bytes.max(self.reserve_bytes) / part
    }

    /// Gives up the reserve if a checkpoint of `load` may not find the space that it needs.
    pub fn make(&self, disk: &dyn Disk, load: Load) -> Result<()> {
        let needed = load.needed(self.table_bytes());
        let enough = !self.short.load(Ordering::Relaxed) && disk.free_bytes()? >= needed;
        if enough || !self.held.load(Ordering::Relaxed) {
            return Ok(());
        }
        tracing::warn!("the disk is full: metadata goes on in the space put by for that");
        disk.remove(RESERVE)?;
        self.held.store(false, Ordering::Relaxed);
        Ok(disk.sync()?)
    }

    /// Makes the reserve again when there is plenty of space. Not urgent: it is tried again.
    pub fn restore(&self, disk: &dyn Disk) {
        let plenty = disk.free_bytes().unwrap_or(0) >= self.reserve_bytes.saturating_mul(2);
        if self.reserve_bytes == 0 || self.held.load(Ordering::Relaxed) || !plenty {
            return;
        }
        let made = disk.create(RESERVE).and_then(|file| file.allocate(self.reserve_bytes));
        match made.and_then(|()| disk.sync()) {
            Ok(()) => self.held.store(true, Ordering::Relaxed),
            Err(_) => drop(disk.remove(RESERVE)),
        }
    }
}

/// Notes for the next start that the table must be rewritten before it is trusted: its content in
/// the page cache may never have reached the disk. If this fails too, the disk is gone.
pub fn mark_suspect(disk: &dyn Disk) {
    let noted = disk.create(SUSPECT).map(drop).and_then(|()| disk.sync());
    if let Err(error) = noted {
        tracing::error!("cannot note that the table of rows is suspect: {error}");
    }
}
