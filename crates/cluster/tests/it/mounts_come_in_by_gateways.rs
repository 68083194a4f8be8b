use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use cairn_auth::{Caller, Visibility};
use cairn_base::clock::RealClock;
use cairn_base::map::Node;
use cairn_base::rng::RealRng;
use cairn_base::{
    BlockId, BodyId, Clock, ClusterMap, Error, GroupId, Ino, KeyHash, NodeId, Owner, Pin, Result,
    Rng, Role, SessionId, UserId,
};
use cairn_blocks::{BlockCounters, BlockInfo, BlockPlace, Blocks, Manner, Usage, Wish};
use cairn_cluster::control::messages::Secrets;
use cairn_cluster::control::{
    self, ControlService, Controller, MapKeeper, NodeView, ServingMaster, Settings,
};
use cairn_cluster::mount::{self, MountBlocks, MountHost};
use cairn_cluster::wire::{Dial, Link, NoService, Peer, accept, connect, require_none};
use cairn_meta::engine::Memory;
use cairn_meta::master::host::Sessions;
use cairn_meta::ops::body::Data;
use cairn_meta::ops::buckets::CreateBucket;
use cairn_meta::ops::cluster::PutMap;
use cairn_meta::ops::create::Create;
use cairn_meta::ops::lookup::Lookup;
use cairn_meta::ops::open_object::OpenInode;
use cairn_meta::ops::sessions::Format;
use cairn_meta::ops::write::Write;
use cairn_meta::rows::{BucketKind, Extent, Place};
use cairn_meta::session::client::{self, Client};
use cairn_meta::session::{self, Attach, AttachReply, Renew, RenewReply, Reply};
use cairn_meta::{Master, Meta, wire};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::support::pair::{Ends, link};
use crate::support::{CLUSTER, Cluster, MASTER, PATIENCE, SECOND, denied, ends, terms};

const LEASE: std::time::Duration = std::time::Duration::from_secs(60);
const OTHER: UserId = UserId(7);
const G1: (NodeId, Role) = (NodeId(2), Role::Gateway);
const G2: (NodeId, Role) = (NodeId(3), Role::Gateway);

fn map_of(nodes: &[(NodeId, Role)]) -> ClusterMap {
    let node = |(node, role): &(NodeId, Role)| {
        (*node, Node::new(Pin { key: KeyHash([0; 32]), roles: (*role).into() }))
    };
    let nodes = nodes.iter().map(node).collect();
    ClusterMap { epoch: 1, replicas: 1, minimum: 1, next_node: 10, nodes, ..ClusterMap::default() }
}

/// Blocks in memory. While the second is locked, no block is written; whoever gives up waiting for
/// that stops no block.
#[derive(Default)]
pub struct Kept(Arc<Mutex<HashMap<BlockId, Bytes>>>, pub Arc<tokio::sync::RwLock<()>>);

#[async_trait]
impl Blocks for Kept {
    async fn write(&self, _: Wish, block: BlockId, _: Owner, data: Bytes) -> Result<GroupId> {
        let (blocks, goes_on) = (Arc::clone(&self.0), Arc::clone(&self.1));
        let written = tokio::spawn(async move {
            let _goes_on = goes_on.read().await;
            let former = blocks.lock().insert(block, Bytes::copy_from_slice(&data));
            assert!(former.is_none(), "{block} is written twice");
        });
        written.await.unwrap();
        Ok(GroupId(5))
    }

    async fn get(&self, _: GroupId, block: BlockId, range: Range<u32>) -> Result<Bytes> {
        let unknown = || Error::NotFound(format!("block {block}"));
        let bytes = self.0.lock().get(&block).cloned().ok_or_else(unknown)?;
        Ok(bytes.slice(range.start as usize..range.end as usize))
    }

    fn get_now(&self, _: GroupId, _: BlockId, _: Range<u32>) -> Result<Option<Bytes>> {
        Ok(None)
    }

    async fn delete(&self, _: GroupId, _: &[BlockId]) -> Result<()> {
        unreachable!("a mount deletes nothing")
    }

    fn groups(&self) -> Vec<GroupId> {
        vec![GroupId(5)]
    }

    async fn inventory(&self, _: GroupId, _: Option<BlockId>, _: usize) -> Result<Vec<BlockInfo>> {
        Ok(Vec::new())
    }

