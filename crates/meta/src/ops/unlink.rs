//! Removes a name of a file.

use cairn_auth::Action;
use cairn_base::{Error, Ino};
use serde::{Deserialize, Serialize};

use super::namespace::{drop_link, remove_entry};
use super::posix::{change_directory, check_name, check_sticky, keep_if_emptied, resolve_known};
use crate::{Context, Stop, Verb, View};

/// Removes an entry that is not a directory; with the last name of a file, the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Unlink {
    pub parent: Ino,
    pub name: Vec<u8>,
}

impl Verb for Unlink {
    /// The inode that had the name.
    type Reply = Ino;
    const NAME: &'static str = "unlink";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Ino, Stop> {
        check_name(&self.name)?;
        let directory = change_directory(view, context, self.parent, Action::DeleteObject)?;
        let (entry, inode) = resolve_known(view, self.parent, &self.name)?;
        if inode.is_directory() {
            let name = String::from_utf8_lossy(&self.name).into_owned();
            return Err(Error::IsDirectory(name).into());
        }
        check_sticky(context, &directory.inode, &inode)?;
        remove_entry(view, context, self.parent, &self.name, entry.kind)?;
        drop_link(view, context, entry.ino, inode)?;
        keep_if_emptied(view, context, self.parent)?;
        Ok(entry.ino)
    }
}
