//! Names: looking them up, making, removing and moving them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{Error, Ino, Result};
use cairn_fs::ops::create::Mknod;
use cairn_fs::ops::getattr::Getattr;
use cairn_fs::ops::link::Link;
use cairn_fs::ops::lookup::Lookup;
use cairn_fs::ops::mkdir::Mkdir;
use cairn_fs::ops::readlink::Readlink;
use cairn_fs::ops::rename::{Rename, RenameMode};
use cairn_fs::ops::retain::{LetGo, Retain};
use cairn_fs::ops::rmdir::Rmdir;
use cairn_fs::ops::symlink::Symlink;
use cairn_fs::ops::unlink::Unlink;
use cairn_fs::rows::{Inode, Kind};
use fuser::{Errno, RenameFlags, ReplyData, ReplyEmpty, ReplyEntry};

use crate::errno;
use crate::known::Moment;
use crate::nodes::Mount;
use crate::who::Who;

/// A name that is to be made: S3 and HTTP, which show it as well, have names in UTF-8 only.
pub fn check_new(name: &OsStr) -> std::result::Result<(), Errno> {
    name.to_str().map(drop).ok_or(Errno::EILSEQ)
}

impl Mount {
    pub fn lookup(self: &Arc<Mount>, who: Who, parent: Ino, name: &OsStr, reply: ReplyEntry) {
        let timer = self.time("lookup");
        let moment = self.known.moment();
        let verb = Lookup { parent, name: name.as_bytes().to_vec() };
        match self.fs.read_now(&who.caller(&self.user), &verb) {
            Some(Err(Error::Denied(_))) => {}
            Some(found) => {
                return self.looked_up(parent, (found, self.keeps(moment)), moment, reply);
            }
            // In this order: what was true under a lease was true when this began.
            None if !self.fs.lease_left().is_zero()
                && self.whole.lacks(parent, name.as_bytes()) =>
            {
                return self.reply_no_entry(reply, parent, Duration::ZERO);
            }
            None => {}
        }
        let mount = Arc::clone(self);
        self.work_here(timer, async move {
            let found = mount.look_up(who, verb).await;
            mount.looked_up(parent, found, moment, reply);
        });
    }

    fn looked_up(
        &self,
        parent: Ino,
        (found, keeps): (Result<(Ino, Inode)>, Duration),
        moment: Moment,
        reply: ReplyEntry,
    ) {
        match found {
            Ok(found) => {
                if found.1.is_directory() {
                    self.look_whether_empty(found.0);
                }
                self.reply_entry(reply, found, moment, keeps);
            }
            Err(Error::NotFound(_)) => self.reply_no_entry(reply, parent, keeps),
            Err(error) => reply.error(errno::of_name(&error)),
        }
    }

    /// Of a directory that is empty it is known from here on what is in it.
    fn look_whether_empty(&self, ino: Ino) {
        let moment = self.known.moment();
        if let Some(Ok((_, tally))) = self.fs.read_now(&self.user, &Getattr { ino })
            && tally.entries == 0
        {
            self.whole.begin(ino, || self.known.moment() == moment);
        }
    }

    /// Asks the store, and says how long the answer may be kept.
    async fn look_up(&self, who: Who, verb: Lookup) -> (Result<(Ino, Inode)>, Duration) {
        let caller = who.caller(&self.user);
        let mut found = self.fs.read(&caller, verb.clone()).await;
        if matches!(found, Err(Error::Denied(_))) && who.uid != 0 {
            found = self.fs.read(&self.caller(who), verb).await;
            return (found, Duration::ZERO);
        }
        // What is leased now may be kept; what came may not have been.
        let moment: Moment = self.known.moment();
        match self.fs.read_now(&caller, &verb) {
            Some(leased) if !matches!(leased, Err(Error::Denied(_))) => {
                (leased, self.keeps(moment))
            }
            _ => (found, Duration::ZERO),
        }
    }

    /// What was just made under a name, as it is leased now, and how long it may be kept.
    pub fn as_leased(
        &self,
        who: Who,
        name: Lookup,
        made: (Ino, Inode),
    ) -> ((Ino, Inode), Duration) {
        let moment = self.known.moment();
        match self.fs.read_now(&who.caller(&self.user), &name) {
            Some(Ok(found)) if found.0 == made.0 => (found, self.keeps(moment)),
            _ => (made, Duration::ZERO),
        }
    }

