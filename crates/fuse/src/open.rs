//! Opening and closing files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use cairn_auth::Caller;
use cairn_base::{Error, Ino, Result};
use cairn_fs::Object;
use cairn_fs::ops::create::Create;
use cairn_fs::ops::getattr::Access;
use cairn_fs::ops::lookup::Lookup;
use cairn_fs::ops::posix::{READ, SEARCH, WRITE};
use cairn_fs::rows::{Inode, Kind};
use fuser::{
    FileHandle, FopenFlags, LockOwner, OpenAccMode, OpenFlags, ReplyCreate, ReplyEmpty, ReplyOpen,
};
use rustix::fs::OFlags;

use crate::attributes::attributes;
use crate::errno;
use crate::known::Moment;
use crate::names::check_new;
use crate::nodes::{GENERATION, Handle, Mount};
use crate::who::Who;

/// How the kernel says that a file is opened to be executed.
const FOR_EXECUTION: i32 = 0x20;

/// `O_DSYNC` of Linux, a part of `O_SYNC`: that of rustix is all of it.
const DATA_SYNC: i32 = 0o10_000;

/// What a program wants to do with a file.
#[derive(Clone, Copy)]
pub struct Intent {
    wanted: u32,
    pub appends: bool,
    pub writes: bool,
    direct: bool,
    /// What is written is durable when it is written.
    pub syncs: bool,
}

impl Intent {
    pub const READING: Intent =
        Intent { wanted: READ, appends: false, writes: false, direct: false, syncs: false };

    fn of(flags: OpenFlags) -> Intent {
        let bits = OFlags::from_bits_retain(flags.0 as u32);
        let writes = flags.acc_mode() != OpenAccMode::O_RDONLY;
        let wanted = match flags.acc_mode() {
            OpenAccMode::O_RDONLY if flags.0 & FOR_EXECUTION != 0 => SEARCH,
            OpenAccMode::O_RDONLY => READ,
            OpenAccMode::O_WRONLY => WRITE,
            OpenAccMode::O_RDWR => READ | WRITE,
        };
        let appends = writes && bits.contains(OFlags::APPEND);
        let syncs = writes && is_synced(flags);
        Intent { wanted, appends, writes, direct: bits.contains(OFlags::DIRECT), syncs }
    }

    /// Pages are kept from one opening to the next: they go when the file changes elsewhere. Who
    /// only writes needs none, and saves a copy; where appended bytes go, the kernel does not know.
    ///
    /// Of a file that is `locked` here each descriptor that is closed is heard of: all locks of its
    /// process go with it.
    fn flags(self, locked: bool) -> FopenFlags {
        if self.appends || self.direct || self.wanted == WRITE {
            return FopenFlags::FOPEN_DIRECT_IO;
        }
        match self.writes || locked {
            true => FopenFlags::FOPEN_KEEP_CACHE,
            false => FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH,
        }
    }
}

/// What is written is durable when it is written: of a file, or of one write.
pub fn is_synced(flags: OpenFlags) -> bool {
    flags.0 & DATA_SYNC != 0
}

/// The bytes of a write go to the end of the file.
pub fn is_appended(flags: OpenFlags) -> bool {
    OFlags::from_bits_retain(flags.0 as u32).contains(OFlags::APPEND)
}

impl Mount {
    pub fn open(self: &Arc<Mount>, who: Who, ino: Ino, flags: OpenFlags, reply: ReplyOpen) {
        let timer = self.time("open");
        let intent = Intent::of(flags);
        let mount = Arc::clone(self);
        self.work_here(timer, async move {
            let caller = who.caller(&mount.user);
            let mut found = mount.open_as(&caller, ino, intent).await;
            if matches!(found, Err(Error::Denied(_))) && who.uid != 0 {
                found = mount.open_as(&mount.caller(who), ino, intent).await;
            }
            match found {
                Ok(object) => {
                    let handle = mount.open_handle(ino, caller, intent, object);
                    let locked = mount.is_locked(ino);
                    reply.opened(handle, intent.flags(locked));
                }
                Err(error) => reply.error(errno::of_inode(&error)),
            }
        });
    }

    /// What is to be read of a file, as it is now: whoever opens it reads that even if it is
    /// removed elsewhere before the first read.
    async fn open_as(&self, caller: &Caller, ino: Ino, intent: Intent) -> Result<Option<Object>> {
        // Who only reads is checked where it is opened.
        let is_checked = intent.wanted != READ;
        if is_checked {
            let access = Access { ino, wanted: intent.wanted };
            let (inode, _) = self.fs.read(caller, access).await?;
            if inode.kind != Kind::File {
                return Err(Error::Invalid(format!("inode {ino} has no bytes")));
            }
        }
        match intent.wanted {
            WRITE => Ok(None),
            _ => Ok(Some(self.fs.open_inode(caller, ino, is_checked).await?)),
        }
    }

