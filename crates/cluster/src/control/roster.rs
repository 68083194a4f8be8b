//! The masters of a controller's map, and requests to those that keep the metadata.

use std::collections::BTreeSet;

use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::map::Node;
use cairn_base::{ClusterMap, Error, NodeId, Result, Role};

use super::controller::Controller;
use super::edit::Edit;
use super::report::{EnterReply, RenumberReply};
use super::seating::{Roster, Seating};
use super::seats::HandOver;
use crate::limits::MEMBER_REPORT;
use crate::wire::PeerInfo;

#[async_trait]
impl Roster for Controller {
    fn masters(&self) -> BTreeSet<u64> {
        let map = self.keeper.current();
        let masters = map.masters().map(|(node, _)| node);
        masters.filter(|node| successor(&map, *node).is_none()).map(|node| node.0).collect()
    }

    fn up(&self) -> BTreeSet<u64> {
        let map = self.keeper.current();
        let mut up = self.masters();
        up.retain(|id| *id == self.node.0 || map.is_up(NodeId(*id)));
        up
    }

    async fn strike(&self, node: NodeId) -> Result<()> {
        self.keeper.edit(|map| Edit::Remove(node).apply(map)).await.map(drop)
    }

    fn former_numbers(&self, node: NodeId) -> BTreeSet<NodeId> {
        let map = self.keeper.current();
        let masters = map.masters().map(|(other, _)| other);
        masters.filter(|other| successor(&map, *other) == Some(node)).collect()
    }

    async fn renumber(&self, node: NodeId) -> Result<NodeId> {
        let edited = self.keeper.edit(|map| {
            if successor(map, node).is_some() {
                return Ok(());
            }
            let unknown = || Error::NotFound(format!("master {node}"));
            let former = map.nodes.get(&node).filter(|node| node.is_master());
            let new = Node { is_up: false, ..former.ok_or_else(unknown)?.clone() };
            map.nodes.insert(NodeId(map.next_node), new);
            map.next_node += 1;
            Ok(())
        });
        let missing = || Error::Conflict(format!("master {node} has got no new number"));
        successor(&*edited.await?, node).ok_or_else(missing)
    }
}

/// Returns the number under which the master `node` goes on: the newest number with its key, if
/// that is another.
fn successor(map: &ClusterMap, node: NodeId) -> Option<NodeId> {
    let key = map.nodes.get(&node)?.pin.key;
    let same = map.masters().filter(|(_, other)| other.pin.key == key);
    same.map(|(other, _)| other).max().filter(|newest| *newest > node)
}

impl Controller {
    pub(super) async fn enter(&self, peer: &PeerInfo) -> Result<EnterReply> {
        if !peer.authenticated.roles.contains(Role::Master) {
            return Err(Error::Denied(format!("{peer} is no master")));
        }
        let text = "the metadata of this cluster are in a database: name it by --meta";
        let seating = self.seating.as_ref().ok_or_else(|| Error::Invalid(text.into()))?;
        seating.enter(self, peer.authenticated.node, &self.master).await
    }

    /// Gives a master whose member has lost something a new number: see [`Seating::renumber`].
    pub(super) async fn renumber(&self, peer: &PeerInfo) -> Result<RenumberReply> {
        let node = peer.authenticated.node;
        if !peer.authenticated.roles.contains(Role::Master) {
            return Err(Error::Denied(format!("{peer} is no master")));
        }
        let none = || Error::Denied("the node has shown no certificate".into());
        let shown = peer.authenticated.certificate.as_ref().ok_or_else(none)?;
        let text = "the metadata of this cluster are not kept by several masters together";
        let seating = self.seating.as_ref().ok_or_else(|| Error::Invalid(text.into()))?;
        let new = seating.renumber(self, node, &self.master).await?;
        let certificate = Bytes::copy_from_slice(&self.desk.renew(new, shown)?);
        tracing::warn!(%node, %new, "a master fills itself again under a new number");
        Ok(RenumberReply { node: new.0, certificate })
    }

    /// Makes the masters of the map keep the metadata: see [`Seating::seat`].
    ///
    /// # Errors
    /// Those of [`Seating::seat`].
    pub async fn seat_members(&self) -> Result<()> {
        let Some(seating) = &self.seating else { return Ok(()) };
        let has_served = self.sessions.opened_now() && self.begun.elapsed() >= self.settings.rest;
        let has_begun = self.begun.elapsed() >= MEMBER_REPORT;
        seating.seat(self, has_served, has_begun).await
    }

    /// Waits until another master is to serve in place of this one.
    pub async fn hands_over(&self) -> HandOver {
        match &self.seating {
            Some(seating) => seating.hands_over().await,
            None => std::future::pending().await,
        }
    }

    /// Removes a node that may be a master.
    pub(super) async fn remove(&self, node: NodeId, seating: &Seating) -> Result<()> {
        // A removal that is not possible is refused before anything changes.
        Edit::Remove(node).apply(&mut ClusterMap::clone(&self.keeper.current()))?;
        seating.remove(self, node).await
    }
}
