//! A node's side: it beats, has the map, and finds the master that serves.

#![expect(clippy::disallowed_methods, reason = "what is noted on disk is for the next start")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::inflight::WaitTarget;
use cairn_base::waits;
use cairn_base::{CapabilitySet, Clock, ClusterMap, Error, NodeId, Pin, Result, Rng, Role, Roles};
use cairn_meta::session::{self, Dialed, LostCall, Reply};
use cairn_meta::{Watched, wire};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::messages::{Beat, Beaten, ControlMethod};
use super::silence::Silence;
use crate::data::{Loads, MapSource, NodeLoad};
use crate::identity::{Directory, DirectoryContents, Identity, KnownNode, Pins};
use crate::wire::tls::{TlsDialer, Trust};
use crate::wire::{Dial, Peer, Reconnect, Retry, Service, Terms};

/// Interval of beats.
const BEAT: Duration = Duration::from_millis(500);

/// A node's view of the other nodes: the map, or the masters by which it joined until it has a map.
pub struct NodeView {
    known: Vec<KnownNode>,
    map: ArcSwap<ClusterMap>,
    /// The map in the rows of a member, which may be behind.
    rows: ArcSwap<ClusterMap>,
}

impl NodeView {
    pub fn new(known: Vec<KnownNode>) -> Arc<NodeView> {
        Arc::new(NodeView { known, map: ArcSwap::default(), rows: ArcSwap::default() })
    }

    pub fn map(&self) -> Arc<ClusterMap> {
        self.map.load_full()
    }

    /// Adopts a map if it is newer.
    pub fn adopt(&self, map: &Arc<ClusterMap>) {
        adopt_newer(&self.map, map);
    }

    /// Adopts the map in the rows of a member if it is newer. After a start it may be behind, and
    /// lack masters that this node knew before: these are let in as well, until there is a map from
    /// a master that serves.
    pub fn adopt_rows(&self, map: &Arc<ClusterMap>) {
        adopt_newer(&self.rows, map);
    }

    /// Returns the newest map, whether it comes from a master that serves or not.
    pub fn newest(&self) -> Arc<ClusterMap> {
        let (map, rows) = (self.map.load_full(), self.rows.load_full());
        if rows.epoch > map.epoch { rows } else { map }
    }

    /// Returns the same pins and the masters that were given up, for a master. These must be let in
    /// to learn that they were given up; [`ControlService`](super::ControlService) tells them
    /// nothing else.
    pub fn with_former(self: &Arc<Self>) -> Arc<dyn Pins> {
        Arc::new(WithFormer(Arc::clone(self)))
    }

    /// Returns masters that count in addition to those of [`NodeView::newest`].
    fn further(&self) -> &[KnownNode] {
        if self.map.load().epoch > 0 { &[] } else { &self.known }
    }
}

fn adopt_newer(held: &ArcSwap<ClusterMap>, map: &Arc<ClusterMap>) {
    held.rcu(|old| if old.epoch < map.epoch { Arc::clone(map) } else { Arc::clone(old) });
}

impl Pins for NodeView {
    fn pin(&self, node: NodeId) -> Option<Pin> {
        let known = || self.further().iter().find(|known| known.node == node);
        self.newest().pin(node).or_else(|| known().map(|known| known.pin))
    }

    fn nodes(&self, role: Role) -> Vec<(NodeId, Pin)> {
        let map = self.newest();
        let of_map = map.nodes.iter().map(|(node, one)| (*node, one.pin));
        let further = self.further().iter().filter(|known| !map.nodes.contains_key(&known.node));
        let all = of_map.chain(further.map(|known| (known.node, known.pin)));
        all.filter(|(_, pin)| pin.roles.contains(role)).collect()
    }

    fn required(&self) -> CapabilitySet {
        self.newest().capabilities
    }
}

struct WithFormer(Arc<NodeView>);

impl Pins for WithFormer {
    fn pin(&self, node: NodeId) -> Option<Pin> {
        let known = self.0.pin(node);
        let Some(former) = self.0.newest().former.get(&node).map(|former| former.pin) else {
            return known;
        };
        let roles = known.map_or(Roles::NONE, |known| known.roles);
        Some(Pin { roles: roles.with(Role::Master), ..former })
    }

