//! Chunkservers in this process, over TLS on the loopback, each with its own copy of the map.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::map::{Group, Member, Node as MapNode};
use cairn_base::rng::RealRng;
use cairn_base::rng::SeededRng;
use cairn_base::{
    BlockId, BodyId, ClusterMap, Error, GroupId, NodeId, Owner, Redundancy, Result, Rng, Role,
    SessionId,
};
use cairn_blocks::{Blocks, Config, Durability, Store, Wish};
use cairn_cluster::data::{Chunkserver, Loads, MapSource, Pool, ReplicatedBlocks, Sick};
use cairn_cluster::identity::Pins;
use cairn_cluster::wire::Listen;
use cairn_cluster::wire::tls::{Takers, TlsDialer, TlsListener};
use cairn_sim::SimDisk;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{Cluster, GATEWAY, MASTER, Node, PATIENCE};

/// The map as the master has it.
pub type Truth = Arc<Mutex<Arc<ClusterMap>>>;

/// One node's copy.
pub struct Copy {
    truth: Truth,
    current: Mutex<Arc<ClusterMap>>,
}

impl Copy {
    fn new(truth: &Truth) -> Arc<Copy> {
        let current = Mutex::new(Arc::clone(&truth.lock()));
        Arc::new(Copy { truth: Arc::clone(truth), current })
    }

    pub fn refresh(&self) {
        *self.current.lock() = Arc::clone(&self.truth.lock());
    }
}

#[async_trait]
impl MapSource for Copy {
    fn current(&self) -> Arc<ClusterMap> {
        Arc::clone(&self.current.lock())
    }

    async fn at_least(&self, epoch: u64) -> Result<Arc<ClusterMap>> {
        if self.current().epoch < epoch && self.truth.lock().epoch >= epoch {
            self.refresh();
        }
        let current = self.current();
        if current.epoch < epoch {
            return Err(Error::Unavailable(format!("there is no map {epoch} yet")));
        }
        Ok(current)
    }
}

pub struct Server {
    pub node: Node,
    pub disk: SimDisk,
    pub store: Store,
    pub chunkserver: Arc<Chunkserver>,
    pub map: Arc<Copy>,
    pub address: String,
    pub sick: mpsc::Receiver<Sick>,
    accepting: JoinHandle<()>,
}

impl Server {
    /// As if the process was killed.
    pub async fn kill(&self) {
        self.accepting.abort();
        self.chunkserver.stop(Duration::ZERO).await;
    }

    /// Flips a bit of a block where it is stored.
    pub fn rot(&self, data: &[u8]) {
        use cairn_base::Disk;
        for name in self.disk.list().unwrap().iter().filter(|name| name.ends_with(".seg")) {
            let bytes = self.disk.contents(name).unwrap();
            let wanted = &data[..data.len().min(64)];
            if let Some(at) = bytes.windows(wanted.len()).position(|window| window == wanted) {
                self.disk.flip_bit(name, at as u64 + 7, 3).unwrap();
                return;
            }
        }
        panic!("no segment has the block");
    }

    pub fn has(&self, group: u32, block: BlockId) -> bool {
        self.store.stat(GroupId(group), block).is_ok()
    }
}

pub struct World {
    pub cluster: Cluster,
    pub truth: Truth,
    pub servers: BTreeMap<u64, Server>,
    pub gateway: Node,
    pub blocks: ReplicatedBlocks,
    pub map: Arc<Copy>,
}

impl World {
    /// Chunkservers 11, 12, ... and a gateway; groups of wanted members and members, from 1 on.
    pub async fn new(chunkservers: u64, groups: &[(u8, &[u64])]) -> World {
        let cluster = Cluster::new();
        let empty = ClusterMap { replicas: 3, minimum: 2, epoch: 1, ..ClusterMap::default() };
        let truth: Truth = Arc::new(Mutex::new(Arc::new(empty)));
        let gateway = cluster.node(GATEWAY, Role::Gateway);
        cluster.node(MASTER, Role::Master);
        let map = Copy::new(&truth);
        let pool = pool(&gateway);
        let blocks =
            ReplicatedBlocks::new(Arc::clone(&map) as _, pool, Loads::default(), Arc::new(RealRng));
        let servers = BTreeMap::new();
        let mut world = World { cluster, truth, servers, gateway, blocks, map };
        for id in 11..11 + chunkservers {
            let server = world.serve(id).await;
            world.servers.insert(id, server);
        }
        let addresses: Vec<(u64, String)> =
            world.servers.iter().map(|(id, server)| (*id, server.address.clone())).collect();
        world.change(|map| {
            for (id, address) in addresses {
                let pin = world.cluster.map.pin(NodeId(id)).unwrap();
                let node = MapNode { is_up: true, address, disk: DISK, ..MapNode::new(pin) };
                map.nodes.insert(NodeId(id), node);
            }
            for (id, (wanted, members)) in (1..).zip(groups) {
                map.groups.insert(GroupId(id), group(*wanted, members));
            }
        });
        world.refresh();
        world
    }

