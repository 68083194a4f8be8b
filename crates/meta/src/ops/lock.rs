//! Advisory locks on files, held by sessions. Locks of ended sessions do not count.

use std::collections::HashMap;

use bytes::Bytes;
use cairn_auth::Action;
use cairn_base::{Error, Ino, SessionId};
use serde::{Deserialize, Serialize};

use super::namespace::{load, require_session, store};
use super::posix::open_inode;
use crate::rows::{Lock, Locks, Session, SessionState};
use crate::{Context, Stop, Verb, View, keys};

/// Most locks on one file.
const LOCKS: usize = 1024;
/// Most files whose locks are removed in one operation.
const STEP: usize = 64;

/// Locks a range of a file, and replaces the owner's locks within it; all of it or nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TakeLock {
    pub ino: Ino,
    pub lock: Lock,
}

impl Verb for TakeLock {
    /// Conflicting lock of another owner, if any; then nothing was changed.
    type Reply = Option<Lock>;
    const NAME: &'static str = "take_lock";

    /// Takes the lock.
    ///
    /// # Errors
    /// `TooLarge` if there are too many locks on the file.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        require_session(view, self.lock.session)?;
        check_range(&self.lock)?;
        check_rights(view, context, self.ino, &self.lock)?;
        let mut locks = live_locks(view, self.ino)?;
        if let Some(other) = locks.held.iter().find(|other| other.conflicts(&self.lock)) {
            return Ok(Some(*other));
        }
        locks.grant(self.lock);
        if locks.held.len() > LOCKS {
            return Err(Error::TooLarge(format!(
                "inode {} has {LOCKS} locks, the most that it can have",
                self.ino
            ))
            .into());
        }
        store(view, keys::locks(self.ino), &locks);
        view.put(keys::locked(self.lock.session, self.ino), Bytes::new());
        Ok(None)
    }
}

/// Releases the owner's locks on a range.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReleaseLock {
    pub ino: Ino,
    /// Range and owner. `exclusive` does not matter.
    pub lock: Lock,
}

impl Verb for ReleaseLock {
    type Reply = ();
    const NAME: &'static str = "release_lock";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        require_session(view, self.lock.session)?;
        check_range(&self.lock)?;
        let mut locks = load::<Locks>(view, &keys::locks(self.ino))?.unwrap_or_default();
        let before = locks.clone();
        locks.release(&self.lock);
        if locks != before {
            keep(view, self.ino, self.lock.session, &locks);
        }
        Ok(())
    }
}

/// Finds a lock of another owner that conflicts with a lock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TestLock {
    pub ino: Ino,
    pub lock: Lock,
}

impl Verb for TestLock {
    type Reply = Option<Lock>;
    const NAME: &'static str = "test_lock";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        check_range(&self.lock)?;
        check_rights(view, context, self.ino, &self.lock)?;
        let locks = live_locks(view, self.ino)?;
        Ok(locks.held.into_iter().find(|other| other.conflicts(&self.lock)))
    }
}

/// Removes the locks of an ended session, some files at a time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReleaseAll {
    pub session: SessionId,
}

impl Verb for ReleaseAll {
    /// `true` if there may be more.
    type Reply = bool;
    const NAME: &'static str = "release_all";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<bool, Stop> {
        let session = load::<Session>(view, &keys::session(self.session))?;
        if session.is_some_and(|session| session.state == SessionState::Live) {
            return Err(Error::Conflict(format!("session {} is still live", self.session)).into());
        }
        let (start, end) = keys::all_locked(self.session);
        let rows = view.scan(&start, &end, STEP)?;
        for (key, _) in &rows {
            let Some((_, ino)) = keys::locked_parts(key) else {
                return Err(Error::corrupt("key of a file locked", key.len(), 18).into());
            };
            let mut locks = load::<Locks>(view, &keys::locks(ino))?.unwrap_or_default();
            locks.held.retain(|lock| lock.session != self.session);
            keep(view, ino, self.session, &locks);
        }
        Ok(rows.len() == STEP)
    }
}

/// Stores the remaining locks after locks of `session` were removed.
fn keep(view: &mut View<'_>, ino: Ino, session: SessionId, locks: &Locks) {
    if locks.held.is_empty() && locks.unknown.is_empty() {
        view.delete(keys::locks(ino))
    } else {
        store(view, keys::locks(ino), locks)
    }
    if locks.held.iter().all(|lock| lock.session != session) {
        view.delete(keys::locked(session, ino));
    }
}

/// Returns the locks on a file without those of ended sessions.
fn live_locks(view: &mut View<'_>, ino: Ino) -> Result<Locks, Stop> {
    let mut locks = load::<Locks>(view, &keys::locks(ino))?.unwrap_or_default();
    let mut live = HashMap::new();
    for lock in &locks.held {
        live.entry(lock.session).or_insert(false);
    }
    let holders: Vec<Bytes> = live.keys().map(|session| keys::session(*session)).collect();
    view.get_all(&holders)?;
    for (session, live) in &mut live {
        let row = load::<Session>(view, &keys::session(*session))?;
        *live = row.is_some_and(|row| row.state == SessionState::Live);
    }
    locks.held.retain(|lock| live.get(&lock.session) == Some(&true));
    Ok(locks)
}

fn check_range(lock: &Lock) -> Result<(), Error> {
    if lock.start <= lock.last {
        Ok(())
    } else {
        Err(Error::Invalid(format!(
            "a lock from {} to {}: it ends before it begins",
            lock.start, lock.last
        )))
    }
}

/// Checks the caller's rights: a caller that may not write a file must not hold up those that may.
fn check_rights(view: &mut View<'_>, context: &Context, ino: Ino, lock: &Lock) -> Result<(), Stop> {
    let action = if lock.exclusive { Action::PutObject } else { Action::GetObject };
    let inode = open_inode(view, context, ino, action)?;
    if inode.is_directory() {
        return Err(Error::Invalid("a directory cannot be locked".into()).into());
    }
    Ok(())
}
