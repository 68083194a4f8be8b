//! The rights of a mount's user in a bucket, as they are now.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cairn_auth::{Action, Caller};
use cairn_base::{BlockId, BucketId, Error, Result, SessionId, UserId};
use cairn_meta::ops::buckets::{Decide, FindWritable};
use cairn_meta::{Meta, WireVerb};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Buckets that are looked at in one operation.
const PAGE: usize = 1000;

/// Time for which it is remembered that a user may write nowhere.
const REFUSED_FOR: Duration = Duration::from_secs(1);

fn nowhere() -> Error {
    Error::Denied("blocks of a mount: this user may write in no bucket".into())
}

/// Asks the metadata; a gateway has leases on the rows that this needs.
pub struct Rights {
    meta: Meta,
    /// Bucket in which each user was found to have the right to write.
    writable: Mutex<HashMap<UserId, BucketId>>,
    /// Time at which each user was found to have no right to write; users are not looked up again
    /// at once.
    refused: Mutex<HashMap<UserId, Instant>>,
    /// Locks by which only one task at a time looks for such a bucket of a user; the others reuse
    /// its result.
    looking: Mutex<HashMap<UserId, Turn>>,
}

/// Proof that a mount may have what it asks for. Without it no block is read or written.
#[must_use]
pub struct AccessGrant(());

impl AccessGrant {
    /// Grants a session access to its own blocks.
    pub fn own(session: SessionId, block: BlockId) -> Option<AccessGrant> {
        (block.session == session).then_some(AccessGrant(()))
    }
}

type Turn = Arc<tokio::sync::Mutex<()>>;

impl Rights {
    pub fn new(meta: Meta) -> Rights {
        Rights {
            meta,
            writable: Mutex::default(),
            refused: Mutex::default(),
            looking: Mutex::default(),
        }
    }

    async fn ask<V: WireVerb + Clone>(&self, caller: &Caller, verb: V) -> Result<V::Reply> {
        match self.meta.read_now(caller, &verb) {
            Some(answer) => answer,
            None => self.meta.read(caller, verb).await,
        }
    }

    /// Checks that the caller may do `action` in a bucket.
    ///
    /// # Errors
    /// `Denied` if not.
    pub async fn may(
        &self,
        caller: &Caller,
        action: Action,
        bucket: BucketId,
    ) -> Result<AccessGrant> {
        self.ask(caller, Decide { bucket, action }).await?;
        Ok(AccessGrant(()))
    }

    /// Checks that the user may write in some bucket: other users have no use for blocks.
    ///
    /// # Errors
    /// `Denied` if not. It names no bucket.
    pub async fn may_write_somewhere(&self, caller: &Caller) -> Result<AccessGrant> {
        if let Some(granted) = self.may_write_as_before(caller).await? {
            return Ok(granted);
        }
        let user = caller.user();
        let looking = Looking { of: self, turn: self.turn(user), user };
        let _turn = looking.turn.lock().await;
        if let Some(granted) = self.may_write_as_before(caller).await? {
            return Ok(granted);
        }
        if self.was_refused(user) {
            return Err(nowhere());
        }
        let mut after = BucketId(0);
        loop {
            match self.ask(caller, FindWritable { after, limit: PAGE }).await? {
                Some((bucket, true)) => {
                    self.writable.lock().insert(user, bucket);
                    return Ok(AccessGrant(()));
                }
                Some((last, false)) => after = last,
                None => {
                    self.refused.lock().insert(user, Instant::now());
                    return Err(nowhere());
                }
            }
        }
    }

    /// Returns true if a user was recently found to have no right to write. Older findings are
    /// forgotten.
    fn was_refused(&self, user: UserId) -> bool {
        let mut refused = self.refused.lock();
        refused.retain(|_, at| at.elapsed() < REFUSED_FOR);
        refused.contains_key(&user)
    }

    fn turn(&self, user: UserId) -> Turn {
        Arc::clone(self.looking.lock().entry(user).or_default())
    }

    async fn may_write_as_before(&self, caller: &Caller) -> Result<Option<AccessGrant>> {
        let user = caller.user();
        let known = self.writable.lock().get(&user).copied();
        let Some(bucket) = known else { return Ok(None) };
        match self.may(caller, Action::PutObject, bucket).await {
            Ok(granted) => Ok(Some(granted)),
            Err(Error::Denied(_)) => {
                self.writable.lock().remove(&user);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// A task that looks for a bucket, or waits for another task of the user to have looked.
struct Looking<'a> {
    of: &'a Rights,
    turn: Turn,
    user: UserId,
}

impl Drop for Looking<'_> {
    /// The last task leaves nothing behind: turns are taken only under the lock.
    fn drop(&mut self) {
        let mut looking = self.of.looking.lock();
        if Arc::strong_count(&self.turn) == 2 {
            looking.remove(&self.user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use cairn_base::SessionId;
    use cairn_base::clock::RealClock;
    use cairn_meta::Master;
    use cairn_meta::engine::Memory;
    use tokio::time::timeout;

    const ROOT: UserId = UserId::ROOT;
    const OTHER: UserId = UserId(7);

    fn rights() -> Rights {
        let clock = Arc::new(RealClock::default());
        let master = Master::start(Arc::new(Memory::new()), clock, Default::default());
        let master = master.expect("a master");
        Rights::new(Meta::Local { master, session: SessionId(1), sessions: None })
    }

    #[tokio::test]
    async fn nobody_waits_for_what_another_user_looks_for() {
        let rights = rights();
        // A look that never ends.
        let slow = Looking { of: &rights, turn: rights.turn(OTHER), user: OTHER };
        let turn = slow.turn.lock().await;
        let [root, user] = [ROOT, OTHER].map(Caller::verified);
        let other = timeout(Duration::from_secs(60), rights.may_write_somewhere(&root)).await;
        let other = other.expect("an answer meanwhile");
        assert!(matches!(other, Err(Error::Denied(_))), "there is no bucket");
        // Another one of the same user waits for it, and looks on its own once it is over.
        let mut same = Box::pin(rights.may_write_somewhere(&user));
        assert!(timeout(Duration::ZERO, same.as_mut()).await.is_err(), "it does not wait");
        assert_eq!(rights.looking.lock().len(), 1);
        drop(turn);
        drop(slow);
        assert!(matches!(same.await, Err(Error::Denied(_))));
        assert!(rights.looking.lock().is_empty(), "nobody looks any more");
    }
}