    async fn is_compressed(&self, _: GroupId, _: BlockId) -> Result<bool> {
        Ok(false)
    }

    async fn usage(&self) -> Result<Usage> {
        Ok(Usage::default())
    }

    async fn room(&self) -> Result<Usage> {
        self.usage().await
    }

    fn available(&self) -> Result<()> {
        Ok(())
    }

    fn place(&self, _: GroupId, _: BlockId) -> Option<BlockPlace> {
        None
    }

    fn manner(&self) -> Manner {
        Manner::default()
    }

    fn counted(&self) -> BlockCounters {
        BlockCounters::default()
    }
}

/// The network: the master, and what was dialed there.
#[derive(Clone)]
struct ToMaster {
    control: ControlService,
    node: NodeId,
    peers: Arc<Mutex<Vec<Peer>>>,
}

#[async_trait]
impl Dial for ToMaster {
    async fn dial(&self, _: &str) -> Result<Link> {
        let (ends, control, peers) = (ends(), self.control.clone(), Arc::clone(&self.peers));
        let from = link(ends.far, self.node, Role::Gateway);
        tokio::spawn(async move {
            let accepted = accept(from, &terms(MASTER, Role::Master), control).await;
            peers.lock().push(accepted.unwrap());
        });
        Ok(link(ends.near, MASTER, Role::Master))
    }

    async fn reaches_machine(&self, _: &str) -> bool {
        false
    }
}

/// A cluster of a master and two gateways, `g1` and `g2`.
pub struct World {
    pub master: Master,
    pub sessions: Arc<Sessions>,
    bucket: Ino,
    keeper: Arc<MapKeeper>,
    pub gateways: BTreeMap<String, Gateway>,
    pub blocks: Arc<Kept>,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
}

#[derive(Clone)]
pub struct Gateway {
    agent: Arc<control::Agent>,
    pub host: Arc<MountHost>,
    /// Connections to the master.
    upstream: Arc<Mutex<Vec<Peer>>>,
    is_down: Arc<Mutex<bool>>,
    streams: Arc<Mutex<Vec<tokio::task::AbortHandle>>>,
    /// Connections of mounts.
    served: Arc<Mutex<Vec<JoinHandle<Result<()>>>>>,
}

impl Gateway {
    /// As if it was killed.
    fn kill(&self) {
        *self.is_down.lock() = true;
        self.upstream.lock().drain(..).for_each(|peer| peer.close());
        self.streams.lock().drain(..).for_each(|stream| stream.abort());
    }

    /// Waits until all connections of mounts have ended.
    pub async fn left(&self) {
        let served = std::mem::take(&mut *self.served.lock());
        for served in served {
            let _ = served.await.unwrap();
        }
    }
}

/// How a mount of a user gets to gateways.
struct ByDoor {
    gateways: BTreeMap<String, Gateway>,
    user: UserId,
}

#[async_trait]
impl Dial for ByDoor {
    async fn dial(&self, address: &str) -> Result<Link> {
        let gateway = &self.gateways[address];
        if *gateway.is_down.lock() {
            return Err(Error::Unavailable(format!("{address} is down")));
        }
        // As a network in between, so that the way can be cut.
        let (of_mount, of_gateway) = (ends(), ends());
        let (Ends { near, far: mut here }, Ends { near: mut there, far }) = (of_mount, of_gateway);
        let from = mount::link(Box::new(far), "a mount".into(), require_none(), mount::always());
        let user = Caller::verified(self.user);
        let served = tokio::spawn(Arc::clone(&gateway.host).serve(user, from, false));
        gateway.served.lock().push(served);
        let carried = tokio::spawn(async move {
            let _ = tokio::io::copy_bidirectional(&mut here, &mut there).await;
        });
        gateway.streams.lock().push(carried.abort_handle());
        Ok(mount::link(Box::new(near), address.to_owned(), require_none(), mount::always()))
    }

    async fn reaches_machine(&self, _: &str) -> bool {
        false
    }
}

/// A mount, below its file system.
pub struct Mount {
    pub client: Client,
    pub blocks: Arc<MountBlocks>,
    pub user: Caller,
}

impl World {
    pub async fn new() -> World {
        World::with_lease(LEASE).await
    }