    pub fn make_directory(
        self: &Arc<Mount>,
        who: Who,
        (parent, name): (Ino, &OsStr),
        (mode, umask): (u32, u32),
        reply: ReplyEntry,
    ) {
        if let Err(refused) = check_new(name) {
            return reply.error(refused);
        }
        let name = name.as_bytes().to_vec();
        let verb = Mkdir { parent, name, mode: mode & 0o7777, umask };
        let (mount, timer) = (Arc::clone(self), self.time("mkdir"));
        let moment = self.known.moment();
        self.work_here(timer, async move {
            let name = verb.name.clone();
            match mount.fs.run(&mount.caller(who), verb).await {
                Ok(made) => {
                    mount.look_whether_empty(made.0);
                    let (made, keeps) = mount.as_leased(who, Lookup { parent, name }, made);
                    mount.reply_entry(reply, made, moment, keeps);
                }
                Err(error) => reply.error(errno::of_name(&error)),
            }
        });
    }

    pub fn make_node(
        self: &Arc<Mount>,
        who: Who,
        (parent, name): (Ino, &OsStr),
        (mode, umask): (u32, u32),
        reply: ReplyEntry,
    ) {
        if let Err(refused) = check_new(name) {
            return reply.error(refused);
        }
        let kind = match mode & 0o170_000 {
            0o010_000 => Kind::Fifo,
            0o140_000 => Kind::Socket,
            0o100_000 | 0 => Kind::File,
            // Devices of another machine mean nothing here.
            _ => return reply.error(Errno::EPERM),
        };
        let name = name.as_bytes().to_vec();
        let verb = Mknod { parent, name, kind, mode: mode & 0o7777, umask };
        let (mount, timer) = (Arc::clone(self), self.time("mknod"));
        let moment = self.known.moment();
        self.work_here(timer, async move {
            let name = verb.name.clone();
            match mount.fs.run(&mount.caller(who), verb).await {
                Ok(made) => {
                    let (made, keeps) = mount.as_leased(who, Lookup { parent, name }, made);
                    mount.reply_entry(reply, made, moment, keeps);
                }
                Err(error) => reply.error(errno::of_name(&error)),
            }
        });
    }

    pub fn make_symlink(
        self: &Arc<Mount>,
        who: Who,
        (parent, name): (Ino, &OsStr),
        target: &Path,
        reply: ReplyEntry,
    ) {
        if let Err(refused) = check_new(name) {
            return reply.error(refused);
        }
        let target = Bytes::copy_from_slice(target.as_os_str().as_bytes());
        let verb = Symlink { parent, name: name.as_bytes().to_vec(), target };
        let (mount, timer) = (Arc::clone(self), self.time("symlink"));
        let moment = self.known.moment();
        self.work_here(timer, async move {
            let name = verb.name.clone();
            match mount.fs.run(&mount.caller(who), verb).await {
                Ok(made) => {
                    let (made, keeps) = mount.as_leased(who, Lookup { parent, name }, made);
                    mount.reply_entry(reply, made, moment, keeps);
                }
                Err(error) => reply.error(errno::of_name(&error)),
            }
        });
    }

    pub fn make_link(
        self: &Arc<Mount>,
        who: Who,
        ino: Ino,
        (parent, name): (Ino, &OsStr),
        reply: ReplyEntry,
    ) {
        if let Err(refused) = check_new(name) {
            return reply.error(refused);
        }
        let verb = Link { ino, parent, name: name.as_bytes().to_vec() };
        let (mount, timer) = (Arc::clone(self), self.time("link"));
        let moment = self.known.moment();
        self.work_here(timer, async move {
            match mount.fs.run(&mount.caller(who), verb).await {
                Ok(inode) => mount.reply_entry(reply, (ino, inode), moment, Duration::ZERO),
                Err(error) => reply.error(errno::of_name(&error)),
            }
        });
    }

    pub fn read_link(self: &Arc<Mount>, who: Who, ino: Ino, reply: ReplyData) {
        let verb = Readlink { ino };
        let (mount, timer) = (Arc::clone(self), self.time("readlink"));
        self.work_here(timer, async move {
            match mount.fs.read(&who.caller(&mount.user), verb).await {
                Ok(target) => reply.data(&target),
                Err(error) => reply.error(errno::of_inode(&error)),
            }
        });
    }

    pub fn remove_directory(
        self: &Arc<Mount>,
        who: Who,
        (parent, name): (Ino, &OsStr),
        reply: ReplyEmpty,
    ) {
        let verb = Rmdir { parent, name: name.as_bytes().to_vec() };
        let (mount, timer) = (Arc::clone(self), self.time("rmdir"));
        self.work_here(timer, async move {
            let found = mount.directory_at(who, verb.parent, &verb.name).await;
            match mount.fs.run(&mount.caller(who), verb).await {
                Ok(_) => {
                    mount.remember_directory(found);
                    reply.ok();
                }
                Err(error) => reply.error(errno::of_name(&error)),
            }
        });
    }

