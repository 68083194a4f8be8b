//! Listings of directories that are not held open: each entry has a cookie, after which a listing
//! continues whatever has changed meanwhile, in any process: docs/decisions/0058.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{Error, Ino, Result, limits};
use cairn_fs::ops::order_directory::OrderDirectory;
use cairn_fs::ops::readdir::ListedEntry;
use cairn_fs::ops::readdir_in_order::{OrderedEntry, OrderedPage, ReaddirInOrder};
use cairn_fs::order::{BEGINNING, Cookie, hash_of};
use cairn_fs::rows::Kind;

use crate::answer::Answer;
use crate::entry::Entry;
use crate::posix::Posix;
use crate::who::Who;

/// Attempts to list a directory that is ordered meanwhile. More are only needed if the master
/// changes in between.
const TRIES: u32 = 3;

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
            let mut after = cookie;
            loop {
                let wanted = limit.saturating_sub(entries.len()).min(limits::LIST_KEYS);
                if wanted == 0 {
                    return Ok(Part { entries, is_end: false });
                }
                let moment = posix.known.moment();
                let page = posix.ask_in_order(&who, ino, after, wanted, attributes).await?;
                let keeps = posix.keeps(moment);
                for OrderedEntry { listed, cookie } in page.entries {
                    let (name, ino, kind) = (listed.name, listed.ino, listed.kind);
                    let inode = listed.inode.filter(|_| !posix.is_written_here(ino));
                    let entry = inode.map(|inode| posix.entry(ino, &inode, moment, keeps));
                    entries.push(Resumable { name, ino, kind, cookie, entry });
                }
                match page.next {
                    Some(next) => after = next,
                    None => return Ok(Part { entries, is_end: true }),
                }
            }
        })
    }

    /// Asks for a page in order, and has the directory ordered first if it is large.
    async fn ask_in_order(
        &self,
        who: &Who,
        ino: Ino,
        after: u64,
        limit: usize,
        attributes: bool,
    ) -> Result<OrderedPage> {
        let of = |attributes| ReaddirInOrder { ino, after, limit, attributes };
        for _ in 0..TRIES {
            match self.read_directory(who, attributes, of).await {
                Ok(Some(page)) => return Ok(page),
                Ok(None) => {}
                // The master has an earlier version.
                Err(Error::NotImplemented(_)) => break,
                Err(error) => return Err(error),
            }
            let _turn = self.passes.take(who.party(), 1).await;
            match self.order(who, ino).await {
                Ok(()) => {}
                // No room for more rows.
                Err(Error::Full(_)) => break,
                Err(error) => return Err(error),
            }
        }
        let _turn = self.passes.take(who.party(), 1).await;
        self.sift(who, ino, after, limit).await
    }

    async fn order(&self, who: &Who, ino: Ino) -> Result<()> {
        let mut is_ordered = false;
        while !is_ordered {
            let caller = who.caller(&self.user);
            is_ordered = match self.fs.run(&caller, OrderDirectory { ino }).await {
                Err(Error::Denied(_)) if who.has_more_groups() => {
                    self.fs.run(&self.caller(who), OrderDirectory { ino }).await?
                }
                ordered => ordered?,
            };
        }
        Ok(())
    }

    /// Reads a whole directory, and keeps the first entries after a cookie, without attributes.
    async fn sift(&self, who: &Who, ino: Ino, after: u64, limit: usize) -> Result<OrderedPage> {
        let after = Cookie::from_number(after);
        // Entries with the hash of the cookie count its place, so all of them are kept.
        let most = limit + usize::from(after.place) + 1;
        let (mut kept, mut is_cut, mut next) = (BTreeMap::new(), false, None);
        loop {
            let page = self.ask_page(who, ino, next, limits::LIST_KEYS, false).await?.page;
            for listed in page.entries {
                let cursor = listed.cursor();
                let hash = hash_of(&cursor);
                if hash >= after.hash {
                    kept.insert((hash, cursor), listed);
                }
                if kept.len() > most {
                    kept.pop_last();
                    is_cut = true;
                }
            }
            next = page.next;
            if next.is_none() {
                return Ok(first_after(after, kept, limit, is_cut));
            }
        }
    }
}

/// Returns the first entries after a cookie as a page. `is_cut`: there are more entries than these.
fn first_after(
    after: Cookie,
    sorted: BTreeMap<(u64, Bytes), ListedEntry>,
    limit: usize,
    is_cut: bool,
) -> OrderedPage {
    let (mut entries, mut last) = (Vec::new(), BEGINNING);
    for ((hash, _), listed) in sorted {
        last = last.next(hash);
        if last > after {
            entries.push(OrderedEntry { listed, cookie: last.number() });
        }
    }
    let has_more = is_cut || entries.len() > limit;
    entries.truncate(limit);
    let next = entries.last().map(|entry| entry.cookie);
    OrderedPage { next: next.filter(|_| has_more), entries }
}

fn directory(name: &'static [u8], ino: Ino, cookie: u64) -> Resumable {
    let (name, kind) = (Bytes::from_static(name), Kind::Directory);
    Resumable { name, ino, kind, cookie, entry: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str) -> ListedEntry {
        ListedEntry { name: name.to_owned().into(), ino: Ino(7), kind: Kind::File, inode: None }
    }

    #[test]
    fn entries_that_were_sifted_are_those_after_the_cookie() {
        let of = |hashes: &[u64]| -> BTreeMap<(u64, Bytes), ListedEntry> {
            let entry = |(at, hash): (usize, &u64)| {
                let listed = listed(&format!("{at}"));
                ((*hash, listed.cursor()), listed)
            };
            hashes.iter().enumerate().map(entry).collect()
        };
        let numbers = |page: &OrderedPage| -> Vec<Cookie> {
            page.entries.iter().map(|entry| Cookie::from_number(entry.cookie)).collect()
        };
        let at = |hash, place| Cookie { hash, place };
        let all = of(&[5, 5, 5, 9, 12]);
        let page = first_after(BEGINNING, all.clone(), 2, false);
        assert_eq!(
            (numbers(&page), page.next),
            (vec![at(5, 0), at(5, 1)], Some(at(5, 1).number()))
        );
        let page = first_after(at(5, 1), all.clone(), 2, true);
        assert_eq!(
            (numbers(&page), page.next),
            (vec![at(5, 2), at(9, 0)], Some(at(9, 0).number()))
        );
        let page = first_after(at(9, 0), of(&[9, 12]), 2, false);
        assert_eq!((numbers(&page), page.next), (vec![at(12, 0)], None));
        // Its entry is gone.
        let page = first_after(at(8, 0), of(&[9, 12]), 2, false);
        assert_eq!((numbers(&page), page.next), (vec![at(9, 0), at(12, 0)], None));
        assert!(first_after(at(12, 0), of(&[12]), 2, false).entries.is_empty());
    }
}
