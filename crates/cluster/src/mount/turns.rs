//! Turns of blocks that found no room.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Party, Share, Shares};
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

/// Room that is reserved for blocks that a mount is about to send again.
#[derive(Default)]
pub struct Turns(Mutex<TurnShares>);

#[derive(Default)]
struct TurnShares {
    last: u64,
    shares: BTreeMap<u64, Share>,
}

impl Turns {
    /// Returns room for a block, if its turn has come or no block waits.
    pub fn enter(&self, room: &Arc<Shares>, party: Party, bytes: u64) -> Option<Share> {
        let mut kept = self.0.lock();
        let fits = kept.shares.iter().find(|(_, share)| share.amount() >= bytes);
        match fits.map(|(number, _)| *number) {
            Some(number) => kept.shares.remove(&number),
            None => room.take_now(party, bytes),
        }
    }

    /// Waits for its turn, for a block that is not kept meanwhile. Its room is reserved for a
    /// while, once there is some.
    pub async fn wait(
        self: &Arc<Self>,
        room: &Arc<Shares>,
        party: Party,
        bytes: u64,
        patience: Duration,
        kept_for: Duration,
    ) {
        let Ok(share) = timeout(patience, room.take(party, bytes)).await else { return };
        let number = {
            let mut kept = self.0.lock();
            kept.last += 1;
            let number = kept.last;
            kept.shares.insert(number, share);
            number
        };
        let turns = Arc::downgrade(self);
        tokio::spawn(async move {
            sleep(kept_for).await;
            if let Some(turns) = turns.upgrade() {
                turns.0.lock().shares.remove(&number);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use cairn_base::UserId;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_block_that_was_refused_comes_before_others_that_arrive_later() {
        let room = Shares::new(16);
        let party = Party::User(UserId(1));
        let (busy, refused) = (Arc::new(Turns::default()), Arc::new(Turns::default()));
        let running = busy.enter(&room, party, 12);
        assert!(running.is_some() && refused.enter(&room, party, 12).is_none());
        let waiting = {
            let (room, refused) = (Arc::clone(&room), Arc::clone(&refused));
            tokio::spawn(async move { refused.wait(&room, party, 12, LONG, LONG).await })
        };
        tokio::task::yield_now().await;
        drop(running);
        assert!(busy.enter(&room, party, 12).is_none(), "it has had its turn");
        waiting.await.unwrap();
        assert!(busy.enter(&room, party, 12).is_none(), "the room is kept");
        assert!(refused.enter(&room, party, 12).is_some());
        assert!(busy.enter(&room, party, 12).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn room_of_a_mount_that_does_not_come_again_is_given_back() {
        let room = Shares::new(16);
        let (turns, party) = (Arc::new(Turns::default()), Party::User(UserId(1)));
        turns.wait(&room, party, 12, LONG, LONG).await;
        assert!(room.take_now(party, 12).is_none());
        sleep(2 * LONG).await;
        assert!(room.take_now(party, 12).is_some());
    }
}
