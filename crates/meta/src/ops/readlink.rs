//! Reads a symbolic link.

use bytes::Bytes;
use cairn_auth::Action;
use cairn_base::{Error, Ino};
use serde::{Deserialize, Serialize};

use super::posix::open_inode;
use crate::rows::{Content, Kind};
use crate::{Context, Stop, Verb, View};

/// Reads the target of a symbolic link; `Invalid` for anything else.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Readlink {
    pub ino: Ino,
}

impl Verb for Readlink {
    type Reply = Bytes;
    const NAME: &'static str = "readlink";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Bytes, Stop> {
        let inode = open_inode(view, context, self.ino, Action::GetObject)?;
        match (inode.kind, inode.content) {
            (Kind::Symlink, Content::Inline(target)) => Ok(target),
            _ => Err(Error::Invalid(format!("inode {} is no symbolic link", self.ino)).into()),
        }
    }
}
