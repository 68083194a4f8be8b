//! Blocks over loopback TLS in one process: three chunkservers and one client.
//!
//! `data_bench [SECONDS]` measures GET of 155 KB by 1 and by 10 readers, and PUT of 1 MiB, with its
//! deletion, by 4 writers to one replica and to three. Nothing waits for a sync; the blocks are in
//! the system's temporary directory.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::clock::RealClock;
use cairn_base::map::{Group, Member, Node};
use cairn_base::rng::RealRng;
use cairn_base::{
    BlockId, BodyId, CapabilitySet, Clock, ClusterId, ClusterMap, Error, GroupId, NodeId, Owner,
    Pin, RealDisk, Redundancy, Result, Role, SessionId,
};
use cairn_blocks::{Blocks, Config, Durability, Store, Wish};
use cairn_cluster::data::{Chunkserver, Loads, MapSource, Pool, ReplicatedBlocks};
use cairn_cluster::identity::{Ca, Identity, NodeKey, Pins};
use cairn_cluster::wire::Listen;
use cairn_cluster::wire::tls::{Takers, TlsDialer, TlsListener, Trust};
use parking_lot::Mutex;
use tokio::net::TcpListener;

const GET_BYTES: usize = 155_000;
const PUT_BYTES: usize = 1 << 20;
const GATEWAY: NodeId = NodeId(1);

#[derive(Default)]
struct Map {
    pins: Mutex<BTreeMap<NodeId, Pin>>,
    map: Mutex<Arc<ClusterMap>>,
}

impl Pins for Map {
    fn pin(&self, node: NodeId) -> Option<Pin> {
        self.pins.lock().get(&node).copied()
    }

    fn nodes(&self, _: Role) -> Vec<(NodeId, Pin)> {
        Vec::new()
    }

    fn required(&self) -> CapabilitySet {
        CapabilitySet::NONE
    }
}

#[async_trait]
impl MapSource for Map {
    fn current(&self) -> Arc<ClusterMap> {
        Arc::clone(&self.map.lock())
    }

    async fn at_least(&self, epoch: u64) -> Result<Arc<ClusterMap>> {
        Err(Error::Unavailable(format!("no map {epoch}")))
    }
}

struct World {
    ca: Ca,
    clock: Arc<dyn Clock>,
    map: Arc<Map>,
}

impl World {
    fn new() -> World {
        let clock: Arc<dyn Clock> = Arc::new(RealClock::default());
        let ca = Ca::init(ClusterId(1), clock.now(), &RealRng).unwrap();
        World { ca, clock, map: Arc::default() }
    }

    fn trust(&self, node: NodeId, role: Role) -> Trust {
        let (key, now) = (NodeKey::generate().unwrap(), self.clock.now());
        let pin = Pin { key: key.public().hash(), roles: role.into() };
        self.map.pins.lock().insert(node, pin);
        let shown = self.ca.issue(node, role.into(), &key.public(), now, &RealRng).unwrap();
        let authority = self.ca.authority().clone();
        let identity = Identity::new(node, authority, key, shown, now).unwrap();
        Trust { identity, pins: Arc::clone(&self.map) as _, clock: Arc::clone(&self.clock) }
    }

    async fn serve(&self, node: NodeId, directory: &std::path::Path) -> (NodeId, Node) {
        let trust = self.trust(node, Role::Chunkserver);
        let directory = directory.join(node.to_string());
        std::fs::create_dir(&directory).unwrap();
        let disk = RealDisk::open(&directory).unwrap();
        let config = Config { durability: Durability::Async, ..Config::new([1; 16], [2; 16]) };
        let store = Store::open(Arc::new(disk), config).unwrap();
        let map = Arc::clone(&self.map) as Arc<dyn MapSource>;
        let server = Chunkserver::new(node, store, map, pool(&trust), None);
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let takers = Takers { blocks: Some(server.taker()), ..Takers::default() };
        let listener = TlsListener::with_takers(tcp, trust, None, takers).unwrap();
        let address = listener.local_address().unwrap().to_string();
        tokio::spawn(async move {
            loop {
                tokio::spawn(listener.accept().await.unwrap());
            }
        });
        let pin = self.map.pin(node).unwrap();
        (node, Node { address, is_up: true, ..Node::new(pin) })
    }
}

