//! Reads a directory.

use bytes::Bytes;
use cairn_auth::{Action, Resource};
use cairn_base::{BucketId, Error, Ino, limits};
use serde::{Deserialize, Serialize};

use super::buckets::{cursor, named_by};
use super::key_names::is_shown;
use super::namespace::{load, load_known};
use super::posix::{Directory, READ, SEARCH, check_mode, open_directory, present};
use crate::rows::{Bucket, BucketKind, Entry, Inode, Kind, Row, Tally};
use crate::{Context, Stop, Verb, View, keys};

/// Reads a page of a directory with the attributes of its entries; doors add `.` and `..`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Readdir {
    pub ino: Ino,
    /// Entry to go on after: the [`ListedEntry::cursor`] of an entry, or [`Page::next`].
    pub after: Option<Bytes>,
    /// Number of entries to examine, at most 1,000; the page may have fewer.
    pub limit: usize,
    /// Asks for the attributes, which need the right to search the directory.
    pub attributes: bool,
}

/// An entry as listed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListedEntry {
    pub name: Bytes,
    pub ino: Ino,
    pub kind: Kind,
    /// Inode as POSIX shows it, if it was asked for.
    pub inode: Option<Inode>,
}

impl ListedEntry {
    /// Cursor for a reader that stopped at this entry; it stays valid whatever changes meanwhile.
    pub fn cursor(&self) -> Bytes {
        match self.kind {
            Kind::Directory => [&self.name[..], b"/"].concat().into(),
            _ => self.name.clone(),
        }
    }
}

/// A page of a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Page {
    pub entries: Vec<ListedEntry>,
    /// Entries left out: names that POSIX cannot show, objects behind a directory of the same
    /// name, and buckets that the caller may not see.
    pub skipped: usize,
    /// Cursor of the next page; `None` at the end.
    pub next: Option<Bytes>,
}

impl Verb for Readdir {
    type Reply = Page;
    const NAME: &'static str = "readdir";
    // Attributes come with the names, and are read again one by one.
    const LEASES_RANGES: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Page, Stop> {
        let directory = open_directory(view, context, self.ino, Action::ListBucket, READ)?;
        if self.attributes {
            check_mode(context, &directory.inode, SEARCH)?;
        }
        let limit = self.limit.min(limits::LIST_KEYS);
        if limit == 0 {
            return Err(Error::Invalid(
                "the page of a listing must have at least one entry".into(),
            )
            .into());
        }
        let after = self.after(view)?;
        let from = after.map(|after| [&after[..], b"\0"].concat());
        let (start, end) = keys::entries_from(self.ino, &from.unwrap_or_default());
        let rows = view.scan(&start, &end, limit)?;
        let full = rows.len() == limit;
        let next = match rows.last().filter(|_| full) {
            Some((key, row)) => Some(self.next(view, context, key, row)?),
            None => None,
        };
        let found = rows.len();
        let entries = listed(view, context, &directory, &rows, self.attributes)?;
        Ok(Page { skipped: found - entries.len(), entries, next })
    }
}

/// Returns the entries of rows as listed, in the order of the rows, without those that are left
/// out.
pub(super) fn listed(
    view: &mut View<'_>,
    context: &Context,
    directory: &Directory,
    rows: &[(Bytes, Bytes)],
    attributes: bool,
) -> Result<Vec<ListedEntry>, Stop> {
    let mut entries = shown(rows)?;
    drop_hidden(view, directory, &mut entries)?;
    if directory.ino == Ino::ROOT {
        drop_denied(view, context, &mut entries)?;
    }
    if attributes {
        add_attributes(view, context, &mut entries)?;
    }
    Ok(entries)
}

impl Readdir {
    /// Returns the entry to go on after.
    fn after(&self, view: &mut View<'_>) -> Result<Option<Bytes>, Stop> {
        match &self.after {
            Some(after) if self.ino == Ino::ROOT => {
                let Ok(after) = std::str::from_utf8(after) else {
                    return Err(Error::Invalid(
                        "the place to continue the listing from is \
                        not one that a listing gave: list from the start"
                            .into(),
                    )
                    .into());
                };
                // The cursor of a directory has a slash behind its name.
                let named = named_by(view, after.trim_end_matches('/'))?;
                Ok(Some(format!("{named}/").into()))
            }
            after => Ok(after.clone()),
        }
    }

