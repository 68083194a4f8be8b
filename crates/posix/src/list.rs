//! Listings of open directories: positions count the entries that were listed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{Error, Ino, Result};
use cairn_fs::WireVerb;
use cairn_fs::ops::readdir::{ListedEntry, Readdir};
use cairn_fs::rows::{Inode, Kind};

use crate::answer::Answer;
use crate::attributes::Attributes;
use crate::directory::{Ahead, DOTS, Directory, FetchedPage, Listing};
use crate::entry::Entry;
use crate::handle::Descriptor;
use crate::kernel_view::Moment;
use crate::posix::Posix;
use crate::who::Who;

/// Number of entries asked for at once.
const PAGE: usize = 1000;

/// Entries of a directory, from a position on.
pub struct Page {
    entries: Arc<[ListedEntry]>,
    /// Index of the first entry, and the position behind the page.
    start: usize,
    next: u64,
    /// Moment at which they were asked for, if their attributes may be kept.
    moment: Moment,
    keeps: Duration,
}

/// An entry of a directory.
#[derive(Clone, Copy)]
pub struct Name<'a> {
    listed: &'a ListedEntry,
    /// Position after which the listing continues.
    pub next: u64,
}

impl Page {
    pub fn names(&self) -> impl Iterator<Item = Name<'_>> {
        self.entries[self.start..]
            .iter()
            .zip(self.next..)
            .map(|(listed, next)| Name { listed, next })
    }
}

impl<'a> Name<'a> {
    pub fn bytes(&self) -> &'a [u8] {
        &self.listed.name
    }

    pub fn ino(&self) -> Ino {
        self.listed.ino
    }

    pub fn kind(&self) -> Kind {
        self.listed.kind
    }
}

impl Posix {
    /// Returns the entries of an open directory from position `at` on; the first is 2, after `.`
    /// and `..`. Returns `None` at the end.
    pub fn list(
        self: &Arc<Posix>,
        who: Who,
        directory: Descriptor,
        at: u64,
        attributes: bool,
    ) -> Answer<Result<Option<Page>>> {
        let directory = match self.files.directory(directory) {
            Ok(directory) => directory,
            Err(error) => return Answer::Now(Err(error)),
        };
        let posix = Arc::clone(self);
        Answer::later(async move {
            let mut listing = directory.listing.lock().await;
            if !posix.page(&who, &directory, &mut listing, at, attributes).await? {
                return Ok(None);
            }
            let Some(moment) = listing.moment else { return Ok(None) };
            let keeps = posix.keeps(moment);
            if attributes && at <= DOTS {
                posix.known.list(directory.ino, moment, keeps);
            }
            let (entries, at) = (Arc::clone(&listing.entries), at.max(DOTS));
            let start = (at - listing.first) as usize;
            Ok(Some(Page { entries, start, next: at + 1, moment, keeps }))
        })
    }

    /// Shows an entry of a page whose attributes were asked for: the keeper knows its inode once
    /// more.
    ///
    /// # Errors
    /// `Invalid` if they were not asked for.
    pub fn list_entry(&self, page: &Page, name: Name<'_>) -> Result<Entry> {
        let Some(inode) = &name.listed.inode else {
            return Err(Error::Invalid("the entry was listed without its attributes".into()));
        };
        let entry = self.entry(name.listed.ino, inode, page.moment, page.keeps);
        // A keeper that keeps no names has not listed them to keep attributes.
        let keeps = self.keeps_name(entry.keeps);
        Ok(Entry { keeps, keeps_name: keeps, ..entry })
    }

    /// Returns whether the keeper keeps the names of a directory, and they are still the same.
    pub fn is_listed(&self, ino: Ino) -> bool {
        self.known.is_listed(ino)
    }

    /// Returns an open directory and its parent. A parent that cannot be found or looked at is the
    /// directory itself, as for the root.
    pub fn dots(
        self: &Arc<Posix>,
        who: Who,
        directory: Descriptor,
    ) -> Answer<Result<(Attributes, Ino)>> {
        let directory = match self.files.directory(directory) {
            Ok(directory) => directory,
            Err(error) => return Answer::Now(Err(error)),
        };
        let posix = Arc::clone(self);
        Answer::later(async move { Ok(posix.parent_of(&who, directory.ino).await) })
    }

    /// Returns the parent of a directory, which is the meaning of `..`, whether or not the
    /// directory is open.
    pub fn parent(self: &Arc<Posix>, who: Who, ino: Ino) -> Answer<Result<Ino>> {
        let posix = Arc::clone(self);
        Answer::soon(async move {
            let inode = posix.attributes_of(&who, ino).await.0?;
            match (inode.is_directory(), inode.parent) {
                (false, _) => Err(Error::NotDirectory(format!("inode {ino}"))),
                (true, Ino(0)) => Ok(ino),
                (true, parent) => Ok(parent),
            }
        })
    }

