//! Removes a directory.

use cairn_auth::Action;
use cairn_base::{Error, Ino};
use serde::{Deserialize, Serialize};

use super::namespace::{drop_directory, load, remove_entry};
use super::posix::{change_directory, check_name, check_sticky, keep_if_emptied, resolve_known};
use crate::rows::Tally;
use crate::{Context, Stop, Verb, View, keys};

/// Removes an empty directory that is no bucket. Entries that only S3 can see count too.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rmdir {
    pub parent: Ino,
    pub name: Vec<u8>,
}

impl Verb for Rmdir {
    /// The inode that had the name.
    type Reply = Ino;
    const NAME: &'static str = "rmdir";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Ino, Stop> {
        check_name(&self.name)?;
        let directory = change_directory(view, context, self.parent, Action::DeleteObject)?;
        let (entry, inode) = resolve_known(view, self.parent, &self.name)?;
        let name = String::from_utf8_lossy(&self.name);
        if !inode.is_directory() {
            return Err(Error::NotDirectory(name.into_owned()).into());
        }
        check_sticky(context, &directory.inode, &inode)?;
        check_empty(view, entry.ino, &self.name)?;
        remove_entry(view, context, self.parent, &self.name, entry.kind)?;
        drop_directory(view, entry.ino, &inode)?;
        keep_if_emptied(view, context, self.parent)?;
        Ok(entry.ino)
    }
}

/// Checks that a directory is empty.
///
/// # Errors
/// `NotEmpty` if it has any entry.
pub(super) fn check_empty(view: &mut View<'_>, ino: Ino, name: &[u8]) -> Result<(), Stop> {
    let tally: Tally = load(view, &keys::tally(ino))?.unwrap_or_default();
    match tally.entries {
        0 => Ok(()),
        many => {
            let name = String::from_utf8_lossy(name);
            Err(Error::NotEmpty(format!("{name}: {many} entries")).into())
        }
    }
}