    /// The directory of a name, before that goes: programs may be in it. The kernel has just asked
    /// for it, so mostly it is known here.
    async fn directory_at(&self, who: Who, parent: Ino, name: &[u8]) -> Option<(Ino, Inode)> {
        let lookup = Lookup { parent, name: name.to_vec() };
        let found = match self.fs.read_now(&self.user, &lookup) {
            Some(found) => found,
            None => self.fs.read(&self.caller(who), lookup).await,
        };
        found.ok().filter(|(_, inode)| inode.is_directory())
    }

    /// A directory was removed; programs may be in it.
    fn remember_directory(&self, found: Option<(Ino, Inode)>) {
        if let Some((ino, inode)) = found {
            self.gone.remember(ino, inode, self.fs.clock().now());
        }
    }

    pub fn remove_file(
        self: &Arc<Mount>,
        who: Who,
        (parent, name): (Ino, &OsStr),
        reply: ReplyEmpty,
    ) {
        let verb = Unlink { parent, name: name.as_bytes().to_vec() };
        let (mount, timer) = (Arc::clone(self), self.time("unlink"));
        self.work_here(timer, async move {
            let retained = mount.retain(who, verb.parent, &verb.name).await;
            let removed = mount.fs.run(&mount.caller(who), verb).await;
            mount.let_go_unless(&removed, retained).await;
            match removed {
                Ok(_) => reply.ok(),
                Err(error) => reply.error(errno::of_name(&error)),
            }
        });
    }

    pub fn rename(
        self: &Arc<Mount>,
        who: Who,
        (source_parent, source_name): (Ino, &OsStr),
        (target_parent, target_name): (Ino, &OsStr),
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if let Err(refused) = check_new(target_name) {
            return reply.error(refused);
        }
        let mode = match flags {
            flags if flags.is_empty() => RenameMode::Replace,
            RenameFlags::RENAME_NOREPLACE => RenameMode::NoReplace,
            RenameFlags::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return reply.error(Errno::EINVAL),
        };
        let (source_name, target_name) =
            (source_name.as_bytes().to_vec(), target_name.as_bytes().to_vec());
        let verb = Rename { source_parent, source_name, target_parent, target_name, mode };
        let (mount, timer) = (Arc::clone(self), self.time("rename"));
        self.work_here(timer, async move {
            let retained = match mode {
                RenameMode::Replace => {
                    mount.retain(who, verb.target_parent, &verb.target_name).await
                }
                _ => None,
            };
            let replaced = match mode {
                RenameMode::Replace => {
                    mount.directory_at(who, verb.target_parent, &verb.target_name).await
                }
                _ => None,
            };
            let renamed = mount.fs.run(&mount.caller(who), verb).await;
            mount.let_go_unless(&renamed, retained).await;
            match renamed {
                Ok(()) => {
                    mount.remember_directory(replaced);
                    reply.ok();
                }
                Err(error) => reply.error(errno::of_name(&error)),
            }
        });
    }

    /// Before a name goes: if its file is open here and has no other, the session keeps it.
    async fn retain(&self, who: Who, parent: Ino, name: &[u8]) -> Option<Ino> {
        let lookup = Lookup { parent, name: name.to_vec() };
        let (ino, inode) = self.fs.read(&self.caller(who), lookup).await.ok()?;
        let node = self.open_node(ino)?;
        if inode.nlink > 1 || inode.is_directory() || node.is_retained() {
            return None;
        }
        let session = self.fs.session();
        let caller = self.caller(who);
        match self.fs.run(&caller, Retain { ino, session }).await {
            Ok(_) => {
                node.set_retained(true);
                Some(ino)
            }
            Err(error) => {
                tracing::warn!(%ino, %error, "a file that is open will be gone");
                None
            }
        }
    }

    /// The name stayed after all, or the file has another one: closing it needs not remove it.
    async fn let_go_unless<T>(&self, removed: &Result<T>, retained: Option<Ino>) {
        let (Err(_), Some(ino)) = (removed, retained) else { return };
        if let Some(node) = self.open_node(ino) {
            node.set_retained(false);
        }
        self.let_go(ino).await;
    }

    /// A file that has no name any more was closed.
    pub async fn let_go(&self, ino: Ino) {
        let session = self.fs.session();
        if let Err(error) = self.fs.run(&self.user, LetGo { ino, session }).await {
            tracing::debug!(%ino, %error, "the file goes when the session ends");
        }
    }

    /// Attributes, from leased rows if that goes.
    pub async fn attributes_of(&self, who: Who, ino: Ino) -> (Result<Inode>, Duration) {
        let verb = Getattr { ino };
        let caller = who.caller(&self.user);
        let found = self.fs.read(&caller, verb.clone()).await.map(|(inode, _)| inode);
        let moment = self.known.moment();
        match self.fs.read_now(&caller, &verb) {
            Some(Ok((inode, _))) => (Ok(inode), self.keeps(moment)),
            _ => (found, Duration::ZERO),
        }
    }
}