    pub(crate) async fn parent_of(&self, who: &Who, ino: Ino) -> (Attributes, Ino) {
        let (found, _) = self.attributes_of(who, ino).await;
        let inode = found.unwrap_or(Inode { kind: Kind::Directory, ..Inode::default() });
        let parent = if inode.parent == Ino(0) { ino } else { inode.parent };
        (Attributes::of(ino, &inode), parent)
    }

    /// Loads the page with the entry at position `at` into `listing`. Returns false at the end.
    async fn page(
        self: &Arc<Posix>,
        who: &Who,
        directory: &Directory,
        listing: &mut Listing,
        at: u64,
        attributes: bool,
    ) -> Result<bool> {
        let is_start = at <= DOTS;
        if is_start {
            listing.restart();
            self.fetch(who, directory, listing, attributes).await?;
        }
        let (at, mut is_fresh) = (at.max(DOTS), is_start);
        loop {
            let end = listing.end();
            let is_there = at >= listing.first && at < end;
            let start = if is_there && (!attributes || listing.has_attributes) {
                if !attributes || is_fresh || listing.moment == Some(self.known.moment()) {
                    return Ok(true);
                }
                // Entries that the keeper receives from here on are as they are now.
                (at, listing.before(at))
            } else if at < end {
                // Back to the beginning of a page.
                let found = listing.page_with(at);
                found.ok_or_else(|| {
                    Error::Invalid(format!("position {at} is in no page of this listing"))
                })?
            } else if listing.next.is_some() {
                (end, listing.next.clone())
            } else {
                return Ok(false);
            };
            listing.begin(start);
            self.fetch(who, directory, listing, attributes).await?;
            is_fresh = true;
        }
    }

    /// Asks for the page after `listing.next`, and for the one after it: most callers that want
    /// attributes and have begun go on.
    async fn fetch(
        self: &Arc<Posix>,
        who: &Who,
        directory: &Directory,
        listing: &mut Listing,
        attributes: bool,
    ) -> Result<()> {
        let (ino, after) = (directory.ino, listing.next.clone());
        let ahead = listing.ahead.take();
        let ahead = ahead.filter(|ahead| attributes && ahead.who.is(who) && ahead.after == after);
        let found = match ahead {
            Some(Ahead { found, .. }) => found.await.ok().and_then(Result::ok),
            None => None,
        };
        let found = match found {
            // The page may have been asked for long ago.
            Some(found) if found.moment == self.known.moment() => found,
            _ => self.ask_page(who, ino, after, PAGE, attributes).await?,
        };
        if attributes && let after @ Some(_) = found.page.next.clone() {
            let (posix, who, from) = (Arc::clone(self), who.clone(), after.clone());
            let asks = who.clone();
            let found = self
                .runtime
                .spawn(async move { posix.ask_page(&asks, ino, from, PAGE, attributes).await });
            listing.ahead = Some(Ahead { who, after, found });
        }
        listing.entries = found.page.entries.into();
        listing.next = found.page.next;
        listing.has_attributes = attributes;
        listing.moment = Some(found.moment);
        Ok(())
    }

    pub(crate) async fn ask_page(
        &self,
        who: &Who,
        ino: Ino,
        after: Option<Bytes>,
        limit: usize,
        attributes: bool,
    ) -> Result<FetchedPage> {
        let moment = self.known.moment();
        let of = |attributes| Readdir { ino, after: after.clone(), limit, attributes };
        let page = self.read_directory(who, attributes, of).await?;
        Ok(FetchedPage { page, moment })
    }

    /// Reads a directory by a verb, with attributes or without them.
    pub(crate) async fn read_directory<V: WireVerb>(
        &self,
        who: &Who,
        attributes: bool,
        of: impl Fn(bool) -> V,
    ) -> Result<V::Reply> {
        let found = self.fs.read(&who.caller(&self.user), of(attributes)).await;
        if !matches!(found, Err(Error::Denied(_))) || !who.has_more_groups() {
            return found;
        }
        let found = self.fs.read(&self.caller(who), of(attributes)).await;
        if !matches!(found, Err(Error::Denied(_))) || !attributes {
            return found;
        }
        // The directory may be read, but not searched. The kernel keeps attributes for all users,
        // and shows them to users with the right to search.
        self.fs.read(&self.caller(who), of(false)).await?;
        self.fs.read(&who.as_root().caller(&self.user), of(true)).await
    }
}
