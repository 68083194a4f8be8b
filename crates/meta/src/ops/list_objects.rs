//! Lists objects in the byte order of their keys.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use bytes::Bytes;
use cairn_auth::Action;
use cairn_base::{Ino, limits};

use super::namespace::{load_inode, open_bucket};
use crate::rows::{Entry, Inode, Kind, Row};
use crate::{Context, Stop, Verb, View, keys};

/// One page of a listing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ListObjects {
    pub bucket: String,
    /// Prefix of the keys.
    pub prefix: String,
    /// Delimiter: keys are rolled up to its first occurrence after the prefix; empty for none.
    pub delimiter: String,
    /// Key or common prefix to start after; empty for the beginning.
    pub after: String,
    /// Most keys and common prefixes to return, at most [`limits::LIST_KEYS`].
    pub max_keys: usize,
}

/// A key of a listing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListedObject {
    pub key: String,
    pub ino: Ino,
    pub inode: Inode,
}

/// A page: keys and common prefixes, both in order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Page {
    pub objects: Vec<ListedObject>,
    pub prefixes: Vec<String>,
    /// Start of the next page (`after`); `None` at the end.
    pub next: Option<String>,
    /// Names that S3 cannot show: not UTF-8, or a path beyond 1,024 bytes.
    pub hidden: u64,
}

/// Rows read after which a page ends early. One further step of the walk stays within the limit of
/// an operation.
const READS: usize = 2 * limits::OP_ROWS;
/// Levels that a walk reads with its whole window. At deeper levels it reads fewer rows at once.
const WHOLE_LEVELS: usize = 4;

impl Verb for ListObjects {
    type Reply = Page;
    const NAME: &'static str = "list_objects";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Page, Stop> {
        let opened = open_bucket(view, context, &self.bucket, Action::ListBucket)?;
        let max_keys = self.max_keys.min(limits::LIST_KEYS);
        let mut page = Page::default();
        let Some(start) = self.start().filter(|_| max_keys > 0) else { return Ok(page) };
        let window = (max_keys + 1).min(256);
        let mut walker = Walker::seek(view, opened.id.ino(), &start, window)?;
        let mut last = None;
        while let Some(met) = walker.next(view, &self.shallow())? {
            let item = match self.item(met) {
                Item::Past => break,
                Item::Before => continue,
                item @ (Item::Hidden(_) | Item::Other(_)) => {
                    page.hidden += u64::from(matches!(item, Item::Hidden(_)));
                    // A page may end at any key, so no key is too much work, whatever it passes
                    // over.
                    if view.reads() >= READS
                        && let Item::Hidden(Some(key)) | Item::Other(Some(key)) = item
                    {
                        page.next = Some(key);
                        break;
                    }
                    continue;
                }
                item => item,
            };
            let found = page.objects.len() + page.prefixes.len();
            if found == max_keys || (found > 0 && view.reads() >= READS) {
                page.next = last;
                break;
            }
            match item {
                Item::Prefix(prefix) => {
                    last = Some(prefix.clone());
                    let past = successor(prefix.as_bytes());
                    page.prefixes.push(prefix);
                    let Some(past) = past else { break };
                    walker = walker.skip_to(view, opened.id.ino(), &past, window)?;
                }
                Item::Object(listed) => {
                    last = Some(listed.key.clone());
                    page.objects.push(*listed);
                }
                Item::Past | Item::Before | Item::Hidden(_) | Item::Other(_) => {}
            }
        }
        Ok(page)
    }
}

/// The item of a page for an encounter of the walk.
enum Item {
    /// A key that sorts before the prefix or after it.
    Before,
    Past,
    /// A name that S3 cannot show; its path if a page can end there.
    Hidden(Option<String>),
    /// An inode that is no object; its path if a page can end there.
    Other(Option<String>),
    Prefix(String),
    Object(Box<ListedObject>),
}

impl ListObjects {
    /// Returns the first key that may be listed, or `None` if none can follow `after`.
    fn start(&self) -> Option<Vec<u8>> {
        if self.after.is_empty() || self.after.as_str() < self.prefix.as_str() {
            return Some(self.prefix.clone().into_bytes());
        }
        if !self.after.starts_with(&self.prefix) {
            return None;
        }
        // The common prefix of `after` has been listed as a whole.
        match self.roll_up(self.after.as_bytes()) {
            Some(prefix) => successor(prefix.as_bytes()),
            None => Some([self.after.as_bytes(), b"\0"].concat()),
        }
    }

