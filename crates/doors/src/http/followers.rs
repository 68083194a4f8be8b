//! How many may follow at once.

use std::sync::Arc;

use cairn_auth::Caller;
use cairn_base::{Error, Party, Result, Share, Shares};
use cairn_logs::follow::FollowCounts;

use crate::limits::FOLLOWERS;
use crate::serve::Remote;

/// The places of followers: no user and no network takes all of them.
pub struct Followers {
    users: Arc<Shares>,
    networks: Arc<Shares>,
}

impl Default for Followers {
    fn default() -> Followers {
        Followers { users: Shares::new(FOLLOWERS), networks: Shares::new(FOLLOWERS) }
    }
}

/// The place of one of them.
pub struct FollowerPlace {
    _shares: (Share, Share),
    counts: Arc<FollowCounts>,
}

impl Followers {
    pub fn take(
        &self,
        caller: &Caller,
        peer: Remote,
        counts: &Arc<FollowCounts>,
    ) -> Result<FollowerPlace> {
        let network = Party::at(peer.address.ip());
        let user = if caller.is_anonymous() { network } else { Party::User(caller.user()) };
        let shares = self.users.take_now(user, 1).zip(self.networks.take_now(network, 1));
        let _shares = shares.ok_or_else(|| {
            Error::Unavailable("too many follow at once, from here or in all: try later".into())
        })?;
        counts.come();
        Ok(FollowerPlace { _shares, counts: Arc::clone(counts) })
    }
}

impl Drop for FollowerPlace {
    fn drop(&mut self) {
        self.counts.go();
    }
}
