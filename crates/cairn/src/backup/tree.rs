//! Files and directories of one bucket, out of a backup into a server, or compared with it.
//!
//! ```text
//!   a file:       made in .cairn-restore ─► bytes ─► attributes ─► renamed to its place
//!   a directory:  made with an impossible mode ─► everything in it ─► attributes
//! ```
//!
//! So a run that was interrupted leaves no file that looks finished, and the next run knows which
//! directories are its own.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use cairn_base::{Error, Ino};
use cairn_fs::ops::create::{Create, Mknod};
use cairn_fs::ops::link::Link;
use cairn_fs::ops::list_objects::ListedObject;
use cairn_fs::ops::lookup::Lookup;
use cairn_fs::ops::mkdir::Mkdir;
use cairn_fs::ops::readdir::{ListedEntry, Page, Readdir};
use cairn_fs::ops::readlink::Readlink;
use cairn_fs::ops::rename::{Rename, RenameMode};
use cairn_fs::ops::restore::{FindKey, RestoreAttributes, RestoreKey, UNFINISHED_MODE};
use cairn_fs::ops::rmdir::Rmdir;
use cairn_fs::ops::tags::GetTags;
use cairn_fs::ops::unlink::Unlink;
use cairn_fs::ops::xattr::{GetXattr, List, ListXattrs, RemoveXattr, SetXattr, XattrMode};
use cairn_fs::rows::{Content, Inode, Kind};
use futures_util::{TryStreamExt, stream};
use indicatif::ProgressBar;
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OnceCell};

use super::content;
use super::destination::Destination;
use super::difference::of_inodes;
use super::report::{RestoreReport, Trouble};
use super::selection::{Part, Selection, join, names};
use super::stored::StoredState;
use crate::failure::{Failure, Result};

/// Entries of a page of a directory.
const PAGE: usize = 1000;
const MODE_BITS: u32 = 0o7777;
/// Directory of a bucket in which files are made. It is removed in the end.
const WORKSHOP: &[u8] = b".cairn-restore";

/// The work of a walk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Make missing names; with `replace`, also replace those that differ.
    Restore { replace: bool },
    /// Change nothing, and report differences; with `bytes`, read all files.
    Compare { bytes: bool },
}

/// A bucket in a backup, and its counterpart on a server.
pub struct BucketPair {
    pub source: String,
    pub source_root: Ino,
    pub target: String,
    pub target_root: Ino,
    /// Set if the one on the server may have an object `a` beside `a/b`.
    pub takes_both: bool,
}

/// The settings of a walk, which are the same for all buckets.
#[derive(Clone, Copy)]
pub struct Walk<'a> {
    pub stored: &'a StoredState,
    pub there: &'a Destination,
    pub report: &'a RestoreReport,
    pub bar: &'a ProgressBar,
    pub selection: &'a Selection,
    pub task: Task,
    /// Files at the same time.
    pub jobs: usize,
}

/// A walk over a bucket in a backup.
pub struct Tree<'a> {
    pub walk: Walk<'a>,
    pub buckets: &'a BucketPair,
    /// Set once a directory has names that POSIX cannot show.
    pub hides: AtomicBool,
    workshop: OnceCell<Ino>,
    /// Files with several names, by their numbers in the backup: their numbers on the server.
    links: Mutex<HashMap<Ino, Arc<AsyncMutex<Option<Ino>>>>>,
    /// Missing names of files with several, of which no other was seen so far.
    late: Mutex<Vec<LateName>>,
    /// Directories that a restore has made, and that are not selected themselves: something below
    /// them is.
    ways: Mutex<HashSet<Ino>>,
}

/// A missing name that waits until it is known whether its file has another one on the server.
struct LateName {
    /// Number in the backup.
    source: Ino,
    /// Directory on the server.
    parent: Ino,
    path: Vec<u8>,
    is_hidden: bool,
}

/// A name of the backup, and the place that it gets.
#[derive(Clone, Copy)]
struct Item<'a> {
    /// Number in the backup.
    source: Ino,
    wanted: &'a Inode,
    /// Directory on the server.
    parent: Ino,
    name: &'a [u8],
    /// Path in the bucket of the backup.
    path: &'a [u8],
    /// Set if POSIX cannot show the path: directory and name are not used then.
    is_hidden: bool,
}

/// A directory on the server.
struct FoundDirectory {
    ino: Ino,
    /// Inode before this walk; `None` if the walk has made it.
    inode: Option<Inode>,
}

/// A directory on the way to the one file or directory that is selected.
struct PassedDirectory {
    /// Number in the backup.
    source: Ino,
    wanted: Inode,
    /// Directory on the server that it is in.
    parent: Ino,
    path: Vec<u8>,
    found: FoundDirectory,
}