    fn nodes(&self, role: Role) -> Vec<(NodeId, Pin)> {
        self.0.nodes(role)
    }

    fn required(&self) -> CapabilitySet {
        self.0.required()
    }
}

/// Notices every epoch of the map, or the newest of several.
pub struct Epochs {
    epoch: Arc<Watched<u64>>,
    seen: u64,
}

impl Epochs {
    /// Waits for an epoch that it has not returned before.
    pub async fn changed(&mut self) {
        let seen = self.seen;
        let newer = |epoch: &u64| (*epoch != seen).then_some(*epoch);
        self.seen = self.epoch.wait_for(newer).await;
    }
}

/// A node's proof of its identity, and the directory in which it is kept.
struct Papers {
    identity: Arc<Identity>,
    directory: Arc<Directory>,
    /// The epoch of the last map whose masters were noted.
    remembered: Arc<Mutex<u64>>,
}

impl Papers {
    /// Notes the addresses of the masters for the next start, on a thread that may wait for the
    /// disk. Of several maps the newest stays.
    fn remember(&self, epoch: u64, masters: Vec<KnownNode>, addresses: Vec<String>) {
        let (directory, remembered) = (Arc::clone(&self.directory), Arc::clone(&self.remembered));
        let noting = move || {
            let mut latest = remembered.lock();
            if *latest >= epoch {
                return;
            }
            match directory.remember_masters(&masters, &addresses) {
                Ok(()) => *latest = epoch,
                Err(error) => tracing::warn!(%error, "the masters were not noted"),
            }
        };
        // No task waits for it.
        drop(tokio::task::spawn_blocking(noting));
    }
}

/// Speaks with the master that serves, whichever that is.
pub struct Agent {
    pub(super) reconnect: Reconnect<Recalls>,
    recalls: Recalls,
    pub(super) view: Arc<NodeView>,
    node: NodeId,
    papers: Option<Papers>,
    pub(super) clock: Arc<dyn Clock>,
    /// Addresses of masters from the time when this node joined.
    addresses: Vec<String>,
    /// The master that a session was attached to last.
    found: Mutex<Option<(NodeId, String)>>,
    epoch: Arc<Watched<u64>>,
    loads: Loads,
    /// Set when other nodes may have taken this node for down.
    away: AtomicBool,
    /// Set while a master has answered the last beat.
    heard: AtomicBool,
    pub(super) silence: Silence,
}

impl Agent {
    pub fn new(
        directory: Arc<Directory>,
        loaded: &DirectoryContents,
        role: Role,
        view: Arc<NodeView>,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
    ) -> Result<Arc<Agent>> {
        let identity = Arc::clone(&loaded.identity);
        let pins = Arc::clone(&view) as Arc<dyn Pins>;
        let trust = Trust { identity: Arc::clone(&identity), pins, clock: Arc::clone(&clock) };
        let dialer = Arc::new(TlsDialer::new(trust)?);
        let terms = Terms::new(identity.cluster(), identity.node(), role);
        let addresses = loaded.addresses.clone();
        if addresses.is_empty() {
            return Err(Error::Invalid(
                "the directory names no address of a master: join again with a new token".into(),
            ));
        }
        let papers = Some(Papers { identity, directory, remembered: Arc::default() });
        Ok(Agent::over(dialer, terms, addresses, papers, view, clock, rng))
    }

    /// Makes an agent on a network without TLS.
    pub fn without_tls(
        dialer: Arc<dyn Dial>,
        terms: Terms,
        addresses: Vec<String>,
        view: Arc<NodeView>,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
    ) -> Arc<Agent> {
        Agent::over(dialer, terms, addresses, None, view, clock, rng)
    }

