//! Changes of a folder and of the list of buckets, sent while a page shows it.
//!
//! The rows that say what the page shows are watched. When one of them changes, the folder is
//! looked at and listed again, and the page gets an event if it would show something else. Files
//! that the listing shows for the first time are then watched and looked at once more. So one
//! change costs two looks and a listing at most, and another listing if the page requests it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cairn_auth::Caller;
use cairn_base::{BucketId, Error, Ino, Result, Timestamp};
use cairn_fs::ops::buckets::{GetBucket, ListBuckets};
use cairn_fs::ops::getattr::Getattr;
use cairn_fs::ops::look::{FolderLook, LookBuckets, LookFolder};
use cairn_fs::{Fs, Watching, WireVerb};
use tokio::time::timeout;

use super::At;
use super::buckets;
use super::listing::{FolderQuery, ListRow};
use crate::events;
use crate::failure::Failure;
use crate::inner::{For, Inner};
use crate::limits::ROWS;
use crate::listeners::Listeners;
use crate::live::{self, Sight};
use crate::reply::Reply;

/// Attempts at a look that begins again because something changed meanwhile.
const ATTEMPTS: usize = 8;

pub async fn of_folder(at: &At<'_>) -> Result<Reply, Failure> {
    let wanted = FolderQuery::of(at)?;
    at.asked.witness.note(|facts| facts.key = Some(wanted.prefix.clone()));
    let mut sight = FolderSight {
        reads: SightReads::of(at.inner),
        caller: at.login.caller.clone(),
        bucket: at.bucket.to_owned(),
        folder: wanted.folder(),
        wanted,
        names: Vec::new(),
        known: None,
        heard: None,
    };
    // Users that may not see the folder learn it from the status.
    let shown = sight.look().await?;
    events::reply(at.inner, at.login, live::tell(sight, shown, live::seen(at.asked)))
}

pub async fn of_buckets(of: &For<'_>) -> Result<Reply, Failure> {
    let query = of.asked.query()?;
    let (prefix, after) = (query.get("filter").to_owned(), query.get("after").to_owned());
    let mut sight = BucketsSight {
        reads: SightReads::of(of.inner),
        caller: of.login.caller.clone(),
        wanted: ListBuckets { prefix, after, limit: ROWS },
        shown: Vec::new(),
        heard: None,
    };
    let shown = sight.look().await?;
    events::reply(of.inner, of.login, live::tell(sight, shown, live::seen(of.asked)))
}

/// Counted reads for one page that listens.
struct SightReads {
    fs: Fs,
    listeners: Arc<Listeners>,
}

impl SightReads {
    fn of(inner: &Inner) -> SightReads {
        SightReads { fs: inner.fs().clone(), listeners: Arc::clone(&inner.listeners) }
    }

    async fn look<V: WireVerb>(&self, caller: &Caller, verb: V) -> Result<V::Reply> {
        self.listeners.looks.fetch_add(1, Relaxed);
        self.fs.read(caller, verb).await
    }

    /// Returns the store for a listing.
    fn list(&self) -> &Fs {
        self.listeners.listings.fetch_add(1, Relaxed);
        &self.fs
    }
}

/// Watched rows, and whether all of their changes are noticed.
struct Heard {
    rows: Watching,
    is_all: bool,
}

impl Heard {
    async fn changed(heard: &mut Option<Heard>) {
        match heard {
            Some(Heard { rows, is_all: true }) => rows.changed().await,
            Some(Heard { rows, .. }) => drop(timeout(live::DEAF, rows.changed()).await),
            None => {}
        }
    }
}

fn too_busy() -> Error {
    Error::Unavailable("it changes faster than it can be looked at".into())
}

/// The folder that an open page shows.
struct FolderSight {
    reads: SightReads,
    caller: Caller,
    bucket: String,
    wanted: FolderQuery,
    folder: String,
    /// Names of the files that were shown last; the files of the first page are watched one by one.
    names: Vec<String>,
    /// Rows of the last look.
    known: Option<FolderLook>,
    heard: Option<Heard>,
}

/// Part of a bucket that a page shows.
struct ShownFolder {
    version: String,
    /// Names of the files that are watched one by one; `files` has their numbers, and what is shown
    /// of them.
    names: Vec<String>,
    files: Vec<(Ino, FileState)>,
}

type FileState = (u64, Timestamp);

impl Sight for FolderSight {
    async fn look(&mut self) -> Result<String> {
        for attempt in 1..=ATTEMPTS {
            let Some(rows) = self.watch().await? else { continue };
            let shown = self.list().await?;
            // If names come and go all the time, the next look watches those that stay.
            let (rows, is_shown) = self.watch_more(rows, &shown).await?;
            if is_shown || attempt == ATTEMPTS {
                let is_all = is_shown && self.reads.fs.hears_of(&self.caller, &self.verb());
                self.heard = Some(Heard { rows, is_all });
                return Ok(shown.version);
            }
        }
        Err(too_busy())
    }

