//! Locks of a place: of running backups, and of removals.
//!
//! A lock is an object whose name has its kind, its end and its owner. A renewal makes a new object
//! and checks that the former one is still there: a process that finds an expired lock removes it
//! first, so that a lock that can be renewed has lasted all the time, whatever clocks say.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::Mutex;

use super::renewing::Renewing;
use super::seal::{hex, random};
use super::target::Target;
use super::time::compact_time;
use crate::failure::{Failure, Result};
use crate::output;

pub const LOCKS: &str = "locks/";
/// Time for which a lock still counts after its end, seconds: clocks differ.
const GRACE: u64 = 120;
/// Characters of an owner's text that are shown, at most.
const OWNER_CHARS: usize = 200;

/// The kind of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Adds objects, together with others.
    Add,
    /// Removes objects, exclusively.
    Remove,
}

/// Name of a lock: `KIND-END-ID`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct LockName {
    purpose: Purpose,
    /// End of the lock, in seconds since 1970.
    ends: u64,
    id: String,
}

impl LockName {
    fn parse(name: &str) -> Option<LockName> {
        let (kind, rest) = name.strip_prefix(LOCKS)?.split_once('-')?;
        let (ends, id) = rest.split_once('-')?;
        let purpose = match kind {
            "add" => Purpose::Add,
            "remove" => Purpose::Remove,
            _ => return None,
        };
        Some(LockName { purpose, ends: u64::from_str_radix(ends, 16).ok()?, id: id.to_owned() })
    }

    fn object(&self) -> String {
        format!("{LOCKS}{}-{:016x}-{}", self.kind(), self.ends, self.id)
    }

    fn kind(&self) -> &'static str {
        if self.purpose == Purpose::Add { "add" } else { "remove" }
    }

    fn is_over(&self, now: u64) -> bool {
        self.ends.saturating_add(GRACE) < now
    }

    fn stops(&self, purpose: Purpose) -> bool {
        purpose == Purpose::Remove || self.purpose == Purpose::Remove
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs())
}

/// A lock that lasts as long as this.
pub struct PlaceLock {
    lock: Arc<RenewedLock>,
    renewing: Renewing,
}

struct RenewedLock {
    target: Arc<dyn Target>,
    owner: Bytes,
    seconds: u32,
    name: Mutex<LockName>,
}

impl RenewedLock {
    /// Renews the lock.
    ///
    /// # Errors
    /// `NotFound` if it is over.
    fn renew(&self) -> Result<()> {
        let mut name = self.name.lock();
        let next =
            LockName { ends: now().max(name.ends) + u64::from(self.seconds), ..name.clone() };
        self.target.put(&next.object(), &self.owner)?;
        if !self.target.list(LOCKS)?.contains(&name.object()) {
            self.target.remove(&next.object())?;
            return Err(over());
        }
        let former = std::mem::replace(&mut *name, next);
        // A lock that stays expires.
        let _ = self.target.remove(&former.object());
        Ok(())
    }
}

fn over() -> Failure {
    Failure::not_found(
        "the lock of this place is over, and something may have been removed there: run it again",
    )
}

impl PlaceLock {
    /// Takes a lock.
    ///
    /// # Errors
    /// Another process uses the place in a way that excludes this use.
    pub fn take(
        target: &Arc<dyn Target>,
        purpose: Purpose,
        owner: &str,
        seconds: u32,
    ) -> Result<PlaceLock> {
        let id = hex(&random::<8>()?);
        let name = LockName { purpose, ends: now() + u64::from(seconds), id };
        let owner = Bytes::from(owner.to_owned());
        target.put(&name.object(), &owner)?;
        // From here on the lock is removed when this ends.
        let name = Mutex::new(name);
        let lock = Arc::new(RenewedLock { target: Arc::clone(target), owner, seconds, name });
        let of_thread = Arc::clone(&lock);
        let renewing = Renewing::start(seconds, move || match of_thread.renew() {
            Ok(()) => true,
            Err(failure) if failure.is_not_found() => false,
            Err(failure) => {
                output::complain(&format!("the lock of the place: {failure}"));
                true
            }
        });
        let taken = PlaceLock { lock, renewing };
        taken.end_those_over(purpose)?;
        Ok(taken)
    }

    /// Removes expired locks. Of two processes that come at the same time, each sees the other's
    /// lock.
    fn end_those_over(&self, purpose: Purpose) -> Result<()> {
        let target = &self.lock.target;
        let others = || -> Result<Vec<LockName>> {
            let own = self.lock.name.lock().id.clone();
            let listed = target.list(LOCKS)?;
            let named = listed.iter().filter_map(|name| LockName::parse(name));
            Ok(named.filter(|other| other.id != own && other.stops(purpose)).collect())
        };
        for other in others()? {
            if !other.is_over(now()) {
                return Err(in_use(&**target, &other));
            }
            target.remove(&other.object())?;
        }
        // A lock that was renewed before its former object was removed.
        match others()?.first() {
            None => Ok(()),
            Some(other) => Err(in_use(&**target, other)),
        }
    }

