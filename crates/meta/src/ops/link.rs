//! Gives a file another name.

use cairn_auth::Action;
use cairn_base::{Error, Ino};
use serde::{Deserialize, Serialize};

use super::create::vacancy;
use super::namespace::{add_entry, store};
use super::posix::open_inode;
use crate::rows::{Entry, Inode};
use crate::{Context, Stop, Verb, View, keys};

/// Gives an inode other than a directory a further name, in its own bucket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Link {
    pub ino: Ino,
    pub parent: Ino,
    pub name: Vec<u8>,
}

impl Verb for Link {
    type Reply = Inode;
    const NAME: &'static str = "link";

    /// Makes the name.
    ///
    /// # Errors
    /// `Denied` for a directory, `CrossBucket` for another bucket.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Inode, Stop> {
        let mut inode = open_inode(view, context, self.ino, Action::PutObject)?;
        if inode.is_directory() {
            return Err(Error::Denied("link: a directory can have only one name".into()).into());
        }
        let directory = vacancy(view, context, self.parent, &self.name)?;
        if directory.inode.bucket != inode.bucket {
            return Err(Error::CrossBucket("link: copy it instead".into()).into());
        }
        inode.nlink = inode.nlink.checked_add(1).ok_or_else(|| {
            Error::TooLarge(format!("inode {} has as many links as it can have", self.ino))
        })?;
        inode.touch(context.batch, context.now);
        store(view, keys::inode(self.ino), &inode);
        let entry = Entry::new(self.ino, inode.kind);
        add_entry(view, context, self.parent, &self.name, &entry)?;
        Ok(inode)
    }
}
