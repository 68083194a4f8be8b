//! Connections from this master's member to the others: one to each, made when it is needed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{Error, NodeId, Result, Role};
use cairn_meta::engine::Later;
use cairn_meta::engine::raft::Peers;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::control::NodeView;
use crate::control::messages::ControlMethod;
use crate::limits::{DIAL, MEMBER_CALL, MEMBER_REDIAL};
use crate::wire::{Dial, NoService, Peer, Terms, connect};

/// Finds members by the cluster map that this node has. The map comes from rows that its own member
/// has applied, so no leader is needed for that.
pub struct WirePeers {
    shared: Arc<PeersShared>,
}

struct PeersShared {
    dialer: Arc<dyn Dial>,
    terms: Terms,
    view: Arc<NodeView>,
    /// Addresses that masters had when this master last ran.
    former: Vec<String>,
    ways: Mutex<BTreeMap<u64, Arc<Way>>>,
}

/// The connection to one member.
#[derive(Default)]
struct Way {
    peer: Mutex<Option<Peer>>,
    /// Held by the task that dials, with the time and the text of the last failure.
    dialing: tokio::sync::Mutex<Option<(Instant, String)>>,
}

impl WirePeers {
    /// Makes the connections. `terms` are those of this master; `former` has earlier addresses of
    /// masters, for those that are not in the map yet.
    pub fn new(
        dialer: Arc<dyn Dial>,
        mut terms: Terms,
        view: Arc<NodeView>,
        former: Vec<String>,
    ) -> WirePeers {
        terms.expects = Some(Role::Master);
        let ways = Mutex::default();
        WirePeers { shared: Arc::new(PeersShared { dialer, terms, view, former, ways }) }
    }
}

impl Peers for WirePeers {
    fn send(&self, member: u64, message: Bytes) -> Later<Result<Bytes>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let peer = shared.peer(member).await?;
            peer.call(ControlMethod::Member as u16, message, MEMBER_CALL).await
        })
    }

    fn former(&self) -> BTreeSet<u64> {
        self.shared.view.newest().former.keys().map(|node| node.0).collect()
    }
}

impl Way {
    fn usable(&self) -> Option<Peer> {
        self.peer.lock().as_ref().filter(|peer| peer.is_usable()).cloned()
    }
}

impl PeersShared {
    async fn peer(self: Arc<Self>, member: u64) -> Result<Peer> {
        let way = Arc::clone(self.ways.lock().entry(member).or_default());
        if let Some(peer) = way.usable() {
            return Ok(peer);
        }
        // A task of its own dials: a caller that stops waiting does not interrupt it.
        let dialing = tokio::spawn(async move { self.dial(&way, member).await });
        let ended = |_| Err(Error::Unavailable("this node is stopping".into()));
        dialing.await.unwrap_or_else(ended)
    }

    async fn dial(&self, way: &Way, member: u64) -> Result<Peer> {
        let mut last = way.dialing.lock().await;
        if let Some(peer) = way.usable() {
            return Ok(peer);
        }
        if let Some((at, why)) = &*last
            && at.elapsed() < MEMBER_REDIAL
        {
            return Err(Error::Unavailable(why.clone()));
        }
        let late = |_| Error::Unavailable(format!("no answer within {DIAL:?}"));
        let dialed = timeout(DIAL, self.connect(NodeId(member))).await.map_err(late);
        match dialed.and_then(|dialed| dialed) {
            Ok(peer) => {
                tracing::debug!(peer = %peer.info(), "connected to another master");
                *way.peer.lock() = Some(peer.clone());
                *last = None;
                Ok(peer)
            }
            Err(error) => {
                let why = format!("member {member}: {error}");
                *last = Some((Instant::now(), why.clone()));
                Err(Error::Unavailable(why))
            }
        }
    }

    async fn connect(&self, node: NodeId) -> Result<Peer> {
        let map = self.view.newest();
        let known = map.nodes.get(&node).or_else(|| map.former.get(&node));
        let known = known.map(|known| known.address.clone());
        let addresses = match known.filter(|address| !address.is_empty()) {
            Some(address) => vec![address],
            None => self.former.clone(),
        };
        let mut last = Error::Unavailable(format!("no address of node {node} is known"));
        for address in addresses {
            match self.dialer.dial(&address).await {
                Ok(link) if link.peer.node == node => {
                    return connect(link, &self.terms, NoService).await;
                }
                Ok(link) => {
                    let found = link.peer.node;
                    last = Error::Denied(format!("node {found} is at {address}"));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}
