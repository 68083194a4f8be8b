//! Advisory locks of fcntl(2) and flock(2), held by this session. So they hold between all
//! sessions, and end with theirs. The two kinds do not affect each other.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::Result;
use cairn_base::inflight::{WaitTarget, waiting};
use cairn_fs::ops::lock::{ReleaseLock, TakeLock, TestLock};
use cairn_fs::rows::Space;
use tokio::time::timeout;

use crate::answer::Answer;
use crate::handle::{Descriptor, Handle};
use crate::lock_request::{LockKind, LockRequest};
use crate::node::Node;
use crate::posix::Posix;

/// Period at which a wait checks whether its caller has given up, and the number of these checks
/// before the store is asked again.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS: u32 = 20;

/// The time for which a caller waits for a lock.
pub enum Patience {
    /// Does not wait.
    No,
    /// Waits until this returns true, because the caller has given up.
    Until(Box<dyn Fn() -> bool + Send + Sync>),
}

/// The outcome of a request for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockOutcome {
    /// The lock is as it was asked for.
    Done,
    /// Another owner has it.
    Busy,
    /// The caller gave up.
    GivenUp,
}

/// The holder of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Process id, if the holder is in this session; otherwise 0.
    pub pid: u32,
    pub exclusive: bool,
    pub start: u64,
    pub last: u64,
}

impl Posix {
    /// Returns another holder's lock that conflicts with the wanted one, if there is any.
    pub fn test_lock(
        self: &Arc<Posix>,
        file: Descriptor,
        wanted: LockRequest,
    ) -> Answer<Result<Option<Holder>>> {
        let handle = match self.usable(file) {
            Ok(handle) => handle,
            Err(error) => return Answer::Now(Err(error)),
        };
        let posix = Arc::clone(self);
        Answer::later(async move {
            let session = posix.fs.session();
            let test = TestLock { ino: handle.node.ino, lock: wanted.lock(session) };
            let held = posix.fs.read(&handle.caller, test).await?;
            Ok(held.map(|lock| Holder {
                // A process id of another session may belong to another machine.
                pid: if lock.session == session { lock.pid } else { 0 },
                exclusive: lock.exclusive,
                start: lock.start,
                last: lock.last,
            }))
        })
    }

    /// Locks or unlocks a range of a file.
    pub fn set_lock(
        self: &Arc<Posix>,
        file: Descriptor,
        wanted: LockRequest,
        patience: Patience,
    ) -> Answer<Result<LockOutcome>> {
        let handle = match self.usable(file) {
            Ok(handle) => handle,
            Err(error) => return Answer::Now(Err(error)),
        };
        let posix = Arc::clone(self);
        Answer::later(async move {
            let wanted = handle.lockers.learn(wanted);
            match wanted.kind {
                LockKind::Unlock => posix.unlock(&handle, wanted).await.map(|()| LockOutcome::Done),
                _ => posix.lock(&handle, wanted, &patience).await,
            }
        })
    }

    async fn lock(
        &self,
        handle: &Handle,
        asked: LockRequest,
        patience: &Patience,
    ) -> Result<LockOutcome> {
        let (node, caller) = (&handle.node, &handle.caller);
        if asked.kind == LockKind::Read {
            // The lock may have been exclusive: others may now see the bytes that were written
            // under it.
            self.write_back(node).await?;
        }
        loop {
            // From here on, changes cause a notification.
            let changed = self.locks_changed.notified();
            tokio::pin!(changed);
            let wanted = node.locks.takes(asked, handle.number);
            handle.lockers.add(wanted.owner);
            node.locks.tried(wanted.owner, handle.number);
            let session = self.fs.session();
            handle.check_locks(session)?;
            let (ino, lock) = (node.ino, wanted.lock(session));
            if self.fs.run(caller, TakeLock { ino, lock }).await?.is_none() {
                node.locks.got(&wanted, handle.number, session);
                return Ok(LockOutcome::Done);
            }
            let Patience::Until(is_over) = patience else { return Ok(LockOutcome::Busy) };
            // The rows that decide on the lock are leased, so that their change causes a
            // notification.
            let Some(held) = self.fs.read(caller, TestLock { ino, lock }).await? else { continue };
            let holder = || {
                if held.session == session {
                    WaitTarget::Text(format!("a lock that process {} has", held.pid))
                } else {
                    WaitTarget::Text(format!("a lock that session {} has", held.session))
                }
            };
            for _ in 0..LOOKS {
                if waiting(holder, timeout(LOOK, changed.as_mut())).await.is_ok() {
                    break;
                }
                if is_over() {
                    return Ok(LockOutcome::GivenUp);
                }
            }
        }
    }

    async fn unlock(&self, handle: &Handle, asked: LockRequest) -> Result<()> {
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

    /// Writes back the bytes that were written under a lock, so that its next holder sees them.
    async fn write_back(&self, node: &Node) -> Result<()> {
        if node.is_dirty() { node.flush(|bytes| self.dirt.less(bytes)).await } else { Ok(()) }
    }

    /// Releases all locks of an owner that has closed the file.
    pub(crate) async fn release_locks(&self, handle: &Handle, owner: u64) {
        let (node, session) = (&handle.node, self.fs.session());
        if node.locks.lost(&HashSet::from([owner]), session) {
            // Dropped while it is still known that these bytes must not be written back.
            self.dirt.less(node.discard_lost().await);
            return node.locks.forget(owner);
        }
        let (start, last, space, kind) = (0, u64::MAX, Space::Both, LockKind::Unlock);
        let wanted = LockRequest { owner, pid: 0, start, last, kind, space };
        let release = ReleaseLock { ino: node.ino, lock: wanted.lock(session) };
        if let Err(error) = self.fs.run(&handle.caller, release).await {
            tracing::warn!(ino = %node.ino, %error, "locks are held until the session ends");
        }
        self.locks_changed.notify_waiters();
        node.locks.forget(owner);
    }
}
