//! The limits of users, looked up.

use std::sync::Arc;

use cairn_auth::Caller;
use cairn_base::{Error, UserId};
use cairn_meta::ops::user_limits::FindUserLimits;
use cairn_meta::rows::UserLimits;

use crate::account::{Account, ThrottleCounts};
use crate::fs::Fs;

impl Fs {
    /// Returns the account of a user, if the user has limits.
    pub async fn account(&self, user: UserId) -> Option<Arc<Account>> {
        if user == UserId::ROOT || user == UserId::NOBODY {
            return None;
        }
        let throttle = &self.inner.throttle;
        let now = self.clock().monotonic();
        if let Some(known) = throttle.known(user, now) {
            return known;
        }
        let limits = match self.read(&Caller::system(), FindUserLimits { user }).await {
            Ok(limits) => Some(limits),
            // The master is of an earlier version: there are no limits.
            Err(Error::NotImplemented(_)) => Some(UserLimits::default()),
            // Known limits stay until they can be read again.
            Err(error) => {
                tracing::debug!(%error, "limits of a user are not known");
                None
            }
        };
        throttle.note(user, limits, self.clock(), now)
    }

    /// Returns the counters of the limits of users in this process.
    pub fn throttled(&self) -> Arc<ThrottleCounts> {
        self.inner.throttle.counts()
    }
}
