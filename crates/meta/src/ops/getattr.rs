//! Reads attributes, and checks permissions.

use cairn_auth::Action;
use cairn_base::Ino;
use serde::{Deserialize, Serialize};

use super::namespace::is_shared;
use super::posix::{
    READ, SEARCH, WRITE, check_bucket, check_mode, find_inode, open_inode, present,
};
use crate::rows::{Content, Inode, Tally};
use crate::{Context, Stop, Verb, View};

/// Reads the attributes of an inode.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Getattr {
    pub ino: Ino,
}

impl Verb for Getattr {
    /// The inode as POSIX shows it (see [`present`]), and the tally of a directory.
    type Reply = (Inode, Tally);
    const NAME: &'static str = "getattr";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        let inode = open_inode(view, context, self.ino, Action::GetObject)?;
        present(view, context, self.ino, inode)
    }
}

/// Asks whether the caller may open or search an inode: `access(2)`, and each `open(2)`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Access {
    pub ino: Ino,
    /// Any of [`super::posix::READ`], [`super::posix::WRITE`] and [`super::posix::SEARCH`].
    pub wanted: u32,
}

impl Verb for Access {
    /// The inode as POSIX shows it, and whether its body is shared: then blocks for a write belong
    /// to the new body that the write makes. A caller that only wants to read gets `false`.
    type Reply = (Inode, bool);
    const NAME: &'static str = "access";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        let inode = find_inode(view, self.ino)?;
        if self.wanted & WRITE != 0 {
            check_bucket(view, context, self.ino, &inode, Action::PutObject)?;
        }
        if self.wanted != WRITE {
            check_bucket(view, context, self.ino, &inode, Action::GetObject)?;
        }
        check_mode(context, &inode, self.wanted)?;
        let shared = match &inode.content {
            Content::Body(body) if self.wanted & (READ | SEARCH) == 0 => is_shared(view, *body)?,
            _ => false,
        };
        Ok((present(view, context, self.ino, inode)?.0, shared))
    }
}
