//! Reads a directory in an order that no change of it changes: docs/decisions/0058.

use bytes::Bytes;
use cairn_auth::Action;
use cairn_base::{Error, Ino, limits};
use serde::{Deserialize, Serialize};

use super::ordered_entries::is_ordered;
use super::posix::{Directory, READ, SEARCH, check_mode, open_directory};
use super::readdir::{ListedEntry, listed};
use super::typed_rows::load;
use crate::order::{BEGINNING, Cookie, hash_of};
use crate::rows::Tally;
use crate::{Context, Stop, Verb, View, keys};

/// Entries of a directory that is sorted for each page, since it has no ordered entries.
pub const SORTED_ENTRIES: u64 = limits::LIST_KEYS as u64;

/// Reads a page of a directory in the order of [`crate::order`]; doors add `.` and `..`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReaddirInOrder {
    pub ino: Ino,
    /// Cookie to go on after, of an entry that may be gone; 0 is the beginning.
    pub after: u64,
    /// Number of entries to examine, at most 1,000; the page may have fewer.
    pub limit: usize,
    /// Asks for the attributes, which need the right to search the directory.
    pub attributes: bool,
}

/// An entry as listed, and its cookie.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OrderedEntry {
    pub listed: ListedEntry,
    pub cookie: u64,
}

/// A page of a directory in order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OrderedPage {
    /// Entries without those that [`super::readdir::Page`] leaves out, too.
    pub entries: Vec<OrderedEntry>,
    /// Cookie of the last entry that was examined; `None` at the end.
    pub next: Option<u64>,
}

impl Verb for ReaddirInOrder {
    /// The page; `None` if the directory has many entries, and is not ordered yet: run
    /// [`super::order_directory::OrderDirectory`] until it is.
    type Reply = Option<OrderedPage>;
    const NAME: &'static str = "readdir_in_order";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        let directory = open_directory(view, context, self.ino, Action::ListBucket, READ)?;
        if self.attributes {
            check_mode(context, &directory.inode, SEARCH)?;
        }
        let limit = self.limit.min(limits::LIST_KEYS);
        if limit == 0 {
            let what = "the page of a listing must have at least one entry";
            return Err(Error::Invalid(what.into()).into());
        }
        let tally: Tally = load(view, &keys::tally(self.ino))?.unwrap_or_default();
        let after = Cookie::from_number(self.after);
        let rows = if is_ordered(view, &tally)? {
            ordered_rows(view, self.ino, after, limit)?
        } else if tally.entries <= SORTED_ENTRIES {
            sorted_rows(view, self.ino, after, limit)?
        } else {
            return Ok(None);
        };
        let next = rows.next.map(Cookie::number);
        Ok(Some(OrderedPage {
            entries: rows.entries(view, context, &directory, self.attributes)?,
            next,
        }))
    }
}

/// Rows of entries in order, with their cookies.
struct OrderedRows {
    rows: Vec<(Bytes, Bytes)>,
    cookies: Vec<Cookie>,
    /// Cookie of the last one, unless there are no further entries.
    next: Option<Cookie>,
}

impl OrderedRows {
    /// Returns the entries as listed.
    fn entries(
        self,
        view: &mut View<'_>,
        context: &Context,
        directory: &Directory,
        attributes: bool,
    ) -> Result<Vec<OrderedEntry>, Stop> {
        let shown = listed(view, context, directory, &self.rows, attributes)?;
        // The entries are some of the rows, in their order.
        let mut all = self.rows.iter().zip(&self.cookies);
        let cookie = |listed: &ListedEntry| {
            let cursor = listed.cursor();
            let found = all.find(|((key, _), _)| keys::entry_name(key) == cursor);
            found.map(|(_, cookie)| cookie.number())
        };
        let cookies: Option<Vec<u64>> = shown.iter().map(cookie).collect();
        let Some(cookies) = cookies else {
            return Err(Error::corrupt("entry of a listing", "no row", "the row it is of").into());
        };
        let entries = shown.into_iter().zip(cookies);
        Ok(entries.map(|(listed, cookie)| OrderedEntry { listed, cookie }).collect())
    }
}

/// Reads the ordered entries after a cookie.
fn ordered_rows(
    view: &mut View<'_>,
    directory: Ino,
    after: Cookie,
    limit: usize,
) -> Result<OrderedRows, Stop> {
    // Places are counted from the first entry with an equal hash.
    let before = usize::from(after.place) + 1;
    let (start, end) = keys::ordered_from(directory, after.hash);
    let found = view.scan(&start, &end, limit + before)?;
    let is_full = found.len() == limit + before;
    let mut sieve = PageSieve::new(after, limit);
    for (key, row) in found {
        let Some((_, hash, name)) = keys::ordered_parts(&key) else {
            return Err(Error::corrupt("key of an ordered entry", key.len(), "17 or more").into());
        };
        sieve.take(hash, || (keys::file_entry(directory, &name), row));
    }
    Ok(sieve.finish(is_full))
}

/// Reads all entries, and sorts them.
fn sorted_rows(
    view: &mut View<'_>,
    directory: Ino,
    after: Cookie,
    limit: usize,
) -> Result<OrderedRows, Stop> {
    let (start, end) = keys::entries_from(directory, b"");
    let found = view.scan(&start, &end, SORTED_ENTRIES as usize)?;
    let of = |(key, row): (Bytes, Bytes)| (hash_of(&keys::entry_name(&key)), key, row);
    let mut sorted: Vec<(u64, Bytes, Bytes)> = found.into_iter().map(of).collect();
    sorted.sort_unstable();
    let mut sieve = PageSieve::new(after, limit);
    for (hash, key, row) in sorted {
        sieve.take(hash, || (key, row));
    }
    Ok(sieve.finish(false))
}

/// The first entries after a cookie, of entries that come in order.
struct PageSieve {
    after: Cookie,
    limit: usize,
    last: Cookie,
    rows: Vec<(Bytes, Bytes)>,
    cookies: Vec<Cookie>,
    has_more: bool,
}

impl PageSieve {
    fn new(after: Cookie, limit: usize) -> PageSieve {
        let (rows, cookies) = (Vec::new(), Vec::new());
        PageSieve { after, limit, last: BEGINNING, rows, cookies, has_more: false }
    }

    fn take(&mut self, hash: u64, row: impl FnOnce() -> (Bytes, Bytes)) {
        self.last = self.last.next(hash);
        if self.last <= self.after {
            return;
        }
        if self.rows.len() == self.limit {
            self.has_more = true;
            return;
        }
        self.rows.push(row());
        self.cookies.push(self.last);
    }

    fn finish(self, is_cut: bool) -> OrderedRows {
        let has_more = self.has_more || is_cut;
        // All entries that were read may be at the cookie or before it.
        let last = self.cookies.last().copied().unwrap_or(self.after);
        OrderedRows { rows: self.rows, cookies: self.cookies, next: has_more.then_some(last) }
    }
}