    /// Checks that the lock lasts.
    ///
    /// # Errors
    /// It is over, as far as this process knows.
    pub fn check(&self) -> Result<()> {
        if self.renewing.has_ended() || self.lock.name.lock().ends < now() {
            Err(over())
        } else {
            Ok(())
        }
    }

    /// Asks the target: a lock that can be renewed has lasted all the time.
    pub fn confirm(&self) -> Result<()> {
        self.lock.renew()
    }
}

/// A lock in a listing.
pub struct ShownLock {
    pub id: String,
    pub owner: String,
    /// `add` or `remove`.
    pub kind: &'static str,
    /// End in seconds since 1970; an expired lock no longer counts.
    pub ends: u64,
}

/// Returns the locks of a place, expired ones too.
pub fn locks(target: &dyn Target) -> Result<Vec<ShownLock>> {
    let mut shown = Vec::new();
    for name in target.list(LOCKS)? {
        let Some(lock) = LockName::parse(&name) else { continue };
        let owner = owner_of(target, &lock);
        let (kind, ends) = (lock.kind(), lock.ends.saturating_add(GRACE));
        shown.push(ShownLock { id: lock.id, owner, kind, ends });
    }
    Ok(shown)
}

/// Ends a lock: its owner fails.
pub fn end(target: &dyn Target, id: &str) -> Result<()> {
    let names = target.list(LOCKS)?.into_iter();
    let of_lock = names.filter(|name| LockName::parse(name).is_some_and(|lock| lock.id == id));
    let of_lock: Vec<String> = of_lock.collect();
    if of_lock.is_empty() {
        return Err(Failure::not_found(format!("no lock {id}: cairn backup locks lists them")));
    }
    of_lock.iter().try_for_each(|name| target.remove(name))
}

fn owner_of(target: &dyn Target, lock: &LockName) -> String {
    // The lock may be gone meanwhile.
    let owner = target.get(&lock.object()).ok().flatten().unwrap_or_default();
    String::from_utf8_lossy(&owner).chars().take(OWNER_CHARS).collect()
}

fn in_use(target: &dyn Target, other: &LockName) -> Failure {
    let owner = owner_of(target, other);
    let what = match other.purpose {
        Purpose::Add => "a backup to this place runs",
        Purpose::Remove => "something is being removed from this place",
    };
    let until = compact_time(other.ends.saturating_add(GRACE));
    Failure::new(format!(
        "{what} ({owner}): try again when it is over, or after {until}; if it died, end its lock \
         (cairn backup locks)"
    ))
}

impl Drop for PlaceLock {
    fn drop(&mut self) {
        self.renewing.stop();
        // If it cannot be removed, it expires.
        let _ = self.lock.target.remove(&self.lock.name.lock().object());
    }
}

#[cfg(test)]
mod tests {
    use super::super::target::in_directory;
    use super::*;

    fn place() -> (tempfile::TempDir, Arc<dyn Target>) {
        let directory = tempfile::tempdir().unwrap();
        let target = in_directory(directory.path()).unwrap();
        (directory, target)
    }

    #[test]
    fn what_removes_is_alone() {
        let (_directory, target) = place();
        let take = |purpose| PlaceLock::take(&target, purpose, "me", 60);
        let (one, other) = (take(Purpose::Add).unwrap(), take(Purpose::Add).unwrap());
        let refused = take(Purpose::Remove).err().unwrap().to_string();
        assert!(refused.contains("a backup to this place runs (me)"), "{refused}");
        one.confirm().unwrap();
        other.confirm().unwrap();
        drop((one, other));
        let alone = take(Purpose::Remove).unwrap();
        assert!(take(Purpose::Add).is_err() && take(Purpose::Remove).is_err());
        alone.confirm().unwrap();
        drop(alone);
        assert!(target.list(LOCKS).unwrap().is_empty());
    }

    #[test]
    fn one_that_was_ended_is_not_renewed() {
        let (_directory, target) = place();
        let taken = PlaceLock::take(&target, Purpose::Add, "me", 60).unwrap();
        taken.confirm().unwrap();
        let [lock] = &locks(&*target).unwrap()[..] else { panic!() };
        assert_eq!((lock.owner.as_str(), lock.kind), ("me", "add"));
        assert!(end(&*target, "00").is_err());
        end(&*target, &lock.id).unwrap();
        assert!(taken.confirm().unwrap_err().to_string().contains("is over"));
        assert!(target.list(LOCKS).unwrap().is_empty());
    }

    #[test]
    fn one_that_is_over_stops_nobody() {
        let (_directory, target) = place();
        let name = LockName { purpose: Purpose::Add, ends: now() - GRACE - 9, id: "ab".into() };
        target.put(&name.object(), &Bytes::new()).unwrap();
        assert_eq!(LockName::parse(&name.object()).as_ref(), Some(&name));
        let taken = PlaceLock::take(&target, Purpose::Remove, "me", 60).unwrap();
        assert_eq!(target.list(LOCKS).unwrap().len(), 1);
        taken.check().unwrap();
    }
}
