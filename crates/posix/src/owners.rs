//! The local owners of locks on a file, and their names.
//!
//! ```text
//!   seen in fcntl(2) ──► what the kernel calls the owner: a process, or the open file
//!   seen in flock(2) ──► the number of the open file
//!   in neither       ──► the one of the two that has a lock already, or else the kernel's
//! ```
//!
//! So a lock whose call was seen is found by an unlock whose call was not, and the other way round.

use std::collections::{HashMap, HashSet};

use cairn_base::{Error, Ino, SessionId};
use cairn_fs::rows::Space;
use parking_lot::Mutex;

use crate::lock_request::LockRequest;

/// The local owners that have locks on a file, or tried to get one.
#[derive(Default)]
pub struct LockOwners {
    owners: Mutex<HashMap<u64, Owner>>,
}

#[derive(Default)]
struct Owner {
    /// Session in which it got a lock.
    session: Option<SessionId>,
    /// Numbers of the open files through which it asked. The kernel may give a new owner the number
    /// of an owner whose file it has closed, and reports the close only later. So an owner is gone
    /// when all of these are closed.
    handles: HashSet<u64>,
    /// True if it has a lock on the whole file, by an unknown call.
    is_vague: bool,
}

impl LockOwners {
    pub fn tried(&self, owner: u64, handle: u64) {
        self.owners.lock().entry(owner).or_default().handles.insert(handle);
    }

    pub fn got(&self, wanted: &LockRequest, handle: u64, session: SessionId) {
        let mut owners = self.owners.lock();
        let known = owners.entry(wanted.owner).or_default();
        known.handles.insert(handle);
        known.session = Some(session);
        if wanted.is_whole() {
            known.is_vague = wanted.space == Space::Both;
        }
    }

    /// Returns the owner to lock for, through an open file: two locks of one owner must not
    /// conflict with each other.
    pub fn takes(&self, wanted: LockRequest, handle: u64) -> LockRequest {
        let owners = self.owners.lock();
        let is_vague = owners.get(&wanted.owner).is_some_and(|owner| owner.is_vague);
        let holds = owners.get(&handle).is_some_and(|owner| owner.session.is_some());
        match wanted.space {
            Space::Flock if is_vague => LockRequest { space: Space::Both, ..wanted },
            Space::Flock => LockRequest { owner: handle, ..wanted },
            Space::Both if holds => LockRequest { owner: handle, ..wanted },
            Space::Both | Space::Fcntl => wanted,
        }
    }

    /// Returns the owners to unlock for, through an open file. An earlier request may have locked
    /// for an owner whose call was seen while that of this request is not, or the other way round.
    pub fn gives(&self, wanted: LockRequest, handle: u64) -> Vec<LockRequest> {
        let owners = self.owners.lock();
        let is_vague = owners.get(&wanted.owner).is_some_and(|owner| owner.is_vague);
        let by_file = LockRequest { owner: handle, ..wanted };
        let mut gives = match wanted.space {
            Space::Flock if is_vague => vec![by_file, LockRequest { space: Space::Both, ..wanted }],
            Space::Flock => vec![by_file],
            Space::Both => vec![wanted, by_file],
            Space::Fcntl => vec![wanted],
        };
        gives.retain(|wanted| owners.contains_key(&wanted.owner));
        gives
    }

    /// Notes that an open file through which an owner asked was closed. Returns whether that was
    /// the last one: then its locks must be released.
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

    /// Returns whether any of `owners` got locks in another session than `now`.
    pub fn lost(&self, owners: &HashSet<u64>, now: SessionId) -> bool {
        let known = self.owners.lock();
        owners.iter().filter_map(|owner| known.get(owner)?.session).any(|session| session != now)
    }

    /// Returns a session in which locks were taken, other than `now` if possible.
    pub fn session(&self, now: SessionId) -> Option<SessionId> {
        let owners = self.owners.lock();
        let sessions = || owners.values().filter_map(|owner| owner.session);
        sessions().find(|session| *session != now).or_else(|| sessions().next())
    }
}

/// The owners that used a descriptor to lock its file.
#[derive(Default)]
pub struct Lockers(Mutex<LockerNumbers>);

#[derive(Default)]
struct LockerNumbers {
    owners: HashSet<u64>,
    /// The kernel's number of the open file, once it was seen: it is no process while the file is
    /// open.
    file: Option<u64>,
}

impl Lockers {
    pub fn add(&self, owner: u64) {
        self.0.lock().owners.insert(owner);
    }