    pub fn create(
        self: &Arc<Mount>,
        who: Who,
        (parent, name): (Ino, &OsStr),
        (mode, umask): (u32, u32),
        flags: i32,
        reply: ReplyCreate,
    ) {
        if let Err(refused) = check_new(name) {
            return reply.error(refused);
        }
        let exclusive = OFlags::from_bits_retain(flags as u32).contains(OFlags::EXCL);
        let name = name.as_bytes().to_vec();
        let verb = Create { parent, name, mode: mode & 0o7777, umask, exclusive };
        let intent = Intent::of(OpenFlags(flags));
        let timer = self.time("create");
        let moment = self.known.moment();
        let caller = self.caller(who);
        let name = Lookup { parent, name: verb.name.clone() };
        if let Some((ino, inode, true)) = self.fs.run_now(&caller, &verb) {
            let created = self.as_leased(who, name, (ino, inode));
            return self.created(created, moment, (caller, intent, None), reply);
        }
        let mount = Arc::clone(self);
        self.work_here(timer, async move {
            match mount.create_or_open(&caller, verb, intent).await {
                Ok((created, object)) => {
                    let created = mount.as_leased(who, name, created);
                    mount.created(created, moment, (caller, intent, object), reply);
                }
                Err(error) => reply.error(errno::of_name(&error)),
            }
        });
    }

    fn created(
        &self,
        ((ino, inode), keeps): ((Ino, Inode), Duration),
        moment: Moment,
        (caller, intent, object): (Caller, Intent, Option<Object>),
        reply: ReplyCreate,
    ) {
        self.known.enter(ino);
        let (mut inode, has_local) = self.shown(ino, inode);
        self.known.show(ino, moment, &mut inode);
        let keeps = if has_local { Duration::ZERO } else { self.keeps_name(keeps) };
        let attributes = attributes(ino, &inode);
        let handle = self.open_handle(ino, caller, intent, object);
        let flags = intent.flags(self.is_locked(ino));
        reply.created(&keeps, &attributes, GENERATION, handle, flags);
    }

    async fn create_or_open(
        &self,
        caller: &Caller,
        verb: Create,
        intent: Intent,
    ) -> Result<((Ino, Inode), Option<Object>)> {
        let (ino, inode, made) = self.fs.run(caller, verb).await?;
        let object = if made { None } else { self.open_as(caller, ino, intent).await? };
        Ok(((ino, inode), object))
    }

    /// A descriptor was closed: what was written to the file is written back, and whoever closed
    /// it hears what went wrong. Then the locks of the process on the file go.
    pub fn flush(self: &Arc<Mount>, handle: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        let timer = self.time("flush");
        let handle = match self.handle(handle) {
            Ok(handle) => handle,
            Err(error) => return reply.error(errno::of(&error)),
        };
        let is_locked = handle.node.locks.is_known(owner.0);
        // Nobody will read a file that has no name and is about to be closed.
        let is_clean = !handle.node.is_dirty() || handle.node.is_retained();
        if is_clean && !is_locked {
            return match handle.hear(self.fs.meta().lost()) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno::of(&error)),
            };
        }
        let (mount, node) = (Arc::clone(self), Arc::clone(&handle.node));
        self.work_on(&node, timer, async move {
            let flushed = match is_clean {
                true => Ok(()),
                false => handle.node.flush(|bytes| mount.less_dirty(bytes)).await,
            };
            if is_locked {
                mount.release_locks(&handle, owner.0).await;
            }
            let lost = mount.fs.meta().lost();
            match flushed.and_then(|()| handle.hear(lost)) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno::of_inode(&error)),
            }
        });
    }

    pub fn sync(self: &Arc<Mount>, handle: FileHandle, reply: ReplyEmpty) {
        let timer = self.time("fsync");
        let handle = match self.usable(handle) {
            Ok(handle) => handle,
            Err(error) => return reply.error(errno::of(&error)),
        };
        let mount = Arc::clone(self);
        self.work(timer, async move {
            match mount.sync_file(&handle).await {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno::of_inode(&error)),
            }
        });
    }

    pub fn sync_directory(self: &Arc<Mount>, handle: FileHandle, reply: ReplyEmpty) {
        let timer = self.time("fsync");
        let directory = match self.directory(handle) {
            Ok(directory) => directory,
            Err(error) => return reply.error(errno::of(&error)),
        };
        let mount = Arc::clone(self);
        self.work(timer, async move {
            match mount.sync_names(&directory.heard).await {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno::of_inode(&error)),
            }
        });
    }

    /// The last descriptor of an open file is gone. The next one may be open by now, and the kernel
    /// may call whoever locks by that what it called this one's.
    pub fn release(self: &Arc<Mount>, handle: FileHandle, reply: ReplyEmpty) {
        let timer = self.time("release");
        let Some(handle) = self.take_handle(handle) else { return reply.ok() };
        let node = Arc::clone(&handle.node);
        let lockers = handle.leave_locks();
        if !node.is_dirty() && !node.is_retained() && lockers.is_empty() {
            self.close_node(node.ino);
            return reply.ok();
        }
        let mount = Arc::clone(self);
        self.work_on(&node, timer, async move {
            mount.close(&handle, lockers).await;
            reply.ok();
        });
    }

    async fn close(&self, handle: &Handle, lockers: Vec<u64>) {
        let node = &handle.node;
        let is_last = self.is_last_handle(node.ino);
        if is_last && !node.is_retained() {
            // What was written through a mapping comes after the last flush.
            node.flush_later(|bytes| self.less_dirty(bytes)).await;
        }
        for owner in lockers {
            self.release_locks(handle, owner).await;
        }
        if self.close_node(node.ino) {
            let lost = node.discard();
            self.less_dirty(lost);
            if node.is_retained() {
                self.let_go(node.ino).await;
            } else if lost > 0 {
                tracing::error!(ino = %node.ino, bytes = lost, "written, and LOST: see above why");
            }
        }
    }
}