    /// Returns the common prefix of a key that begins with the prefix; `None` if it has none.
    fn roll_up(&self, key: &[u8]) -> Option<String> {
        if self.delimiter.is_empty() {
            return None;
        }
        let delimiter = self.delimiter.as_bytes();
        let rest = key.get(self.prefix.len()..)?;
        let at = rest.windows(delimiter.len()).position(|window| window == delimiter)?;
        let end = self.prefix.len() + at + delimiter.len();
        String::from_utf8(key[..end].to_vec()).ok()
    }

    fn item(&self, met: Met) -> Item {
        let (path, object) = match met {
            Met::Hidden(path) => return Item::Hidden(String::from_utf8(path).ok()),
            Met::Other(path) if path.starts_with(self.prefix.as_bytes()) => {
                return Item::Other(String::from_utf8(path).ok());
            }
            Met::Other(path) => (path, None),
            Met::Directory(path) => (path, None),
            Met::Object { path, ino, inode } => (path, Some((ino, inode))),
        };
        if !path.starts_with(self.prefix.as_bytes()) {
            let past = path.as_slice() > self.prefix.as_bytes();
            return if past { Item::Past } else { Item::Before };
        }
        if let Some(prefix) = self.roll_up(&path) {
            return Item::Prefix(prefix);
        }
        match (String::from_utf8(path), object) {
            (Ok(key), Some((ino, inode))) => {
                Item::Object(Box::new(ListedObject { key, ino, inode }))
            }
            _ => Item::Hidden(None),
        }
    }

    /// Returns the directories that a walk need not enter: the page shows them rolled up.
    fn shallow(&self) -> Shallow<'_> {
        Shallow { prefix: self.prefix.as_bytes(), rolled: self.delimiter == "/" }
    }
}

/// Returns the first byte string after all that begin with `prefix`; `None` if there is none.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xFF)?;
    let mut next = prefix[..=last].to_vec();
    next[last] += 1;
    Some(next)
}

/// The directories that a walk shows instead of entering them.
struct Shallow<'a> {
    prefix: &'a [u8],
    rolled: bool,
}

impl Shallow<'_> {
    fn stops(&self, path: &[u8]) -> bool {
        self.rolled && path.len() > self.prefix.len() && path.starts_with(self.prefix)
    }

    /// Returns whether nothing below `path` can begin with the prefix.
    fn excludes(&self, path: &[u8]) -> bool {
        let shared = path.len().min(self.prefix.len());
        path[..shared] != self.prefix[..shared]
    }
}

/// An encounter of a walk.
enum Met {
    /// A directory that was not entered; its path ends in `/`.
    Directory(Vec<u8>),
    Object {
        path: Vec<u8>,
        ino: Ino,
        inode: Inode,
    },
    /// A name that S3 cannot show.
    Hidden(Vec<u8>),
    /// A link, FIFO or socket, which is no object.
    Other(Vec<u8>),
}

/// A depth-first walk over the entries of a bucket, which is the order of keys.
struct Walker {
    levels: Vec<Level>,
    /// Key `x/` of an explicit directory that was just entered.
    pending: Option<Met>,
    /// Rows read at once in the upper levels.
    window: usize,
}

/// A directory being walked.
struct Level {
    directory: Ino,
    /// Path with a slash at the end; empty for the bucket.
    path: Vec<u8>,
    rows: VecDeque<(Bytes, Entry)>,
    /// Name at which to read on; `None` once all rows are read.
    from: Option<Vec<u8>>,
}

impl Level {
    fn new(directory: Ino, path: Vec<u8>, from: &[u8]) -> Level {
        Level { directory, path, rows: VecDeque::new(), from: Some(from.to_vec()) }
    }

    fn next(&mut self, view: &mut View<'_>, window: usize) -> Result<Option<(Bytes, Entry)>, Stop> {
        if self.rows.is_empty()
            && let Some(from) = self.from.take()
        {
            let (start, end) = keys::entries_from(self.directory, &from);
            let rows = view.scan(&start, &end, window)?;
            if rows.len() == window
                && let Some((last, _)) = rows.last()
            {
                self.from = Some([&keys::entry_name(last)[..], b"\0"].concat());
            }
            for (key, row) in rows {
                self.rows.push_back((keys::entry_name(&key), Entry::decode(&row)?));
            }
        }
        Ok(self.rows.pop_front())
    }
}

