//! A master that is administered, over the metadata of a small cluster in memory.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cairn_audit::{LineLog, LineQueue};
use cairn_auth::Caller;
use cairn_base::clock::RealClock;
use cairn_base::map::{Group, Member, Node as MapNode};
use cairn_base::{ClusterMap, Error, GroupId, NodeId, Redundancy, Result, Role};
use cairn_cluster::admin::{AdminClient, AdminServer};
use cairn_cluster::control::messages::{ControlMethod, Secrets};
use cairn_cluster::control::{
    ControlService, Controller, MapKeeper, NodeView, ServingMaster, Settings,
};
use cairn_cluster::wire::tls::{Takers, TlsDialer, TlsListener};
use cairn_cluster::wire::{Dial, Listen, accept};
use cairn_meta::engine::Memory;
use cairn_meta::master::host::Sessions;
use cairn_meta::ops::cluster::{GetMap, PutMap};
use cairn_meta::ops::sessions::Format;
use cairn_meta::session::LEASE;
use cairn_meta::{Master, wire};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde::Serialize;
use tokio::net::TcpListener;

use super::data::pool;
use super::{CLUSTER, Cluster, GATEWAY, MASTER, Node, PATIENCE, SECOND};

pub const CHUNKSERVER: NodeId = NodeId(3);

pub struct Office {
    pub cluster: Cluster,
    pub master: Node,
    pub gateway: Node,
    pub chunkserver: Node,
    pub control: ControlService,
    pub address: String,
    pub meta: Master,
    /// Records of what was asked for.
    pub audit: Arc<LineQueue>,
    server: Arc<AdminServer>,
}

impl Office {
    /// A master, a gateway, a chunkserver that is alone in a group.
    pub async fn new() -> Office {
        Office::with(Settings::default()).await
    }

    pub async fn with(settings: Settings) -> Office {
        let cluster = Cluster::new();
        let mut master = cluster.node(MASTER, Role::Master);
        let gateway = cluster.node(GATEWAY, Role::Gateway);
        let chunkserver = cluster.node(CHUNKSERVER, Role::Chunkserver);
        let clock = Arc::new(RealClock::default());
        let meta = Master::start(Arc::new(Memory::new()), clock.clone(), Default::default());
        let meta = meta.unwrap();
        let system = Caller::system();
        meta.run(&system, Format { cluster: CLUSTER.0 as u64 }).await.unwrap();
        meta.run(&system, PutMap { map: map(&cluster).encode() }).await.unwrap();
        let view = NodeView::new(Vec::new());
        let keeper = MapKeeper::start(meta.clone(), Arc::clone(&view)).await.unwrap();
        // Whom it lets in goes by the map that is edited.
        master.trust.pins = view;
        let sessions = Sessions::start(meta.clone(), clock.clone(), LEASE).await.unwrap();
        let connections = pool(&master);
        let controller = Controller::new(
            MASTER,
            ServingMaster { master: meta.clone(), sessions },
            keeper,
            cluster.desk(),
            Secrets { seal: None, authority: None, links: None },
            clock,
            settings,
        );
        let controller = Arc::new(controller.with_pool(connections));
        let control = ControlService::default();
        control.serve(Some(controller));
        let audit = Arc::new(LineQueue::new("audit", "test"));
        let (server, address) = listen(&master, &control, &audit).await;
        Office { cluster, master, gateway, chunkserver, control, address, meta, audit, server }
    }

    pub fn client(&self, node: &Node) -> AdminClient {
        self.client_of(node, &[&self.address])
    }

    pub fn client_of(&self, node: &Node, addresses: &[&str]) -> AdminClient {
        self.client_within(PATIENCE, node, addresses)
    }

    /// A client that asks for this long while no master serves it.
    fn client_within(&self, within: Duration, node: &Node, addresses: &[&str]) -> AdminClient {
        let addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
        AdminClient::new(node.trust.clone(), addresses, within).unwrap()
    }

    /// That no master serves this node, and that one says why, with this word. On a busy machine
    /// there may be no answer at all in time: then it is asked again.
    pub async fn unserved(&self, node: &Node, addresses: &[&str], word: &str) {
        let client = self.client_within(SECOND, node, addresses);
        let asking = async {
            loop {
                match client.status().await {
                    Err(Error::Unavailable(text)) if text.contains(word) => return,
                    Err(Error::Unavailable(text)) if text.contains("no answer") => {}
                    other => panic!("expected unavailable with {word:?}, got {other:?}"),
                }
            }
        };
        tokio::time::timeout(PATIENCE, asking).await.expect("a master says why");
    }