    async fn serve(&self, id: u64) -> Server {
        let node = self.cluster.node(NodeId(id), Role::Chunkserver);
        let (disk, map) = (SimDisk::new(id), Copy::new(&self.truth));
        let store = Store::open(Arc::new(disk.clone()), config()).unwrap();
        let (sender, sick) = mpsc::channel(100);
        let source = Arc::clone(&map) as Arc<dyn MapSource>;
        let chunkserver =
            Chunkserver::new(NodeId(id), store.clone(), source, pool(&node), Some(sender));
        let (address, accepting) = listen(&node, &chunkserver).await;
        Server { node, disk, store, chunkserver, map, address, sick, accepting }
    }

    /// Changes the map that the master has, and its epoch. Nobody hears of it by that.
    pub fn change(&self, change: impl FnOnce(&mut ClusterMap)) {
        let mut truth = self.truth.lock();
        let mut map = ClusterMap::clone(&truth);
        map.epoch += 1;
        change(&mut map);
        *truth = Arc::new(map);
    }

    /// Everybody gets the newest map.
    pub fn refresh(&self) {
        self.map.refresh();
        self.servers.values().for_each(|server| server.map.refresh());
    }

    pub fn set_up(&self, id: u64, is_up: bool) {
        self.change(|map| map.nodes.get_mut(&NodeId(id)).unwrap().is_up = is_up);
    }

    /// Another disk was put into a node; the map that tells of the former one is still the newest.
    pub fn set_disk(&self, id: u64, disk: u128) {
        self.change(|map| map.nodes.get_mut(&NodeId(id)).unwrap().disk = disk);
    }

    pub fn set_sync(&self, group: u32, id: u64, in_sync: bool) {
        self.change(|map| {
            let members = &mut map.groups.get_mut(&GroupId(group)).unwrap().members;
            members.iter_mut().find(|member| member.node == NodeId(id)).unwrap().in_sync = in_sync;
        });
    }

    pub async fn write(&self, counter: u64, data: &Bytes) -> Result<GroupId> {
        self.write_in(Wish::default(), counter, data).await
    }

    pub async fn write_in(&self, wish: Wish, counter: u64, data: &Bytes) -> Result<GroupId> {
        self.blocks.write(wish, block(counter), owner(counter), data.clone()).await
    }

    pub async fn read(&self, group: u32, counter: u64, length: usize) -> Result<Bytes> {
        self.blocks.get(GroupId(group), block(counter), 0..length as u32).await
    }

    /// The members on which a block is.
    pub fn holders(&self, group: u32, counter: u64) -> Vec<u64> {
        let has = self.servers.iter().filter(|(_, server)| server.has(group, block(counter)));
        has.map(|(id, _)| *id).collect()
    }
}

/// The id of every disk.
const DISK: u128 = 0xd15c;

pub fn pool(node: &Node) -> Arc<Pool> {
    Pool::new(Arc::new(TlsDialer::for_blocks(node.trust.clone()).unwrap()))
}

async fn listen(node: &Node, server: &Arc<Chunkserver>) -> (String, JoinHandle<()>) {
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let takers = Takers { blocks: Some(server.taker()), ..Takers::default() };
    let listener = TlsListener::with_takers(tcp, node.trust.clone(), None, takers).unwrap();
    let address = listener.local_address().unwrap().to_string();
    let accepting = tokio::spawn(async move {
        loop {
            let handshake = listener.accept().await.unwrap();
            tokio::spawn(handshake);
        }
    });
    (address, accepting)
}

fn config() -> Config {
    Config {
        durability: Durability::Sync,
        segment_bytes: 8 << 20,
        reserve_bytes: 1 << 20,
        rng: Arc::new(SeededRng::new(1)),
        ..Config::new([1; 16], DISK.to_be_bytes())
    }
}

pub fn group(wanted: u8, members: &[u64]) -> Group {
    let member = |node: &u64| Member::new(NodeId(*node), true);
    let redundancy = Redundancy::Copies(wanted);
    Group {
        redundancy,
        changed: 1,
        members: members.iter().map(member).collect(),
        ..Group::default()
    }
}

pub fn block(counter: u64) -> BlockId {
    BlockId { session: SessionId(0x5e), counter }
}

pub fn owner(counter: u64) -> Owner {
    Owner { body: BodyId { session: SessionId(0x5e), counter }, chunk: 1 }
}

/// Bytes that no other block has.
pub fn data(counter: u64, length: usize) -> Bytes {
    let mut bytes = vec![0; length];
    SeededRng::new(counter).fill(&mut bytes);
    bytes.into()
}

/// Waits until something is so.
pub async fn until(what: impl Fn() -> bool) {
    let waiting = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("it becomes so");
}
