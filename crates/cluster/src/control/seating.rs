//! Seating of the masters that keep the metadata: the serving master makes these the masters of the
//! cluster map. It hands over to another master when it is to be removed, or its disk is full.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use cairn_base::{Error, NodeId, Result};
use cairn_meta::Master;
use cairn_meta::engine::raft::Member;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::report::EnterReply;
use super::seats::{HandOver, Seats, Standing};
use crate::limits::{MEMBER_LOOK, MEMBER_REPORT};

/// The masters of the cluster map, as the serving one knows them.
#[async_trait]
pub trait Roster: Send + Sync {
    fn masters(&self) -> BTreeSet<u64>;

    /// Returns the masters from which beats arrive.
    fn up(&self) -> BTreeSet<u64>;

    /// Takes a node out of the map.
    async fn strike(&self, node: NodeId) -> Result<()>;

    /// The numbers that the master `node` had before. They are not among [`Roster::masters`].
    fn former_numbers(&self, node: NodeId) -> BTreeSet<NodeId>;

    /// Gives the master `node` a new number, unless it has got one before. Returns that number.
    async fn renumber(&self, node: NodeId) -> Result<NodeId>;
}

/// Changes of the members by one master, as long as it serves.
pub struct Seating {
    member: Arc<Member>,
    /// Masters that are being removed.
    leaving: Mutex<BTreeSet<u64>>,
    /// Set once another master is to serve in place of this one.
    handing: watch::Sender<Option<HandOver>>,
    /// Held while members change.
    turn: tokio::sync::Mutex<()>,
}

/// Marks a master as leaving for as long as it exists, however the removal ends.
struct Leaving<'a> {
    seating: &'a Seating,
    node: u64,
}

impl Leaving<'_> {
    fn begin(seating: &Seating, node: NodeId) -> Leaving<'_> {
        seating.leaving.lock().insert(node.0);
        Leaving { seating, node: node.0 }
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.seating.leaving.lock().remove(&self.node);
    }
}

impl Seating {
    pub fn new(member: Arc<Member>) -> Seating {
        let (leaving, handing) = (Mutex::default(), watch::Sender::new(None));
        Seating { member, leaving, handing, turn: tokio::sync::Mutex::default() }
    }

    /// Returns the state by which changes of the members are decided.
    ///
    /// # Errors
    /// `Unavailable` when the member has ended.
    pub async fn standing(&self, roster: &dyn Roster) -> Result<Standing> {
        let status = self.member.status().await?;
        let (masters, up) = (roster.masters(), roster.up());
        let (leaving, answering) = (self.leaving.lock().clone(), self.member.answering());
        Ok(Standing { status, masters, up, leaving, answering })
    }

    /// Returns the instructions for a new master before it makes its member. `master` is that of
    /// this member.
    ///
    /// # Errors
    /// Those of [`Standing::check_entry`]; `Unavailable` if this master does not serve.
    pub async fn enter(
        &self,
        roster: &dyn Roster,
        node: NodeId,
        master: &Master,
    ) -> Result<EnterReply> {
        let standing = self.standing(roster).await?;
        // A master that was cut off may have outdated members.
        master.check_serving()?;
        standing.check_entry(node)?;
        for former in roster.former_numbers(node) {
            if standing.is_member(former.0) {
                let text = format!("node {former}, which it was, is still a member: ask again");
                return Err(Error::Unavailable(text));
            }
            roster.strike(former).await?;
        }
        Ok(EnterReply { generation: standing.status.generation })
    }

    /// Makes the masters of the map keep the metadata, as far as they are up. Hands over if this
    /// master has no room for more and `has_served` long enough, or its metadata are damaged and it
    /// `has_begun`. To be called about twice a second; returns at once if nothing changes.
    ///
    /// # Errors
    /// Those of [`Member::change_members`].
    pub async fn seat(&self, roster: &dyn Roster, has_served: bool, has_begun: bool) -> Result<()> {
        let Ok(_turn) = self.turn.try_lock() else { return Ok(()) };
        let standing = self.standing(roster).await?;
        if !standing.status.leads() {
            return Ok(());
        }
        if self.member.is_low_on_space()
            && has_served
            && let Some(to) = self.successor(&standing).await
        {
            self.begin_to_hand_over(to, "its disk is nearly full");
            return Ok(());
        }
        if self.member.damage().is_some()
            && has_begun
            && let Some(to) = self.successor(&standing).await
        {
            self.begin_to_hand_over(to, "its metadata are damaged");
            return Ok(());
        }
        match standing.next_seats() {
            Some(next) => self.change(&next).await,
            None => Ok(()),
        }
    }

