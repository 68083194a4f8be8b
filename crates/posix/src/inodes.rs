//! Inodes: reads and changes their attributes, and returns the rights on them.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Error, Ino, Result};
use cairn_fs::ops::for_call::Once;
use cairn_fs::ops::getattr::{Access, Getattr};
use cairn_fs::ops::posix::{READ, SEARCH, WRITE};
use cairn_fs::ops::setattr::{SetTime, Setattr};
use cairn_fs::ops::statfs::Statfs;
use cairn_fs::rows::Inode;

use crate::answer::Answer;
use crate::attributes::Attributes;
use crate::handle::Descriptor;
use crate::posix::Posix;
use crate::who::{Step, Who};

/// Number of files that there is room for, which has no real limit.
const FILES: u64 = 1 << 40;

/// The attributes of an inode to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
}

/// The rights of a caller on an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rights {
    pub reads: bool,
    pub writes: bool,
    /// The right to execute a file, or to search a directory.
    pub executes: bool,
}

/// The room for files and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    pub bytes: u64,
    pub free_bytes: u64,
    pub files: u64,
    pub free_files: u64,
}

impl Posix {
    /// Returns the attributes of an inode, and the time for which they may be kept. If the returned
    /// times must stay (`stays`), a small amount of unwritten bytes is written back first: a
    /// program may go by the times. The kernel calls this also for checks of rights.
    pub fn attributes(
        self: &Arc<Posix>,
        who: Who,
        ino: Ino,
        stays: bool,
    ) -> Answer<Result<(Attributes, Duration)>> {
        let moment = self.known.moment();
        if let Some(inode) = self.gone.find(ino) {
            return Answer::Now(Ok((Attributes::of(ino, &inode), Duration::ZERO)));
        }
        let node = self.files.node(ino);
        let local = node.as_ref().map(|node| node.local(&(0..0)));
        let to_flush = node.clone().filter(|node| stays && node.is_soon_flushed());
        if to_flush.is_none()
            && let Some(Ok(found)) =
                self.fs.read_kept_now(&who.caller(&self.user), &Getattr { ino })
            && !local.as_ref().is_some_and(|local| local.is_over_others(&found.0))
        {
            let shown = match local {
                Some(local) => self.show(ino, moment, &local.over(found.0.clone())),
                None => self.show(ino, moment, &found.0),
            };
            return Answer::Now(Ok((shown, self.keeps(moment))));
        }
        let (posix, flushed) = (Arc::clone(self), to_flush.clone());
        let work = async move {
            if let Some(node) = to_flush {
                posix.write_back_soon(node).await;
            }
            let moment = posix.known.moment();
            let mut local = node.as_ref().map(|node| node.local(&(0..0)));
            let (mut found, mut keeps) = posix.attributes_of(&who, ino).await;
            if let (Ok(inode), Some(node)) = (&found, &node)
                && (local.as_ref().is_some_and(|local| local.is_over_others(inode))
                    || node.local(&(0..0)).is_over_others(inode))
            {
                node.flush(|bytes| posix.dirt.less(bytes)).await?;
                local = Some(node.local(&(0..0)));
                (found, keeps) = posix.attributes_of(&who, ino).await;
            }
            let inode = match (found, &node) {
                // The file was removed elsewhere, and stays readable here for a while.
                (Err(Error::NotFound(_)), Some(node)) => match node.last() {
                    Some(object) => Inode { nlink: 0, ..object.inode().clone() },
                    None => return Err(Error::NotFound(format!("inode {ino}"))),
                },
                (found, _) => found?,
            };
            let inode = local.map_or(inode.clone(), |local| local.over(inode));
            Ok((posix.show(ino, moment, &inode), keeps))
        };
        match flushed {
            Some(node) => node.answer(work),
            None => Answer::soon(work),
        }
    }

