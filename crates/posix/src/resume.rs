//! Listings of directories that are not held open: each entry has a cookie, after which a listing
//! continues whatever has changed meanwhile.
//!
//! A cookie is a hash of the name. A recently listed name is remembered, even if it is gone by now.
//! Any other name is searched for in the directory, which takes longer, but works after a restart
//! and in another process. Only after a name that is neither remembered nor present a listing has
//! to begin again. Numbers in the rows of entries would be found at once, and for as long as they
//! are not reused.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{Error, Ino, Result, limits};
use cairn_fs::rows::Kind;

use crate::answer::Answer;
use crate::cookies::{FIRST, number_of};
use crate::entry::Entry;
use crate::posix::Posix;
use crate::who::Who;

/// The cookies of `.` and `..`.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

/// An entry, and the cookie after which a listing continues.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resumable {
    pub name: Bytes,
    pub ino: Ino,
    pub kind: Kind,
    pub cookie: u64,
    /// Attributes, if they were asked for. `.` and `..` have none, nor have files with local
    /// writes.
    pub entry: Option<Entry>,
}

/// A part of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    pub entries: Vec<Resumable>,
    pub is_end: bool,
}

impl Posix {
    /// Returns at most `limit` entries of a directory after `cookie`; 0 is the beginning.
    ///
    /// # Errors
    /// `Conflict` if the listing has to begin again.
    pub fn list_after(
        self: &Arc<Posix>,
        who: Who,
        ino: Ino,
        cookie: u64,
        limit: usize,
        attributes: bool,
    ) -> Answer<Result<Part>> {
        let posix = Arc::clone(self);
        Answer::soon(async move {
            let mut entries = Vec::new();
            if cookie < DOT_DOT {
                let (_, parent) = posix.parent_of(&who, ino).await;
                for (dot, ino, name) in [(DOT, ino, &b"."[..]), (DOT_DOT, parent, b"..")] {
                    if cookie < dot && entries.len() < limit {
                        entries.push(directory(name, ino, dot));
                    }
                }
            }
            let mut after = match cookie {
                FIRST.. => Some(posix.cursor(&who, ino, cookie).await?),
                _ => None,
            };
            loop {
                let wanted = limit.saturating_sub(entries.len()).min(limits::LIST_KEYS);
                if wanted == 0 {
                    return Ok(Part { entries, is_end: false });
                }
                let found = posix.ask_page(&who, ino, after, wanted, attributes).await?;
                let keeps = posix.keeps(found.moment);
                for listed in found.page.entries {
                    let cookie = posix.cookies.give(ino, listed.cursor());
                    let (name, ino, kind) = (listed.name, listed.ino, listed.kind);
                    let inode = listed.inode.filter(|_| !posix.is_written_here(ino));
                    let entry = inode.map(|inode| posix.entry(ino, &inode, found.moment, keeps));
                    entries.push(Resumable { name, ino, kind, cookie, entry });
                }
                after = found.page.next;
                if after.is_none() {
                    return Ok(Part { entries, is_end: true });
                }
            }
        })
    }

    /// Finds the entry of a cookie, so that a listing need not search for it.
    ///
    /// # Errors
    /// Same errors as [`Posix::list_after`].
    pub async fn seek_cookie(&self, who: &Who, ino: Ino, cookie: u64) -> Result<()> {
        if cookie >= FIRST && self.cookies.find(ino, cookie).is_none() {
            let cursor = self.cursor(who, ino, cookie).await?;
            self.cookies.give(ino, cursor);
        }
        Ok(())
    }

    /// Returns the cursor after the entry with a cookie.
    async fn cursor(&self, who: &Who, ino: Ino, cookie: u64) -> Result<Bytes> {
        if let Some(cursor) = self.cookies.find(ino, cookie) {
            return Ok(cursor);
        }
        let _turn = self.seeks.take(who.party(), 1).await;
        let mut after = None;
        loop {
            let page = self.ask_page(who, ino, after, limits::LIST_KEYS, false).await?.page;
            let cursors = page.entries.iter().map(|listed| listed.cursor());
            if let Some(cursor) = cursors.into_iter().find(|cursor| number_of(cursor) == cookie) {
                return Ok(cursor);
            }
            after = page.next;
            if after.is_none() {
                return Err(Error::Conflict(format!("a listing of inode {ino}: begin again")));
            }
        }
    }
}

fn directory(name: &'static [u8], ino: Ino, cookie: u64) -> Resumable {
    let (name, kind) = (Bytes::from_static(name), Kind::Directory);
    Resumable { name, ino, kind, cookie, entry: None }
}
