//! Retained files: a session keeps them although their last name may go, since it has them open.

use bytes::Bytes;
use cairn_auth::Action;
use cairn_base::{Error, Ino, SessionId};
use serde::{Deserialize, Serialize};

use super::namespace::{drop_link, load, require_session, store};
use super::posix::open_inode;
use crate::rows::{Inode, Session, SessionState};
use crate::{Context, Stop, Verb, View, keys};

/// Most files that are released in one operation.
const STEP: usize = 64;

/// Keeps a file until the session releases it, or ends, even if it loses all its names. The
/// retention counts as one more name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Retain {
    pub ino: Ino,
    pub session: SessionId,
}

impl Verb for Retain {
    /// `true` if the session did not retain the file before.
    type Reply = bool;
    const NAME: &'static str = "retain";
    // So that open files can be removed from a full store.
    const RUNS_WHEN_FULL: bool = true;

    /// Retains the file.
    ///
    /// # Errors
    /// `Invalid` for a directory.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<bool, Stop> {
        // Only callers that may remove a name have a reason to retain the file.
        let mut inode = open_inode(view, context, self.ino, Action::DeleteObject)?;
        require_session(view, self.session)?;
        if inode.is_directory() {
            return Err(Error::Invalid("a directory cannot be retained".into()).into());
        }
        let key = keys::retained(self.session, self.ino);
        if view.get(&key)?.is_some() {
            return Ok(false);
        }
        inode.nlink = inode.nlink.checked_add(1).ok_or_else(|| {
            Error::TooLarge(format!("inode {} has as many links as it can have", self.ino))
        })?;
        inode.touch_number(context.batch);
        store(view, keys::inode(self.ino), &inode);
        view.put(key, Bytes::new());
        Ok(true)
    }
}

/// Undoes a [`Retain`]; if that was the last name of the file, removes the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LetGo {
    pub ino: Ino,
    pub session: SessionId,
}

impl Verb for LetGo {
    /// `true` if the session retained the file.
    type Reply = bool;
    const NAME: &'static str = "let_go";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<bool, Stop> {
        require_session(view, self.session)?;
        let_go(view, context, keys::retained(self.session, self.ino), self.ino)
    }
}

/// Releases files that an ended session retained, some at a time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LetGoAll {
    pub session: SessionId,
}

impl Verb for LetGoAll {
    /// `true` if there may be more.
    type Reply = bool;
    const NAME: &'static str = "let_go_all";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<bool, Stop> {
        let session = load::<Session>(view, &keys::session(self.session))?;
        if session.is_some_and(|session| session.state == SessionState::Live) {
            return Err(Error::Conflict(format!("session {} is still live", self.session)).into());
        }
        let (start, end) = keys::all_retained(self.session);
        let rows = view.scan(&start, &end, STEP)?;
        let inodes = rows.iter().filter_map(|(key, _)| keys::retained_parts(key));
        let wanted: Vec<Bytes> = inodes.map(|(_, ino)| keys::inode(ino)).collect();
        view.get_all(&wanted)?;
        for (key, _) in &rows {
            let Some((_, ino)) = keys::retained_parts(key) else {
                return Err(Error::corrupt("key of a file retained", key.len(), 17).into());
            };
            let_go(view, context, key.clone(), ino)?;
        }
        Ok(rows.len() == STEP)
    }
}

fn let_go(view: &mut View<'_>, context: &Context, key: Bytes, ino: Ino) -> Result<bool, Stop> {
    if view.get(&key)?.is_none() {
        return Ok(false);
    }
    view.delete(key);
    if let Some(inode) = load::<Inode>(view, &keys::inode(ino))? {
        drop_link(view, context, ino, inode)?;
    }
    Ok(true)
}