    /// Changes an inode. If the file is truncated through an open `file`, its mode was checked when
    /// it was opened; all other rights are those of the caller.
    pub fn set_attributes(
        self: &Arc<Posix>,
        who: Who,
        ino: Ino,
        changes: Changes,
        file: Option<Descriptor>,
    ) -> Answer<Result<Attributes>> {
        let posix = Arc::clone(self);
        let moment = self.known.moment();
        let handle = file.and_then(|file| self.files.handle(file).ok());
        let opened = handle.is_some_and(|handle| handle.writes);
        let node = self.files.node(ino);
        let work = async move {
            let inode = posix.set(&who, ino, changes, opened).await?;
            if posix.is_written_here(ino)
                && let Ok((shown, _)) = posix.attributes(who, ino, false).await
            {
                return Ok(shown);
            }
            Ok(posix.show(ino, moment, &inode))
        };
        match node {
            Some(node) => node.answer(work),
            None => Answer::soon(work),
        }
    }

    async fn set(&self, who: &Who, ino: Ino, changes: Changes, opened: bool) -> Result<Inode> {
        if let Some(node) = self.files.node(ino)
            && node.is_dirty()
        {
            // Bytes that were written before must not overwrite the attributes that are set now.
            node.flush(|bytes| self.dirt.less(bytes)).await?;
        }
        let caller = self.caller(who);
        let Changes { mode, uid, gid, size, atime, mtime } = changes;
        let mut inode = None;
        if let Some(size) = size {
            inode = match who.call(Step::Size) {
                Some(call) => {
                    who.begin()?;
                    let cut = self.fs.truncate_for(&caller, call, ino, opened, size).await?;
                    who.has_done(Step::Size);
                    cut
                }
                None => Some(self.fs.truncate(&caller, ino, size, opened).await?),
            };
        }
        let others =
            mode.is_some() || uid.is_some() || gid.is_some() || atime.is_some() || mtime.is_some();
        match inode {
            Some(inode) if !others => Ok(inode),
            _ if others => {
                let mode = mode.map(|mode| mode & 0o7777);
                let verb = Setattr { ino, mode, uid, gid, atime, mtime };
                match self.run(who, Step::Attributes, verb).await? {
                    Once::Done((inode, _)) => Ok(inode),
                    Once::Before(_) => Ok(self.fs.read(&caller, Getattr { ino }).await?.0),
                }
            }
            _ => Ok(self.fs.read(&caller, Getattr { ino }).await?.0),
        }
    }

    /// Returns the rights of `who` on an inode. A server whose clients check no rights calls this
    /// before it lists names from its cache.
    pub fn rights(self: &Arc<Posix>, who: Who, ino: Ino) -> Answer<Result<Rights>> {
        let posix = Arc::clone(self);
        Answer::soon(async move {
            let caller = posix.caller(&who);
            let mut may = [false; 3];
            for (may, wanted) in may.iter_mut().zip([READ, WRITE, SEARCH]) {
                match posix.fs.read_kept(&caller, Access { ino, wanted }).await {
                    Ok(_) => *may = true,
                    Err(Error::Denied(_) | Error::ReadOnly(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            let [reads, writes, executes] = may;
            Ok(Rights { reads, writes, executes })
        })
    }

    /// Returns the space of the store, or the part that a quota leaves to the bucket of an inode.
    pub fn space(self: &Arc<Posix>, who: Who, ino: Ino) -> Answer<Result<Space>> {
        let posix = Arc::clone(self);
        Answer::later(async move {
            let disk = posix.fs.blocks().room().await?;
            let bytes = disk.free_bytes.saturating_add(disk.live_bytes);
            let free_bytes = disk.free_bytes;
            let mut space = Space { bytes, free_bytes, files: FILES, free_files: FILES };
            if ino == Ino::ROOT {
                return Ok(space);
            }
            // A caller without access to a bucket sees the space of the store.
            let Ok(bucket) = posix.fs.read(&posix.caller(&who), Statfs { ino }).await else {
                return Ok(space);
            };
            if bucket.quota_bytes > 0 {
                let left = bucket.quota_bytes.saturating_sub(bucket.bytes);
                (space.bytes, space.free_bytes) = (bucket.quota_bytes, free_bytes.min(left));
            }
            if bucket.quota_objects > 0 {
                space.files = bucket.quota_objects;
                space.free_files = bucket.quota_objects.saturating_sub(bucket.objects);
            }
            Ok(space)
        })
    }
}