    fn over(
        dialer: Arc<dyn Dial>,
        mut terms: Terms,
        addresses: Vec<String>,
        papers: Option<Papers>,
        view: Arc<NodeView>,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
    ) -> Arc<Agent> {
        let node = terms.node;
        terms.expects = Some(Role::Master);
        let recalls = Recalls::default();
        let reconnect = Reconnect::new(
            dialer,
            addresses.clone(),
            terms,
            recalls.clone(),
            rng,
            Retry { most: Duration::from_millis(500), ..Retry::default() },
        );
        let (epoch, loads) = (Arc::default(), Loads::default());
        Arc::new(Agent {
            reconnect,
            recalls,
            view,
            node,
            papers,
            clock,
            addresses,
            found: Mutex::default(),
            epoch,
            loads,
            away: AtomicBool::new(true),
            heard: AtomicBool::new(false),
            silence: Silence::default(),
        })
    }

    pub fn node(&self) -> NodeId {
        self.node
    }

    pub fn view(&self) -> &Arc<NodeView> {
        &self.view
    }

    /// Returns the changes of the map's epoch.
    pub fn epochs(&self) -> Epochs {
        Epochs { epoch: Arc::clone(&self.epoch), seen: self.epoch.get() }
    }

    /// Returns how full chunkservers are, as the master heard last.
    pub fn loads(&self) -> Loads {
        Arc::clone(&self.loads)
    }

    /// Returns true if other nodes may have taken this node for down since the last call.
    pub fn was_away(&self) -> bool {
        self.away.swap(false, Ordering::SeqCst)
    }

    /// Returns true if a master that serves has answered the last beat.
    pub fn hears_master(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }

    /// Waits until there is a map.
    pub async fn has_map(&self) {
        self.epoch.wait_for(|epoch| (*epoch > 0).then_some(())).await;
    }

    fn adopt(&self, row: &Bytes) -> Result<()> {
        let map = ClusterMap::decode(row)?;
        map.check()?;
        self.view.adopt(&Arc::new(map));
        self.follow();
        Ok(())
    }

    /// Follows the map that this node has, from whatever source: on the master that serves it comes
    /// from no other node.
    fn follow(&self) {
        let map = self.view.map();
        self.away.fetch_or(!map.is_up(self.node), Ordering::SeqCst);
        let is_new = self.epoch.modify(|epoch| std::mem::replace(epoch, map.epoch) < map.epoch);
        if !is_new {
            return;
        }
        let masters = map.masters().map(|(id, node)| KnownNode { node: id, pin: node.pin });
        let masters: Vec<KnownNode> = masters.collect();
        let mut addresses = map.master_addresses();
        if let Some(papers) = &self.papers {
            papers.remember(map.epoch, masters, addresses.clone());
        }
        let further = self.addresses.iter().filter(|address| !addresses.contains(address));
        let further: Vec<String> = further.cloned().collect();
        addresses.extend(further);
        self.reconnect.set_addresses(addresses);
    }

    /// Asks the master that serves. A request may be carried out twice.
    pub async fn call<M: Serialize, R: DeserializeOwned>(
        &self,
        method: ControlMethod,
        message: &M,
    ) -> Result<R> {
        wire::decode(&self.ask(method, wire::encode(message)?, waits::SESSION_ANSWER).await?)
    }

    /// Calls like [`Agent::call`], for methods whose answer has no content.
    pub async fn tell<M: Serialize>(&self, method: ControlMethod, message: &M) -> Result<()> {
        self.ask(method, wire::encode(message)?, waits::SESSION_ANSWER).await.map(drop)
    }

    /// Calls like [`Agent::call`], with a message and an answer in bytes, within a given time.
    pub async fn ask(
        &self,
        method: ControlMethod,
        message: Bytes,
        within: Duration,
    ) -> Result<Bytes> {
        let deadline = Instant::now() + within;
        loop {
            let peer = self.reconnect.peer(deadline).await.map_err(unreached)?;
            let left = deadline.saturating_duration_since(Instant::now());
            match peer.call(method as u16, message.clone(), left).await {
                Err(Error::Unavailable(why)) => {
                    self.reconnect.leave(&peer);
                    if Instant::now() + waits::MASTER_RETRY >= deadline {
                        return Err(Error::Unavailable(why));
                    }
                    sleep(waits::MASTER_RETRY).await;
                }
                answer => return answer,
            }
        }
    }

