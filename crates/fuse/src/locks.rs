//! Advisory locks: of fcntl(2) and flock(2), held by the mount's session. So they hold between all
//! mounts, and end with the session.
//!
//! The two know nothing of each other. The kernel says of which a request is, but `fuser` drops
//! that; so it is looked in which call the thread is that waits for the answer.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Error, Ino, Result, SessionId};
use cairn_fs::ops::lock::{ReleaseLock, TakeLock, TestLock};
use cairn_fs::rows::{Lock, Space};
use fuser::{Errno, FileHandle, ReplyEmpty, ReplyLock};
use parking_lot::Mutex;
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

    /// As asked for by `thread`, by an open file with this number. Locks by flock(2) are the open
    /// file's own: what the kernel calls it, it may call another one by now.
    async fn by(self, thread: u32, handle: u64) -> Wanted {
        if (self.start, self.last) != (0, END) {
            // Locks by flock(2) are on all of a file.
            return Wanted { space: Space::Fcntl, ..self };
        }
        for _ in 0..LOOKS {
            let call = who::call(thread);
            if let Some(wanted) = self.named(call, handle) {
                return wanted;
            }
            if call == Call::Unknown {
                break;
            }
            // It has asked, and does not wait yet.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Wanted { space: Space::Both, ..self }
    }

    /// As asked for in a system call by the open file `handle`, if it is a call that locks.
    fn named(self, call: Call, handle: u64) -> Option<Wanted> {
        match call {
            Call::Fcntl => Some(Wanted { space: Space::Fcntl, ..self }),
            Call::Flock => Some(Wanted { space: Space::Flock, owner: handle, ..self }),
            Call::Running | Call::Unknown => None,
        }
    }
}

/// Who of this machine has locks on a file, or tried to get one.
#[derive(Default)]
pub struct Held {
    owners: Mutex<HashMap<u64, Owner>>,
}

#[derive(Default)]
struct Owner {
    /// In which it got a lock.
    session: Option<SessionId>,
    /// Open files by which it asked, by number. The kernel calls a new owner what it called one
    /// whose file it has closed, and says that it was closed only later: so an owner is gone when
    /// all of these are.
    handles: HashSet<u64>,
}

impl Held {
    fn tried(&self, owner: u64, handle: u64) {
        self.owners.lock().entry(owner).or_default().handles.insert(handle);
    }

    fn got(&self, owner: u64, handle: u64, session: SessionId) {
        let mut owners = self.owners.lock();
        let known = owners.entry(owner).or_default();
        known.handles.insert(handle);
        known.session = Some(session);
    }

    /// An open file was closed by which an owner asked. Whether that was the last one: then its
    /// locks are to be given back.
    fn left(&self, owner: u64, handle: u64) -> bool {
        let mut owners = self.owners.lock();
        let Some(known) = owners.get_mut(&owner) else { return false };
        known.handles.remove(&handle);
        known.handles.is_empty()
    }

    pub fn is_known(&self, owner: u64) -> bool {
        self.owners.lock().contains_key(&owner)
    }

    pub fn is_used(&self) -> bool {
        !self.owners.lock().is_empty()
    }

    fn forget(&self, owner: u64) {
        self.owners.lock().remove(&owner);
    }

    /// Whether any of `owners` got locks in another session than `now`.
    fn lost(&self, owners: &HashSet<u64>, now: SessionId) -> bool {
        let known = self.owners.lock();
        owners.iter().filter_map(|owner| known.get(owner)?.session).any(|session| session != now)
    }

    /// A session in which locks were taken, one that is not `now` if there is such.
    pub fn session(&self, now: SessionId) -> Option<SessionId> {
        let owners = self.owners.lock();
        let sessions = || owners.values().filter_map(|owner| owner.session);
        sessions().find(|session| *session != now).or_else(|| sessions().next())
    }
}

/// Owners that used a descriptor to lock its file.
#[derive(Default)]
pub struct Lockers(Mutex<HashSet<u64>>);