    /// Returns whether there are any, and `is` is true for them.
    pub fn any(&self, is: impl Fn(&HashSet<u64>) -> bool) -> bool {
        let used = self.0.lock();
        !used.owners.is_empty() && is(&used.owners)
    }

    /// Returns the owners whose locks go when the descriptor is closed.
    pub fn left(&self, held: &LockOwners, handle: u64) -> Vec<u64> {
        let used = self.0.lock();
        used.owners.iter().copied().filter(|owner| held.left(*owner, handle)).collect()
    }

    /// Learns the kernel's number of the open file. If the call of a request was not seen, finds
    /// out whether it is a process, which only fcntl(2) locks for.
    pub fn learn(&self, wanted: LockRequest) -> LockRequest {
        let mut used = self.0.lock();
        match (wanted.space, used.file) {
            (Space::Flock, _) => used.file = Some(wanted.owner),
            (Space::Both, Some(file)) if file != wanted.owner => {
                return LockRequest { space: Space::Fcntl, ..wanted };
            }
            _ => {}
        }
        wanted
    }
}

/// Returns the error for a file whose locks are lost.
pub fn lost(ino: Ino) -> Error {
    let what = format!("inode {ino}: its locks were lost with the session");
    Error::Io(std::io::Error::other(what))
}

#[cfg(test)]
mod tests {
    use cairn_fs::rows::{Lock, Locks};

    use super::*;
    use crate::lock_request::{END, LockKind};

    const SESSION: SessionId = SessionId(1);

    fn wanted(owner: u64, space: Space) -> LockRequest {
        LockRequest { owner, pid: 1, start: 0, last: END, kind: LockKind::Write, space }
    }

    fn lock(wanted: LockRequest) -> Lock {
        wanted.lock(SESSION)
    }

    /// A file with its locks as the metadata has them, and two open files of it.
    #[derive(Default)]
    struct File {
        held: LockOwners,
        open: [Lockers; 2],
        locks: Locks,
    }

    impl File {
        /// Returns whether the lock was granted.
        fn lock(&mut self, handle: u64, asked: LockRequest) -> bool {
            let lockers = &self.open[handle as usize - 1];
            let wanted = self.held.takes(lockers.learn(asked), handle);
            lockers.add(wanted.owner);
            self.held.tried(wanted.owner, handle);
            if self.locks.held.iter().any(|other| other.conflicts(&lock(wanted))) {
                return false;
            }
            self.locks.grant(lock(wanted));
            self.held.got(&wanted, handle, SESSION);
            true
        }

        fn unlock(&mut self, handle: u64, asked: LockRequest) {
            let lockers = &self.open[handle as usize - 1];
            for wanted in self.held.gives(lockers.learn(asked), handle) {
                self.locks.release(&lock(wanted));
                self.held.forget(wanted.owner);
            }
        }
    }

    /// The kernel's numbers of the open files 1 and 2, and of a process.
    const FILES: [u64; 3] = [0, 71, 72];
    const PROCESS: u64 = 80;

    /// The open file, whether the call is seen, and whether it is to lock.
    type Step = (u64, bool, bool);

    /// Returns everything that a program may do in five steps.
    fn programs() -> impl Iterator<Item = Vec<Step>> {
        let step = |number: u32| (1 + u64::from(number & 1), number & 2 != 0, number & 4 != 0);
        (0..8_u32.pow(5)).map(move |number| (0..5).map(|at| step(number >> (3 * at))).collect())
    }

    #[test]
    fn a_lock_by_flock_is_one_lock_however_much_of_it_is_seen() {
        for program in programs() {
            let (mut file, mut holder) = (File::default(), None);
            for (handle, is_seen, is_lock) in &program {
                let space = if *is_seen { Space::Flock } else { Space::Both };
                let asked = wanted(FILES[*handle as usize], space);
                if *is_lock {
                    let is_free = holder.is_none_or(|holder| holder == *handle);
                    assert_eq!(file.lock(*handle, asked), is_free, "{program:?}");
                    holder = holder.or(Some(*handle));
                } else {
                    file.unlock(*handle, asked);
                    holder = holder.filter(|holder| holder != handle);
                }
                assert_eq!(file.locks.held.len(), usize::from(holder.is_some()), "{program:?}");
            }
        }
    }

