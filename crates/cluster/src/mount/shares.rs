//! What mounts take parts of at a gateway or server. No user takes the last quarter of it: so
//! others come in, whatever the mounts of one user do.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use cairn_base::UserId;
use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

pub struct Shares {
    all: Arc<Semaphore>,
    /// What one user may take, at most.
    most: usize,
    /// What is left of that, of users who have taken some.
    users: Mutex<HashMap<UserId, Weak<Semaphore>>>,
}

/// A part, which is given back when this is dropped.
pub struct Share {
    _of_user: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Shares {
    pub fn new(all: usize) -> Arc<Shares> {
        let (most, users) = (all - all / 4, Mutex::default());
        Arc::new(Shares { all: Arc::new(Semaphore::new(all)), most, users })
    }

    /// What one user may take, at most.
    pub fn most(&self) -> usize {
        self.most
    }

    fn of(&self, user: UserId) -> Arc<Semaphore> {
        let mut users = self.users.lock();
        if let Some(left) = users.get(&user).and_then(Weak::upgrade) {
            return left;
        }
        users.retain(|_, left| left.strong_count() > 0);
        let left = Arc::new(Semaphore::new(self.most));
        users.insert(user, Arc::downgrade(&left));
        left
    }

    /// Waits for its turn.
    pub async fn take(&self, user: UserId, amount: u32) -> Result<Share, AcquireError> {
        // Who has taken all of its own waits before it stands in the way of others.
        let of_user = self.of(user).acquire_many_owned(amount).await?;
        let of_all = Arc::clone(&self.all).acquire_many_owned(amount).await?;
        Ok(Share { _of_user: of_user, _of_all: of_all })
    }

    /// One, if there is one left for this user.
    pub fn take_now(&self, user: UserId) -> Option<Share> {
        let of_user = self.of(user).try_acquire_owned().ok()?;
        let of_all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some(Share { _of_user: of_user, _of_all: of_all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    const ONE: UserId = UserId(1);
    const OTHER: UserId = UserId(2);
    const THIRD: UserId = UserId(3);

    #[test]
    fn no_user_takes_the_last_quarter() {
        let shares = Shares::new(8);
        let mut taken: Vec<Share> = (0..6).map(|_| shares.take_now(ONE).unwrap()).collect();
        assert!(shares.take_now(ONE).is_none());
        let others = [shares.take_now(OTHER).unwrap(), shares.take_now(THIRD).unwrap()];
        assert!(shares.take_now(OTHER).is_none(), "all are taken");
        taken.pop();
        assert!(shares.take_now(OTHER).is_some());
        assert!(shares.take_now(ONE).is_some());
        drop((taken, others));
        assert!(shares.take_now(THIRD).is_some());
        assert_eq!(shares.users.lock().len(), 1, "who has nothing is forgotten");
    }

    #[tokio::test]
    async fn who_waits_for_its_own_keeps_nobody_else_waiting() {
        let shares = Shares::new(8);
        let taken = shares.take(ONE, 6).await.unwrap();
        let mut waiting = std::pin::pin!(shares.take(ONE, 1));
        let soon = Duration::from_millis(50);
        assert!(timeout(soon, &mut waiting).await.is_err());
        shares.take(OTHER, 2).await.unwrap();
        drop(taken);
        waiting.await.unwrap();
    }
}
