//! Which masters keep the metadata: the serving one sees to it that these are the masters of the
//! cluster map. It hands over to another one when it is to be removed, or its disk is full.

use std::collections::BTreeSet;
use std::sync::Arc;

use cairn_base::{ClusterMap, Error, NodeId, Result, Role};
use cairn_meta::engine::raft::{Member, MemberStatus};
use tokio::time::{Instant, sleep};

use super::controller::Controller;
use super::edit::Edit;
use super::report::Entered;
use super::seats::{HandOver, Seats, caught_up, seats};
use crate::limits::{MEMBER_LOOK, MEMBER_REPORT};
use crate::wire::PeerInfo;

/// A master that can be removed.
struct Removable {
    status: MemberStatus,
    /// It serves, and this one is to serve before it is removed.
    successor: Option<NodeId>,
}

/// While it exists, a master counts as one that leaves, however its removal ends.
struct Leaving<'a> {
    controller: &'a Controller,
    node: u64,
}

impl Leaving<'_> {
    fn begin(controller: &Controller, node: NodeId) -> Leaving<'_> {
        controller.leaving.lock().insert(node.0);
        Leaving { controller, node: node.0 }
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.controller.leaving.lock().remove(&self.node);
    }
}

impl Controller {
    /// The instructions for a new master before it makes its member.
    pub(super) async fn enter(&self, peer: &PeerInfo) -> Result<Entered> {
        if !peer.authenticated.roles.contains(Role::Master) {
            return Err(Error::Denied(format!("{peer} is no master")));
        }
        let text = "the metadata of this cluster are in a database: name it by --meta";
        let member = self.member.as_ref().ok_or_else(|| Error::Invalid(text.into()))?;
        let (node, status) = (peer.authenticated.node, member.status().await?);
        // A master that was cut off may have the members of before.
        self.master.check_serving()?;
        if self.leaving.lock().contains(&node.0) {
            let text = "is being removed: let a new directory join with a new token";
            return Err(Error::Conflict(format!("node {node} {text}")));
        }
        let votes = status.members.voters.iter().any(|ids| ids.contains(&node.0));
        if votes || status.followers.get(&node.0).is_some_and(Option::is_some) {
            return Err(Error::Conflict(format!(
                "node {node} keeps the metadata already, and its directory has lost what it had: \
                 it must not vote again under this number. Remove it (cairn cluster remove DIR \
                 {node}), and let a new directory join with a new token"
            )));
        }
        Ok(Entered { generation: status.generation })
    }

    /// Has the masters of the map keep the metadata, as far as they are there, and hands over if
    /// this one has no room for more. To be called about twice a second; returns at once where
    /// there is nothing to change.
    ///
    /// # Errors
    /// Of [`Member::change_members`].
    pub async fn seat_members(&self) -> Result<()> {
        let Some(member) = &self.member else { return Ok(()) };
        let Ok(_turn) = self.seating.try_lock() else { return Ok(()) };
        let status = member.status().await?;
        if !status.leads() {
            return Ok(());
        }
        if member.is_low_on_space()
            && self.sessions.opened_now()
            && self.begun.elapsed() >= self.settings.rest
            && let Some(to) = self.successor(member, &status).await
        {
            self.begin_to_hand_over(to, "its disk is nearly full");
            return Ok(());
        }
        match self.next_seats(member, &status) {
            Some(next) => change(member, &next).await,
            None => Ok(()),
        }
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

    /// A master that can serve in place of this one: it votes, has caught up, answers, and has
    /// room.
    async fn successor(&self, member: &Member, status: &MemberStatus) -> Option<NodeId> {
        let mut fit = &self.up() & &caught_up(status, &member.answering());
        fit.retain(|id| !self.leaving.lock().contains(id));
        member.successor(&fit).await.map(NodeId)
    }

    /// The masters of the map.
    fn masters(&self) -> BTreeSet<u64> {
        self.keeper.current().masters().map(|(node, _)| node.0).collect()
    }

    /// Those of them that were heard.
    fn up(&self) -> BTreeSet<u64> {
        let map = self.keeper.current();
        let mut up = self.masters();
        up.retain(|id| *id == self.node.0 || map.is_up(NodeId(*id)));
        up
    }

    fn next_seats(&self, member: &Member, status: &MemberStatus) -> Option<Seats> {
        let masters = &self.masters() - &*self.leaving.lock();
        let up = &self.up() & &masters;
        let caught_up = caught_up(status, &member.answering());
        seats(&status.members, status.member, &masters, &up, &caught_up)
    }

    /// Removes a node. A master first leaves the members, while it is still listened to. If it is
    /// this one, another one is to serve before that.
    pub(super) async fn remove(&self, node: NodeId, member: &Arc<Member>) -> Result<()> {
        let edit = Edit::Remove(node);
        // What does not apply is refused before anything changes.
        edit.apply(&mut ClusterMap::clone(&self.keeper.current()))?;
        let _turn = self.seating.lock().await;
        let status = member.status().await?;
        let mut known = status.members.voters.iter().flatten().chain(&status.members.learners);
        if !known.any(|id| *id == node.0) {
            return self.keeper.edit(|map| edit.apply(map)).await.map(drop);
        }
        let Removable { status, successor } = self.removable(node, member).await?;
        if let Some(to) = successor {
            self.begin_to_hand_over(to, "it is to be removed");
            let text = format!("node {node} serves, and hands over to node {to}: ask again");
            return Err(Error::Unavailable(text));
        }
        // Until this returns, or nobody waits for it any more: then all becomes as the map says.
        let _leaving = Leaving::begin(self, node);
        if let Some(next) = self.next_seats(member, &status) {
            change(member, &next).await?;
        }
        self.keeper.edit(|map| edit.apply(map)).await.map(drop)
    }

    /// Waits until `node` can be removed, but not for long: a master that has just begun has not
    /// heard all others yet.
    async fn removable(&self, node: NodeId, member: &Member) -> Result<Removable> {
        let begun = Instant::now();
        loop {
            let status = member.status().await?;
            if !status.leads() {
                return Err(Error::Unavailable("this master leads no longer: ask again".into()));
            }
            let refused = match self.check_removable(node, member, &status) {
                Err(error) => error,
                Ok(()) if node != self.node => return Ok(Removable { status, successor: None }),
                Ok(()) => match self.successor(member, &status).await {
                    Some(to) => return Ok(Removable { status, successor: Some(to) }),
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

    /// Whether a majority of those voters works that are left without `node`.
    fn check_removable(&self, node: NodeId, member: &Member, status: &MemberStatus) -> Result<()> {
        let left = status.members.voters.iter().flatten().filter(|id| **id != node.0);
        let left: BTreeSet<u64> = left.copied().collect();
        if node == self.node && left.is_empty() {
            return Err(Error::Conflict(format!(
                "node {node} serves as the master, and no other one votes: let two more masters \
                 join first"
            )));
        }
        let works = &self.up() & &caught_up(status, &member.answering());
        let working = left.intersection(&works).count();
        if working * 2 > left.len() {
            return Ok(());
        }
        let left = left.len();
        Err(Error::Conflict(format!(
            "without node {node} there are {left} voters, of which {working} are up and have \
             caught up: no majority. Bring the others back first, or let another master join"
        )))
    }
}

async fn change(member: &Member, next: &Seats) -> Result<()> {
    let Seats { voters, learners } = next;
    tracing::info!(?voters, ?learners, "the masters that keep the metadata change");
    member.change_members(voters, learners).await
}
