//! Renames and moves within a bucket.

use cairn_auth::Action;
use cairn_base::{Error, Ino};
use serde::{Deserialize, Serialize};

use super::namespace::{add_entry, drop_directory, drop_link, load_inode, remove_entry, store};
use super::posix::{
    Directory, WRITE, change_directory, check_mode, check_name, check_new_name, check_sticky,
    check_vacant, entry_exists, keep_if_emptied, no_entry, resolve, resolve_known,
};
use super::rmdir::check_empty;
use crate::rows::{Entry, Inode};
use crate::{Context, Stop, Verb, View, keys};

/// The treatment of an existing entry with the new name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum RenameMode {
    /// Replaces it, if that is possible: a file by a file, an empty directory by a directory.
    #[default]
    Replace,
    /// Keeps it, and fails with `Exists`.
    NoReplace,
    /// Gives it the old name. It must exist.
    Exchange,
}

/// Renames an entry, or moves it into another directory of its bucket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rename {
    pub source_parent: Ino,
    pub source_name: Vec<u8>,
    pub target_parent: Ino,
    pub target_name: Vec<u8>,
    pub mode: RenameMode,
}

/// A name in a directory, and the inode that has the name.
struct RenameEnd<'a> {
    directory: &'a Directory,
    name: &'a [u8],
    entry: Entry,
    inode: Inode,
}

impl Verb for Rename {
    type Reply = ();
    const NAME: &'static str = "rename";

    /// Renames the entry.
    ///
    /// # Errors
    /// `CrossBucket` between buckets; `Invalid` for a directory into itself or below.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        check_name(&self.source_name)?;
        check_new_name(&self.target_name)?;
        let from = change_directory(view, context, self.source_parent, Action::DeleteObject)?;
        let to = change_directory(view, context, self.target_parent, Action::PutObject)?;
        if from.inode.bucket != to.inode.bucket {
            return Err(Error::CrossBucket("rename: copy and delete instead".into()).into());
        }
        let (entry, inode) = resolve_known(view, from.ino, &self.source_name)?;
        let source = RenameEnd { directory: &from, name: &self.source_name, entry, inode };
        check_move(view, context, &source, &to)?;
        let Some(entry) = resolve(view, to.ino, &self.target_name)? else {
            if self.mode == RenameMode::Exchange {
                return Err(no_entry(&self.target_name));
            }
            return replace(view, context, &source, &to, &self.target_name);
        };
        if self.mode == RenameMode::NoReplace {
            return Err(entry_exists(&self.target_name));
        }
        if entry.ino == source.entry.ino {
            return Ok(());
        }
        let inode = load_inode(view, entry.ino)?;
        let target = RenameEnd { directory: &to, name: &self.target_name, entry, inode };
        if self.mode == RenameMode::Exchange {
            check_move(view, context, &target, &from)?;
            return exchange(view, context, &source, &target);
        }
        displace(view, context, &source, &target)?;
        replace(view, context, &source, &to, &self.target_name)
    }
}

/// Checks that the caller may move an entry from its directory into `to`.
fn check_move(
    view: &mut View<'_>,
    context: &Context,
    moved: &RenameEnd<'_>,
    to: &Directory,
) -> Result<(), Stop> {
    check_sticky(context, &moved.directory.inode, &moved.inode)?;
    if !moved.inode.is_directory() || moved.directory.ino == to.ino {
        return Ok(());
    }
    // Its `..` changes.
    check_mode(context, &moved.inode, WRITE)?;
    let mut above = to.ino;
    let mut parent = to.inode.parent;
    while above != moved.entry.ino {
        if above == to.inode.bucket.ino() || above == Ino::ROOT {
            return Ok(());
        }
        above = parent;
        parent = load_inode(view, above)?.parent;
    }
    Err(Error::Invalid("a directory cannot be moved into itself or a directory below it".into())
        .into())
}

/// Removes the entry with the new name, if POSIX lets the moved entry replace it.
fn displace(
    view: &mut View<'_>,
    context: &Context,
    moved: &RenameEnd<'_>,
    target: &RenameEnd<'_>,
) -> Result<(), Stop> {
    let RenameEnd { directory, name, entry, inode } = target;
    check_sticky(context, &directory.inode, inode)?;
    let text = || String::from_utf8_lossy(name).into_owned();
    match (moved.inode.is_directory(), inode.is_directory()) {
        (true, false) => return Err(Error::NotDirectory(text()).into()),
        (false, true) => return Err(Error::IsDirectory(text()).into()),
        (true, true) => check_empty(view, entry.ino, name)?,
        (false, false) => {}
    }
    remove_entry(view, context, directory.ino, name, entry.kind)?;
    if inode.is_directory() {
        drop_directory(view, entry.ino, inode)
    } else {
        drop_link(view, context, entry.ino, inode.clone())
    }
}

/// Moves `source` to a name that is now free.
fn replace(
    view: &mut View<'_>,
    context: &Context,
    source: &RenameEnd<'_>,
    to: &Directory,
    name: &[u8],
) -> Result<(), Stop> {
    remove_entry(view, context, source.directory.ino, source.name, source.entry.kind)?;
    put_down(view, context, source, to, name)?;
    keep_if_emptied(view, context, source.directory.ino)
}

fn exchange(
    view: &mut View<'_>,
    context: &Context,
    source: &RenameEnd<'_>,
    target: &RenameEnd<'_>,
) -> Result<(), Stop> {
    for place in [source, target] {
        remove_entry(view, context, place.directory.ino, place.name, place.entry.kind)?;
    }
    put_down(view, context, source, target.directory, target.name)?;
    put_down(view, context, target, source.directory, source.name)
}

/// Gives an inode that was taken away its new name.
fn put_down(
    view: &mut View<'_>,
    context: &Context,
    moved: &RenameEnd<'_>,
    to: &Directory,
    name: &[u8],
) -> Result<(), Stop> {
    check_vacant(view, to.ino, name, moved.entry.kind)?;
    add_entry(view, context, to.ino, name, &moved.entry)?;
    let mut inode = moved.inode.clone();
    if inode.is_directory() {
        inode.parent = to.ino;
    }
    inode.touch(context.batch, context.now);
    store(view, keys::inode(moved.entry.ino), &inode);
    Ok(())
}
