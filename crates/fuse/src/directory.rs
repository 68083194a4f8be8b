//! Listing directories. A listing goes on after the last name it gave, whatever changes meanwhile:
//! what is there all the time is listed once.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{Error, Ino, Result};
use cairn_fs::ops::readdir::{Listed, Page, Readdir};
use cairn_fs::rows::{Inode, Kind};
use fuser::{Errno, FileHandle, FileType, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::attributes::{attributes, kind};
use crate::errno;
use crate::known::Moment;
use crate::nodes::{GENERATION, Heard, Mount};
use crate::who::Who;

/// Entries asked for at once.
const PAGE: usize = 1000;
/// `.` and `..` come first.
const DOTS: u64 = 2;

/// A directory that a program has open.
pub struct Directory {
    pub ino: Ino,
    listing: Mutex<Listing>,
    pub heard: Heard,
}

/// Entries have positions from [`DOTS`] on, in the order in which they were given.
#[derive(Default)]
struct Listing {
    /// Where pages began: the first position, and the name before it.
    pages: Vec<(u64, Option<Bytes>)>,
    /// The page that was asked for last.
    first: u64,
    entries: Vec<Listed>,
    next: Option<Bytes>,
    has_attributes: bool,
    /// When it was asked for.
    moment: Option<Moment>,
    /// The page after it, already asked for.
    ahead: Option<Ahead>,
}

struct Ahead {
    who: Who,
    after: Option<Bytes>,
    found: JoinHandle<Result<Found>>,
}

/// A page, and when it was asked for.
struct Found {
    page: Page,
    moment: Moment,
}

impl Listing {
    /// Where the page with position `at` began.
    fn page_with(&self, at: u64) -> Option<(u64, Option<Bytes>)> {
        self.pages.iter().rev().find(|(first, _)| *first <= at).cloned()
    }

    /// Where a page with `at`, a position of this one, as its first goes on after.
    fn before(&self, at: u64) -> Option<Bytes> {
        match (at - self.first).checked_sub(1) {
            Some(index) => Some(self.entries[index as usize].cursor()),
            None => self.page_with(at).and_then(|(_, after)| after),
        }
    }

    /// The next page to ask for is one that begins at `first`.
    fn begin(&mut self, first: u64, after: Option<Bytes>) {
        if self.pages.last().is_none_or(|(last, _)| *last < first) {
            self.pages.push((first, after.clone()));
        }
        (self.first, self.next) = (first, after);
        self.entries.clear();
    }
}

impl Directory {
    pub fn new(ino: Ino, heard: Heard) -> Directory {
        Directory { ino, listing: Mutex::default(), heard }
    }
}

impl Mount {
    pub fn list(
        self: &Arc<Mount>,
        who: Who,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let timer = self.time("readdir");
        let directory = match self.directory(handle) {
            Ok(directory) => directory,
            Err(error) => return reply.error(errno::of(&error)),
        };
        let mount = Arc::clone(self);
        self.work(timer, async move {
            let mut listing = directory.listing.lock().await;
            let mut at = offset;
            let parent = match at < DOTS {
                true => mount.parent_of(who, directory.ino).await.0,
                false => directory.ino,
            };
            for (position, ino, name) in [(0, directory.ino, "."), (1, parent, "..")] {
                let ino = INodeNo(ino.0);
                if at == position && !reply.add(ino, at + 1, FileType::Directory, name) {
                    at += 1;
                }
            }
            loop {
                match mount.page(who, &directory, &mut listing, at, false).await {
                    Ok(true) => {}
                    Ok(false) => return reply.ok(),
                    Err(error) => return reply.error(errno::of_inode(&error)),
                }
                for entry in &listing.entries[(at - listing.first) as usize..] {
                    let (ino, name) = (INodeNo(entry.ino.0), OsStr::from_bytes(&entry.name));
                    if reply.add(ino, at + 1, kind(entry.kind), name) {
                        return reply.ok();
                    }
                    at += 1;
                }
            }
        });
    }

    pub fn list_with_attributes(
        self: &Arc<Mount>,
        who: Who,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let timer = self.time("readdir");
        let directory = match self.directory(handle) {
            Ok(directory) => directory,
            Err(error) => return reply.error(errno::of(&error)),
        };
        let mount = Arc::clone(self);
        self.work(timer, async move {
            let mut listing = directory.listing.lock().await;
            let mut at = offset;
            if at < DOTS {
                let (parent, inode) = mount.parent_of(who, directory.ino).await;
                // Of these two the kernel takes the numbers only.
                for (position, ino, name) in [(0, directory.ino, "."), (1, parent, "..")] {
                    let (attributes, ino) = (attributes(ino, &inode), INodeNo(ino.0));
                    if at == position
                        && !reply.add(ino, at + 1, name, &Duration::ZERO, &attributes, GENERATION)
                    {
                        at += 1;
                    }
                }
            }
            loop {
                match mount.page(who, &directory, &mut listing, at, true).await {
                    Ok(true) => {}
                    Ok(false) => return reply.ok(),
                    Err(error) => return reply.error(errno::of_inode(&error)),
                }
                let Some(moment) = listing.moment else { return reply.ok() };
                let keeps = mount.keeps(moment);
                if offset == 0 {
                    mount.known.list(directory.ino, moment, keeps);
                }
                for entry in &listing.entries[(at - listing.first) as usize..] {
                    let Some(inode) = entry.inode.clone() else { return reply.error(Errno::EIO) };
                    if mount.add_entry(&mut reply, (entry, inode), at + 1, (moment, keeps)) {
                        return reply.ok();
                    }
                    at += 1;
                }
            }
        });
    }

    /// The directory that a directory is in, and the inode of the latter. One that is not found, or
    /// says nothing of that, is in itself, as the root is.
    async fn parent_of(&self, who: Who, ino: Ino) -> (Ino, Inode) {
        let (found, _) = self.attributes_of(who, ino).await;
        let inode = found.unwrap_or(Inode { kind: Kind::Directory, ..Inode::default() });
        let parent = if inode.parent == Ino(0) { ino } else { inode.parent };
        (parent, inode)
    }

    /// Whether there was no room for it.
    fn add_entry(
        &self,
        reply: &mut ReplyDirectoryPlus,
        (entry, inode): (&Listed, Inode),
        next: u64,
        (moment, keeps): (Moment, Duration),
    ) -> bool {
        let ino = entry.ino;
        // The kernel counts this as a lookup.
        self.known.enter(ino);
        let (mut inode, has_local) = self.shown(ino, inode);
        let is_kept = !has_local && self.kernel.has_epochs();
        let keeps = if is_kept { keeps } else { Duration::ZERO };
        self.known.show(ino, moment, &mut inode);
        let name = OsStr::from_bytes(&entry.name);
        let attributes = attributes(ino, &inode);
        let is_full = reply.add(INodeNo(ino.0), next, name, &keeps, &attributes, GENERATION);
        if is_full {
            self.known.leave(ino, 1);
        }
        is_full
    }

    /// Has the page with the entry at position `at` in `listing`; `false` at the end.
    async fn page(
        self: &Arc<Mount>,
        who: Who,
        directory: &Directory,
        listing: &mut Listing,
        at: u64,
        attributes: bool,
    ) -> Result<bool> {
        if at <= DOTS {
            // From the beginning, as it is now.
            *listing = Listing { pages: vec![(DOTS, None)], first: DOTS, ..Listing::default() };
            self.fetch(who, directory, listing, attributes).await?;
        }
        let mut is_fresh = at <= DOTS;
        loop {
            let end = listing.first + listing.entries.len() as u64;
            let is_there = at >= listing.first && at < end;
            let (first, after) = if is_there && (!attributes || listing.has_attributes) {
                if !attributes || is_fresh || listing.moment == Some(self.known.moment()) {
                    return Ok(true);
                }
                // What the kernel learns from here on is how it is now.
                (at, listing.before(at))
            } else if at < end {
                // Back to where a page began.
                let found = listing.page_with(at);
                found.ok_or_else(|| Error::Invalid(format!("position {at}")))?
            } else if listing.next.is_some() {
                (end, listing.next.clone())
            } else {
                return Ok(false);
            };
            listing.begin(first, after);
            self.fetch(who, directory, listing, attributes).await?;
            is_fresh = true;
        }
    }

    /// Asks for the page after `listing.next`, and for the one after that: whoever wants attributes
    /// and has begun goes on, mostly.
    async fn fetch(
        self: &Arc<Mount>,
        who: Who,
        directory: &Directory,
        listing: &mut Listing,
        attributes: bool,
    ) -> Result<()> {
        let (ino, after) = (directory.ino, listing.next.clone());
        let ahead = listing.ahead.take();
        let ahead = ahead.filter(|ahead| attributes && ahead.who == who && ahead.after == after);
        let found = match ahead {
            Some(Ahead { found, .. }) => found.await.ok().and_then(Result::ok),
            None => None,
        };
        let found = match found {
            // It may have been asked for long ago.
            Some(found) if found.moment == self.known.moment() => found,
            _ => self.ask_page(who, ino, after, attributes).await?,
        };
        if attributes && let after @ Some(_) = found.page.next.clone() {
            let (mount, from) = (Arc::clone(self), after.clone());
            let found =
                self.runtime.spawn(async move { mount.ask_page(who, ino, from, attributes).await });
            listing.ahead = Some(Ahead { who, after, found });
        }
        listing.entries = found.page.entries;
        listing.next = found.page.next;
        listing.has_attributes = attributes;
        listing.moment = Some(found.moment);
        Ok(())
    }

    async fn ask_page(
        &self,
        who: Who,
        ino: Ino,
        after: Option<Bytes>,
        attributes: bool,
    ) -> Result<Found> {
        let moment = self.known.moment();
        let readdir = Readdir { ino, after, limit: PAGE, attributes };
        let caller = who.caller(&self.user);
        let mut found = self.fs.read(&caller, readdir.clone()).await;
        if matches!(found, Err(Error::Denied(_))) && who.uid != 0 {
            found = self.fs.read(&self.caller(who), readdir.clone()).await;
            if matches!(found, Err(Error::Denied(_))) && attributes {
                // It may be read, not searched. The kernel keeps attributes for everybody, and
                // lets those see them who may search.
                let plain = Readdir { attributes: false, ..readdir.clone() };
                self.fs.read(&self.caller(who), plain).await?;
                let anybody = Who { uid: 0, gid: 0, ..who };
                found = self.fs.read(&anybody.caller(&self.user), readdir).await;
            }
        }
        Ok(Found { page: found?, moment })
    }
}