    /// Opens a separate connection to the master that serves, over which recalls come. It is apart
    /// from that of this node, so that neither waits for the other, and each can end without the
    /// other.
    ///
    /// # Errors
    /// `Unavailable` if no master serves within `patience`.
    pub async fn connect(&self, patience: Duration) -> Result<(Peer, UnboundedReceiver<Bytes>)> {
        let taken = Recalls::default();
        self.find_serving(&self.reconnect.beside(taken.clone()), &taken, patience).await
    }

    /// Sends beats until it is dropped. `beat` returns the state of the node.
    pub async fn beat(&self, beat: impl Fn() -> Beat + Send) {
        let mut timer = interval(BEAT);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut was_heard = true;
        loop {
            timer.tick().await;
            self.follow();
            let sent = self.clock.monotonic();
            let beaten = self.beat_once(Beat { epoch: self.view.map().epoch, ..beat() }).await;
            match &beaten {
                Err(error) if was_heard => {
                    tracing::warn!(%error, "no master serves: `cairn cluster status` says why")
                }
                Ok(()) if !was_heard => tracing::info!("a master serves again"),
                _ => {}
            }
            was_heard = beaten.is_ok();
            if was_heard {
                self.silence.end(sent);
            }
            self.heard.store(was_heard, Ordering::Relaxed);
            self.away.fetch_or(!was_heard, Ordering::SeqCst);
            if was_heard
                && let Some(papers) = &self.papers
                && papers.identity.is_due(self.clock.now())
                && let Err(error) = self.renew(papers).await
            {
                tracing::warn!(%error, "the certificate was not renewed");
            }
        }
    }

    async fn beat_once(&self, beat: Beat) -> Result<()> {
        let answer = self.ask(ControlMethod::Beat, wire::encode(&beat)?, waits::BEAT).await?;
        let Beaten { map, free_bytes } = wire::decode(&answer)?;
        let loads =
            free_bytes.into_iter().map(|(node, free_bytes)| (node, NodeLoad { free_bytes }));
        *self.loads.write() = loads.collect();
        map.map_or(Ok(()), |row| self.adopt(&row))
    }

    async fn renew(&self, papers: &Papers) -> Result<()> {
        let answer = self.ask(ControlMethod::Certify, Bytes::new(), waits::BEAT).await?;
        let certificate = CertificateDer::from(answer.to_vec());
        papers.identity.renew(certificate.clone(), self.clock.now())?;
        papers.directory.save_node_certificate(&certificate)?;
        tracing::info!("certificate renewed");
        Ok(())
    }
}

#[async_trait]
impl MapSource for Agent {
    fn current(&self) -> Arc<ClusterMap> {
        self.view.map()
    }

    async fn at_least(&self, epoch: u64) -> Result<Arc<ClusterMap>> {
        let map = self.view.map();
        if map.epoch >= epoch {
            return Ok(map);
        }
        let row = self.ask(ControlMethod::Map, Bytes::new(), waits::BEAT).await?;
        self.adopt(&row)?;
        let map = self.view.map();
        if map.epoch >= epoch {
            Ok(map)
        } else {
            Err(Error::Unavailable(format!(
                "no reachable master has the cluster map of epoch {epoch}"
            )))
        }
    }
}

/// Takes recalls for the session of this node.
#[derive(Clone, Default)]
pub struct Recalls {
    to: Arc<Mutex<Option<TakenOver>>>,
}

/// Number of the connection over which recalls come, and their destination. Another connection may
/// lead to another master, whose recalls have other numbers.
type TakenOver = (u64, UnboundedSender<Bytes>);

impl Recalls {
    /// Sends recalls of this connection to `to` from now on, and no others.
    pub(crate) fn send_to(&self, peer: &Peer, to: UnboundedSender<Bytes>) {
        *self.to.lock() = Some((peer.info().connection, to));
    }
}

impl Service for Recalls {
    type Reply = std::future::Ready<Result<Bytes>>;

    fn call(&self, peer: &Peer, method: u16, payload: Bytes) -> Self::Reply {
        if method != ControlMethod::Recall as u16 {
            let text = format!("method {method} of a node that is no master");
            return std::future::ready(Err(Error::NotImplemented(text)));
        }
        if let Some((connection, to)) = &*self.to.lock()
            && *connection == peer.info().connection
        {
            // A session that has ended needs no recalls.
            let _ = to.send(payload);
        }
        std::future::ready(Ok(Bytes::new()))
    }