    /// Removes the member of `node`, a master that has lost part of its vote or log, or has damaged
    /// rows, and gives it a new number, under which it may enter with an empty directory. The
    /// master asks again if that was interrupted.
    ///
    /// # Errors
    /// `Conflict` if the others cannot do without it, or too many are being filled already;
    /// `Unavailable` if another master is to be asked; those of the map and of
    /// [`Member::change_members`].
    pub async fn renumber(
        &self,
        roster: &dyn Roster,
        node: NodeId,
        master: &Master,
    ) -> Result<NodeId> {
        let _turn = self.turn.lock().await;
        let standing = self.standing(roster).await?;
        master.check_serving()?;
        if node.0 == self.member.id() || !standing.status.leads() {
            let text = "the master that serves is another one, or is to be: ask again";
            return Err(Error::Unavailable(text.into()));
        }
        if standing.masters.contains(&node.0) {
            standing.check_removable(node)?;
            standing.check_refill(node)?;
        }
        let new = roster.renumber(node).await?;
        let standing = self.standing(roster).await?;
        if standing.is_member(node.0)
            && let Some(next) = standing.next_seats()
        {
            self.change(&next).await?;
        }
        Ok(new)
    }

    /// Waits until another master is to serve in place of this one.
    pub async fn hands_over(&self) -> HandOver {
        let mut handing = self.handing.subscribe();
        let wanted = handing.wait_for(Option::is_some).await.ok().and_then(|wanted| wanted.clone());
        match wanted {
            Some(wanted) => wanted,
            // The sender is part of this, so it is there.
            None => std::future::pending().await,
        }
    }

    fn begin_to_hand_over(&self, to: NodeId, why: &str) {
        let why = format!("it hands over to node {to}: {why}");
        self.handing.send_replace(Some(HandOver { to, why }));
    }

    /// Finds a master that can serve in place of this one: it votes, has caught up, answers, and
    /// has room.
    async fn successor(&self, standing: &Standing) -> Option<NodeId> {
        self.member.successor(&standing.heirs()).await.map(NodeId)
    }

    /// Removes a node. A master first leaves the members, while its messages are still accepted. If
    /// it is this master, another has to serve before that.
    ///
    /// # Errors
    /// `Conflict` if the others cannot do without it, `Unavailable` if another master is to be
    /// asked, those of the map and of [`Member::change_members`].
    pub async fn remove(&self, roster: &dyn Roster, node: NodeId) -> Result<()> {
        let _turn = self.turn.lock().await;
        if !self.standing(roster).await?.is_member(node.0) {
            return roster.strike(node).await;
        }
        if let Some(to) = self.removable(roster, node).await? {
            self.begin_to_hand_over(to, "it is to be removed");
            let text = format!("node {node} serves, and hands over to node {to}: ask again");
            return Err(Error::Unavailable(text));
        }
        // Until this returns or is dropped: then the members follow the map again.
        let _leaving = Leaving::begin(self, node);
        if let Some(next) = self.standing(roster).await?.next_seats() {
            self.change(&next).await?;
        }
        roster.strike(node).await
    }

    /// Waits until `node` can be removed, but not for long: a master that has just begun has not
    /// heard all others yet. If `node` is this one, another one is to serve first.
    async fn removable(&self, roster: &dyn Roster, node: NodeId) -> Result<Option<NodeId>> {
        let begun = Instant::now();
        loop {
            let standing = self.standing(roster).await?;
            if !standing.status.leads() {
                return Err(Error::Unavailable("this master leads no longer: ask again".into()));
            }
            let refused = match standing.check_removable(node) {
                Err(error) => error,
                Ok(()) if node.0 != self.member.id() => return Ok(None),
                Ok(()) => match self.successor(&standing).await {
                    Some(to) => return Ok(Some(to)),
                    None => Error::Conflict(format!(
                        "node {node} serves as the master, and no other voter answers that it \
                         would: there must be one that has caught up and has room on its disk"
                    )),
                },
            };
            if begun.elapsed() >= MEMBER_REPORT {
                return Err(refused);
            }
            sleep(MEMBER_LOOK).await;
        }
    }

    async fn change(&self, next: &Seats) -> Result<()> {
        let Seats { voters, learners } = next;
        tracing::info!(?voters, ?learners, "the masters that keep the metadata change");
        self.member.change_members(voters, learners).await
    }
}