    pub async fn with_lease(lease: std::time::Duration) -> World {
        let (clock, rng): (Arc<dyn Clock>, Arc<dyn Rng>) =
            (Arc::new(RealClock::default()), Arc::new(RealRng));
        let cluster = Cluster::new();
        let engine = Arc::new(Memory::new());
        let master = Master::start(engine, Arc::clone(&clock), Default::default()).unwrap();
        let format = Format { cluster: CLUSTER.0 as u64 };
        master.run(&Caller::system(), format).await.unwrap();
        let made = CreateBucket {
            name: "bucket".into(),
            kind: BucketKind::Posix,
            visibility: Visibility::Private,
        };
        let bucket = master.run(&Caller::verified(UserId::ROOT), made).await.unwrap();
        let map = PutMap { map: map_of(&[(MASTER, Role::Master), G1, G2]).encode() };
        master.run(&Caller::system(), map).await.unwrap();
        let sessions = Sessions::start(master.clone(), Arc::clone(&clock), lease).await.unwrap();
        let keeper = MapKeeper::start(master.clone(), NodeView::new(Vec::new())).await.unwrap();
        let secrets = Secrets { seal: None, authority: None, links: None };
        let controller = Controller::new(
            MASTER,
            ServingMaster { master: master.clone(), sessions: Arc::clone(&sessions) },
            Arc::clone(&keeper),
            cluster.desk(),
            secrets,
            Arc::clone(&clock),
            Settings::default(),
        );
        let control = ControlService::default();
        control.serve(Some(Arc::new(controller)));
        let blocks = Arc::new(Kept::default());
        let meta = Meta::Local { master: master.clone(), session: SessionId(1), sessions: None };
        let gateway = |node| {
            let upstream = Arc::default();
            let peers = Arc::clone(&upstream);
            let agent = control::Agent::without_tls(
                Arc::new(ToMaster { control: control.clone(), node, peers }),
                terms(node, Role::Gateway),
                vec!["m1".into()],
                NodeView::new(Vec::new()),
                Arc::clone(&clock),
                Arc::clone(&rng),
            );
            let blocks = Arc::clone(&blocks) as _;
            let host = MountHost::of_gateway(Arc::clone(&agent), meta.clone(), blocks);
            let (is_down, streams, served) = Default::default();
            Gateway { agent, host, upstream, is_down, streams, served }
        };
        let gateways = [("g1", G1), ("g2", G2)].map(|(name, (node, _))| (name, gateway(node)));
        let gateways = gateways.map(|(name, gateway)| (name.to_owned(), gateway)).into();
        World { master, sessions, bucket: Ino(bucket.0), keeper, gateways, blocks, clock, rng }
    }

    fn dialer(&self, user: UserId) -> Arc<dyn Dial> {
        Arc::new(ByDoor { gateways: self.gateways.clone(), user })
    }

    pub async fn mount(&self, user: UserId, addresses: &[&str]) -> Mount {
        let dialer = self.dialer(user);
        let addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
        let agent = mount::Agent::new(Arc::clone(&dialer), addresses, Arc::clone(&self.rng));
        let (clock, rng) = (Arc::clone(&self.clock), Arc::clone(&self.rng));
        let config = client::Config { hasty: true, ..client::Config::default() };
        let client = Client::start(Arc::clone(&agent) as _, clock, rng, config).await.unwrap();
        let session = client.clone();
        let blocks = MountBlocks::new(&dialer, agent, &self.rng, move || session.session());
        Mount { client, blocks: Arc::new(blocks), user: Caller::verified(user) }
    }

    fn named(&self, name: &str) -> Lookup {
        Lookup { parent: self.bucket, name: name.into() }
    }

    pub fn made(&self, name: &str) -> Create {
        let name = name.into();
        Create { parent: self.bucket, name, mode: 0o644, umask: 0, exclusive: true }
    }
}

pub fn ids(session: SessionId, counter: u64) -> (BlockId, BodyId) {
    (BlockId { session, counter }, BodyId { session, counter })
}

impl Mount {
    /// Writes a file as one block, and publishes it.
    async fn write(&self, ino: Ino, counter: u64, data: &Bytes) -> BlockId {
        let session = self.client.session();
        let (block, body) = ids(session, counter);
        let owner = Owner { body, chunk: 0 };
        let group = self.blocks.write(Wish::default(), block, owner, data.clone()).await.unwrap();
        let place = Place::Block { group, block, offset: 0 };
        let extents = vec![Extent { offset: 0, len: data.len() as u64, place }];
        let data = Data::Blocks { body, extents };
        let write = Write { ino, session, opened: true, spare: body, offset: 0, data };
        self.client.run(&self.user, write).await.unwrap();
        block
    }
}