impl FoundDirectory {
    /// Returns true if this walk has made it, or a walk before that was interrupted.
    fn is_own(&self) -> bool {
        self.inode.as_ref().is_none_or(|inode| inode.mode & MODE_BITS == UNFINISHED_MODE)
    }
}

impl<'a> Tree<'a> {
    pub fn new(walk: Walk<'a>, buckets: &'a BucketPair) -> Tree<'a> {
        Tree {
            walk,
            buckets,
            hides: AtomicBool::default(),
            workshop: OnceCell::default(),
            links: Mutex::default(),
            late: Mutex::default(),
            ways: Mutex::default(),
        }
    }

    /// Walks over everything that is selected.
    pub async fn run(&self) -> Result<()> {
        let done = match &self.walk.selection.path {
            None => self.all().await,
            Some(path) => self.single(path).await,
        };
        self.walk.report.settle(&self.shown(b""), done)
    }

    /// Makes the names that have waited for others, and removes files of the restore alone.
    pub async fn end(&self) -> Result<()> {
        if self.compares() {
            return Ok(());
        }
        self.late_names().await?;
        let cleared = self.clear().await;
        self.walk.report.settle(&self.shown(WORKSHOP), cleared)
    }

    /// Gives the directory of the bucket its extended attributes, as [`Tree::finish_root`] would: a
    /// bucket that is read-only takes none.
    pub async fn prepare_root(&self) -> Result<()> {
        if self.compares() {
            return Ok(());
        }
        let done = async {
            let (wanted, found) = self.roots().await?;
            if found.is_own() || (self.walk.selection.is_whole() && self.replaces()) {
                self.set_xattrs(&self.root(&wanted), found.ino, true).await?;
            }
            Ok(())
        };
        self.walk.report.settle(&self.shown(b""), done.await)
    }

    /// Gives the directory of the bucket its attributes, if a restore has made it; otherwise
    /// compares them.
    pub async fn finish_root(&self) -> Result<()> {
        let done = async {
            let (wanted, found) = self.roots().await?;
            self.finish(&self.root(&wanted), &found, self.walk.selection.is_whole()).await
        };
        self.walk.report.settle(&self.shown(b""), done.await)
    }

    /// Reads the directory of the bucket in the backup and on the server.
    async fn roots(&self) -> Result<(Inode, FoundDirectory), Trouble> {
        let [wanted, found] = [
            self.walk.stored.read(getattr(self.buckets.source_root)).await,
            self.walk.there.read(getattr(self.buckets.target_root)).await,
        ];
        let (wanted, _) = wanted.map_err(Trouble::in_backup)?;
        let ino = self.buckets.target_root;
        Ok((wanted, FoundDirectory { ino, inode: Some(found?.0) }))
    }

    fn root<'i>(&self, wanted: &'i Inode) -> Item<'i> {
        let (source, parent) = (self.buckets.source_root, Ino::ROOT);
        Item { source, wanted, parent, name: b"", path: b"", is_hidden: false }
    }

    async fn all(&self) -> Result<(), Trouble> {
        let base = self.walk.selection.base.as_deref().unwrap_or_default();
        let Some(target) = self.base(names(base)).await? else { return Ok(()) };
        Ok(self.children(self.buckets.source_root, target, b"").await?)
    }

    /// Finds directories outside of the backup, and makes missing ones.
    async fn base<'n>(&self, names: impl Iterator<Item = &'n str>) -> Result<Option<Ino>, Trouble> {
        let mut ino = self.buckets.target_root;
        for name in names {
            ino = match self.walk.there.lookup(ino, name.as_bytes()).await? {
                Some((found, inode)) if inode.is_directory() => found,
                Some(_) => return Err(Trouble::Single(format!("{name} is no directory"))),
                None if self.compares() => {
                    self.walk.report.failed(&self.shown(b""), format!("{name} is not there"))?;
                    return Ok(None);
                }
                None => {
                    let name = name.as_bytes().to_vec();
                    let verb = Mkdir { parent: ino, name, mode: 0o755, umask: 0 };
                    self.walk.there.run(verb).await?.0
                }
            };
        }
        Ok(Some(ino))
    }

    /// Walks over one file or directory. The directories on the way to it get their attributes also
    /// if it cannot be brought back.
    async fn single(&self, only: &str) -> Result<(), Trouble> {
        let mut passed = Vec::new();
        let done = self.single_below(only, &mut passed).await;
        if matches!(done, Err(Trouble::Final(_))) {
            return done;
        }
        self.late_names().await?;
        for PassedDirectory { source, wanted, parent, path, found } in passed.iter().rev() {
            let (source, parent, name) = (*source, *parent, &b""[..]);
            let item = Item { source, wanted, parent, name, path, is_hidden: false };
            let finished = self.finish(&item, found, false).await;
            self.walk.report.settle(&self.shown(path), finished)?;
        }
        done
    }

    /// Walks over one file or directory, and notes the directories on the way to it.
    async fn single_below(
        &self,
        only: &str,
        passed: &mut Vec<PassedDirectory>,
    ) -> Result<(), Trouble> {
        let mut way: Vec<&str> = names(only).collect();
        let Some(last) = way.pop() else { return Ok(()) };
        let mut bases: Vec<&str> =
            self.walk.selection.base.as_deref().map(names).into_iter().flatten().collect();
        let renamed = bases.pop();
        let (mut source, mut path) = (self.buckets.source_root, Vec::new());
        let Some(mut parent) = self.base(bases.into_iter()).await? else { return Ok(()) };
        for name in way {
            let (ino, wanted) = self.in_backup(source, name).await?;
            (source, path) = (ino, join(&path, name.as_bytes()));
            if renamed.is_some() {
                continue;
            }
            let item = Item {
                source,
                wanted: &wanted,
                parent,
                name: name.as_bytes(),
                path: &path,
                is_hidden: false,
            };
            let Some(found) = self.directory_of(&item).await? else { return Ok(()) };
            let above = std::mem::replace(&mut parent, found.ino);
            passed.push(PassedDirectory {
                source,
                wanted,
                parent: above,
                path: path.clone(),
                found,
            });
        }
        let (ino, inode) = self.in_backup(source, last).await?;
        let name = renamed.unwrap_or(last).as_bytes();
        let path = join(&path, last.as_bytes());
        let item =
            Item { source: ino, wanted: &inode, parent, name, path: &path, is_hidden: false };
        let done = if inode.is_directory() {
            // There may be an object of the same name, which the directory hides.
            self.hides.store(true, Ordering::Relaxed);
            self.directory(&item, true).await
        } else {
            self.file(&item).await
        };
        Ok(self.walk.report.settle(&self.shown(&path), done)?)
    }

    async fn in_backup(&self, parent: Ino, name: &str) -> Result<(Ino, Inode), Trouble> {
        let found = self.walk.stored.read(Lookup { parent, name: name.as_bytes().to_vec() }).await;
        found.map_err(Trouble::in_backup)
    }

    /// Walks over the names in a directory of the backup.
    async fn children(&self, source: Ino, target: Ino, path: &[u8]) -> Result<()> {
        let mut after = None;
        loop {
            let verb = Readdir { ino: source, after, limit: PAGE, attributes: true };
            let Page { entries, skipped, next } = match self.walk.stored.read(verb).await {
                Ok(page) => page,
                Err(error) => {
                    let text = format!("in the backup: {error}");
                    return self.walk.report.failed(&self.shown(path), text);
                }
            };
            if skipped > 0 {
                self.hides.store(true, Ordering::Relaxed);
            }
            let is_workshop = |entry: &ListedEntry| path.is_empty() && *entry.name == *WORKSHOP;
            let entries = entries.into_iter().filter(|entry| !is_workshop(entry));
            let (directories, files): (Vec<ListedEntry>, Vec<ListedEntry>) =
                entries.partition(|entry| entry.kind == Kind::Directory);
            stream::iter(files.iter().map(Ok::<_, Failure>))
                .try_for_each_concurrent(self.walk.jobs, |entry| self.entry(entry, target, path))
                .await?;
            for entry in &directories {
                Box::pin(self.entry(entry, target, path)).await?;
            }
            after = next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn entry(&self, entry: &ListedEntry, parent: Ino, directory: &[u8]) -> Result<()> {
        let path = join(directory, &entry.name);
        let is_directory = entry.kind == Kind::Directory;
        let part = self.walk.selection.part(&path, is_directory);
        let (Some(wanted), true) = (&entry.inode, part != Part::Nothing) else { return Ok(()) };
        let item = Item {
            source: entry.ino,
            wanted,
            parent,
            name: &entry.name,
            path: &path,
            is_hidden: false,
        };
        let done = if is_directory {
            Box::pin(self.directory(&item, part == Part::All)).await
        } else {
            self.file(&item).await
        };
        self.walk.report.settle(&self.shown(&path), done)
    }

    async fn directory(&self, item: &Item<'_>, is_whole: bool) -> Result<(), Trouble> {
        let Some(found) = self.directory_of(item).await? else { return Ok(()) };
        self.children(item.source, found.ino, item.path).await?;
        self.finish(item, &found, is_whole).await
    }

    /// Finds the directory on the server, or makes it; `None` if there is none then.
    async fn directory_of(&self, item: &Item<'_>) -> Result<Option<FoundDirectory>, Trouble> {
        let (parent, name) = (item.parent, item.name.to_vec());
        match self.walk.there.lookup(parent, item.name).await? {
            Some((ino, inode)) if inode.is_directory() => {
                let is_own = self.is_made_beside(item, ino, &inode).await?;
                if is_own {
                    self.keep_made(item, ino).await?;
                }
                return Ok(Some(FoundDirectory { ino, inode: (!is_own).then_some(inode) }));
            }
            Some(_) if self.buckets.takes_both => {
                if self.compares() {
                    self.differs(item.path, "it is not there")?;
                    return Ok(None);
                }
                let ino = self.make_beside(item).await?;
                return Ok(Some(FoundDirectory { ino, inode: None }));
            }
            Some(_) if self.replaces() => {
                self.walk.there.run(Unlink { parent, name: name.clone() }).await?;
            }
            Some(_) => {
                self.differs(item.path, "a file has the name of the directory")?;
                return Ok(None);
            }
            None if self.compares() => {
                self.differs(item.path, "it is not there")?;
                return Ok(None);
            }
            None => {}
        }
        let verb = Mkdir { parent, name, mode: UNFINISHED_MODE, umask: 0 };
        let (ino, _) = self.walk.there.run(verb).await?;
        Ok(Some(FoundDirectory { ino, inode: None }))
    }

    /// Makes a directory beside an object of the same name. POSIX cannot do that: an empty file is
    /// moved into the directory, which makes it, and removed.
    async fn make_beside(&self, item: &Item<'_>) -> Result<Ino, Trouble> {
        let (workshop, own) = (self.workshop().await?, own_name(item.source));
        match self.create(Kind::File, workshop, &own, &Bytes::new()).await {
            // An interrupted run has left it.
            Ok(_) | Err(Error::Exists(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let key = self.key(item)? + &helper_name(item.source);
        let (bucket, replace) = (self.buckets.target.clone(), true);
        self.walk
            .there
            .run(RestoreKey { parent: workshop, name: own, bucket, key, replace })
            .await?;
        match self.walk.there.lookup(item.parent, item.name).await? {
            Some((ino, inode)) if inode.is_directory() => {
                self.keep_made(item, ino).await?;
                Ok(ino)
            }
            _ => Err(Trouble::Single("somebody else has removed the directory".to_owned())),
        }
    }

    /// Returns whether an interrupted run has made a directory beside an object, and has left the
    /// file that made it.
    async fn is_made_beside(
        &self,
        item: &Item<'_>,
        ino: Ino,
        inode: &Inode,
    ) -> Result<bool, Trouble> {
        let may_be = inode.implicit || inode.mode & MODE_BITS == UNFINISHED_MODE;
        if !self.buckets.takes_both || self.compares() || !may_be {
            return Ok(false);
        }
        let found = self.walk.there.lookup(ino, helper_name(item.source).as_bytes()).await?;
        Ok(found.is_some_and(|(_, inode)| inode.kind == Kind::File && inode.size == 0))
    }

    /// Gives a directory that was made beside an object the mode of those that a restore makes, and
    /// removes the file that made it.
    async fn keep_made(&self, item: &Item<'_>, ino: Ino) -> Result<(), Trouble> {
        let from = Inode { kind: Kind::Directory, mode: UNFINISHED_MODE, ..Inode::default() };
        self.walk.there.run(RestoreAttributes { ino, from, tags: Vec::new() }).await?;
        let name = helper_name(item.source).into_bytes();
        self.walk.there.run(Unlink { parent: ino, name }).await?;
        Ok(())
    }

    /// Gives a directory its attributes once everything in it is there, if that is to be done;
    /// otherwise compares them. A directory that is not selected, but something below it, gets them
    /// only if a restore has made it.
    async fn finish(
        &self,
        item: &Item<'_>,
        found: &FoundDirectory,
        is_whole: bool,
    ) -> Result<(), Trouble> {
        let is_own = found.is_own() && !self.compares();
        if !is_own && !is_whole {
            return Ok(());
        }
        if !is_whole {
            self.ways.lock().insert(found.ino);
        }
        if !is_own {
            let Some(why) = self.difference_of_directory(item, found.ino).await? else {
                self.walk.report.same();
                return Ok(());
            };
            if !self.replaces() {
                return Ok(self.differs(item.path, why)?);
            }
        }
        self.set_attributes(item, found.ino, found.inode.is_some()).await?;
        self.walk.report.directory();
        Ok(())
    }

    /// Returns the first difference of a directory. Its time counts only if it is to be replaced:
    /// names that came back have changed it.
    async fn difference_of_directory(
        &self,
        item: &Item<'_>,
        ino: Ino,
    ) -> Result<Option<String>, Trouble> {
        let (inode, _) = self.walk.there.read(getattr(ino)).await?;
        let found = self.difference(item, ino, &inode).await?;
        let is_old = self.replaces() && inode.mtime != item.wanted.mtime;
        Ok(found.or_else(|| is_old.then(|| "its time differs".to_owned())))
    }

    async fn file(&self, item: &Item<'_>) -> Result<(), Trouble> {
        let found = self.found(item).await?;
        let is_directory = found.as_ref().is_some_and(|(_, inode)| inode.is_directory());
        if is_directory && self.buckets.takes_both {
            // The object goes beside the directory.
            let item = Item { is_hidden: true, ..*item };
            let found = self.found(&item).await?;
            return self.settle(&item, found, false).await;
        }
        self.settle(item, found, false).await
    }

    /// Finds the inode on the server that has the place of a file.
    async fn found(&self, item: &Item<'_>) -> Result<Option<(Ino, Inode)>, Trouble> {
        Ok(if item.is_hidden {
            let (bucket, key) = (self.buckets.target.clone(), self.key(item)?);
            self.walk.there.read(FindKey { bucket, key }).await?
        } else {
            self.walk.there.lookup(item.parent, item.name).await?
        })
    }

    /// Makes a file, or replaces or compares the inode that has its place.
    async fn settle(
        &self,
        item: &Item<'_>,
        found: Option<(Ino, Inode)>,
        is_late: bool,
    ) -> Result<(), Trouble> {
        let is_there = found.is_some();
        match found {
            Some((_, inode)) if inode.is_directory() => {
                return Ok(self.differs(item.path, "a directory has the name of the file")?);
            }
            Some((ino, inode)) => match self.difference(item, ino, &inode).await? {
                None => {
                    self.walk.report.same();
                    return Ok(());
                }
                Some(why) if !self.replaces() => return Ok(self.differs(item.path, why)?),
                Some(_) => {}
            },
            None if self.compares() => return Ok(self.differs(item.path, "it is not there")?),
            None => {}
        }
        if item.wanted.nlink < 2 {
            self.make(item, is_there).await?;
            return Ok(());
        }
        let made = self.made(item.source);
        let mut made = made.lock().await;
        if let Some(ino) = *made {
            self.link(ino, item, is_there).await?;
            self.walk.report.file(0);
        } else if !is_there && !is_late {
            // Another name may be there, and this one is to be of the same file.
            let Item { source, parent, is_hidden, .. } = *item;
            let path = item.path.to_vec();
            self.late.lock().push(LateName { source, parent, path, is_hidden });
        } else {
            *made = Some(self.make(item, is_there).await?);
        }
        Ok(())
    }

    /// Makes the names that have waited, and gives their directories their times again.
    async fn late_names(&self) -> Result<()> {
        let late = std::mem::take(&mut *self.late.lock());
        stream::iter(late.iter().map(Ok::<_, Failure>))
            .try_for_each_concurrent(self.walk.jobs, |late| async move {
                self.walk.report.settle(&self.shown(&late.path), self.late_name(late).await)
            })
            .await?;
        let directories: BTreeSet<&[u8]> = late.iter().map(|late| above(&late.path)).collect();
        for path in directories {
            let settled = self.settle_directory(path).await;
            self.walk.report.settle(&self.shown(path), settled)?;
        }
        Ok(())
    }

    async fn late_name(&self, late: &LateName) -> Result<(), Trouble> {
        let LateName { source, parent, path, is_hidden } = late;
        let wanted = self.walk.stored.read(getattr(*source)).await;
        let (wanted, _) = wanted.map_err(Trouble::in_backup)?;
        let place = self.walk.selection.target(path);
        let name = place.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let (source, parent, is_hidden) = (*source, *parent, *is_hidden);
        let item = Item { source, wanted: &wanted, parent, name, path, is_hidden };
        let found = self.found(&item).await?;
        self.settle(&item, found, true).await
    }

    /// Returns the place of the number that a file with several names has on the server.
    fn made(&self, source: Ino) -> Arc<AsyncMutex<Option<Ino>>> {
        Arc::clone(self.links.lock().entry(source).or_default())
    }

    async fn link(&self, ino: Ino, item: &Item<'_>, is_there: bool) -> Result<(), Trouble> {
        let (parent, name) = (item.parent, item.name.to_vec());
        if !is_there && !item.is_hidden {
            self.walk.there.run(Link { ino, parent, name }).await?;
            return Ok(());
        }
        let (workshop, own) = (self.workshop().await?, own_name(item.source));
        let again = self.walk.there.run(Link { ino, parent: workshop, name: own.clone() }).await;
        if let Err(Error::Exists(_)) = again {
            self.walk.there.run(Unlink { parent: workshop, name: own.clone() }).await?;
            self.walk.there.run(Link { ino, parent: workshop, name: own.clone() }).await?;
        } else {
            again?;
        }
        self.place(item, own, is_there).await
    }

    /// Makes a file, and gives it its name once it is whole.
    async fn make(&self, item: &Item<'_>, is_there: bool) -> Result<Ino, Trouble> {
        let (workshop, own) = (self.workshop().await?, own_name(item.source));
        let target = if item.wanted.kind == Kind::Symlink {
            let target = self.walk.stored.read(Readlink { ino: item.source }).await;
            target.map_err(Trouble::in_backup)?
        } else {
            Bytes::new()
        };
        let ino = match self.create(item.wanted.kind, workshop, &own, &target).await {
            // An interrupted run has left it.
            Err(Error::Exists(_)) => {
                self.walk.there.run(Unlink { parent: workshop, name: own.clone() }).await?;
                self.create(item.wanted.kind, workshop, &own, &target).await?
            }
            made => made?,
        };
        if item.wanted.kind == Kind::File {
            self.walk.bar.inc_length(item.wanted.size);
            let opened =
                self.walk.stored.fs.open_inode(&self.walk.stored.caller, item.source, true).await;
            let object = opened.map_err(Trouble::in_backup)?;
            content::copy(&object, self.walk.there, ino, self.walk.bar).await?;
        }
        self.set_attributes(item, ino, false).await?;
        self.place(item, own, is_there).await?;
        self.walk.report.file(item.wanted.size);
        Ok(ino)
    }

    async fn create(
        &self,
        kind: Kind,
        parent: Ino,
        name: &[u8],
        target: &Bytes,
    ) -> cairn_base::Result<Ino> {
        let (name, mode, umask) = (name.to_vec(), 0o600, 0);
        let there = self.walk.there;
        Ok(match kind {
            Kind::File => there.run(Create { parent, name, mode, umask, exclusive: true }).await?.0,
            Kind::Symlink => {
                let target = target.clone();
                there.run(cairn_fs::ops::symlink::Symlink { parent, name, target }).await?.0
            }
            Kind::Fifo | Kind::Socket => {
                there.run(Mknod { parent, name, kind, mode, umask }).await?.0
            }
            Kind::Directory => return Err(Error::Invalid("a directory is no file".into())),
        })
    }

    /// Moves a file from the workshop to its place.
    async fn place(&self, item: &Item<'_>, own: Vec<u8>, is_there: bool) -> Result<(), Trouble> {
        let source_parent = self.workshop().await?;
        if item.is_hidden {
            let (bucket, key) = (self.buckets.target.clone(), self.key(item)?);
            let (parent, name, replace) = (source_parent, own, is_there);
            return Ok(self
                .walk
                .there
                .run(RestoreKey { parent, name, bucket, key, replace })
                .await?);
        }
        let mode = if is_there { RenameMode::Replace } else { RenameMode::NoReplace };
        let verb = Rename {
            source_parent,
            source_name: own,
            target_parent: item.parent,
            target_name: item.name.to_vec(),
            mode,
        };
        Ok(self.walk.there.run(verb).await?)
    }

    /// Returns the directory in which files are made.
    async fn workshop(&self) -> Result<Ino, Trouble> {
        let find = || async {
            let (parent, name) = (self.buckets.target_root, WORKSHOP.to_vec());
            match self.walk.there.lookup(parent, WORKSHOP).await? {
                Some((ino, inode)) if inode.is_directory() => Ok(ino),
                Some(_) => Err(Error::Exists("a file that only a restore uses".into())),
                None => {
                    let verb = Mkdir { parent, name, mode: 0o700, umask: 0 };
                    Ok(self.walk.there.run(verb).await?.0)
                }
            }
        };
        Ok(*self.workshop.get_or_try_init(find).await?)
    }

    /// Removes the directory in which files are made, with the files of interrupted runs.
    async fn clear(&self) -> Result<(), Trouble> {
        let root = self.buckets.target_root;
        let Some((ino, inode)) = self.walk.there.lookup(root, WORKSHOP).await? else {
            return Ok(());
        };
        if !inode.is_directory() {
            return Ok(());
        }
        loop {
            let verb = Readdir { ino, after: None, limit: PAGE, attributes: false };
            let page = self.walk.there.read(verb).await?;
            if page.entries.is_empty() {
                break;
            }
            for entry in page.entries {
                self.walk.there.run(Unlink { parent: ino, name: entry.name.to_vec() }).await?;
            }
        }
        self.walk.there.run(Rmdir { parent: root, name: WORKSHOP.to_vec() }).await?;
        Ok(())
    }

    async fn set_attributes(
        &self,
        item: &Item<'_>,
        ino: Ino,
        was_there: bool,
    ) -> Result<(), Trouble> {
        self.set_xattrs(item, ino, was_there).await?;
        let tags = self.tags(item).await?;
        let from = Inode { content: Content::Empty, unknown: Vec::new(), ..item.wanted.clone() };
        Ok(self.walk.there.run(RestoreAttributes { ino, from, tags }).await?)
    }

    /// Gives an inode the extended attributes of the backup. If it was there, only those that
    /// differ are changed.
    async fn set_xattrs(&self, item: &Item<'_>, ino: Ino, was_there: bool) -> Result<(), Trouble> {
        let wanted = self.xattrs(item).await?;
        let mut former = Vec::new();
        if was_there {
            former = self.walk.there.read(ListXattrs { ino }).await?;
            former.retain(|name| List::named(name).is_none());
        }
        for name in &former {
            if !wanted.iter().any(|(other, _)| other == name) {
                self.walk.there.run(RemoveXattr { ino, name: name.to_vec() }).await?;
            }
        }
        for (name, value) in wanted {
            let (is_there, name) = (former.contains(&name), name.to_vec());
            let is_same = is_there
                && self.walk.there.read(GetXattr { ino, name: name.clone() }).await? == value;
            if !is_same {
                let mode = XattrMode::Set;
                self.walk.there.run(SetXattr { ino, name, value, mode }).await?;
            }
        }
        Ok(())
    }

    /// Reads the extended attributes in the backup, without access control lists.
    async fn xattrs(&self, item: &Item<'_>) -> Result<Vec<(Bytes, Bytes)>, Trouble> {
        let ino = item.source;
        let mut found = Vec::new();
        if item.wanted.xattr_count == 0 {
            return Ok(found);
        }
        let names = self.walk.stored.read(ListXattrs { ino }).await.map_err(Trouble::in_backup)?;
        for name in names.into_iter().filter(|name| List::named(name).is_none()) {
            let value = self.walk.stored.read(GetXattr { ino, name: name.to_vec() }).await;
            found.push((name, value.map_err(Trouble::in_backup)?));
        }
        Ok(found)
    }

    async fn tags(&self, item: &Item<'_>) -> Result<Vec<(String, String)>, Trouble> {
        if item.wanted.object.as_ref().is_none_or(|object| object.tag_count == 0) {
            return Ok(Vec::new());
        }
        let (bucket, key) = (self.buckets.source.clone(), key_of(item.path, item.wanted)?);
        self.walk.stored.read(GetTags { bucket, key }).await.map_err(Trouble::in_backup)
    }

    /// Returns the first difference between an inode of the backup and the inode with its name on
    /// the server.
    async fn difference(
        &self,
        item: &Item<'_>,
        ino: Ino,
        found: &Inode,
    ) -> Result<Option<String>, Trouble> {
        if let Some(why) = of_inodes(item.wanted, found) {
            return Ok(Some(why));
        }
        if item.wanted.kind == Kind::Symlink {
            let wanted = self.walk.stored.read(Readlink { ino: item.source }).await;
            if wanted.map_err(Trouble::in_backup)? != self.walk.there.read(Readlink { ino }).await?
            {
                return Ok(Some("it leads elsewhere".to_owned()));
            }
        }
        if self.xattrs_differ(item, ino, found).await? {
            return Ok(Some("its extended attributes differ".to_owned()));
        }
        let tags = self.tags(item).await?;
        if !tags.is_empty() {
            let path = self.walk.selection.target(item.path);
            let (bucket, key) = (self.buckets.target.clone(), key_of(&path, item.wanted)?);
            if self.walk.there.read(GetTags { bucket, key }).await? != tags {
                return Ok(Some("its tags differ".to_owned()));
            }
        }
        if self.walk.task == (Task::Compare { bytes: true }) && item.wanted.kind == Kind::File {
            let opened =
                self.walk.stored.fs.open_inode(&self.walk.stored.caller, item.source, true).await;
            let wanted = opened.map_err(Trouble::in_backup)?;
            let other = self.walk.there.fs.open_inode(&self.walk.there.caller, ino, true).await?;
            if let Some(offset) = content::difference(&wanted, &other).await? {
                return Ok(Some(format!("its bytes differ after offset {offset}")));
            }
            self.walk.bar.inc_length(item.wanted.size);
            self.walk.bar.inc(item.wanted.size);
        }
        if item.wanted.nlink > 1 && !item.wanted.is_directory() {
            let made = self.made(item.source);
            let mut made = made.lock().await;
            if *made.get_or_insert(ino) != ino {
                return Ok(Some("it is another file than its other names".to_owned()));
            }
        }
        Ok(None)
    }

    async fn xattrs_differ(
        &self,
        item: &Item<'_>,
        ino: Ino,
        found: &Inode,
    ) -> Result<bool, Trouble> {
        if item.wanted.xattr_count != found.xattr_count {
            return Ok(true);
        }
        for (name, value) in self.xattrs(item).await? {
            match self.walk.there.read(GetXattr { ino, name: name.to_vec() }).await {
                Ok(other) if other == value => {}
                Ok(_) | Err(Error::NotFound(_)) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }

    /// Returns the key on the server.
    fn key(&self, item: &Item<'_>) -> Result<String, Trouble> {
        key_of(&self.walk.selection.target(item.path), item.wanted)
    }

    /// Restores or compares an object that POSIX cannot show.
    pub async fn hidden(&self, listed: &ListedObject) -> Result<(), Trouble> {
        let (source, wanted, path) = (listed.ino, &listed.inode, listed.key.as_bytes());
        let (parent, name) = (self.buckets.target_root, &b""[..]);
        let item = Item { source, wanted, parent, name, path, is_hidden: true };
        self.file(&item).await?;
        if self.compares() { Ok(()) } else { self.settle_directory(above(path)).await }
    }

    /// Gives the last directory of a path, of those that POSIX can show, its attributes again, if
    /// they are those of the backup: a name that was added has changed its times, and it may be
    /// implicit only while it has names. One that is not selected gets them only if a restore has
    /// made it.
    async fn settle_directory(&self, directories: &[u8]) -> Result<(), Trouble> {
        let (mut source, mut path) = (self.buckets.source_root, Vec::new());
        let mut last = None;
        for name in directories.split(|byte| *byte == b'/').take_while(|name| !name.is_empty()) {
            let lookup = Lookup { parent: source, name: name.to_vec() };
            match self.walk.stored.read(lookup).await {
                Ok((ino, inode)) if inode.is_directory() => {
                    path = join(&path, name);
                    source = ino;
                    last = Some(inode);
                }
                _ => break,
            }
        }
        let Some(wanted) = last else { return Ok(()) };
        let target = self.walk.selection.target(&path);
        let mut ino = self.buckets.target_root;
        for name in target.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            match self.walk.there.lookup(ino, name).await? {
                Some((found, _)) => ino = found,
                None => return Ok(()),
            }
        }
        let is_selected = self.walk.selection.part(&path, true) == Part::All;
        if !is_selected && !self.ways.lock().contains(&ino) {
            return Ok(());
        }
        let (found, _) = self.walk.there.read(getattr(ino)).await?;
        if of_inodes(&wanted, &found).is_none() {
            let (wanted, path, parent) = (&wanted, &path[..], ino);
            let item = Item { source, wanted, parent, name: b"", path, is_hidden: false };
            self.set_attributes(&item, ino, true).await?;
        }
        Ok(())
    }

    pub fn compares(&self) -> bool {
        matches!(self.walk.task, Task::Compare { .. })
    }

    pub fn replaces(&self) -> bool {
        self.walk.task == (Task::Restore { replace: true })
    }

    /// Reports something that is not as in the backup, and stays so.
    pub fn differs(&self, path: &[u8], why: impl std::fmt::Display) -> Result<()> {
        let name = self.shown(path);
        if self.compares() {
            self.walk.report.failed(&name, why)
        } else {
            self.walk.report.left(&name, why)
        }
    }

    /// Shows the place that a path of the backup gets.
    pub fn shown(&self, path: &[u8]) -> String {
        let path = self.walk.selection.target(path);
        format!("{}/{}", self.buckets.target, String::from_utf8_lossy(&path))
    }
}

fn getattr(ino: Ino) -> cairn_fs::ops::getattr::Getattr {
    cairn_fs::ops::getattr::Getattr { ino }
}

/// Returns the path of the directory that a path is in.
fn above(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or_default();
    path.get(..end).unwrap_or_default()
}

/// Returns the name of a file in the workshop.
fn own_name(source: Ino) -> Vec<u8> {
    format!("{:016x}", source.0).into_bytes()
}

/// Returns the name of the file that makes a directory beside an object.
fn helper_name(source: Ino) -> String {
    format!(".cairn-restore-{:016x}", source.0)
}

/// Returns the key of a file or a directory.
fn key_of(path: &[u8], inode: &Inode) -> Result<String, Trouble> {
    let path = String::from_utf8(path.to_vec());
    let mut key = path.map_err(|_| Trouble::Single("its name is not UTF-8".to_owned()))?;
    if inode.is_directory() {
        key.push('/');
    }
    Ok(key)
}
