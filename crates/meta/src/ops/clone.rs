//! Copies a whole file by reference: no byte moves.

use cairn_auth::Action;
use cairn_base::{Error, Ino, SessionId};
use serde::{Deserialize, Serialize};

use super::body::{open_file, store_changed};
use super::namespace::{release_body, retain_body};
use super::posix::open_inode;
use super::sharing::{check_shared, unshared};
use crate::rows::{Content, Inode, Kind};
use crate::{Context, Stop, Verb, View};

/// Gives an empty file the contents of another. They share a body until one of them is written to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CloneFile {
    /// Source file. The caller holds both files open: their modes were checked then.
    pub source: Ino,
    pub ino: Ino,
    pub session: SessionId,
    /// Size that the caller believes the source to have.
    pub size: u64,
}

impl Verb for CloneFile {
    /// Inode of the file, which is not empty any more.
    type Reply = Inode;
    const NAME: &'static str = "clone_file";

    /// Clones the file.
    ///
    /// # Errors
    /// `Conflict` if the file is not empty or the source of another size: nothing was changed.
    /// `NotImplemented` if the source has too many pieces to be shared.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Inode, Stop> {
        let source = open_inode(view, context, self.source, Action::GetObject)?;
        let mut inode = open_file(view, context, self.ino, self.session, true)?;
        if source.kind != Kind::File || source.size != self.size || inode.size != 0 {
            let what = format!("inode {} cannot be all of {}", self.ino, self.source);
            return Err(Error::Conflict(what).into());
        }
        if let Content::Body(body) = inode.content {
            release_body(view, body)?;
        }
        let former = unshared(view, &source.content)?;
        if let Content::Body(body) = source.content {
            retain_body(view, body, 1)?;
        }
        check_shared(view, former)?;
        inode.content = source.content;
        store_changed(view, context, self.ino, &mut inode, source.size)?;
        Ok(inode)
    }
}