impl Walker {
    /// Starts a walk at the first key that is not below `start`, with one seek per level.
    fn seek(view: &mut View<'_>, bucket: Ino, start: &[u8], window: usize) -> Result<Walker, Stop> {
        let levels = vec![Level::new(bucket, Vec::new(), start)];
        let mut walker = Walker { levels, pending: None, window };
        let (mut directory, mut path, mut rest) = (bucket, Vec::new(), start);
        while let Some(slash) = rest.iter().position(|byte| *byte == b'/') {
            let name = &rest[..slash];
            let key = keys::directory_entry(directory, name);
            // Starts after `name/`; the directory itself is the next level.
            let past = [name, b"/\0"].concat();
            let missing = match view.get(&key)? {
                Some(row) => {
                    directory = Entry::decode(&row)?.ino;
                    false
                }
                None => true,
            };
            walker.replace_top(&past);
            if missing {
                return Ok(walker);
            }
            path.extend_from_slice(&rest[..=slash]);
            rest = &rest[slash + 1..];
            if rest.is_empty() {
                walker.enter(view, directory, path)?;
                return Ok(walker);
            }
            walker.levels.push(Level::new(directory, path.clone(), rest));
        }
        Ok(walker)
    }

    /// Enters a directory. An explicit directory shows itself as the key `x/`, unless an object has
    /// that key.
    fn enter(&mut self, view: &mut View<'_>, ino: Ino, path: Vec<u8>) -> Result<(), Stop> {
        let inode = load_inode(view, ino)?;
        self.levels.push(Level::new(ino, path.clone(), b""));
        if !inode.implicit && view.get(&keys::file_entry(ino, b""))?.is_none() {
            self.pending = Some(Met::Object { path, ino, inode });
        }
        Ok(())
    }

    fn replace_top(&mut self, from: &[u8]) {
        if let Some(top) = self.levels.last_mut() {
            top.from = Some(from.to_vec());
        }
    }

    /// Moves the walk to a later key, without a seek if the key lies in the directory being walked.
    fn skip_to(
        mut self,
        view: &mut View<'_>,
        bucket: Ino,
        start: &[u8],
        window: usize,
    ) -> Result<Walker, Stop> {
        let Some(top) = self.levels.last_mut() else { return Ok(self) };
        let here = start.strip_prefix(top.path.as_slice()).filter(|rest| !rest.contains(&b'/'));
        let Some(rest) = here else {
            return Walker::seek(view, bucket, start, window);
        };
        while top.rows.front().is_some_and(|(name, _)| &name[..] < rest) {
            top.rows.pop_front();
        }
        if top.rows.is_empty()
            && let Some(from) = &mut top.from
            && from.as_slice() < rest
        {
            *from = rest.to_vec();
        }
        Ok(self)
    }

    /// Returns the next encounter in the order of keys.
    fn next(&mut self, view: &mut View<'_>, shallow: &Shallow<'_>) -> Result<Option<Met>, Stop> {
        if let Some(met) = self.pending.take() {
            return Ok(Some(met));
        }
        loop {
            let window = self.window * WHOLE_LEVELS / self.levels.len().max(WHOLE_LEVELS);
            let window = window.max(1);
            let Some(top) = self.levels.last_mut() else { return Ok(None) };
            let Some((name, entry)) = top.next(view, window)? else {
                self.levels.pop();
                continue;
            };
            let path = [top.path.as_slice(), &name].concat();
            if path.len() > limits::KEY_BYTES || std::str::from_utf8(&path).is_err() {
                return Ok(Some(Met::Hidden(path)));
            }
            match entry.kind {
                Kind::Directory if shallow.stops(&path) => return Ok(Some(Met::Directory(path))),
                Kind::Directory if shallow.excludes(&path) => {
                    // Returned so that the caller can end the walk when it is past the prefix.
                    return Ok(Some(Met::Directory(path)));
                }
                Kind::Directory => {
                    self.enter(view, entry.ino, path)?;
                    if let Some(met) = self.pending.take() {
                        return Ok(Some(met));
                    }
                }
                Kind::File => {
                    let inode = load_inode(view, entry.ino)?;
                    return Ok(Some(Met::Object { path, ino: entry.ino, inode }));
                }
                _ => return Ok(Some(Met::Other(path))),
            }
        }
    }
}
