//! The limit on followers at the same time.

use std::sync::Arc;

use cairn_auth::Caller;
use cairn_base::{Party, Share, Shares};
use cairn_logs::follow::FollowCounts;

use super::error::Failure;
use crate::limits::{FOLLOWERS, FOLLOWERS_PART};
use crate::serve::Remote;

/// The places of followers: no user and no network takes all of them.
pub struct Followers {
    users: Arc<Shares>,
    networks: Arc<Shares>,
}

/// The place of one follower.
pub struct FollowerPlace {
    _shares: (Share, Share),
    counts: Arc<FollowCounts>,
}

impl Followers {
    /// Returns the places for a door with this many connections.
    pub fn new(connections: usize) -> Followers {
        let places = (connections as u64 / FOLLOWERS_PART).min(FOLLOWERS);
        Followers { users: Shares::new(places), networks: Shares::new(places) }
    }

    pub fn take(&self, caller: &Caller, peer: Remote) -> Result<(Share, Share), Failure> {
        let network = Party::at(peer.address.ip());
        let user = if caller.is_anonymous() { network } else { Party::User(caller.user()) };
        let shares = self.users.take_now(user, 1).zip(self.networks.take_now(network, 1));
        shares.ok_or(Failure::Busy("too many followers, of this user or network, or in all"))
    }
}

impl FollowerPlace {
    /// Counts a follower, who receives everything added from now on.
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
        let followers = Followers::new(2 * FOLLOWERS as usize);
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

    #[test]
    fn followers_leave_connections_to_others() {
        let followers = Followers::new(80);
        let at = |number: u64| {
            let address = format!("10.0.0.{number}:1").parse().unwrap();
            followers.take(&Caller::verified(UserId(number)), Remote { address, tls: false })
        };
        let held: Vec<_> = (1..=100).filter_map(|number| at(number).ok()).collect();
        assert_eq!(held.len(), 40);
    }
}
