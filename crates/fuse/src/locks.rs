//! Advisory locks: of fcntl(2) and flock(2), held by the mount's session. So they hold between all
//! mounts, and end with the session.
//!
//! The two know nothing of each other. The kernel says of which a request is, but `fuser` drops
//! that; so it is looked in which call the thread is that waits for the answer.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Error, Ino, Result, SessionId};
use cairn_fs::ops::lock::{ReleaseLock, TakeLock, TestLock};
use cairn_fs::rows::{Lock, Space};
use fuser::{Errno, FileHandle, ReplyEmpty, ReplyLock};
use tokio::time::timeout;

use crate::errno;
use crate::node::Node;
use crate::nodes::{Handle, Mount};
use crate::who::{self, Call};

/// As fcntl(2) numbers them.
const READ: i32 = 0;
const WRITE: i32 = 1;
const UNLOCK: i32 = 2;
/// The last byte of a lock to the end of the file, wherever that is.
const END: u64 = i64::MAX as u64;
/// How often it is looked whether who waits for a lock has got a signal.
const LOOK: Duration = Duration::from_millis(100);
/// How often it is looked in which call a thread is.
const LOOKS: u32 = 20;

/// What a program asks for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// What the kernel calls it; once it is known who has locks, the name by which it has them.
    pub owner: u64,
    pub pid: u32,
    pub start: u64,
    pub last: u64,
    /// As fcntl(2) numbers it.
    pub kind: i32,
    pub space: Space,
}

impl Wanted {
    fn lock(self, session: SessionId) -> Lock {
        let Wanted { owner, pid, start, last, kind, space } = self;
        Lock { session, owner, pid, exclusive: kind == WRITE, start, last, space }
    }

    /// Whether it is on all of a file, as locks by flock(2) are.
    pub fn is_whole(&self) -> bool {
        self.start == 0 && self.last >= END
    }

    /// As asked for by `thread`.
    async fn by(self, thread: u32) -> Wanted {
        if !self.is_whole() {
            return Wanted { space: Space::Fcntl, ..self };
        }
        for _ in 0..LOOKS {
            let space = match who::call(thread) {
                Call::Fcntl => Space::Fcntl,
                Call::Flock => Space::Flock,
                Call::Unknown => break,
                Call::Running => {
                    // It has asked, and does not wait yet.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    continue;
                }
            };
            return Wanted { space, ..self };
        }
        Wanted { space: Space::Both, ..self }
    }
}

impl Handle {
    /// # Errors
    /// `Io` when locks that were taken by this descriptor are lost.
    pub fn check_locks(&self, now: SessionId) -> Result<()> {
        match self.lockers.any(|owners| self.node.locks.lost(owners, now)) {
            false => Ok(()),
            true => Err(lost(self.node.ino)),
        }
    }

    /// It is closed: the owners whose locks go with it.
    pub fn leave_locks(&self) -> Vec<u64> {
        self.lockers.left(&self.node.locks, self.number)
    }
}

/// What is answered once the locks on a file are lost.
pub fn lost(ino: Ino) -> Error {
    let what = format!("inode {ino}: its locks were lost with the session");
    Error::Io(std::io::Error::other(what))
}

impl Mount {
    pub fn test_lock(self: &Arc<Mount>, handle: FileHandle, wanted: Wanted, reply: ReplyLock) {
        let timer = self.time("lock");
        let handle = match self.usable(handle) {
            Ok(handle) => handle,
            Err(error) => return reply.error(errno::of(&error)),
        };
        let mount = Arc::clone(self);
        self.work(timer, async move {
            let session = mount.fs.session();
            let test = TestLock { ino: handle.node.ino, lock: wanted.lock(session) };
            match mount.fs.read(&handle.caller, test).await {
                Ok(None) => reply.locked(wanted.start, wanted.last, UNLOCK, 0),
                Ok(Some(lock)) => {
                    let kind = if lock.exclusive { WRITE } else { READ };
                    // What another machine calls a process is nothing here.
                    let pid = if lock.session == session { lock.pid } else { 0 };
                    reply.locked(lock.start, lock.last, kind, pid);
                }
                Err(error) => reply.error(errno::of_lock(&error)),
            }
        });
    }