#[tokio::test]
async fn what_one_mount_does_is_seen_by_another_at_another_gateway() {
    let world = World::new().await;
    let (one, two) =
        (world.mount(UserId::ROOT, &["g1"]).await, world.mount(UserId::ROOT, &["g2"]).await);
    for name in ["a", "b", "c"] {
        // Leased, that there is none: it has to be recalled.
        assert!(two.client.read(&two.user, world.named(name)).await.is_err());
        assert!(two.client.read_now(&two.user, &world.named(name)).is_some());
        let (ino, ..) = one.client.run(&one.user, world.made(name)).await.unwrap();
        let found = two.client.read(&two.user, world.named(name)).await.unwrap();
        assert_eq!(found.0, ino, "{name}");
    }
}

#[tokio::test]
async fn who_asks_is_who_the_gateway_vouches_for() {
    let world = World::new().await;
    let other = world.mount(OTHER, &["g1"]).await;
    // The claims of the mount do not matter.
    for claimed in [Caller::verified(UserId::ROOT), Caller::system(), Caller::verified(OTHER)] {
        let made = other.client.run(&claimed, world.made("a")).await;
        assert!(matches!(made, Err(Error::Denied(_))), "{made:?}");
        let found = other.client.read(&claimed, world.named("a")).await;
        assert!(matches!(found, Err(Error::Denied(_))), "{found:?}");
    }
    let none = world.master.read(&Caller::verified(UserId::ROOT), world.named("a")).await;
    assert!(matches!(none, Err(Error::NotFound(_))), "{none:?}");
    // Nor what is not for mounts, of anybody.
    let root = world.mount(UserId::ROOT, &["g1"]).await;
    denied(root.client.run(&root.user, Format { cluster: 1 }).await, "not for a mount");
}

#[tokio::test]
async fn blocks_are_for_whom_was_told_of_them() {
    let world = World::new().await;
    let (one, two) =
        (world.mount(UserId::ROOT, &["g1"]).await, world.mount(UserId::ROOT, &["g2"]).await);
    let (ino, ..) = one.client.run(&one.user, world.made("a")).await.unwrap();
    let data = Bytes::from(vec![7; 100_000]);
    let block = one.write(ino, 1, &data).await;
    assert_eq!(one.blocks.get(GroupId(5), block, 10..20).await.unwrap(), data.slice(10..20));
    denied(two.blocks.get(GroupId(5), block, 0..10).await, "open the file again");
    two.client.read(&two.user, OpenInode { ino, opened: true }).await.unwrap();
    assert_eq!(two.blocks.get(GroupId(5), block, 0..10).await.unwrap(), data.slice(0..10));
    // No block of another session is written.
    let (foreign, body) = ids(one.client.session(), 2);
    let owner = Owner { body, chunk: 0 };
    let written = two.blocks.write(Wish::default(), foreign, owner, data.clone()).await;
    assert!(written.is_err(), "{written:?}");
    assert_eq!(world.blocks.0.lock().len(), 1);
    let (start, end) = (20, 10);
    assert!(two.blocks.get(GroupId(5), block, start..end).await.is_err());
}

#[tokio::test]
async fn a_session_goes_on_at_another_gateway() {
    let world = World::new().await;
    let mount = world.mount(UserId::ROOT, &["g1", "g2"]).await;
    let session = mount.client.session();
    let (ino, ..) = mount.client.run(&mount.user, world.made("a")).await.unwrap();
    let data = Bytes::from_static(b"before");
    let block = mount.write(ino, 1, &data).await;
    world.gateways["g1"].kill();
    let (other, ..) = mount.client.run(&mount.user, world.made("b")).await.unwrap();
    assert_eq!(mount.client.session(), session);
    assert_eq!(mount.blocks.get(GroupId(5), block, 0..6).await.unwrap(), data);
    mount.write(other, 2, &Bytes::from_static(b"after")).await;
    mount.client.flush().await.unwrap();
    assert_eq!(mount.client.lost(), 0);
    let root = Caller::verified(UserId::ROOT);
    world.master.read(&root, world.named("a")).await.unwrap();
    world.master.read(&root, world.named("b")).await.unwrap();
}

