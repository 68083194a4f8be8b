//! The map as the master that serves has it, and its changes.

use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use cairn_auth::Caller;
use cairn_base::{Applicant, ClusterMap, Error, JoinGrant, NodeId, Result, Timestamp, TokenId};
use cairn_meta::Master;
use cairn_meta::ops::cluster::{GetMap, IssueToken, PutMap, RedeemToken};

use super::agent::NodeView;
use crate::data::MapSource;
use crate::identity::Tokens;

/// Attempts at a change while other changes keep coming first.
const ATTEMPTS: usize = 20;

/// Keeps the map of a master.
pub struct MapKeeper {
    master: Master,
    current: ArcSwap<ClusterMap>,
    /// The view that this node uses when it lets others in.
    view: Arc<NodeView>,
}

impl MapKeeper {
    /// Reads the map, and keeps it from now on.
    ///
    /// # Errors
    /// `NotFound` if the metadata is not that of a cluster.
    pub async fn start(master: Master, view: Arc<NodeView>) -> Result<Arc<MapKeeper>> {
        let keeper = MapKeeper { master, current: ArcSwap::default(), view };
        keeper.load().await?;
        Ok(Arc::new(keeper))
    }

    pub fn current(&self) -> Arc<ClusterMap> {
        self.current.load_full()
    }

    /// Reads the map: operations other than edits change it too.
    pub async fn load(&self) -> Result<Arc<ClusterMap>> {
        let row = self.master.read(&Caller::system(), GetMap).await?;
        let missing = || {
            Error::NotFound(
                "there is no cluster map: make the cluster with `cairn cluster init`".into(),
            )
        };
        let map = Arc::new(ClusterMap::decode(&row.ok_or_else(missing)?)?);
        self.offer(Arc::clone(&map));
        Ok(map)
    }

    fn offer(&self, map: Arc<ClusterMap>) {
        self.view.adopt(&map);
        self.current.rcu(|known| {
            if known.epoch < map.epoch { Arc::clone(&map) } else { Arc::clone(known) }
        });
    }

    /// Changes the map, unless `change` leaves it as it is. `change` is called again if other
    /// changes came first. The change is durable when this returns.
    pub async fn edit(
        &self,
        change: impl Fn(&mut ClusterMap) -> Result<()> + Send + Sync,
    ) -> Result<Arc<ClusterMap>> {
        for _ in 0..ATTEMPTS {
            let former = self.current();
            let mut next = ClusterMap::clone(&former);
            change(&mut next)?;
            next.epoch = former.epoch;
            if next == *former {
                // The map as it is now, and not as a replaced master knew it.
                if self.load().await?.epoch == former.epoch {
                    return Ok(former);
                }
                continue;
            }
            next.follow(&former);
            let put = PutMap { map: next.encode() };
            match self.master.run(&Caller::system(), put).await {
                Ok(()) => {
                    let next = Arc::new(next);
                    self.offer(Arc::clone(&next));
                    return Ok(next);
                }
                Err(Error::Conflict(_)) => drop(self.load().await?),
                Err(error) => return Err(error),
            }
        }
        Err(Error::Unavailable("the cluster map was changed by others at each attempt".into()))
    }
}

#[async_trait]
impl MapSource for MapKeeper {
    fn current(&self) -> Arc<ClusterMap> {
        MapKeeper::current(self)
    }

    async fn at_least(&self, epoch: u64) -> Result<Arc<ClusterMap>> {
        let map = self.current();
        if map.epoch >= epoch {
            Ok(map)
        } else {
            Err(Error::Unavailable(format!("this master has no cluster map of epoch {epoch} yet")))
        }
    }
}

#[async_trait]
impl Tokens for MapKeeper {
    async fn issue(&self, id: TokenId, grant: JoinGrant) -> Result<()> {
        let (hash, roles) = (grant.hash.to_bytes(), grant.roles.bits());
        let issue = IssueToken { id, hash, roles, expires: grant.expires };
        self.master.run(&Caller::system(), issue).await
    }

    /// The time of the master's own clock decides.
    async fn redeem(&self, id: TokenId, applicant: Applicant, _: Timestamp) -> Result<NodeId> {
        let Applicant { hash, key, roles } = applicant;
        let redeem = RedeemToken { id, hash: hash.to_bytes(), key: key.0, roles: roles.bits() };
        let node = self.master.run(&Caller::system(), redeem).await?;
        self.load().await?;
        Ok(node)
    }
}