fn pool(trust: &Trust) -> Arc<Pool> {
    Pool::new(Arc::new(TlsDialer::for_blocks(trust.clone()).unwrap()))
}

fn block(counter: u64) -> BlockId {
    BlockId { session: SessionId(1), counter }
}

async fn write(blocks: &ReplicatedBlocks, replicas: u8, counter: u64, data: &Bytes) -> GroupId {
    let body = BodyId { session: SessionId(1), counter };
    let (wish, owner) = (
        Wish { redundancy: Redundancy::from_number(replicas), ..Wish::default() },
        Owner { body, chunk: 0 },
    );
    blocks.write(wish, block(counter), owner, data.clone()).await.unwrap()
}

/// Runs `work` in `tasks` tasks for `seconds`, and prints the result.
async fn measure<F>(what: &str, tasks: usize, seconds: f64, bytes: usize, work: impl Fn(u64) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let start = Instant::now();
    let until = start + Duration::from_secs_f64(seconds);
    let (next, mut times_us) = (AtomicU64::new(0), Vec::new());
    let all = futures_util::future::join_all((0..tasks).map(|_| async {
        let mut times_us = Vec::new();
        while Instant::now() < until {
            let begin = Instant::now();
            tokio::spawn(work(next.fetch_add(1, Ordering::Relaxed))).await.unwrap();
            times_us.push(begin.elapsed().as_micros() as u64);
        }
        times_us
    }));
    all.await.into_iter().for_each(|times| times_us.extend(times));
    times_us.sort_unstable();
    let count = times_us.len();
    let rate = count as f64 / start.elapsed().as_secs_f64();
    let at = |part: f64| times_us[((count - 1) as f64 * part) as usize];
    println!(
        "{what:<24} {rate:>8.0} /s {:>7.0} MB/s   p50 {:>6} us   p99 {:>6} us",
        rate * bytes as f64 / 1e6,
        at(0.5),
        at(0.99)
    );
}

#[tokio::main]
async fn main() {
    let seconds: f64 = std::env::args().nth(1).map_or(3.0, |text| text.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let world = World::new();
    let mut map = ClusterMap { epoch: 1, replicas: 3, minimum: 1, ..ClusterMap::default() };
    for id in 11..14 {
        let (id, node) = world.serve(NodeId(id), directory.path()).await;
        map.nodes.insert(id, node);
    }
    let member = |id| Member::new(NodeId(id), true);
    map.groups
        .insert(GroupId(1), Group { changed: 1, members: vec![member(11)], ..Group::default() });
    let three = [11, 12, 13].map(member).to_vec();
    map.groups.insert(
        GroupId(3),
        Group { redundancy: Redundancy::Copies(3), changed: 1, members: three, ..Group::default() },
    );
    *world.map.map.lock() = Arc::new(map);
    let trust = world.trust(GATEWAY, Role::Gateway);
    let blocks = ReplicatedBlocks::new(
        Arc::clone(&world.map) as _,
        pool(&trust),
        Loads::default(),
        Arc::new(RealRng),
    );

    let data = Bytes::from(vec![7; GET_BYTES]);
    for counter in 0..64 {
        write(&blocks, 1, counter, &data).await;
        write(&blocks, 3, counter, &data).await;
    }
    for (group, tasks) in [(1, 1), (1, 10), (3, 10)] {
        let what = format!("GET 155 KB, R={group}, c={tasks}");
        measure(&what, tasks, seconds, GET_BYTES, |turn| {
            let blocks = blocks.clone();
            async move {
                let all = 0..GET_BYTES as u32;
                blocks.get(GroupId(group), block(turn % 64), all).await.unwrap();
            }
        })
        .await;
    }
    let data = Bytes::from(vec![7; PUT_BYTES]);
    for replicas in [1, 3] {
        let what = format!("PUT 1 MiB, R={replicas}, c=4");
        measure(&what, 4, seconds, PUT_BYTES, |turn| {
            let (blocks, data) = (blocks.clone(), data.clone());
            async move {
                let counter = 1000 + turn * 10 + u64::from(replicas);
                let group = write(&blocks, replicas, counter, &data).await;
                blocks.delete(group, &[block(counter)]).await.unwrap();
            }
        })
        .await;
    }
}