/// Blocks of the session may be in groups that the metadata do not know any more.
#[tokio::test]
async fn a_session_does_not_go_on_where_metadata_began_anew() {
    let world = World::new().await;
    let mount = world.mount(UserId::ROOT, &["g1"]).await;
    let session = mount.client.session();
    mount.client.run(&mount.user, world.made("a")).await.unwrap();
    mount.client.flush().await.unwrap();
    let begin = |map: &mut ClusterMap| {
        map.generation = map.epoch + 1;
        Ok(())
    };
    let map = world.keeper.edit(begin).await.unwrap();
    let gateway = &world.gateways["g1"];
    gateway.upstream.lock().drain(..).for_each(|peer| peer.close());
    let moved = async {
        while mount.client.session() == session {
            tokio::time::sleep(SECOND / 100).await;
        }
    };
    tokio::time::timeout(PATIENCE, moved).await.unwrap();
    assert_eq!(gateway.agent.view().map().generation, map.generation, "before it asks anything");
}

#[tokio::test]
async fn a_node_that_knows_better_uses_no_master_that_was_given_up() {
    let world = World::new().await;
    let agent = &world.gateways["g1"].agent;
    agent.connect(PATIENCE).await.unwrap();
    let newer =
        ClusterMap { epoch: 9, generation: 9, ..ClusterMap::clone(&world.keeper.current()) };
    agent.view().adopt(&Arc::new(newer));
    let refused = agent.connect(SECOND / 10).await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("was given up"), "{refused}");
}

#[tokio::test]
async fn a_session_without_a_way_to_the_master_attaches_again() {
    let world = World::new().await;
    let mount = world.mount(UserId::ROOT, &["g1"]).await;
    let session = mount.client.session();
    for name in ["a", "b"] {
        mount.client.run(&mount.user, world.made(name)).await.unwrap();
        let upstream = &world.gateways["g1"].upstream;
        upstream.lock().drain(..).for_each(|peer| peer.close());
        let began = std::time::Instant::now();
        while upstream.lock().is_empty() {
            // Not when it renews, some time later: it could be shown what is old until then.
            assert!(began.elapsed() < LEASE / 4, "nobody told the mount");
            tokio::time::sleep(SECOND / 100).await;
        }
    }
    mount.client.run(&mount.user, world.made("c")).await.unwrap();
    assert_eq!(mount.client.session(), session);
}

#[tokio::test]
async fn what_comes_late_over_a_former_connection_is_not_heard() {
    let world = World::new().await;
    let dial = async |address: &str| {
        let link = world.dialer(UserId::ROOT).dial(address).await.unwrap();
        connect(link, &mount::terms(), NoService).await.unwrap()
    };
    let session = SessionId(77);
    let attach = async |peer: &Peer| {
        let message = wire::encode(&Attach { session }).unwrap();
        let answer =
            peer.call(session::SessionMethod::Attach as u16, message, PATIENCE).await.unwrap();
        wire::decode::<Reply<AttachReply>>(&answer).unwrap()
    };
    let renew = async |peer: &Peer| {
        let message = wire::encode(&Renew { session, reads_from: 0 }).unwrap();
        let answer =
            peer.call(session::SessionMethod::Renew as u16, message, PATIENCE).await.unwrap();
        wire::decode::<Reply<RenewReply>>(&answer).unwrap()
    };
    let (first, second) = (dial("g1").await, dial("g2").await);
    assert!(matches!(attach(&first).await, Reply::Done(_)));
    assert!(matches!(renew(&first).await, Reply::Done(_)));
    assert!(matches!(attach(&second).await, Reply::Done(_)));
    assert!(matches!(renew(&second).await, Reply::Done(_)));
    assert!(matches!(renew(&first).await, Reply::NotAttached));
    assert!(matches!(attach(&first).await, Reply::Failed(_)));
    assert!(matches!(renew(&second).await, Reply::Done(_)));
    // Another user's it never is.
    let link = world.dialer(OTHER).dial("g1").await.unwrap();
    let third = connect(link, &mount::terms(), NoService).await.unwrap();
    assert!(matches!(attach(&third).await, Reply::Failed(_)));
    assert!(matches!(renew(&third).await, Reply::NotAttached));
}
