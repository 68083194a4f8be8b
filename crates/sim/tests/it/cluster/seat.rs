//! Masters that keep the metadata together: the disk of each, and its member, whose messages go
//! over the same network as all others; and what the world sees of them.

use std::collections::BTreeSet;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{ClusterMap, Error, NodeId, Result, Role, Threads};
use cairn_cluster::control::NodeView;
use cairn_cluster::members::WirePeers;
use cairn_meta::engine::embedded::Config;
use cairn_meta::engine::raft::{Peers, RaftEngine, Seams};
use cairn_meta::engine::{Engine, Later, Snapshot};
use cairn_meta::keys;
use cairn_roles::{Node, enter};
use cairn_sim::SimDisk;
use tokio::time::sleep;

use super::database::SharedDatabase;
use super::host::Given;
use super::net::{Purpose, address_of};
use super::roles::Surroundings;
use super::world::{Layout, World};
use crate::member::{MemberShown, config};

/// Between two looks of a master at its member and at the map in its rows.
const LOOK: Duration = Duration::from_millis(250);
/// Node that makes the first rows, if masters share a database.
const MAKER: NodeId = NodeId(3000);
/// Generation of a new log.
const FIRST_GENERATION: u64 = 1;

/// The place of a master, with everything that it owns.
#[derive(Clone)]
pub struct Seat {
    pub disk: SimDisk,
    pub shown: MemberShown,
}

/// Rows hold the bytes of small objects, so logs are larger than those of masters alone.
fn config_of(all: &Surroundings) -> Config {
    let (memtable_bytes, log_segment_bytes) = (64 << 10, 512 << 10);
    Config { memtable_bytes, log_segment_bytes, ..config(&all.rng) }
}

impl Seat {
    pub fn new(seed: u64) -> Seat {
        Seat { disk: SimDisk::new(seed), shown: MemberShown::default() }
    }

    /// Makes a log whose only member is that of `node`, as `cairn cluster init` does.
    pub async fn found(
        &self,
        all: &Surroundings,
        node: NodeId,
        given: &Given,
    ) -> Result<Arc<RaftEngine>> {
        let seams = Seams {
            peers: Arc::new(Nobody),
            clock: Arc::clone(&given.clock),
            rng: Arc::clone(&all.rng) as _,
            threads: Some(Arc::clone(&given.threads)),
        };
        self.shown.make(&self.disk, &config_of(all), node.0, FIRST_GENERATION)?;
        let engine = self.shown.open(&self.disk, config_of(all), node.0, seams).await?;
        engine.member().found(&BTreeSet::from([node.0])).await?;
        engine.wait_for_turn().await?;
        Ok(engine)
    }

    /// Begins to take part. A new master asks first whether it may.
    pub async fn open(
        &self,
        all: &Surroundings,
        own: &Node,
        threads: &Arc<dyn Threads>,
    ) -> Result<Arc<RaftEngine>> {
        let node = own.id();
        if !self.shown.has_entered() {
            let generation = enter(&own.agent).await?.generation;
            self.shown.make(&self.disk, &config_of(all), node.0, generation)?;
        }
        let dialer = all.net.dialer(node, Role::Master.into(), Purpose::Wire);
        let known = all.masters.iter().map(|master| address_of(*master)).collect();
        let peers = WirePeers::new(dialer, own.terms.clone(), Arc::clone(&own.view), known);
        let seams = Seams {
            peers: Arc::new(peers),
            clock: Arc::clone(&own.clock),
            rng: Arc::clone(&own.rng),
            threads: Some(Arc::clone(threads)),
        };
        let engine = self.shown.open(&self.disk, config_of(all), node.0, seams).await?;
        if let Some(map) = map_of(&engine)? {
            own.view.adopt_rows(&Arc::new(map));
        }
        Ok(engine)
    }
}

/// Has `view` follow the map in the rows of the member, as the process of a master does. Ends when
/// the member can take no further part.
pub async fn attend(engine: Arc<RaftEngine>, view: Arc<NodeView>) -> String {
    loop {
        if let Some(why) = engine.member().superseded() {
            return why;
        }
        match engine.member().status().await.map(|status| status.failure) {
            Ok(None) => {}
            Ok(Some(why)) => return why,
            Err(error) => return error.to_string(),
        }
        match map_of(&engine) {
            Ok(map) => map.into_iter().for_each(|map| view.adopt_rows(&Arc::new(map))),
            Err(error) => tracing::warn!(%error, "the cluster map was not read"),
        }
        sleep(LOOK).await;
    }
}

fn map_of(engine: &RaftEngine) -> Result<Option<ClusterMap>> {
    let (_, rows) = engine.read(&[keys::map()])?;
    rows.into_iter().next().flatten().as_ref().map(ClusterMap::decode).transpose()
}

/// Nobody is reached: for the only member of a log.
struct Nobody;

impl Peers for Nobody {
    fn send(&self, _: u64, _: Bytes) -> Later<Result<Bytes>> {
        Box::pin(ready(Err(Error::Unavailable("there are no others".into()))))
    }
}

/// The metadata of a new cluster, and its first member, if masters keep them together.
pub async fn begin(
    all: &Surroundings,
    given: &Given,
) -> (Arc<dyn Engine>, Option<Arc<RaftEngine>>) {
    let first = all.masters[0];
    if let Some(seat) = all.seats.get(&first) {
        let engine = seat.found(all, first, given).await.unwrap();
        return (Arc::clone(&engine) as _, Some(engine));
    }
    let turn = all.database.wait_for_turn(MAKER).await;
    let seams = (Arc::clone(&given.clock), Arc::clone(&given.threads));
    (SharedDatabase::new(&all.database, MAKER, turn, seams) as _, None)
}

/// Ends a member whose master has ended: the next one need not wait for a lease.
pub async fn close(engine: &RaftEngine) {
    engine.give_up();
    engine.given_up().await;
    engine.member().close().await;
}

impl World {
    /// The master that serves, and nobody else can, with its rows: all that is acknowledged is in
    /// them.
    pub fn serving_master(&self) -> Option<(NodeId, Arc<RaftEngine>)> {
        let mut found = None;
        for (node, seat) in &self.all.seats {
            let engine = seat.shown.engine.lock().clone();
            let host = self.hosts.get(node).filter(|host| host.paused_us.is_none());
            let (Some(engine), Some(host)) = (engine, host) else { continue };
            host.inside(|| {
                if engine.lease().is_some_and(|lease| lease.is_held()) {
                    found = Some((*node, engine));
                }
            });
        }
        found
    }

    /// All rows of the metadata.
    pub fn rows(&self) -> Result<Box<dyn Snapshot>, String> {
        let rows = match (self.layout.together, self.serving_master()) {
            (false, _) => self.all.database.rows.snapshot(),
            (true, Some((_, engine))) => engine.snapshot(),
            (true, None) => return Err("no master serves".into()),
        };
        rows.map_err(|error| error.to_string())
    }

    /// Between the master that serves and this gateway, and all other masters and gateways.
    pub fn ways_beside(&self, gateway: NodeId) -> Vec<(NodeId, NodeId)> {
        let Layout { masters, gateways, .. } = &self.layout;
        let serving = self.serving_master().map_or(masters[0], |(node, _)| node);
        let others = masters.iter().chain(gateways);
        let others = others.filter(|node| **node != serving && **node != gateway);
        let ways = |other: &NodeId| {
            [(*other, serving), (serving, *other), (*other, gateway), (gateway, *other)]
        };
        others.flat_map(ways).collect()
    }
}
