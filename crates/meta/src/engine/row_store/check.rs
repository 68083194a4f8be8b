//! Checks the table of rows while it is in use: every page and every row, as they are on the disk.
//! redb verifies the checksums of its pages only on demand, and keeps pages in its cache, so reads
//! alone do not notice damage.
//!
//! A second database is opened on an image of the file: its first page as of a checkpoint, and the
//! rest as it is in the file. Pages that a reader of that checkpoint may need are not overwritten
//! while that reader exists. Writes of the second database stay in memory.

#![expect(clippy::disallowed_methods, reason = "a check rests on its own thread")]

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cairn_base::disk::read_exact_at;
use cairn_base::{DiskFile, Error, Result};
use parking_lot::Mutex;
use redb::{Database, ReadableDatabase};

use super::backend::{Failure, Health};
use super::header::{PAGE_BYTES, SHIFT};
use super::mark::Mark;
use super::table::{corrupt, failed, guard, read, unseal};

/// Bytes of redb's cache during a check. Each page is read about twice.
const CACHE_BYTES: usize = 4 << 20;

/// The rate at which a check reads, and a flag that stops it.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    /// Bytes per second; `None` for as fast as possible.
    pub rate: Option<u64>,
    /// Ends the check early once it is set.
    pub stop: Arc<AtomicBool>,
}

impl Pace {
    /// Waits for the time that reading `bytes` should take.
    ///
    /// # Errors
    /// `Interrupted` if the check has to stop.
    pub fn rest(&self, bytes: usize) -> io::Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the check is to end"));
        }
        if let Some(rate) = self.rate {
            std::thread::sleep(Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64));
        }
        Ok(())
    }
}

/// Pages of a database by their numbers.
type Pages = BTreeMap<u64, Box<[u8; PAGE_BYTES]>>;

/// A file of rows as of a checkpoint.
pub struct Image {
    pub file: Arc<dyn DiskFile>,
    /// Length of the file, bytes.
    pub len: u64,
    pub first_page: [u8; PAGE_BYTES],
    pub mark: Mark,
}

/// The storage of the second database.
struct Overlay {
    file: Arc<dyn DiskFile>,
    pace: Pace,
    /// Health of the file: whether all of it could be read.
    reads: Arc<Health>,
    /// Length of the database, and the pages that differ from the file.
    state: Mutex<(u64, Pages)>,
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlay").finish_non_exhaustive()
    }
}

impl Overlay {
    fn new(image: &Image, pace: Pace, reads: Arc<Health>) -> Overlay {
        let pages = BTreeMap::from([(0, Box::new(image.first_page))]);
        let state = Mutex::new((image.len.saturating_sub(SHIFT), pages));
        Overlay { file: Arc::clone(&image.file), pace, reads, state }
    }

    fn page(&self, pages: &Pages, number: u64) -> io::Result<Box<[u8; PAGE_BYTES]>> {
        if let Some(page) = pages.get(&number) {
            return Ok(page.clone());
        }
        let mut page = Box::new([0; PAGE_BYTES]);
        let at = number * PAGE_BYTES as u64 + SHIFT;
        // Bytes beyond the end of the file are zeros.
        let left = self.file.len()?.saturating_sub(at).min(PAGE_BYTES as u64) as usize;
        if let Some(part) = page.get_mut(..left).filter(|part| !part.is_empty()) {
            read_exact_at(&*self.file, part, at)?;
        }
        Ok(page)
    }

    fn read_all(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.pace.rest(out.len())?;
        let state = self.state.lock();
        let (mut at, mut rest) = (offset, out);
        while !rest.is_empty() {
            let page = self.page(&state.1, at / PAGE_BYTES as u64)?;
            let from = (at % PAGE_BYTES as u64) as usize;
            let part = page.get(from..).unwrap_or_default();
            let (target, later) = rest.split_at_mut(part.len().min(rest.len()));
            target.iter_mut().zip(part).for_each(|(byte, read)| *byte = *read);
            at += target.len() as u64;
            rest = later;
        }
        Ok(())
    }

    fn write_all(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let number = at / PAGE_BYTES as u64;
            let from = (at % PAGE_BYTES as u64) as usize;
            let (part, later) = rest.split_at((PAGE_BYTES - from).min(rest.len()));
            let mut page = self.page(&state.1, number)?;
            page.iter_mut().skip(from).zip(part).for_each(|(byte, new)| *byte = *new);
            state.1.insert(number, page);
            at += part.len() as u64;
            rest = later;
        }
        Ok(())
    }
}

impl redb::StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().0)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.reads.note(Failure::Read, self.read_all(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.state.lock().0 = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.reads.note(Failure::Read, self.write_all(offset, data))
    }
}

/// Checks every row and every page of `image`.
///
/// # Errors
/// `Corrupt` for the first damage, with the key if it is a row. `Io` if the file cannot be read,
/// `Unavailable` if the check was stopped.
pub fn check(image: &Image, pace: &Pace) -> Result<()> {
    let reads = Arc::new(Health::default());
    let checked = check_all(image, Overlay::new(image, pace.clone(), Arc::clone(&reads)));
    if pace.stop.load(Ordering::Relaxed) {
        return Err(Error::Unavailable("the check was to end".into()));
    }
    match reads.failure() {
        // Errors that redb makes of a page that could not be read are no damage.
        Some((_, text)) => Err(Error::Io(io::Error::other(text))),
        None => checked,
    }
}

fn check_all(image: &Image, backend: Overlay) -> Result<()> {
    let health = Health::default();
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    let mut database =
        guard(&health, || builder.create_with_backend(backend).map_err(|e| failed(&health, e)))?;
    guard(&health, || check_rows(&database, image, &health))?;
    let whole =
        guard(&health, || database.check_integrity().map_err(|error| failed(&health, error)))?;
    let closed = guard(&health, || {
        drop(database);
        Ok(())
    });
    if whole { closed } else { Err(corrupt("pages that do not check")) }
}

fn check_rows(database: &Database, image: &Image, health: &Health) -> Result<()> {
    let opened = database.begin_read().map_err(redb::Error::from).and_then(read);
    let (rows, mark) = opened.map_err(|error| failed(health, error))?;
    if mark.is_none_or(|mark| Mark::parse(&mark).ok().as_ref() != Some(&image.mark)) {
        return Err(corrupt("a mark that is not that of the last checkpoint"));
    }
    let range = rows.range::<&[u8]>(..).map_err(|error| failed(health, error))?;
    for row in range {
        let (key, value) = row.map_err(|error| failed(health, error))?;
        unseal(key.value(), value.value())?;
    }
    Ok(())
}