    fn ended(&self, peer: &Peer) {
        // The session must attach again.
        self.to.lock().take_if(|(connection, _)| *connection == peer.info().connection);
    }
}

/// A connection that carries a session.
pub(crate) struct SessionLink {
    pub peer: Peer,
    /// Deadline of an answer while the peer is there.
    pub answer: Duration,
}

#[async_trait]
impl session::MasterLink for SessionLink {
    async fn call(
        &self,
        method: session::SessionMethod,
        message: Bytes,
    ) -> Result<Bytes, LostCall> {
        match self.peer.call(method as u16, message, self.answer).await {
            Ok(answer) => Ok(answer),
            // A method that is newer than the master.
            Err(error @ Error::NotImplemented(_)) => {
                let failed = Reply::<()>::Failed(error);
                wire::encode(&failed).map_err(|error| LostCall(error.to_string()))
            }
            Err(error) => Err(LostCall(error.to_string())),
        }
    }
}

#[async_trait]
impl session::Dialer for Agent {
    async fn dial(&self) -> Result<Dialed> {
        let (peer, recalls) =
            self.find_serving(&self.reconnect, &self.recalls, waits::BEAT).await?;
        let found = &peer.info().authenticated;
        *self.found.lock() = Some((found.node, found.address.clone()));
        Ok((Arc::new(SessionLink { peer, answer: waits::SESSION_ANSWER }), recalls))
    }

    fn generation(&self) -> u64 {
        self.view.map().generation
    }

    fn master(&self) -> WaitTarget {
        match &*self.found.lock() {
            Some((node, address)) => WaitTarget::Node("master", *node, address.clone()),
            None => WaitTarget::Named("master", self.addresses.join(", ").into()),
        }
    }

    fn silence(&self) -> session::MasterSilence {
        self.silence.at(self.clock.monotonic())
    }
}

/// Replaces the refusal of this node by a master: it decides nothing about what the node asks for
/// others.
fn unreached(error: Error) -> Error {
    match error {
        Error::Denied(why) => Error::Unavailable(why),
        error => error,
    }
}

impl Agent {
    /// Finds the connection to the master that serves, and the recalls that come over it.
    async fn find_serving(
        &self,
        reconnect: &Reconnect<Recalls>,
        taken: &Recalls,
        patience: Duration,
    ) -> Result<(Peer, UnboundedReceiver<Bytes>)> {
        let deadline = Instant::now() + patience;
        loop {
            let peer = reconnect.peer(deadline).await.map_err(unreached)?;
            let (sender, recalls) = unbounded_channel();
            taken.send_to(&peer, sender);
            match self.check_serving(&peer, patience).await {
                Ok(()) => return Ok((peer, recalls)),
                Err(error) => {
                    reconnect.leave(&peer);
                    if Instant::now() + waits::MASTER_RETRY >= deadline {
                        return Err(error);
                    }
                    sleep(waits::MASTER_RETRY).await;
                }
            }
        }
    }

