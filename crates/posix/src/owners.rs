//! Who of this machine has locks on a file.

use std::collections::{HashMap, HashSet};

use cairn_base::{Error, Ino, SessionId};
use parking_lot::Mutex;

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
    pub fn tried(&self, owner: u64, handle: u64) {
        self.owners.lock().entry(owner).or_default().handles.insert(handle);
    }

    pub fn got(&self, owner: u64, handle: u64, session: SessionId) {
        let mut owners = self.owners.lock();
        let known = owners.entry(owner).or_default();
        known.handles.insert(handle);
        known.session = Some(session);
    }

    /// An open file was closed by which an owner asked. Whether that was the last one: then its
    /// locks are to be given back.
    pub fn left(&self, owner: u64, handle: u64) -> bool {
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

    pub fn forget(&self, owner: u64) {
        self.owners.lock().remove(&owner);
    }

    /// Whether any of `owners` got locks in another session than `now`.
    pub fn lost(&self, owners: &HashSet<u64>, now: SessionId) -> bool {
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

impl Lockers {
    pub fn add(&self, owner: u64) {
        self.0.lock().insert(owner);
    }

    /// Whether there are any of which this is true.
    pub fn any(&self, is: impl Fn(&HashSet<u64>) -> bool) -> bool {
        let owners = self.0.lock();
        !owners.is_empty() && is(&owners)
    }

    /// The descriptor is closed: the owners whose locks go with it.
    pub fn left(&self, held: &Held, handle: u64) -> Vec<u64> {
        let owners = self.0.lock();
        owners.iter().copied().filter(|owner| held.left(*owner, handle)).collect()
    }
}

/// What is answered once the locks on a file are lost.
pub fn lost(ino: Ino) -> Error {
    let what = format!("inode {ino}: its locks were lost with the session");
    Error::Io(std::io::Error::other(what))
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
}