    /// Returns the cursor after this entry.
    fn next(
        &self,
        view: &mut View<'_>,
        context: &Context,
        key: &Bytes,
        row: &Bytes,
    ) -> Result<Bytes, Stop> {
        if self.ino != Ino::ROOT {
            return Ok(keys::entry_name(key));
        }
        let id = BucketId(Entry::decode(row)?.ino.0);
        let bucket: Bucket = load_known(view, &keys::bucket(id), "bucket")?;
        Ok(format!("{}/", cursor(context, id, &bucket)).into())
    }
}

/// Returns the entries whose names POSIX can show.
fn shown(rows: &[(Bytes, Bytes)]) -> Result<Vec<ListedEntry>, Error> {
    let mut entries = Vec::with_capacity(rows.len());
    for (key, row) in rows {
        let Entry { ino, kind, .. } = Entry::decode(row)?;
        let mut name = keys::entry_name(key);
        if kind == Kind::Directory {
            name.truncate(name.len().saturating_sub(1));
        }
        if is_shown(&name) {
            entries.push(ListedEntry { name, ino, kind, inode: None });
        }
    }
    Ok(entries)
}

/// Drops the objects of an S3 bucket that have a directory of the same name.
fn drop_hidden(
    view: &mut View<'_>,
    directory: &Directory,
    entries: &mut Vec<ListedEntry>,
) -> Result<(), Stop> {
    if directory.kind == BucketKind::Posix {
        return Ok(());
    }
    let tally: Tally = load(view, &keys::tally(directory.ino))?.unwrap_or_default();
    if tally.directories == 0 {
        return Ok(());
    }
    let is_file = |entry: &ListedEntry| entry.kind != Kind::Directory;
    let beside = |entry: &ListedEntry| keys::directory_entry(directory.ino, &entry.name);
    let wanted: Vec<Bytes> = entries.iter().filter(|e| is_file(e)).map(beside).collect();
    let mut rows = view.get_all(&wanted)?.into_iter();
    entries.retain(|entry| !is_file(entry) || rows.next().flatten().is_none());
    Ok(())
}

/// Drops the buckets that the caller may not list.
fn drop_denied(
    view: &mut View<'_>,
    context: &Context,
    entries: &mut Vec<ListedEntry>,
) -> Result<(), Stop> {
    let wanted: Vec<Bytes> = entries.iter().map(|e| keys::bucket(BucketId(e.ino.0))).collect();
    view.get_all(&wanted)?;
    let mut allowed = Vec::with_capacity(entries.len());
    for key in &wanted {
        let bucket: Bucket = load_known(view, key, "bucket")?;
        allowed.push(context.allows(Action::ListBucket, Resource::Bucket(bucket.access())));
    }
    let mut allowed = allowed.into_iter();
    entries.retain(|_| allowed.next() == Some(true));
    Ok(())
}

fn add_attributes(
    view: &mut View<'_>,
    context: &Context,
    entries: &mut [ListedEntry],
) -> Result<(), Stop> {
    let directories = entries.iter().filter(|entry| entry.kind == Kind::Directory);
    let tallies = directories.map(|entry| keys::tally(entry.ino));
    let inodes = entries.iter().map(|entry| keys::inode(entry.ino));
    let wanted: Vec<Bytes> = inodes.chain(tallies).collect();
    let rows = view.get_all(&wanted)?;
    for (entry, row) in entries.iter_mut().zip(rows) {
        let Some(row) = row else {
            let what = format!("inode {} of a directory entry", entry.ino);
            return Err(Error::corrupt(what, "no row", "an inode").into());
        };
        entry.inode = Some(present(view, context, entry.ino, Inode::decode(&row)?)?.0);
    }
    Ok(())
}
