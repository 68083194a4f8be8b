//! Attributes: asked for and changed.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Error, Ino, Result};
use cairn_fs::ops::getattr::Getattr;
use cairn_fs::ops::setattr::Setattr;
use cairn_fs::ops::statfs::Statfs;
use cairn_fs::rows::Inode;
use fuser::{ReplyAttr, ReplyStatfs};

use crate::attributes::attributes;
use crate::errno;
use crate::nodes::Mount;
use crate::who::Who;

/// What `statfs` counts in, bytes.
const UNIT: u64 = 4096;
/// Files there is room for, as far as anybody asks.
const FILES: u64 = 1 << 40;
const NAME_BYTES: u32 = 255;

/// What `statfs` says.
struct Space {
    bytes: u64,
    free_bytes: u64,
    files: u64,
    free_files: u64,
}

impl Mount {
    /// Shows an inode. If its times shall stay as they are shown, what little is not written back
    /// is so first: a program may go by them. The kernel also asks so where it checks rights.
    pub fn getattr(self: &Arc<Mount>, who: Who, ino: Ino, stays: bool, reply: ReplyAttr) {
        let timer = self.time("getattr");
        let moment = self.known.moment();
        if let Some(inode) = self.gone.find(ino) {
            return reply.attr(&Duration::ZERO, &attributes(ino, &inode));
        }
        let caller = who.caller(&self.user);
        let node = self.open_node(ino);
        let local = node.as_ref().map(|node| node.local(&(0..0)));
        let to_flush = node.clone().filter(|node| stays && node.is_soon_flushed());
        if to_flush.is_none()
            && let Some(Ok((inode, _))) = self.fs.read_now(&caller, &Getattr { ino })
        {
            let mut inode = local.map_or(inode.clone(), |local| local.over(inode));
            self.known.show(ino, moment, &mut inode);
            return reply.attr(&self.keeps(moment), &attributes(ino, &inode));
        }
        let (mount, flushed) = (Arc::clone(self), to_flush.clone());
        let work = async move {
            if let Some(node) = to_flush {
                mount.write_back_soon(node).await;
            }
            let moment = mount.known.moment();
            let local = node.as_ref().map(|node| node.local(&(0..0)));
            let (found, keeps) = mount.attributes_of(who, ino).await;
            let found = match (found, &node) {
                // Removed elsewhere, and read here for a while yet.
                (Err(Error::NotFound(_)), Some(node)) => match node.last() {
                    Some(object) => Ok(Inode { nlink: 0, ..object.inode().clone() }),
                    None => Err(Error::NotFound(format!("inode {ino}"))),
                },
                (found, _) => found,
            };
            match found {
                Ok(inode) => {
                    let mut inode = local.map_or(inode.clone(), |local| local.over(inode));
                    mount.known.show(ino, moment, &mut inode);
                    reply.attr(&keeps, &attributes(ino, &inode));
                }
                Err(error) => reply.error(errno::of_inode(&error)),
            }
        };
        match flushed {
            Some(node) => self.work_on(&node, timer, work),
            None => self.work_here(timer, work),
        }
    }

    pub fn setattr(
        self: &Arc<Mount>,
        who: Who,
        verb: Setattr,
        size: Option<u64>,
        opened: bool,
        reply: ReplyAttr,
    ) {
        let (mount, timer) = (Arc::clone(self), self.time("setattr"));
        let moment = self.known.moment();
        let node = self.open_node(verb.ino);
        let work = async move {
            let ino = verb.ino;
            match mount.set(who, verb, size, opened).await {
                Ok(inode) => mount.reply_changed(reply, ino, inode, moment),
                Err(error) => reply.error(errno::of_owner(&error)),
            }
        };
        match node {
            Some(node) => self.work_on(&node, timer, work),
            None => self.work_here(timer, work),
        }
    }

    async fn set(&self, who: Who, verb: Setattr, size: Option<u64>, opened: bool) -> Result<Inode> {
        let ino = verb.ino;
        if let Some(node) = self.open_node(ino)
            && node.is_dirty()
        {
            // What was written comes before what is set now.
            node.flush(|bytes| self.less_dirty(bytes)).await?;
        }
        let caller = self.caller(who);
        let mut inode = None;
        if let Some(size) = size {
            inode = Some(self.fs.truncate(&caller, ino, size, opened).await?);
        }
        let others = verb.mode.is_some()
            || verb.uid.is_some()
            || verb.gid.is_some()
            || verb.atime.is_some()
            || verb.mtime.is_some();
        match inode {
            Some(inode) if !others => Ok(inode),
            _ if others => Ok(self.fs.run(&caller, verb).await?.0),
            _ => Ok(self.fs.read(&caller, Getattr { ino }).await?.0),
        }
    }

    pub fn statfs(self: &Arc<Mount>, who: Who, ino: Ino, reply: ReplyStatfs) {
        let (mount, timer) = (Arc::clone(self), self.time("statfs"));
        self.work(timer, async move {
            match mount.space(who, ino).await {
                Ok(Space { bytes, free_bytes, files, free_files }) => {
                    let (all, free, unit) = (bytes / UNIT, free_bytes / UNIT, UNIT as u32);
                    reply.statfs(all, free, free, files, free_files, unit, NAME_BYTES, unit);
                }
                Err(error) => reply.error(errno::of(&error)),
            }
        });
    }

    /// Of the store, or what a quota leaves of it to the bucket of an inode.
    async fn space(&self, who: Who, ino: Ino) -> Result<Space> {
        let disk = self.fs.blocks().room().await?;
        let bytes = disk.free_bytes.saturating_add(disk.live_bytes);
        let free_bytes = disk.free_bytes;
        let mut space = Space { bytes, free_bytes, files: FILES, free_files: FILES };
        if ino == Ino::ROOT {
            return Ok(space);
        }
        // Who may not look into a bucket sees the store.
        let Ok(bucket) = self.fs.read(&self.caller(who), Statfs { ino }).await else {
            return Ok(space);
        };
        if bucket.quota_bytes > 0 {
            space.bytes = bucket.quota_bytes;
            space.free_bytes = free_bytes.min(bucket.quota_bytes.saturating_sub(bucket.bytes));
        }
        if bucket.quota_objects > 0 {
            space.files = bucket.quota_objects;
            space.free_files = bucket.quota_objects.saturating_sub(bucket.objects);
        }
        Ok(space)
    }
}