    /// `waits` until it is free, or `thread`, which asks for it, gets a signal.
    pub fn set_lock(
        self: &Arc<Mount>,
        thread: u32,
        handle: FileHandle,
        wanted: Wanted,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        let timer = self.time("lock");
        let handle = match self.usable(handle) {
            Ok(handle) => handle,
            Err(error) => return reply.error(errno::of(&error)),
        };
        let mount = Arc::clone(self);
        self.work(timer, async move {
            let wanted = handle.lockers.learn(wanted.by(thread).await);
            let done = match wanted.kind {
                UNLOCK => mount.unlock(&handle, wanted).await.map_err(|error| errno::of(&error)),
                READ | WRITE => mount.lock(thread, &handle, wanted, waits).await,
                _ => Err(Errno::EINVAL),
            };
            match done {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(error),
            }
        });
    }

    async fn lock(
        &self,
        thread: u32,
        handle: &Handle,
        asked: Wanted,
        waits: bool,
    ) -> std::result::Result<(), Errno> {
        let (node, caller) = (&handle.node, &handle.caller);
        if asked.kind == READ {
            // It may have been exclusive: then others see now what was written under it.
            self.write_back(node).await.map_err(|error| errno::of_inode(&error))?;
        }
        loop {
            // It hears of changes from here on.
            let changed = self.locks_changed.notified();
            tokio::pin!(changed);
            let wanted = node.locks.takes(asked, handle.number);
            handle.lockers.add(wanted.owner);
            node.locks.tried(wanted.owner, handle.number);
            let session = self.fs.session();
            handle.check_locks(session).map_err(|error| errno::of(&error))?;
            let (ino, lock) = (node.ino, wanted.lock(session));
            let taken = self.fs.run(caller, TakeLock { ino, lock }).await;
            if taken.map_err(|error| errno::of_lock(&error))?.is_none() {
                node.locks.got(&wanted, handle.number, session);
                return Ok(());
            }
            if !waits {
                return Err(Errno::EAGAIN);
            }
            // Leases what decides it: so its change is heard of.
            let test = self.fs.read(caller, TestLock { ino, lock }).await;
            if test.map_err(|error| errno::of_lock(&error))?.is_none() {
                continue;
            }
            for _ in 0..LOOKS {
                if timeout(LOOK, changed.as_mut()).await.is_ok() {
                    break;
                }
                if who::is_signalled(thread) {
                    return Err(Errno::EINTR);
                }
            }
        }
    }

    async fn unlock(&self, handle: &Handle, asked: Wanted) -> Result<()> {
        let node = &handle.node;
        let gives = node.locks.gives(asked, handle.number);
        if gives.is_empty() {
            return Ok(());
        }
        self.write_back(node).await?;
        let session = self.fs.session();
        handle.check_locks(session)?;
        for wanted in gives {
            let release = ReleaseLock { ino: node.ino, lock: wanted.lock(session) };
            self.fs.run(&handle.caller, release).await?;
            if wanted.is_whole() {
                node.locks.forget(wanted.owner);
            }
        }
        self.locks_changed.notify_waiters();
        Ok(())
    }

    /// What was written under a lock is seen by whoever gets it next.
    async fn write_back(&self, node: &Node) -> Result<()> {
        match node.is_dirty() {
            true => node.flush(|bytes| self.less_dirty(bytes)).await,
            false => Ok(()),
        }
    }

    /// An owner closed the file: all its locks go.
    pub async fn release_locks(&self, handle: &Handle, owner: u64) {
        let (node, session) = (&handle.node, self.fs.session());
        if node.locks.lost(&HashSet::from([owner]), session) {
            // Before it is forgotten that it may not be written back.
            self.less_dirty(node.discard_lost().await);
            return node.locks.forget(owner);
        }
        let (start, last, space) = (0, u64::MAX, Space::Both);
        let wanted = Wanted { owner, pid: 0, start, last, kind: UNLOCK, space };
        let release = ReleaseLock { ino: node.ino, lock: wanted.lock(session) };
        if let Err(error) = self.fs.run(&handle.caller, release).await {
            tracing::warn!(ino = %node.ino, %error, "locks are held until the session ends");
        }
        self.locks_changed.notify_waiters();
        node.locks.forget(owner);
    }

    /// An open file that can be used.
    ///
    /// # Errors
    /// `Invalid` for a number of no open file; `Io` when its locks are lost.
    pub fn usable(&self, number: FileHandle) -> Result<Arc<Handle>> {
        let handle = self.handle(number)?;
        handle.check_locks(self.fs.session())?;
        Ok(handle)
    }
}