    /// Checks that `peer` serves metadata of the current generation. If the metadata began anew,
    /// this node adopts their map before it asks for anything else: they do not contain what it
    /// wrote before.
    async fn check_serving(&self, peer: &Peer, patience: Duration) -> Result<()> {
        let answer = peer.call(ControlMethod::Serves as u16, Bytes::new(), patience).await?;
        // Masters of earlier versions answer with nothing.
        if answer.is_empty() {
            return Ok(());
        }
        let (its, own): (u64, u64) = (wire::decode(&answer)?, self.view.map().generation);
        if its < own {
            return Err(Error::Unavailable(format!(
                "{} serves metadata of generation {its}, and this cluster is at {own}: it was \
                 given up, and must not serve",
                peer.info()
            )));
        }
        if its > own {
            let row = peer.call(ControlMethod::Map as u16, Bytes::new(), patience).await?;
            self.adopt(&row)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc;

    use cairn_base::rng::SeededRng;
    use cairn_base::{ClusterId, Timestamp};

    use super::*;
    use crate::identity::{Ca, NodeKey};

    /// A member that missed that another master joined lets it in, and so learns of it.
    #[test]
    fn masters_that_were_known_count_until_one_serves() {
        let pin = |key| Pin { key: cairn_base::KeyHash([key; 32]), roles: Role::Master.into() };
        let known = [1, 2].map(|node| KnownNode { node: NodeId(node), pin: pin(node as u8) });
        let view = NodeView::new(known.to_vec());
        let map = |epoch, nodes: &[u8]| {
            let node = |node: &u8| (NodeId((*node).into()), cairn_base::map::Node::new(pin(*node)));
            let nodes = nodes.iter().map(node).collect();
            Arc::new(ClusterMap { epoch, nodes, ..ClusterMap::default() })
        };
        let masters = |view: &NodeView| {
            view.nodes(Role::Master).into_iter().map(|(node, _)| node.0).collect::<Vec<_>>()
        };
        assert_eq!(masters(&view), [1, 2]);
        view.adopt_rows(&map(3, &[1, 3]));
        assert_eq!(masters(&view), [1, 3, 2]);
        assert!(view.pin(NodeId(2)).is_some() && view.map().epoch == 0);
        view.adopt(&map(2, &[1]));
        assert_eq!(masters(&view), [1, 3], "the newest map counts, and nothing else");
        view.adopt(&map(4, &[1, 4]));
        assert_eq!(masters(&view), [1, 4]);
        assert_eq!(view.pin(NodeId(3)), None);
        view.adopt_rows(&map(5, &[5]));
        assert_eq!((masters(&view), view.map().epoch), (vec![5], 4));
    }

    #[test]
    fn masters_that_were_given_up_are_let_in_by_masters_alone() {
        let pin = |roles: Roles| Pin { key: cairn_base::KeyHash([1; 32]), roles };
        let node = |roles| cairn_base::map::Node::new(pin(roles));
        let map = ClusterMap {
            epoch: 1,
            nodes: [
                (NodeId(1), node(Role::Master.into())),
                (NodeId(2), node(Role::Gateway.into())),
            ]
            .into(),
            former: [2, 3].map(|id| (NodeId(id), node(Role::Master.into()))).into(),
            ..ClusterMap::default()
        };
        let view = NodeView::new(Vec::new());
        view.adopt(&Arc::new(map));
        let of_master = view.with_former();
        let roles = |pins: &dyn Pins, id| pins.pin(NodeId(id)).map(|pin| pin.roles);
        assert_eq!(roles(&*view, 2), Some(Role::Gateway.into()));
        assert_eq!(roles(&*view, 3), None);
        let both = Roles::from(Role::Gateway).with(Role::Master);
        assert_eq!(
            (roles(&*of_master, 2), roles(&*of_master, 3)),
            (Some(both), Some(Role::Master.into()))
        );
        assert_eq!(of_master.nodes(Role::Master).len(), 1, "nobody is asked to serve");
    }

    fn papers(directory: Directory) -> Papers {
        let (now, rng) = (Timestamp::from_secs(1_800_000_000), SeededRng::new(1));
        let ca = Ca::init(ClusterId(7), now, &rng).unwrap();
        let (node, key) = (NodeId(2), NodeKey::generate().unwrap());
        let certificate = ca.issue(node, Role::Gateway.into(), &key.public(), now, &rng).unwrap();
        let identity = Identity::new(node, ca.authority().clone(), key, certificate, now).unwrap();
        Papers { identity, directory: Arc::new(directory), remembered: Arc::default() }
    }

    /// A disk that does not answer delays no task of the node.
    #[test]
    fn masters_are_noted_beside_all_else() {
        let place = tempfile::tempdir().unwrap();
        let papers = papers(Directory::open(place.path()).unwrap());
        // A FIFO is read as soon as another process writes: none does.
        let made = Command::new("mkfifo").arg(place.path().join("cluster.toml")).status();
        assert!(made.unwrap().success());
        let (said, hears) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async { papers.remember(1, Vec::new(), Vec::new()) });
            said.send(()).unwrap();
            runtime.shutdown_background();
        });
        hears.recv_timeout(Duration::from_secs(60)).expect("the task goes on");
    }
}
