//! Which masters keep the metadata: the serving one sees to it that these are the masters of the
//! cluster map.

use std::collections::BTreeSet;
use std::sync::Arc;

use cairn_base::{ClusterMap, Error, NodeId, Result, Role};
use cairn_meta::engine::raft::{Member, MemberStatus};

use super::controller::Controller;
use super::edit::Edit;
use super::report::Entered;
use super::seats::{Seats, seats};
use crate::limits::MEMBER_LAG;
use crate::wire::PeerInfo;

impl Controller {
    /// What a new master needs to know before it makes its member.
    pub(super) async fn enter(&self, peer: &PeerInfo) -> Result<Entered> {
        if !peer.authenticated.roles.contains(Role::Master) {
            return Err(Error::Denied(format!("{peer} is no master")));
        }
        let text = "the metadata of this cluster are in a database: name it by --meta";
        let member = self.member.as_ref().ok_or_else(|| Error::Invalid(text.into()))?;
        let (node, status) = (peer.authenticated.node, member.status().await?);
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

    /// Has the masters of the map keep the metadata, as far as they are there. To be called about
    /// twice a second; returns at once where there is nothing to change.
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
        match self.next_seats(&status, &self.keeper.current()) {
            Some(next) => change(member, &next).await,
            None => Ok(()),
        }
    }

    fn next_seats(&self, status: &MemberStatus, map: &ClusterMap) -> Option<Seats> {
        let leaving = self.leaving.lock().clone();
        let is_master =
            |node: &NodeId| map.pin(*node).is_some_and(|pin| pin.roles.contains(Role::Master));
        let masters = map.nodes.keys().filter(|node| is_master(node)).map(|node| node.0);
        let masters = &masters.collect::<BTreeSet<u64>>() - &leaving;
        let is_up = |id: &&u64| **id == self.node.0 || map.is_up(NodeId(**id));
        let up = masters.iter().filter(is_up).copied().collect();
        let has_all = |id: &&u64| status.lag_of(**id).is_some_and(|lag| lag <= MEMBER_LAG);
        let caught_up = status.followers.keys().filter(has_all).copied().collect();
        seats(&status.members, &masters, &up, &caught_up)
    }

    /// Removes a node. A master first leaves the members, while it is still listened to.
    pub(super) async fn remove(&self, node: NodeId, member: &Arc<Member>) -> Result<()> {
        let edit = Edit::Remove(node);
        // What does not apply is refused before anything changes.
        edit.apply(&mut ClusterMap::clone(&self.keeper.current()))?;
        let _turn = self.seating.lock().await;
        let status = member.status().await?;
        let mut known = status.members.voters.iter().flatten().chain(&status.members.learners);
        if known.any(|id| *id == node.0) {
            self.check_removable(node, &status)?;
            self.leaving.lock().insert(node.0);
            let changed = match self.next_seats(&status, &self.keeper.current()) {
                Some(next) => change(member, &next).await,
                None => Ok(()),
            };
            if let Err(error) = changed {
                self.leaving.lock().remove(&node.0);
                return Err(error);
            }
        }
        let edited = self.keeper.edit(|map| edit.apply(map)).await;
        self.leaving.lock().remove(&node.0);
        edited.map(drop)
    }

    fn check_removable(&self, node: NodeId, status: &MemberStatus) -> Result<()> {
        if node == self.node {
            return Err(Error::Conflict(format!(
                "node {node} serves as the master: stop it, and remove it when another serves"
            )));
        }
        let map = self.keeper.current();
        let left = status.members.voters.iter().flatten().filter(|id| **id != node.0);
        let left: BTreeSet<u64> = left.copied().collect();
        let is_up = |id: &&u64| **id == self.node.0 || map.is_up(NodeId(**id));
        let up = left.iter().filter(is_up).count();
        if up * 2 > left.len() {
            return Ok(());
        }
        let (up, left) = (up, left.len());
        Err(Error::Conflict(format!(
            "without node {node} there are {left} voters, of which {up} are up: no majority. \
             Bring the others back first, or let another master join"
        )))
    }
}

async fn change(member: &Member, next: &Seats) -> Result<()> {
    let Seats { voters, learners } = next;
    tracing::info!(?voters, ?learners, "the masters that keep the metadata change");
    member.change_members(voters, learners).await
}
