//! The files of a disk: their names, and the making of segments, hints and the reserve.

use std::io;
use std::sync::Arc;

use cairn_base::{Disk, DiskFile};

use crate::config::Config;
use crate::format::hint::Hint;
use crate::format::segment::{HEADER_OFFSETS, SegmentHeader};

/// Name of the file that reserves space for tombstones on a full disk.
pub(crate) const RESERVE: &str = "reserve";
/// Suffix of files that are not finished.
pub(crate) const UNFINISHED: &str = ".new";

pub(crate) fn segment_name(number: u32) -> String {
    format!("{number:08x}.seg")
}

pub(crate) fn hint_name(number: u32) -> String {
    format!("{number:08x}.hint")
}

/// Returns the number in a `name` that ends in `.seg` or `.hint`, with or without `.new`.
pub(crate) fn number_of(name: &str) -> Option<u32> {
    let stem = name.strip_suffix(UNFINISHED).unwrap_or(name);
    let digits = stem.strip_suffix(".seg").or_else(|| stem.strip_suffix(".hint"))?;
    (digits.len() == 8).then(|| u32::from_str_radix(digits, 16).ok()).flatten()
}

/// Makes a segment file of `bytes` bytes; when it returns, name and header are durable.
pub(crate) fn create_segment(
    disk: &dyn Disk,
    config: &Config,
    number: u32,
    bytes: u64,
    codecs: bool,
) -> io::Result<(Arc<dyn DiskFile>, u64)> {
    let salt = config.rng.next_u64();
    let (cluster, own) = (config.cluster, config.disk);
    let header = SegmentHeader { cluster, disk: own, number, salt, codecs };
    let encoded = header.encode();
    let name = segment_name(number);
    let unfinished = format!("{name}{UNFINISHED}");
    let made = (|| {
        let file = disk.create(&unfinished)?;
        file.allocate(bytes)?;
        for offset in HEADER_OFFSETS {
            file.write_at(&[&encoded], offset)?;
        }
        file.sync_data()?;
        disk.rename(&unfinished, &name)?;
        disk.sync()?;
        Ok(file)
    })();
    match made {
        Ok(file) => Ok((file, salt)),
        Err(error) => {
            // A file that cannot be removed, either, is empty, and the next start notices that.
            let _ = disk.remove(&unfinished);
            let _ = disk.remove(&name);
            Err(error)
        }
    }
}

pub(crate) fn write_hint(disk: &dyn Disk, hint: &Hint) -> io::Result<()> {
    let name = hint_name(hint.segment);
    let unfinished = format!("{name}{UNFINISHED}");
    let _ = disk.remove(&unfinished);
    let file = disk.create(&unfinished)?;
    let written = (|| {
        file.write_at(&[&hint.encode()], 0)?;
        file.sync_data()?;
        disk.rename(&unfinished, &name)?;
        disk.sync()
    })();
    if written.is_err() {
        let _ = disk.remove(&unfinished);
    }
    written
}

/// Makes the reserve, unless it is there; returns its length.
pub(crate) fn ensure_reserve(disk: &dyn Disk, bytes: u64) -> io::Result<u64> {
    if disk.list()?.iter().any(|name| name == RESERVE) {
        return disk.open(RESERVE)?.len();
    }
    let file = disk.create(RESERVE)?;
    match file.allocate(bytes) {
        Ok(()) => Ok(bytes),
        Err(error) => {
            let _ = disk.remove(RESERVE);
            Err(error)
        }
    }
}
