//! Makes the files of an engine, in an order that a crash cannot confuse, and opens them.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::disk::read_exact_at;
use cairn_base::{Disk, DiskFile, Error, Result};

use super::Fence;
use super::config::Config;
use super::ring::header::RawHeader;
use super::ring::{create_file, for_each_header};
use super::row_store::{Mark, Memtable, RESERVE, SUSPECT, Table};

pub const ROWS: &str = "rows.redb";
/// Name of the table while it is being made or copied.
pub const ROWS_NEW: &str = "rows.new";

/// Opens the file of the table. If there are no files, makes them all first, with `more` in the
/// first mark.
pub fn open_rows(disk: &dyn Disk, config: &Config, more: Bytes) -> Result<Arc<dyn DiskFile>> {
    let names = disk.list()?;
    let has = |name: &str| names.iter().any(|other| other == name);
    if !has(ROWS) {
        create(disk, config, more, &names)?;
    } else {
        // An earlier process may have ended between giving the name and making it durable.
        disk.sync()?;
        if has(SUSPECT) {
            copy_rows(disk)?;
        }
    }
    Ok(disk.open(ROWS)?)
}

/// Makes all files. The table's name appears last: without it, any other file is an unfinished
/// start.
fn create(disk: &dyn Disk, config: &Config, more: Bytes, names: &[String]) -> Result<()> {
    for name in names.iter().filter(|name| name.starts_with("log-")) {
        if holds_records(disk, name)? {
            let got = format!("no {ROWS}, yet records in {name}");
            return Err(Error::corrupt("metadata directory", got, "both or neither"));
        }
    }
    for name in names.iter().filter(|name| is_ours(name)) {
        disk.remove(name)?;
    }
    let mark = Mark {
        log_id: config.rng.next_u64(),
        sequence: 0,
        previous: 0,
        fence: Fence::default(),
        segments: config.log_segments.max(2),
        segment_bytes: config.log_segment_bytes.next_multiple_of(4096),
        pending: 0,
        more,
    };
    let rows = disk.create(ROWS_NEW)?;
    Table::open(&rows, config.cache_bytes)?.write(&Memtable::default(), &mark)?;
    for segment in 0..mark.segments {
        create_file(disk, segment, mark.segment_bytes)?;
    }
    rows.sync_data()?;
    disk.sync()?;
    disk.rename(ROWS_NEW, ROWS)?;
    Ok(disk.sync()?)
}

fn is_ours(name: &str) -> bool {
    name == ROWS_NEW || name == SUSPECT || name == RESERVE || is_log(name)
}

fn is_log(name: &str) -> bool {
    name.strip_prefix("log-").is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Returns whether a log file holds a record, of any log.
fn holds_records(disk: &dyn Disk, name: &str) -> Result<bool> {
    let file = disk.open(name)?;
    let mut found = false;
    for_each_header(&*file, file.len()?, |_, bytes| {
        if let Some(id) = bytes.get(8..).and_then(|rest| rest.first_chunk()) {
            found = found || RawHeader::parse(bytes, u64::from_le_bytes(*id)).is_some();
        }
    })?;
    Ok(found)
}

/// Rewrites the table byte for byte after a write of it failed in an earlier process: the bytes
/// that are read now come from the page cache and may not be on the disk.
fn copy_rows(disk: &dyn Disk) -> Result<()> {
    tracing::warn!("a write of {ROWS} failed before the last restart: copying it");
    if disk.list()?.iter().any(|name| name == ROWS_NEW) {
        disk.remove(ROWS_NEW)?;
    }
    let (source, target) = (disk.open(ROWS)?, disk.create(ROWS_NEW)?);
    let len = source.len()?;
    let mut chunk = vec![0; 1 << 20];
    let mut offset = 0;
    while offset < len {
        let bytes = (len - offset).min(chunk.len() as u64) as usize;
        read_exact_at(&*source, &mut chunk[..bytes], offset)?;
        target.write_at(&[&chunk[..bytes]], offset)?;
        offset += bytes as u64;
    }
    target.sync_data()?;
    disk.sync()?;
    disk.rename(ROWS_NEW, ROWS)?;
    disk.sync()?;
    disk.remove(SUSPECT)?;
    Ok(disk.sync()?)
}
