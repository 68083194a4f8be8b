//! Scrubs of all chunkservers of a cluster, as the master that serves has them made. It keeps
//! nothing of them: a scrub is known by its number at the chunkservers, so another master can go
//! on.

#![expect(clippy::disallowed_methods, reason = "names are looked up on a thread that may block")]

use std::sync::Arc;

use cairn_base::{ClusterMap, Error, NodeId, Result, Role};
use futures_util::future::join_all;

use super::controller::Controller;
use super::degraded::{DegradedObjects, Findings, Named, name_all};
use crate::data::{FoundBlock, NodeScrub, Pool, ScrubOrder, ScrubPhase};

fn chunkservers(map: &ClusterMap) -> impl Iterator<Item = NodeId> {
    let all = map.nodes.iter().filter(|(_, node)| node.pin.roles.contains(Role::Chunkserver));
    all.map(|(id, _)| *id)
}

impl Controller {
    fn chunkserver_pool(&self) -> Result<&Arc<Pool>> {
        let none = || Error::NotImplemented("this master has no way to chunkservers".into());
        self.pool.as_ref().ok_or_else(none)
    }

    /// Orders a scrub of every chunkserver, or asks how that stands. `run` is the number of the
    /// scrub; 0 for whichever runs or ended last.
    ///
    /// # Errors
    /// `Unavailable` if this master serves no longer.
    pub async fn scrub(&self, run: u64, order: ScrubOrder) -> Result<Vec<(NodeId, NodeScrub)>> {
        if run == 0 && order == ScrubOrder::Begin {
            return Err(Error::Invalid("a scrub to begin needs a number other than 0".into()));
        }
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
    /// they are being looked up. To be asked again then.
    ///
    /// # Errors
    /// `Conflict` while those of another scrub are being looked up.
    pub fn degraded(self: &Arc<Self>, run: u64) -> Result<Option<Arc<DegradedObjects>>> {
        self.chunkserver_pool()?;
        self.master.check_serving()?;
        {
            let mut latest = self.naming.latest.lock();
            match &*latest {
                Some((of, Named::Done(named))) if *of == run => {
                    let named = Arc::clone(named);
                    // Whoever asks after this gets them as they are then.
                    *latest = None;
                    return Ok(Some(named));
                }
                Some((of, Named::Working)) if *of == run => return Ok(None),
                Some((_, Named::Working)) => {
                    let text = "the objects of another scrub are being looked up: ask again later";
                    return Err(Error::Conflict(text.into()));
                }
                _ => *latest = Some((run, Named::Working)),
            }
        }
        let controller = Arc::clone(self);
        tokio::spawn(async move {
            let named = controller.look_up(run).await;
            let mut latest = controller.naming.latest.lock();
            *latest = match named {
                Ok(named) => Some((run, Named::Done(Arc::new(named)))),
                Err(error) => {
                    tracing::warn!(%error, "degraded objects were not named");
                    let silent = vec![(controller.node, error.to_string())];
                    let named = DegradedObjects { silent, ..DegradedObjects::default() };
                    Some((run, Named::Done(Arc::new(named))))
                }
            };
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
        let (master, findings) = (self.master.clone(), Findings::of(&found));
        let naming = tokio::task::spawn_blocking(move || {
            let snapshot = master.snapshot()?;
            name_all(&*snapshot, &map, &findings)
        });
        let named = naming.await.map_err(|error| Error::Unavailable(error.to_string()))?;
        Ok(DegradedObjects { silent, ..named? })
    }
}

/// What is known of a chunkserver that did not answer.
fn silent(error: &Error) -> NodeScrub {
    let failure = match error {
        Error::Invalid(_) | Error::NotImplemented(_) => {
            "its version scrubs on its own only: upgrade it".to_owned()
        }
        error => error.to_string(),
    };
    NodeScrub { phase: ScrubPhase::Silent, failure, ..NodeScrub::default() }
}
