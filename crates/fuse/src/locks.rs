//! Locks of the kernel's requests.
//!
//! The kernel says whether a request is by fcntl(2) or by flock(2), but `fuser` drops that; so the
//! system call of the thread that waits for the answer is looked up. `fuser` does not pass on
//! interrupts either: so it is checked whether the thread has got a signal.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::Result;
use cairn_posix::{Answer, LockKind, LockOutcome, LockRequest, LockSpace, Patience};
use fuser::{Errno, FileHandle, ReplyEmpty, ReplyLock};

use crate::desk::{Desk, open};
use crate::who::{self, Call};
use crate::{errno, flags};

/// Attempts to find out by which call a thread has asked for a lock.
const LOOKS: u32 = 20;

/// Sets the kind of lock that `thread` has asked for.
async fn by(wanted: LockRequest, thread: u32) -> LockRequest {
    if !wanted.is_whole() {
        // Locks by flock(2) always cover a whole file.
        return LockRequest { space: LockSpace::Fcntl, ..wanted };
    }
    for _ in 0..LOOKS {
        let space = match who::call(thread) {
            Call::Fcntl => LockSpace::Fcntl,
            Call::Flock => LockSpace::Flock,
            Call::Unknown => break,
            Call::Running => {
                // The thread has asked, and does not wait yet.
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
        };
        return LockRequest { space, ..wanted };
    }
    LockRequest { space: LockSpace::Both, ..wanted }
}

impl Desk {
    pub fn test_lock(&self, handle: FileHandle, wanted: LockRequest, reply: ReplyLock) {
        let timer = self.time("lock");
        let held = self.posix.test_lock(open(handle), wanted);
        self.answer(timer, held, move |held| match held {
            Ok(None) => reply.locked(wanted.start, wanted.last, flags::LOCK_UNLOCK, 0),
            Ok(Some(held)) => {
                let kind = flags::lock_number(held.exclusive);
                reply.locked(held.start, held.last, kind, held.pid);
            }
            Err(error) => reply.error(errno::of_lock(&error)),
        });
    }

    /// Sets a lock; `waits` until it is free, or `thread`, which asks for it, gets a signal.
    pub fn set_lock(
        &self,
        thread: u32,
        handle: FileHandle,
        wanted: LockRequest,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        let timer = self.time("lock");
        let posix = Arc::clone(&self.posix);
        let patience = if waits {
            Patience::Until(Box::new(move || who::is_signalled(thread)))
        } else {
            Patience::No
        };
        let done = Answer::later(async move {
            let wanted = by(wanted, thread).await;
            posix.set_lock(open(handle), wanted, patience).await
        });
        let unlocks = wanted.kind == LockKind::Unlock;
        self.answer(timer, done, move |done| reply_locked(reply, unlocks, done));
    }
}

fn reply_locked(reply: ReplyEmpty, unlocks: bool, done: Result<LockOutcome>) {
    match done {
        Ok(LockOutcome::Done) => reply.ok(),
        Ok(LockOutcome::Busy) => reply.error(Errno::EAGAIN),
        Ok(LockOutcome::GivenUp) => reply.error(Errno::EINTR),
        Err(error) if unlocks => reply.error(errno::of(&error)),
        Err(error) => reply.error(errno::of_lock(&error)),
    }
}