    /// Another master, which stands by: its address.
    pub async fn standby(&self) -> String {
        listen(&self.master, &ControlService::default(), &self.audit).await.1
    }

    /// The map as the metadata have it.
    pub async fn map(&self) -> ClusterMap {
        let row = self.meta.read(&Caller::system(), GetMap).await.unwrap();
        ClusterMap::decode(&row.unwrap()).unwrap()
    }

    /// Says something over the connection that nodes have with their master.
    pub async fn tell<M: Serialize>(&self, node: &Node, method: ControlMethod, message: &M) {
        let peer = node.dial(&self.address).await.unwrap();
        let message = wire::encode(message).unwrap();
        peer.call(method as u16, message, PATIENCE).await.unwrap();
    }

    pub async fn stop(&self) {
        self.server.stop(PATIENCE).await;
    }
}

fn map(cluster: &Cluster) -> ClusterMap {
    use cairn_cluster::identity::Pins;
    let mut map = ClusterMap {
        epoch: 1,
        replicas: 3,
        minimum: 2,
        next_node: 4,
        next_group: 2,
        ..ClusterMap::default()
    };
    for id in [MASTER, GATEWAY, CHUNKSERVER] {
        map.nodes.insert(id, MapNode::new(cluster.map.pin(id).unwrap()));
    }
    let members = vec![Member::new(CHUNKSERVER, true)];
    map.groups.insert(
        GroupId(1),
        Group { redundancy: Redundancy::Copies(3), changed: 1, members, ..Group::default() },
    );
    map
}

/// Accepts connections as a master does, indefinitely.
async fn listen(
    node: &Node,
    control: &ControlService,
    audit: &Arc<LineQueue>,
) -> (Arc<AdminServer>, String) {
    let clock = Arc::new(RealClock::default());
    let log = LineLog::new(clock, Arc::new(|_| None), &[Arc::clone(audit)]);
    let server = AdminServer::new(control.clone(), Some(log));
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let takers = Takers { admin: Some(server.taker()), ..Takers::default() };
    let listener = TlsListener::with_takers(tcp, node.trust.clone(), None, takers).unwrap();
    let address = listener.local_address().unwrap().to_string();
    let (terms, control) = (node.terms(), control.clone());
    tokio::spawn(async move {
        loop {
            let handshake = listener.accept().await.unwrap();
            let (terms, control) = (terms.clone(), control.clone());
            tokio::spawn(async move {
                if let Ok(Some(link)) = handshake.await {
                    let _ = accept(link, &terms, control).await;
                }
            });
        }
    });
    (server, address)
}

/// A connection over which anything can be said.
pub struct Raw {
    sender: SendRequest<Full<Bytes>>,
}

impl Raw {
    pub async fn dial(node: &Node, address: &str) -> Result<Raw> {
        let dialer = TlsDialer::for_admin(node.trust.clone())?;
        let link = dialer.dial(address).await?;
        let io = TokioIo::new(link.stream);
        let shaken = http2::handshake(TokioExecutor::new(), io).await;
        let (sender, connection) = shaken.map_err(|error| lost(&error))?;
        tokio::spawn(connection);
        Ok(Raw { sender })
    }

    /// The code of the answer: in its head, or after its body.
    pub async fn post(&mut self, path: &str, body: Bytes) -> Result<u32> {
        let request = http::Request::post(format!("https://master.cairn{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(body))
            .unwrap();
        let answer = self.sender.send_request(request).await.map_err(|error| lost(&error))?;
        let head = answer.headers().get("grpc-status").cloned();
        let body = answer.into_body().collect().await.map_err(|error| lost(&error))?;
        let tail = body.trailers().and_then(|all| all.get("grpc-status")).cloned();
        let code = head.or(tail).expect("a code");
        Ok(code.to_str().unwrap().parse().unwrap())
    }

    pub async fn ended(&mut self) {
        let ended = async {
            while self.sender.ready().await.is_ok() {
                tokio::time::sleep(SECOND / 100).await;
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.expect("the connection ends");
    }
}

fn lost(error: &hyper::Error) -> Error {
    Error::Unavailable(format!("{error:?}"))
}

/// A message as gRPC frames it; `length` says how long it is said to be.
pub fn framed(message: &[u8], length: usize) -> Bytes {
    let mut frame = BytesMut::from(&[0_u8][..]);
    frame.extend_from_slice(&(length as u32).to_be_bytes());
    frame.extend_from_slice(message);
    frame.freeze()
}
