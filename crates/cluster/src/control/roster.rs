//! The masters of a controller's map, and what is asked of those that keep the metadata.

use std::collections::BTreeSet;

use async_trait::async_trait;
use cairn_base::{ClusterMap, Error, NodeId, Result, Role};

use super::controller::Controller;
use super::edit::Edit;
use super::report::Entered;
use super::seating::{Roster, Seating};
use super::seats::HandOver;
use crate::wire::PeerInfo;

#[async_trait]
impl Roster for Controller {
    fn masters(&self) -> BTreeSet<u64> {
        self.keeper.current().masters().map(|(node, _)| node.0).collect()
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
}

impl Controller {
    pub(super) async fn enter(&self, peer: &PeerInfo) -> Result<Entered> {
        if !peer.authenticated.roles.contains(Role::Master) {
            return Err(Error::Denied(format!("{peer} is no master")));
        }
        let text = "the metadata of this cluster are in a database: name it by --meta";
        let seating = self.seating.as_ref().ok_or_else(|| Error::Invalid(text.into()))?;
        seating.enter(self, peer.authenticated.node, &self.master).await
    }

    /// Has the masters of the map keep the metadata: see [`Seating::seat`].
    ///
    /// # Errors
    /// As there.
    pub async fn seat_members(&self) -> Result<()> {
        let Some(seating) = &self.seating else { return Ok(()) };
        let has_served = self.sessions.opened_now() && self.begun.elapsed() >= self.settings.rest;
        seating.seat(self, has_served).await
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
        // What does not apply is refused before anything changes.
        Edit::Remove(node).apply(&mut ClusterMap::clone(&self.keeper.current()))?;
        seating.remove(self, node).await
    }
}
