//! Checks the table of rows while it is in use: every page and every row, as they are on the disk.
//! redb verifies the checksums of its pages only on demand, and keeps pages in its cache, so reads
//! alone do not notice damage.
//!
//! The pages are read past redb, on an image of the file: its first page as of a checkpoint, and
//! the rest as it is in the file. Pages that a reader of that checkpoint may need are not
//! overwritten while that reader exists. No page that is freed meanwhile is used again, so a pass
//! is cut into portions, each with an image and a reader of its own.

#![expect(clippy::disallowed_methods, reason = "a check rests on its own thread, and takes time")]

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cairn_base::disk::read_exact_at;
use cairn_base::{DiskFile, Error, Result};

use super::header::{PAGE_BYTES, SHIFT};
use super::mark::Mark;
use super::pages::{Child, Node, PageRef, Roots, Tree};
use super::table::{MARK, ROWS_NAME, STATE_NAME, corrupt, unseal};

/// Bytes that are read with one reader, unless a [`Pace`] says otherwise.
const PORTION_BYTES: u64 = 64 << 20;
/// Time after which a portion ends that has a rate.
const PORTION_TIME: Duration = Duration::from_secs(10);
/// Growth of the file of rows beside a reader of all rows, unless a [`Pace`] says otherwise.
const GROWTH_BYTES: u64 = 8 << 30;
/// Levels of a tree, at most: redb's limit.
const MAX_DEPTH: usize = 128;

/// The rate at which a check reads, its limits, and a flag that stops it.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Bytes per second; `None` for as fast as possible.
    pub rate: Option<u64>,
    /// Bytes after which a portion ends, with the leaf that is being read.
    pub portion_bytes: u64,
    /// Bytes by which the file of rows may grow, if that is more than its length, before somebody
    /// who needs all rows as of one moment gives up.
    pub growth_bytes: u64,
    /// Ends the check early once it is set.
    pub stop: Arc<AtomicBool>,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            rate: None,
            portion_bytes: PORTION_BYTES,
            growth_bytes: GROWTH_BYTES,
            stop: Arc::default(),
        }
    }
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

/// A file of rows as of a checkpoint.
pub struct Image {
    pub file: Arc<dyn DiskFile>,
    /// Length of the file, bytes.
    pub len: u64,
    pub first_page: [u8; PAGE_BYTES],
    pub mark: Mark,
}

/// Checks the tables in which redb keeps which pages are in use. No checkpoint may run: readers do
/// not keep these pages from being used again.
///
/// # Errors
/// Same errors as [`check_rows`].
pub fn check_system(image: &Image, pace: &Pace) -> Result<()> {
    let portion = Portion::begin(image, pace)?;
    for table in portion.tables(portion.roots.system)? {
        portion.all(&table, &mut |_, _| Ok(()))?;
    }
    Ok(())
}

/// Checks the rows of `image` from the key `from` on, and the pages that lead to them, up to the
/// end of a portion; the first portion also checks the other tables. Returns the key at which the
/// next portion begins, or `None` after the last.
///
/// # Errors
/// `Corrupt` for the first damage, with the key if it is a row. `Io` if the file cannot be read,
/// `Unavailable` if the check was stopped.
pub fn check_rows(image: &Image, from: &[u8], pace: &Pace) -> Result<Option<Vec<u8>>> {
    let portion = Portion::begin(image, pace)?;
    let (mut rows, mut mark) = (None, None);
    for table in portion.tables(portion.roots.tables)? {
        if table.name == ROWS_NAME.as_bytes() {
            rows = Some(table);
        } else if table.name == STATE_NAME.as_bytes() {
            portion.all(&table, &mut |key, value| {
                if key == MARK.as_bytes() {
                    mark = Some(value.to_vec());
                }
                Ok(())
            })?;
        } else if from.is_empty() {
            portion.all(&table, &mut |_, _| Ok(()))?;
        }
    }
    if mark.is_none_or(|mark| Mark::parse(&mark).ok().as_ref() != Some(&image.mark)) {
        return Err(corrupt("a mark that is not that of the last checkpoint"));
    }
    let rows = rows.ok_or_else(|| corrupt("no table of rows"))?;
    portion.part(&rows, from, &mut |key, value| unseal(key, value).map(drop), &|| portion.is_over())
}