    /// Locks of a process, by any open file.
    #[test]
    fn a_lock_by_fcntl_is_one_lock_however_much_of_it_is_seen() {
        for program in programs() {
            let mut file = File::default();
            for (handle, is_seen, is_lock) in &program {
                let asked = wanted(PROCESS, if *is_seen { Space::Fcntl } else { Space::Both });
                if *is_lock {
                    assert!(file.lock(*handle, asked), "{program:?}")
                } else {
                    file.unlock(*handle, asked)
                }
                assert_eq!(file.locks.held.len(), usize::from(*is_lock), "{program:?}");
            }
        }
    }

    #[test]
    fn a_process_that_is_not_seen_is_none_once_the_open_file_is_known() {
        let mut file = File::default();
        assert!(file.lock(1, wanted(FILES[1], Space::Flock)));
        assert!(file.lock(1, wanted(PROCESS, Space::Both)));
        assert_eq!(file.locks.held.len(), 2, "by flock, and by fcntl");
        file.unlock(1, wanted(PROCESS, Space::Both));
        let [left] = file.locks.held[..] else { panic!("{:?}", file.locks) };
        assert_eq!((left.owner, left.space), (1, Space::Flock));
    }

    #[test]
    fn a_lock_of_an_open_file_by_fcntl_stays_when_that_by_flock_goes() {
        let mut file = File::default();
        assert!(file.lock(1, wanted(FILES[1], Space::Flock)));
        assert!(file.lock(1, wanted(FILES[1], Space::Fcntl)));
        file.unlock(1, wanted(FILES[1], Space::Flock));
        let [left] = file.locks.held[..] else { panic!("{:?}", file.locks) };
        assert_eq!((left.owner, left.space), (FILES[1], Space::Fcntl));
        // The other lock goes with the first.
        assert!(file.lock(1, wanted(FILES[1], Space::Flock)));
        file.unlock(1, wanted(FILES[1], Space::Fcntl));
        let [left] = file.locks.held[..] else { panic!("{:?}", file.locks) };
        assert_eq!((left.owner, left.space), (1, Space::Flock));
    }

    #[test]
    fn all_that_an_open_file_locked_goes_when_it_is_closed() {
        let mut file = File::default();
        assert!(file.lock(1, wanted(FILES[1], Space::Both)));
        assert!(file.lock(1, wanted(FILES[1], Space::Flock)));
        assert_eq!(file.open[0].left(&file.held, 1), [FILES[1]]);
        let mut file = File::default();
        assert!(file.lock(1, wanted(FILES[1], Space::Flock)));
        assert!(file.lock(1, wanted(FILES[1], Space::Both)));
        assert_eq!(file.open[0].left(&file.held, 1), [1]);
    }

    #[test]
    fn locks_of_an_ended_session_are_lost() {
        let held = LockOwners::default();
        let (old, new) = (SessionId(1), SessionId(2));
        let got = |owner, handle, session| held.got(&wanted(owner, Space::Fcntl), handle, session);
        held.tried(7, 1);
        assert!(held.is_known(7) && !held.lost(&HashSet::from([7]), new));
        got(7, 1, old);
        assert!(!held.lost(&HashSet::from([7]), old));
        assert!(held.lost(&HashSet::from([7]), new) && !held.lost(&HashSet::from([8]), new));
        got(8, 2, new);
        assert_eq!(held.session(new), Some(old));
        held.forget(7);
        assert_eq!(held.session(new), Some(new));
    }

    #[test]
    fn an_owner_that_is_named_again_before_its_file_is_closed_keeps_its_locks() {
        let held = LockOwners::default();
        held.got(&wanted(7, Space::Fcntl), 1, SESSION);
        // The program closed it. The kernel calls the next open file the same, which has a lock
        // before the mount receives the close of the first one.
        held.tried(7, 2);
        held.got(&wanted(7, Space::Fcntl), 2, SESSION);
        assert!(!held.left(7, 1), "the lock of the second would go");
        assert!(held.is_known(7) && held.session(SESSION) == Some(SESSION));
        assert!(held.left(7, 2));
        // A caller that asked for nothing has nothing to release.
        held.forget(7);
        assert!(!held.left(7, 3));
    }

    #[test]
    fn locks_of_two_open_files_have_two_owners() {
        let held = LockOwners::default();
        for (handle, name) in [(1, 7), (2, 7)] {
            let taken = held.takes(wanted(name, Space::Flock), handle);
            assert_eq!(taken.owner, handle, "whatever the kernel calls it by now");
        }
        let by_fcntl = held.takes(wanted(7, Space::Fcntl), 1);
        assert_eq!(by_fcntl.owner, 7, "those of a process are its own by whatever open file");
    }
}
