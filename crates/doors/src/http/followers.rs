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
    pub fn take(&self, caller: &Caller, peer: Remote) -> Result<(Share, Share)> {
        let network = Party::at(peer.address.ip());
        let user = if caller.is_anonymous() { network } else { Party::User(caller.user()) };
        let shares = self.users.take_now(user, 1).zip(self.networks.take_now(network, 1));
        shares.ok_or_else(|| {
            Error::Unavailable("too many follow at once, from here or in all: try later".into())
        })
    }
}

impl FollowerPlace {
    /// Of one who hears of all that is added from now on.
    pub fn new(shares: (Share, Share), counts: &Arc<FollowCounts>) -> FollowerPlace {
        counts.come();
        FollowerPlace { _shares: shares, counts: Arc::clone(counts) }
    }
}

impl Drop for FollowerPlace {
    fn drop(&mut self) {
        self.counts.go();
    }
}

#[cfg(test)]
mod tests {
    use cairn_base::UserId;

    use super::*;

    #[test]
    fn no_user_and_no_network_takes_all_places() {
        let at = |text: &str| Remote { address: text.parse().unwrap(), tls: false };
        let (here, there) = (at("10.0.0.1:1"), at("10.0.0.2:1"));
        let [alice, bob] = [1, 2].map(|number| Caller::verified(UserId(number)));
        let followers = Followers::default();
        let mut held = Vec::new();
        while let Ok(shares) = followers.take(&alice, here) {
            held.push(shares);
        }
        assert_eq!(held.len() as u64, FOLLOWERS / 4 * 3);
        assert!(followers.take(&alice, there).is_err(), "from anywhere");
        assert!(followers.take(&bob, here).is_err(), "from the same network");
        assert!(followers.take(&bob, there).is_ok());
        held.pop();
        assert!(followers.take(&alice, here).is_ok());
    }
}
