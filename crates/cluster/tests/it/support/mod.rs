//! A cluster of nodes in this process: its authority, its map, its clock.

pub mod admin;
pub mod data;
mod map;
pub mod pair;
pub mod raw;

use std::sync::Arc;
use std::time::Duration;

use cairn_base::rng::{RealRng, SeededRng};
use cairn_base::{Clock, ClusterId, Error, NodeId, Pin, Role, Roles, Timestamp};
use cairn_cluster::identity::{Authority, Ca, Desk, Identity, JoinToken, NodeKey};
use cairn_cluster::wire::tls::{TlsDialer, TlsListener, Trust};
use cairn_cluster::wire::{Dial, Peer, Service, Terms, accept, connect};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpListener;

pub use map::Map;
pub use pair::{End, echo, ends, pair, pair_with};

pub const CLUSTER: ClusterId = ClusterId(0xc1);
pub const MASTER: NodeId = NodeId(1);
pub const GATEWAY: NodeId = NodeId(2);
pub const SECOND: Duration = Duration::from_secs(1);
/// How long a test waits for what comes at once on a machine that has nothing else to do.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// A clock that stands still until it is moved.
pub struct Fake(Mutex<Timestamp>);

impl Fake {
    pub fn advance(&self, by: Duration) {
        self.0.lock().0 += by.as_nanos() as i64;
    }
}

impl Clock for Fake {
    fn now(&self) -> Timestamp {
        *self.0.lock()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.0.lock().0 as u64)
    }
}

pub struct Cluster {
    pub ca: Arc<Ca>,
    pub map: Arc<Map>,
    pub clock: Arc<Fake>,
}

/// A node: what it shows, and what it trusts.
#[derive(Clone)]
pub struct Node {
    pub trust: Trust,
    pub role: Role,
}

impl Cluster {
    pub fn new() -> Cluster {
        let clock = Arc::new(Fake(Mutex::new(Timestamp::from_secs(1_800_000_000))));
        let ca = Arc::new(Ca::init(CLUSTER, clock.now(), &RealRng).unwrap());
        Cluster { ca, map: Arc::default(), clock }
    }

    pub fn authority(&self) -> Authority {
        self.ca.authority().clone()
    }

    pub fn issue(&self, node: NodeId, role: Role, key: &NodeKey) -> CertificateDer<'static> {
        let (roles, now) = (Roles::from(role), self.clock.now());
        self.ca.issue(node, roles, &key.public(), now, &SeededRng::new(node.0)).unwrap()
    }

    /// A node as it should be: with a certificate, and in the map.
    pub fn node(&self, id: NodeId, role: Role) -> Node {
        let key = NodeKey::generate().unwrap();
        self.map.set(id, Pin { key: key.public().hash(), roles: role.into() });
        let certificate = self.issue(id, role, &key);
        self.node_with(id, role, key, certificate)
    }

    /// A node that shows this certificate, whatever the map says.
    pub fn node_with(
        &self,
        id: NodeId,
        role: Role,
        key: NodeKey,
        certificate: CertificateDer<'static>,
    ) -> Node {
        let now = self.clock.now();
        let identity = Identity::new(id, self.authority(), key, certificate, now).unwrap();
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let trust = Trust { identity, pins: Arc::clone(&self.map) as _, clock };
        Node { trust, role }
    }

    pub fn desk(&self) -> Arc<Desk> {
        let pem = Arc::clone(&self.ca);
        let directory = tempfile::tempdir().unwrap();
        let kept = cairn_cluster::identity::Directory::open(directory.path()).unwrap();
        kept.save_ca(&pem).unwrap();
        Arc::new(Desk {
            ca: kept.load_ca(CLUSTER).unwrap(),
            tokens: Arc::clone(&self.map) as _,
            pins: Arc::clone(&self.map) as _,
            clock: Arc::clone(&self.clock) as _,
            rng: Arc::new(RealRng),
        })
    }

    pub fn token(&self, addresses: Vec<String>, roles: Roles) -> JoinToken {
        JoinToken::new(&self.authority(), addresses, roles, &RealRng).unwrap()
    }
}

impl Node {
    pub fn terms(&self) -> Terms {
        terms(self.trust.identity.node(), self.role)
    }

    /// Accepts one connection after another, and echoes.
    pub async fn listen(&self) -> String {
        self.listen_with(None, echo).await
    }

    pub async fn listen_with(&self, desk: Option<Arc<Desk>>, service: impl Service) -> String {
        let listener = self.listener(desk).await;
        let address = listener.local_address().unwrap().to_string();
        let terms = self.terms();
        tokio::spawn(async move {
            loop {
                let handshake = cairn_cluster::wire::Listen::accept(&listener).await.unwrap();
                let (terms, service) = (terms.clone(), service.clone());
                tokio::spawn(async move {
                    if let Ok(Some(link)) = handshake.await {
                        let _ = accept(link, &terms, service).await;
                    }
                });
            }
        });
        address
    }

    pub async fn listener(&self, desk: Option<Arc<Desk>>) -> TlsListener {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        TlsListener::new(tcp, self.trust.clone(), desk).unwrap()
    }

    pub fn dialer(&self) -> TlsDialer {
        TlsDialer::new(self.trust.clone()).unwrap()
    }

    pub async fn dial(&self, address: &str) -> Result<Peer, Error> {
        connect(self.dialer().dial(address).await?, &self.terms(), echo).await
    }

    /// Dials and calls: a refusal may show only then.
    pub async fn dial_and_call(&self, address: &str) -> Result<Peer, Error> {
        let peer = self.dial(address).await?;
        peer.call(1, "hello".into(), PATIENCE).await?;
        Ok(peer)
    }

    pub async fn dial_and_call_with(&self, method: u16, address: &str) -> Peer {
        let peer = self.dial(address).await.unwrap();
        peer.call(method, "hello".into(), PATIENCE).await.unwrap();
        peer
    }
}

pub fn terms(node: NodeId, role: Role) -> Terms {
    Terms::new(CLUSTER, node, role)
}

/// That it was refused, with a text that has this word.
pub fn denied<T: std::fmt::Debug>(result: Result<T, Error>, word: &str) {
    match result {
        Err(Error::Denied(text)) if text.contains(word) => {}
        other => panic!("expected a denial with {word:?}, got {other:?}"),
    }
}

pub fn unavailable<T: std::fmt::Debug>(result: Result<T, Error>, word: &str) {
    match result {
        Err(Error::Unavailable(text)) if text.contains(word) => {}
        other => panic!("expected unavailable with {word:?}, got {other:?}"),
    }
}