/// A portion of a check that is under way.
struct Portion<'a> {
    image: &'a Image,
    pace: &'a Pace,
    roots: Roots,
    begun: Instant,
    read_bytes: Cell<u64>,
}

/// A function that gets each key, with its value.
type Each<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

impl Portion<'_> {
    fn begin<'a>(image: &'a Image, pace: &'a Pace) -> Result<Portion<'a>> {
        let roots = Roots::parse(&image.first_page);
        let roots = roots.ok_or_else(|| corrupt("a first page that does not check"))?;
        Ok(Portion { image, pace, roots, begun: Instant::now(), read_bytes: Cell::new(0) })
    }

    /// Returns whether this portion has read enough.
    fn is_over(&self) -> bool {
        // Without a rate the portions are the same in each run.
        let is_late = || self.pace.rate.is_some() && self.begun.elapsed() >= PORTION_TIME;
        self.read_bytes.get() >= self.pace.portion_bytes || is_late()
    }

    /// Returns the tables of a tree of tables, by name.
    fn tables(&self, root: Option<PageRef>) -> Result<Vec<Tree>> {
        let mut tables = Vec::new();
        self.all(&Tree::of_tables(root), &mut |name, definition| {
            let table = Tree::parse(name, definition);
            tables.push(table.ok_or_else(|| corrupt("a definition of a table that is unknown"))?);
            Ok(())
        })?;
        Ok(tables)
    }

    /// Checks all pages of a tree.
    fn all(&self, tree: &Tree, each: &mut Each<'_>) -> Result<()> {
        self.part(tree, &[], each, &|| false).map(drop)
    }

    /// Checks the pages of a tree that lead to keys from `from` on, until `is_over` says so after a
    /// leaf: then returns the next key.
    fn part(
        &self,
        tree: &Tree,
        from: &[u8],
        each: &mut Each<'_>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<u8>>> {
        // Pages to be read, the next one last, each with its level.
        let mut ahead: Vec<(PageRef, usize)> =
            tree.root.into_iter().map(|root| (root, 0)).collect();
        while let Some((page, depth)) = ahead.pop() {
            let bytes = self.page(page)?;
            let part = |range: &Range<usize>| bytes.get(range.clone()).unwrap_or_default();
            let node = Node::parse(&bytes, tree.widths).filter(|_| depth < MAX_DEPTH);
            let damaged = || corrupt("pages that do not check");
            let (node, checksum) = node.ok_or_else(damaged)?;
            if let Node::Leaf(pairs) = &node {
                // A row that does not check is named, rather than its page.
                pairs.iter().try_for_each(|pair| each(part(&pair.key), part(&pair.value)))?;
            }
            if checksum != page.checksum {
                return Err(damaged());
            }
            match node {
                Node::Leaf(pairs) => {
                    // A key of a branch may be higher than all keys of the child before it, so the
                    // last leaf of the portion before may be read again: that is no progress.
                    let ends = |key: &[u8]| key >= from && !ahead.is_empty() && is_over();
                    if let Some(last) = pairs.last().filter(|last| ends(part(&last.key))) {
                        return Ok(Some([part(&last.key), &b"\0"[..]].concat()));
                    }
                }
                Node::Branch(children) => {
                    let is_ahead =
                        |child: &&Child| child.last.as_ref().is_none_or(|last| part(last) >= from);
                    let children = children.iter().rev().filter(is_ahead);
                    ahead.extend(children.map(|child| (child.page, depth + 1)));
                }
            }
        }
        Ok(None)
    }

    /// Reads a page from the file.
    fn page(&self, page: PageRef) -> Result<Vec<u8>> {
        let beyond = || corrupt("a page beyond the end of the file");
        let place = self.roots.place(page).filter(|place| place.end + SHIFT <= self.image.len);
        let place = place.ok_or_else(beyond)?;
        let bytes = place.end - place.start;
        let mut page = vec![0; usize::try_from(bytes).map_err(|_| beyond())?];
        let stopped = |_| Error::Unavailable("the check was to end".into());
        self.pace.rest(page.len()).map_err(stopped)?;
        self.read_bytes.set(self.read_bytes.get() + bytes);
        read_exact_at(&*self.image.file, &mut page, place.start + SHIFT).map_err(|error| {
            match error.kind() {
                // The file was cut short.
                io::ErrorKind::UnexpectedEof => beyond(),
                _ => Error::from(error),
            }
        })?;
        Ok(page)
    }
}
