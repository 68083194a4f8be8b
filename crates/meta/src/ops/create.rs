//! Makes files, FIFOs and sockets.

use bytes::Bytes;
use cairn_auth::Action;
use cairn_base::{Error, Ino};
use serde::{Deserialize, Serialize};

use super::namespace::{add_inode, load_inode, new_inode};
use super::posix::{
    Directory, MODE_BITS, SEARCH, WRITE, check_mode, check_new_name, entry_exists, inherit,
    open_directory, resolve,
};
use crate::rows::{Inode, Kind};
use crate::{Context, Stop, Verb, View, keys};

/// Creates an empty file, or finds the existing one (`open` with `O_CREAT`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Create {
    pub parent: Ino,
    pub name: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// Bits to take away if the directory has no default list.
    pub umask: u32,
    /// Refuses with `Exists` if the name exists (`O_EXCL`).
    pub exclusive: bool,
}

impl Verb for Create {
    /// The file, and whether it was made. An existing inode may be anything but a directory; the
    /// right of the caller to open it was not checked.
    type Reply = (Ino, Inode, bool);
    const NAME: &'static str = "create";
    const LEASES_CHANGES: bool = true;
    const POSTS: bool = true;

    fn changes(&self) -> Vec<Bytes> {
        vec![keys::file_entry(self.parent, &self.name), keys::tally(self.parent)]
    }

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        check_new_name(&self.name)?;
        let directory = open_directory(view, context, self.parent, Action::PutObject, SEARCH)?;
        if let Some(entry) = resolve(view, self.parent, &self.name)? {
            if self.exclusive {
                return Err(entry_exists(&self.name));
            }
            if entry.kind == Kind::Directory {
                let name = String::from_utf8_lossy(&self.name).into_owned();
                return Err(Error::IsDirectory(name).into());
            }
            return Ok((entry.ino, load_inode(view, entry.ino)?, false));
        }
        check_mode(context, &directory.inode, WRITE)?;
        let inode = Inode { mode: self.mode, ..new_inode_in(&directory, Kind::File, context) };
        let (ino, inode) = make(view, context, &directory, &self.name, inode, self.umask)?;
        Ok((ino, inode, true))
    }
}

/// Makes a file, FIFO or socket; `Exists` if the name is taken.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mknod {
    pub parent: Ino,
    pub name: Vec<u8>,
    pub kind: Kind,
    /// Permission bits, as in [`Create`].
    pub mode: u32,
    pub umask: u32,
}

impl Verb for Mknod {
    type Reply = (Ino, Inode);
    const NAME: &'static str = "mknod";
    const LEASES_CHANGES: bool = true;
    const POSTS: bool = true;

    fn changes(&self) -> Vec<Bytes> {
        vec![keys::file_entry(self.parent, &self.name), keys::tally(self.parent)]
    }

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        if !matches!(self.kind, Kind::File | Kind::Fifo | Kind::Socket) {
            return Err(Error::Invalid(format!(
                "mknod makes files, FIFOs and sockets, not a {:?}",
                self.kind
            ))
            .into());
        }
        let directory = vacancy(view, context, self.parent, &self.name)?;
        let inode = Inode { mode: self.mode, ..new_inode_in(&directory, self.kind, context) };
        make(view, context, &directory, &self.name, inode, self.umask)
    }
}

/// Returns a directory in which the caller may make `name`, which does not exist yet.
pub(super) fn vacancy(
    view: &mut View<'_>,
    context: &Context,
    parent: Ino,
    name: &[u8],
) -> Result<Directory, Stop> {
    check_new_name(name)?;
    let directory = open_directory(view, context, parent, Action::PutObject, SEARCH)?;
    if resolve(view, parent, name)?.is_some() {
        return Err(entry_exists(name));
    }
    check_mode(context, &directory.inode, WRITE)?;
    Ok(directory)
}

pub(super) fn new_inode_in(directory: &Directory, kind: Kind, context: &Context) -> Inode {
    new_inode(kind, directory.inode.bucket, context)
}

/// Gives a new inode its name in a directory that does not have it.
pub(super) fn make(
    view: &mut View<'_>,
    context: &Context,
    directory: &Directory,
    name: &[u8],
    mut inode: Inode,
    umask: u32,
) -> Result<(Ino, Inode), Stop> {
    inode.mode &= MODE_BITS;
    inherit(context, &directory.inode, umask, &mut inode);
    let ino = add_inode(view, context, directory.ino, name, &inode)?;
    Ok((ino, inode))
}
