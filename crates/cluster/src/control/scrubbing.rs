//! Scrubs of all chunkservers of a cluster, ordered by the master that serves. The master keeps no
//! state about them: a scrub is known by its number at the chunkservers, so another master can go
//! on.

#![expect(clippy::disallowed_methods, reason = "names are looked up on a thread that may block")]

use std::sync::Arc;

use cairn_base::scrub::{DegradedObjects, NodeScrub, RunOrder, ScrubPhase};
use cairn_base::{ClusterMap, Error, NodeId, Result, Role};
use futures_util::future::join_all;
use tokio::time::Instant;

use super::controller::Controller;
use super::degraded_names::{Findings, Turn, name_all};
use super::paced_snapshot::{Going, PacedSnapshot};
use crate::data::{FOUND, FoundBlock, Pool};

fn chunkservers(map: &ClusterMap) -> impl Iterator<Item = NodeId> {
    let all = map.nodes.iter().filter(|(_, node)| node.pin.roles.contains(Role::Chunkserver));
    all.map(|(id, _)| *id)
}

impl Controller {
    pub(super) fn chunkserver_pool(&self) -> Result<&Arc<Pool>> {
        let none = || Error::NotImplemented("this master has no way to chunkservers".into());
        self.pool.as_ref().ok_or_else(none)
    }

    /// Orders a scrub of every chunkserver, or returns its state. `run` is the number of the scrub;
    /// 0 stands for the scrub that runs or ended last.
    ///
    /// # Errors
    /// `Unavailable` if this master serves no longer.
    pub async fn scrub(&self, run: u64, order: RunOrder) -> Result<Vec<(NodeId, NodeScrub)>> {
        check_number("a scrub", run, order)?;
        let pool = self.chunkserver_pool()?;
        let current = self.keeper.current();
        self.master.check_serving()?;
        let map = &*current;
        let each = chunkservers(map).map(|node| async move {
            let said = pool.scrub(map, node, run, order).await;
            let scrub = said.unwrap_or_else(|refused| silent(&refused.error));
            (node, scrub)
        });
        Ok(join_all(each).await)
    }

    /// The objects that a scrub found damaged, and those in groups that lack members; nothing while
    /// they, or those of another scrub, are being looked up. To be asked again then.
    ///
    /// # Errors
    /// `Unavailable` if this master serves no longer.
    pub fn degraded(self: &Arc<Self>, run: u64) -> Result<Option<Arc<DegradedObjects>>> {
        self.chunkserver_pool()?;
        self.master.check_serving()?;
        let epoch = self.keeper.current().epoch;
        match self.naming.turn((run, epoch), Instant::now()) {
            Turn::Wait => return Ok(None),
            Turn::Done(named) => return Ok(Some(named)),
            Turn::Begin => {}
        }
        let controller = Arc::clone(self);
        tokio::spawn(async move {
            let named = controller.look_up(run).await.unwrap_or_else(|error| {
                tracing::warn!(%error, "degraded objects were not named");
                let silent = vec![(controller.node, error.to_string())];
                DegradedObjects { silent, ..DegradedObjects::default() }
            });
            controller.naming.end(named, Instant::now());
        });
        Ok(None)
    }

    async fn look_up(&self, run: u64) -> Result<DegradedObjects> {
        let pool = self.chunkserver_pool()?;
        let map = self.keeper.current();
        let known = &*map;
        let each = chunkservers(known)
            .map(|node| async move { (node, pool.found(known, node, run).await) })
            .collect::<Vec<_>>();
        let (mut found, mut silent) = (Vec::<(NodeId, Vec<FoundBlock>)>::new(), Vec::new());
        for (node, said) in join_all(each).await {
            match said {
                Ok(blocks) => found.push((node, blocks)),
                Err(refused) => silent.push((node, refused.error.to_string())),
            }
        }
        let (going, findings) = (Going::new(self.master.clone()), Findings::of(&found));
        let _over = going.guard();
        // A chunkserver lists no more than that.
        let is_full = found.iter().any(|(_, blocks)| blocks.len() >= FOUND);
        let naming = tokio::task::spawn_blocking(move || {
            let snapshot = going.snapshot()?;
            name_all(&PacedSnapshot::new(&*snapshot, &going), &map, &findings)
        });
        let named = naming.await.map_err(|error| Error::Unavailable(error.to_string()))?;
        let named = named?;
        Ok(DegradedObjects { silent, is_cut: named.is_cut || is_full, ..named })
    }
}

/// Checks that an order to begin has a number.
///
/// # Errors
/// `Invalid` if `run` is 0 and a new run is to begin.
pub(super) fn check_number(what: &str, run: u64, order: RunOrder) -> Result<()> {
    match (run, order) {
        (0, RunOrder::Begin) => {
            Err(Error::Invalid(format!("{what} to begin needs a number other than 0")))
        }
        _ => Ok(()),
    }
}

/// Makes the state of a chunkserver that did not answer.
fn silent(error: &Error) -> NodeScrub {
    let failure = match error {
        Error::Invalid(_) | Error::NotImplemented(_) => {
            "its version scrubs on its own only: upgrade it".to_owned()
        }
        error => error.to_string(),
    };
    NodeScrub { phase: ScrubPhase::Silent, failure, ..NodeScrub::default() }
}