impl Handle {
    /// # Errors
    /// `Io` when locks that were taken by this descriptor are lost.
    pub fn check_locks(&self, now: SessionId) -> Result<()> {
        let lockers = self.lockers.0.lock();
        if lockers.is_empty() || !self.node.locks.lost(&lockers, now) {
            return Ok(());
        }
        Err(lost(self.node.ino))
    }

    /// It is closed: the owners whose locks go with it.
    pub fn leave_locks(&self) -> Vec<u64> {
        let lockers = self.lockers.0.lock();
        let left = |owner: &u64| self.node.locks.left(*owner, self.number);
        lockers.iter().copied().filter(left).collect()
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
            let wanted = wanted.by(thread, handle.number).await;
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
        wanted: Wanted,
        waits: bool,
    ) -> std::result::Result<(), Errno> {
        let (node, caller) = (&handle.node, &handle.caller);
        handle.lockers.0.lock().insert(wanted.owner);
        node.locks.tried(wanted.owner, handle.number);
        if wanted.kind == READ {
            // It may have been exclusive: then others see now what was written under it.
            self.write_back(node).await.map_err(|error| errno::of_inode(&error))?;
        }
        loop {
            // It hears of changes from here on.
            let changed = self.locks_changed.notified();
            tokio::pin!(changed);
            let session = self.fs.session();
            handle.check_locks(session).map_err(|error| errno::of(&error))?;
            let (ino, lock) = (node.ino, wanted.lock(session));
            let taken = self.fs.run(caller, TakeLock { ino, lock }).await;
            if taken.map_err(|error| errno::of_lock(&error))?.is_none() {
                node.locks.got(wanted.owner, handle.number, session);
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

    async fn unlock(&self, handle: &Handle, wanted: Wanted) -> Result<()> {
        let node = &handle.node;
        if !node.locks.is_known(wanted.owner) {
            return Ok(());
        }
        self.write_back(node).await?;
        let session = self.fs.session();
        handle.check_locks(session)?;
        let release = ReleaseLock { ino: node.ino, lock: wanted.lock(session) };
        self.fs.run(&handle.caller, release).await?;
        self.locks_changed.notify_waiters();
        if wanted.start == 0 && wanted.last >= END {
            node.locks.forget(wanted.owner);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_an_ended_session_are_lost() {
        let held = Held::default();
        let (old, new) = (SessionId(1), SessionId(2));
        held.tried(7, 1);
        assert!(held.is_known(7) && !held.lost(&HashSet::from([7]), new));
        held.got(7, 1, old);
        assert!(!held.lost(&HashSet::from([7]), old));
        assert!(held.lost(&HashSet::from([7]), new) && !held.lost(&HashSet::from([8]), new));
        held.got(8, 2, new);
        assert_eq!(held.session(new), Some(old));
        held.forget(7);
        assert_eq!(held.session(new), Some(new));
    }

    #[test]
    fn an_owner_that_is_named_again_before_its_file_is_closed_keeps_its_locks() {
        let (held, session) = (Held::default(), SessionId(1));
        held.got(7, 1, session);
        // Closed by its program. The kernel calls the next open file the same, which has a lock
        // before the mount hears that the first one was closed.
        held.tried(7, 2);
        held.got(7, 2, session);
        assert!(!held.left(7, 1), "the lock of the second would go");
        assert!(held.is_known(7) && held.session(session) == Some(session));
        assert!(held.left(7, 2));
        // One that asked for nothing has nothing to give back.
        held.forget(7);
        assert!(!held.left(7, 3));
    }

    #[test]
    fn locks_of_two_open_files_have_two_owners() {
        let (start, last, kind, space) = (0, END, WRITE, Space::Both);
        let wanted = Wanted { owner: 7, pid: 1, start, last, kind, space };
        for (handle, name) in [(1, 7), (2, 7)] {
            let wanted = Wanted { owner: name, ..wanted }.named(Call::Flock, handle);
            assert_eq!(wanted.map(|wanted| wanted.owner), Some(handle));
        }
        let by_fcntl = wanted.named(Call::Fcntl, 1).map(|wanted| wanted.owner);
        assert_eq!(by_fcntl, Some(7), "those of a process are its own by whatever open file");
    }
}
