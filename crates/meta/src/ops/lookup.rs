//! Finds an entry of a directory.

use cairn_auth::Action;
use cairn_base::Ino;
use serde::{Deserialize, Serialize};

use super::posix::{SEARCH, check_bucket, check_name, open_directory, present, resolve_known};
use crate::rows::Inode;
use crate::{Context, Stop, Verb, View};

/// Looks a name up in a directory; at the root, names are those of buckets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lookup {
    pub parent: Ino,
    pub name: Vec<u8>,
}

impl Verb for Lookup {
    /// The inode as POSIX shows it (see [`present`]).
    type Reply = (Ino, Inode);
    const NAME: &'static str = "lookup";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        check_name(&self.name)?;
        open_directory(view, context, self.parent, Action::GetObject, SEARCH)?;
        let (entry, inode) = resolve_known(view, self.parent, &self.name)?;
        // At the root, the bucket found is not that of the directory.
        check_bucket(view, context, entry.ino, &inode, Action::GetObject)?;
        Ok((entry.ino, present(view, context, entry.ino, inode)?.0))
    }
}
