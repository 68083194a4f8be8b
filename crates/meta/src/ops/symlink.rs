//! Makes a symbolic link.

use bytes::Bytes;
use cairn_base::{Error, Ino, limits};
use serde::{Deserialize, Serialize};

use super::create::{make, new_inode_in, vacancy};
use crate::rows::{Content, Inode, Kind};
use crate::{Context, Stop, Verb, View, keys};

/// Makes a symbolic link. Its target is any path: nothing checks where it leads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Symlink {
    pub parent: Ino,
    pub name: Vec<u8>,
    pub target: Bytes,
}

impl Verb for Symlink {
    type Reply = (Ino, Inode);
    const NAME: &'static str = "symlink";
    const LEASES_CHANGES: bool = true;
    const POSTS: bool = true;

    fn changes(&self) -> Vec<Bytes> {
        vec![keys::file_entry(self.parent, &self.name), keys::tally(self.parent)]
    }

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        if self.target.len() > limits::SYMLINK_BYTES {
            let what = format!("target of {} bytes", self.target.len());
            return Err(Error::TooLarge(what).into());
        }
        if self.target.is_empty() || self.target.contains(&0) {
            return Err(Error::Invalid(
                "the target of a symbolic link is empty, or has a NUL byte".into(),
            )
            .into());
        }
        let directory = vacancy(view, context, self.parent, &self.name)?;
        let inode = Inode {
            mode: 0o777,
            size: self.target.len() as u64,
            content: Content::Inline(self.target.clone()),
            ..new_inode_in(&directory, Kind::Symlink, context)
        };
        make(view, context, &directory, &self.name, inode, 0)
    }
}
