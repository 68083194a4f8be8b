//! Changes mode, owner and times.

use bytes::Bytes;
use cairn_auth::Action;
use cairn_base::{Error, Ino, Timestamp};
use serde::{Deserialize, Serialize};

use super::namespace::{load, store};
use super::posix::{
    MODE_BITS, SETGID, WRITE, check_mode, check_owner, checked_identity, drop_capabilities,
    may_use_group, open_inode, present, without_privileges,
};
use crate::rows::{Inode, Tally};
use crate::{Context, Stop, Verb, View, keys};

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum SetTime {
    /// Time of the operation; callers that may write the file may set it.
    Now,
    /// Given time; only the owner may set it.
    At(Timestamp),
}

/// Changes attributes; attributes that are `None` stay. The size is changed by `Truncate`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Setattr {
    pub ino: Ino,
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
}

impl Verb for Setattr {
    /// Reply of `Getattr` after the change.
    type Reply = (Inode, Tally);
    const NAME: &'static str = "setattr";
    const LEASES_CHANGES: bool = true;
    const POSTS: bool = true;

    fn changes(&self) -> Vec<Bytes> {
        vec![keys::inode(self.ino)]
    }

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        let mut inode = open_inode(view, context, self.ino, Action::PutObject)?;
        self.change_owner(context, &mut inode)?;
        if self.uid.is_some() || self.gid.is_some() {
            drop_capabilities(view, self.ino, &mut inode)?;
        }
        self.change_mode(context, &mut inode)?;
        self.check_times(context, &inode)?;
        let time = |set: SetTime| match set {
            SetTime::Now => context.now,
            SetTime::At(time) => time,
        };
        if let Some(atime) = self.atime {
            inode.atime = time(atime);
        }
        if let Some(mtime) = self.mtime {
            inode.mtime = time(mtime);
            forget_entries_changed(view, self.ino, &inode)?;
        }
        let others =
            self.mode.is_some() || self.uid.is_some() || self.gid.is_some() || self.mtime.is_some();
        match others {
            true => inode.touch(context.batch, context.now),
            // A new time of access alone does not change the state that ETags name.
            false if self.atime.is_some() => inode.touch_time(context.now),
            false => {}
        }
        if others || self.atime.is_some() {
            store(view, keys::inode(self.ino), &inode);
        }
        present(view, context, self.ino, inode)
    }
}

impl Setattr {
    /// Changes the owner. Root gives a file to anybody; the owner gives it to a group of its own.
    /// As on Linux, the file is never setuid or setgid after that.
    fn change_owner(&self, context: &Context, inode: &mut Inode) -> Result<(), Error> {
        if self.uid.is_none() && self.gid.is_none() {
            return Ok(());
        }
        check_owner(context, inode, "chown")?;
        let (uid, gid) = (self.uid.unwrap_or(inode.uid), self.gid.unwrap_or(inode.gid));
        if uid != inode.uid && checked_identity(context).is_some() {
            return Err(Error::Denied("chown: only root may change the owner of a file".into()));
        }
        if gid != inode.gid && !may_use_group(context, gid) {
            return Err(Error::Denied(format!("chown: the caller is not a member of group {gid}")));
        }
        (inode.uid, inode.gid) = (uid, gid);
        if !inode.is_directory() {
            inode.mode = without_privileges(context, inode);
        }
        Ok(())
    }

    fn change_mode(&self, context: &Context, inode: &mut Inode) -> Result<(), Error> {
        let Some(mode) = self.mode else { return Ok(()) };
        check_owner(context, inode, "chmod")?;
        inode.mode = mode & MODE_BITS;
        if !may_use_group(context, inode.gid) {
            inode.mode &= !SETGID;
        }
        Ok(())
    }

    fn check_times(&self, context: &Context, inode: &Inode) -> Result<(), Error> {
        let times = [self.atime, self.mtime];
        if times == [None, None] {
            return Ok(());
        }
        match check_owner(context, inode, "utimens") {
            Err(_) if !times.iter().any(|time| matches!(time, Some(SetTime::At(_)))) => {
                check_mode(context, inode, WRITE)
            }
            decided => decided,
        }
    }
}

/// Notes that a directory's mtime that was set holds until an entry changes after that.
pub(super) fn forget_entries_changed(
    view: &mut View<'_>,
    ino: Ino,
    inode: &Inode,
) -> Result<(), Stop> {
    if !inode.is_directory() {
        return Ok(());
    }
    let key = keys::tally(ino);
    if let Some(mut tally) = load::<Tally>(view, &key)? {
        tally.mtime = inode.mtime;
        store(view, key, &tally);
    }
    Ok(())
}