    async fn changed(&mut self) {
        Heard::changed(&mut self.heard).await;
    }
}

impl FolderSight {
    fn verb(&self) -> LookFolder {
        let (bucket, folder) = (self.bucket.clone(), self.folder.clone());
        LookFolder { bucket, folder, names: self.names.clone() }
    }

    /// Watches the rows of the last look, and looks again: rows are leased then. Returns none if
    /// the rows have changed.
    async fn watch(&mut self) -> Result<Option<Watching>> {
        let rows = self.known.as_ref().map(|known| self.reads.fs.watch_folder(known));
        let look = self.reads.look(&self.caller, self.verb()).await?;
        let is_known = self.known.as_ref() == Some(&look);
        self.known = Some(look);
        Ok(rows.filter(|_| is_known))
    }

    /// Watches the new files of a listing too; the listing began after the other rows were watched.
    /// Returns true if they are still as listed.
    async fn watch_more(
        &mut self,
        rows: Watching,
        shown: &ShownFolder,
    ) -> Result<(Watching, bool)> {
        let Some(known) = &self.known else { return Ok((rows, false)) };
        if self.names == shown.names {
            return Ok((rows, true));
        }
        let files: Vec<Option<Ino>> = shown.files.iter().map(|(ino, _)| Some(*ino)).collect();
        let new = shown.files.iter().filter(|(ino, _)| !known.files.contains(&Some(*ino)));
        let new: Vec<&(Ino, FileState)> = new.collect();
        let look = FolderLook { files, ..known.clone() };
        self.names.clone_from(&shown.names);
        if new.is_empty() {
            self.known = Some(look);
            return Ok((rows, true));
        }
        let rows = rows.and(self.reads.fs.watch_folder(&look));
        let found = self.reads.look(&self.caller, self.verb()).await?;
        let is_shown = found == look && new.iter().all(|(ino, state)| self.is_still(*ino, state));
        self.known = Some(found);
        Ok((rows, is_shown))
    }

    /// Returns true if a file is as it was listed. Its row is in memory, since it was looked at
    /// just now.
    fn is_still(&self, ino: Ino, state: &FileState) -> bool {
        let found = self.reads.fs.read_now(&Caller::system(), &Getattr { ino });
        matches!(found, Some(Ok((inode, _))) if (inode.size, inode.mtime) == *state)
    }

    async fn list(&self) -> Result<ShownFolder> {
        let fs = self.reads.list();
        let found = self.wanted.find(fs, &self.caller, &self.bucket).await?;
        let usage = if self.folder.is_empty() {
            let verb = GetBucket { name: self.bucket.clone() };
            Some(fs.read(&self.caller, verb).await?.1)
        } else {
            None
        };
        let files = found.rows.iter().filter_map(|row| match row {
            ListRow::File(listed) => {
                let name = listed.key.strip_prefix(&*self.folder)?;
                let state = (listed.inode.size, listed.inode.mtime);
                (!name.contains('/')).then(|| (name.to_owned(), (listed.ino, state)))
            }
            ListRow::Folder(_) => None,
        });
        let (names, files) = files.take(ROWS).unzip();
        Ok(ShownFolder { version: found.version(usage.as_ref()), names, files })
    }
}

/// The list of buckets that an open page shows.
struct BucketsSight {
    reads: SightReads,
    caller: Caller,
    wanted: ListBuckets,
    /// Buckets that were shown last.
    shown: Vec<BucketId>,
    heard: Option<Heard>,
}

impl Sight for BucketsSight {
    async fn look(&mut self) -> Result<String> {
        let system = Caller::system();
        for attempt in 1..=ATTEMPTS {
            let verb = LookBuckets { buckets: self.shown.clone() };
            let rows = self.reads.fs.watch_buckets(&self.shown);
            self.reads.look(&system, verb).await?;
            let (found, next) = self.reads.list().read(&self.caller, self.wanted.clone()).await?;
            let shown: Vec<BucketId> = found.iter().map(|(opened, _)| opened.id).collect();
            let is_watched = shown.iter().all(|id| self.shown.contains(id));
            self.shown = shown;
            if is_watched || attempt == ATTEMPTS {
                let verb = LookBuckets { buckets: self.shown.clone() };
                let is_all = is_watched && self.reads.fs.hears_of(&system, &verb);
                self.heard = Some(Heard { rows, is_all });
                return Ok(buckets::version(&found, next.as_deref()));
            }
        }
        Err(too_busy())
    }

    async fn changed(&mut self) {
        Heard::changed(&mut self.heard).await;
    }
}
