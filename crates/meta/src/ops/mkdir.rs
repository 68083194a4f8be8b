//! Makes a directory.

use bytes::Bytes;
use cairn_base::Ino;
use serde::{Deserialize, Serialize};

use super::create::{make, vacancy};
use super::namespace::new_directory;
use crate::rows::Inode;
use crate::{Context, Stop, Verb, View, keys};

/// Makes an explicit directory: it stays when it becomes empty. Buckets are made by other
/// operations.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mkdir {
    pub parent: Ino,
    pub name: Vec<u8>,
    /// Permission bits, as in [`Create`](super::create::Create).
    pub mode: u32,
    pub umask: u32,
}

impl Verb for Mkdir {
    /// The inode as POSIX shows it.
    type Reply = (Ino, Inode);
    const NAME: &'static str = "mkdir";
    const LEASES_CHANGES: bool = true;

    fn changes(&self) -> Vec<Bytes> {
        vec![keys::directory_entry(self.parent, &self.name), keys::tally(self.parent)]
    }

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        let directory = vacancy(view, context, self.parent, &self.name)?;
        let plain = new_directory(directory.inode.bucket, self.parent, context);
        let inode = Inode { mode: self.mode, ..plain };
        let (ino, inode) = make(view, context, &directory, &self.name, inode, self.umask)?;
        // There is no tally; a session that leases the changed rows keeps that fact, too.
        view.delete(keys::tally(ino));
        Ok((ino, Inode { nlink: 2, ..inode }))
    }
}
