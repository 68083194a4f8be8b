//! The processes of a cluster: the product's roles, as `cairn master`, `cairn chunkserver` and
//! `cairn gateway` run them, over a simulated network, disks, clocks and threads.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use cairn_auth::HandleKey;
use cairn_base::rng::SeededRng;
use cairn_base::trace::Traces;
use cairn_base::{
    ClusterId, Disk, Error, NodeId, Result, Rng, Role, Secret, Stages, Threads, Timestamp,
};
use cairn_blocks::Store;
use cairn_cluster::control::messages::Secrets;
use cairn_cluster::control::{Agent, ControlService, Edit, NodeView, Settings};
use cairn_cluster::data::Chunkserver;
use cairn_cluster::identity::{Ca, Desk, Pins};
use cairn_cluster::limits::NODE_REQUESTS;
use cairn_cluster::wire::Terms;
use cairn_fs::Fs;
use cairn_meta::Master;
use cairn_meta::engine::Engine;
use cairn_meta::engine::raft::RaftEngine;
use cairn_meta::session::OwnMaster;
use cairn_meta::session::client;
use cairn_nfs::{Behaviour, Watch, converse};
use cairn_roles::chunkserver::ChunkserverNode;
use cairn_roles::master::{MasterNode, Source};
use cairn_roles::{Node, Pace, beat_of, duties, gateway, master};
use cairn_sim::SimDisk;
use parking_lot::Mutex;
use tokio::io::DuplexStream;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{Instrument, Span};

use super::client::Door;
use super::database::{Database, SharedDatabase};
use super::host::Given;
use super::hostile;
use super::net::{Net, Purpose, address_of};
use super::seat::{Seat, attend};

pub const CLUSTER: ClusterId = ClusterId(7 << 64);
/// Time for which a gateway goes on writing without a master, and time after the end of its session
/// in which its blocks may arrive. Each write takes up to 10 s, and faults delay it by 8 s at
/// either end.
const ALONE: Duration = Duration::from_secs(6);
const LATE: Duration = Duration::from_secs(40);
/// Time that a master serves before it hands over because its disk is full.
const REST: Duration = Duration::from_secs(3);
/// Approximate memory of a lease.
const LEASE_BYTES: usize = 300;
/// Faster than the product's, as a simulation lasts for less than a minute.
const PACE: Pace = Pace {
    garbage: Duration::from_secs(1),
    garbage_looks: 5,
    forget_looks: 1,
    compact: Duration::from_secs(1),
    compact_looks: 3,
    abandoned: Duration::from_secs(2),
    // There are none.
    logs: Duration::from_secs(1 << 30),
    logs_rest: Duration::ZERO,
    settle: Duration::from_secs(3600),
};
/// Hostile mounts of each gateway, at the same time.
const HOSTILE_MOUNTS: usize = 2;

/// The surroundings of all processes.
#[derive(Clone)]
pub struct Surroundings {
    pub net: Net,
    pub rng: Arc<SeededRng>,
    pub database: Arc<Database>,
    pub masters: Vec<NodeId>,
    /// Seat of each master, if masters keep the metadata together.
    pub seats: BTreeMap<NodeId, Seat>,
    /// The orders of operators to any master that serves.
    pub orders: Arc<Mutex<Vec<Edit>>>,
    /// Set if gateways have hostile mounts.
    pub hostile: Arc<AtomicBool>,
    pub tuning: Tuning,
    /// State that a master and a gateway share if they run in one process, by the number of either.
    pub shared: BTreeMap<NodeId, Arc<OwnMaster>>,
}

/// The settings that differ from seed to seed.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// Lease of a session.
    pub lease: Duration,
    /// Set if the master reads missing rows itself.
    pub near: bool,
    /// Approximate number of leases held at a time.
    pub leases: usize,
    pub cache_bytes: u64,
    pub segment_bytes: u64,
    /// Set if gateways have a door for NFS.
    pub files: bool,
    /// Two bits for each gateway; if both are 0, it is answered when operations have run, before
    /// they are durable.
    pub hasty: u64,
}

impl Tuning {
    /// Returns whether the gateway is one of these; they are one in four.
    fn is_hasty(&self, gateway: NodeId) -> bool {
        self.hasty >> (gateway.0 % 32 * 2) & 3 == 0
    }
}

/// The needs of a process.
struct Process {
    all: Surroundings,
    node: Node,
    threads: Arc<dyn Threads>,
}

impl Process {
    fn new(all: &Surroundings, node: NodeId, role: Role, given: Given) -> Process {
        let Given { clock, threads } = given;
        let terms = Terms::new(CLUSTER, node, role);
        let view = NodeView::new(Vec::new());
        let rng = Arc::clone(&all.rng) as Arc<dyn Rng>;
        let agent = Agent::without_tls(
            all.net.dialer(node, role.into(), Purpose::Wire),
            terms.clone(),
            all.masters.iter().map(|master| address_of(*master)).collect(),
            Arc::clone(&view),
            Arc::clone(&clock),
            Arc::clone(&rng),
        );
        let blocks = all.net.dialer(node, role.into(), Purpose::Blocks);
        let node = Node { terms, view, agent, clock, rng, blocks };
        Process { all: all.clone(), node, threads }
    }
}

/// Nobody asks it for anything.
fn ca() -> Ca {
    Ca::init(CLUSTER, Timestamp::from_secs(1_700_000_000), &SeededRng::new(1)).unwrap()
}

/// For the log.
fn named(node: NodeId) -> Span {
    tracing::info_span!("node", %node)
}

pub fn master(all: &Surroundings, node: NodeId, given: Given) {
    let process = Process::new(all, node, Role::Master, given);
    let Some(seat) = process.all.seats.get(&node).cloned() else {
        return take_turns(process, None);
    };
    let running = async move {
        let Process { all, node: own, threads } = &process;
        let why = match seat.open(all, own, threads).await {
            Err(error) => error.to_string(),
            Ok(engine) => {
                let view = Arc::clone(&own.view);
                take_turns(process, Some(Arc::clone(&engine)));
                attend(engine, view).await
            }
        };
        tracing::warn!(why, "this process of a master ends");
        seat.shown.end();
    };
    tokio::spawn(running.instrument(named(node)));
}

/// The role, whose metadata are in the database, or with a member of its own.
fn take_turns(process: Process, engine: Option<Arc<RaftEngine>>) {
    let Process { all, node: own, threads } = process;
    let node = own.id();
    own.beat(move || beat_of(address_of(node)));
    let service = ControlService::default();
    let member = engine.as_ref().map(|engine| Arc::clone(engine.member()));
    member.iter().for_each(|member| service.keep(Arc::clone(member)));
    let desk = Arc::new(Desk {
        ca: ca(),
        tokens: Arc::new(service.clone()),
        pins: Arc::clone(&own.view) as Arc<dyn Pins>,
        clock: Arc::clone(&own.clock),
        rng: Arc::clone(&own.rng),
    });
    let (silence, patience) = (Duration::from_secs(2), Duration::from_secs(4));
    let settings = Settings { silence, patience, rest: REST, ..Settings::default() };
    let (lease, audit) = (all.tuning.lease, None);
    let own_master = all.shared.get(&node).cloned().unwrap_or_default();
    let config =
        master::Config { lease, settings, late: LATE, pace: PACE, audit, member, own: own_master };
    let secrets = Secrets { seal: None, authority: None, links: None };
    let listener = all.net.listen(node, Role::Master.into(), &address_of(node), None);
    let stored = Stored { node: own.clone(), all, threads, engine, shared: Mutex::default() };
    let orders = give_orders(service.clone(), Arc::clone(&stored.all.orders));
    let master = MasterNode { node: own, service, desk, secrets, config, export: None };
    let (stop, stopped) = watch::channel(false);
    master.answer(listener, stopped);
    tokio::spawn(orders);
    let serving = async move {
        let _stop = stop;
        if let Err(error) = master.take_turns(&stored).await {
            tracing::error!(%error, "this master has ended");
        }
    };
    tokio::spawn(serving.instrument(named(node)));
}

/// The metadata that masters share, or keep together.
struct Stored {
    all: Surroundings,
    node: Node,
    threads: Arc<dyn Threads>,
    /// Its own, where they keep them together.
    engine: Option<Arc<RaftEngine>>,
    /// The database, as it uses that while it serves.
    shared: Mutex<Option<Arc<SharedDatabase>>>,
}

impl Stored {
    async fn share(&self) -> Arc<SharedDatabase> {
        let (database, node) = (&self.all.database, self.node.id());
        let turn = database.wait_for_turn(node).await;
        let seams = (Arc::clone(&self.node.clock), Arc::clone(&self.threads));
        SharedDatabase::new(database, node, turn, seams)
    }
}

#[async_trait]
impl Source for Stored {
    type Failure = Error;

    async fn start(&self) -> Result<(Master, String)> {
        let (engine, shared, shown): (Arc<dyn Engine>, _, _) = match &self.engine {
            Some(engine) => {
                engine.wait_for_turn().await?;
                (Arc::clone(engine) as _, None, "its member")
            }
            None => {
                let shared = self.share().await;
                (Arc::clone(&shared) as _, Some(shared), "the database")
            }
        };
        let tuning = &self.all.tuning;
        let config = cairn_meta::master::Config {
            threads: Some(Arc::clone(&self.threads)),
            lease_bytes: tuning.leases * LEASE_BYTES,
            inline_us: if tuning.near { u64::MAX } else { 0 },
            ..cairn_meta::master::Config::far()
        };
        let master = Master::start_later(engine, Arc::clone(&self.node.clock), config).await?;
        *self.shared.lock() = shared;
        Ok((master, shown.into()))
    }

    /// [`Master::stop`] waits for threads, which have no turns meanwhile.
    async fn stop(&self, master: Master) -> Result<()> {
        drop(master);
        if let Some(shared) = self.shared.lock().take() {
            shared.give_up();
        }
        if let Some(engine) = &self.engine {
            engine.give_up();
            engine.given_up().await;
        }
        Ok(())
    }

    /// Operators would start it again after any error.
    fn is_passing(&self, _: &Error) -> bool {
        true
    }
}

/// Gives the orders of operators to the master that serves.
async fn give_orders(service: ControlService, orders: Arc<Mutex<Vec<Edit>>>) {
    let mut timer = interval(Duration::from_millis(500));
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        timer.tick().await;
        let order = orders.lock().first().cloned();
        if let (Some(order), Ok(controller)) = (order, service.serving())
            && controller.edit(&order).await.is_ok()
        {
            orders.lock().remove(0);
        }
    }
}

/// A chunkserver's disk and what it is known by.
#[derive(Clone)]
pub struct Drive {
    pub disk: SimDisk,
    pub id: u128,
}

impl Drive {
    pub fn new(node: NodeId, rng: &SeededRng) -> Drive {
        Drive { disk: SimDisk::new(rng.next_u64()), id: u128::from(node.0) << 32 | 1 }
    }
}

/// A chunkserver while it runs.
pub struct Serving {
    pub store: Store,
    pub served: Arc<Chunkserver>,
}

pub type Slot<T> = Arc<Mutex<Option<T>>>;

/// Ends at once if the disk cannot be read.
pub fn chunkserver(
    all: &Surroundings,
    node: NodeId,
    drive: &Drive,
    serving: &Slot<Serving>,
    given: Given,
) {
    let process = Process::new(all, node, Role::Chunkserver, given);
    let config = cairn_blocks::Config {
        segment_bytes: all.tuning.segment_bytes,
        reserve_bytes: all.tuning.segment_bytes * 7 / 8,
        rng: Arc::clone(&process.node.rng),
        threads: Some(Arc::clone(&process.threads)),
        syncers: 1,
        ..cairn_blocks::Config::new(CLUSTER.0.to_be_bytes(), drive.id.to_be_bytes())
    };
    let disk = Arc::new(drive.disk.clone()) as Arc<dyn Disk>;
    let store = match Store::open(disk, config) {
        Ok(store) => store,
        Err(error) => return tracing::warn!(%node, %error, "the store was not opened"),
    };
    let own = ChunkserverNode::new(process.node, store.clone());
    own.beat(drive.id, move || beat_of(address_of(node)));
    let served = Arc::clone(&own.served);
    let taker = Some(own.taker());
    let listener = all.net.listen(node, Role::Chunkserver.into(), &address_of(node), taker);
    let (stop, stopped) = watch::channel(false);
    let running = own.start(listener, PACE, &stopped);
    tokio::spawn(async move {
        let _kept = (stop, running);
        pending::<()>().await;
    });
    *serving.lock() = Some(Serving { store, served });
}

pub fn gateway(all: &Surroundings, node: NodeId, door: &Slot<Door>, given: Given) {
    let Process { all, node: own, .. } = Process::new(all, node, Role::Gateway, given);
    own.beat(|| beat_of(String::new()));
    let (sender, mut requests) = unbounded_channel();
    let (streams, connections) = unbounded_channel();
    *door.lock() = Some(Door { requests: sender, streams, waiting: Arc::default() });
    for _ in 0..if all.hostile.load(Ordering::Relaxed) { HOSTILE_MOUNTS } else { 0 } {
        let agent = Arc::clone(&own.agent);
        tokio::spawn(hostile::mounts(agent, Arc::clone(&all.rng), all.tuning.lease));
    }
    let files = all.tuning.files.then(|| (Arc::clone(&all.rng), connections));
    let hasty = !all.tuning.files && all.tuning.is_hasty(node);
    let cache_bytes = all.tuning.cache_bytes;
    let shared = all.shared.get(&node).cloned();
    let config = gateway::Config {
        session: client::Config {
            alone: ALONE,
            hasty,
            own: shared,
            is_sole: true,
            ..client::Config::default()
        },
        fs: cairn_fs::Config { cache_bytes, ..cairn_fs::Config::default() },
        connections: NODE_REQUESTS,
    };
    tokio::spawn(async move {
        let fs = match gateway::open(&own, config, Ok::<_, Infallible>).await {
            Ok(fs) => fs,
            Err(never) => match never {},
        };
        tokio::spawn(duties::drop_abandoned(fs.clone(), PACE));
        if let Some((rng, connections)) = files {
            tokio::spawn(serve_files(fs.clone(), rng, connections));
        }
        while let Some(request) = requests.recv().await {
            tokio::spawn(request.answer(fs.clone()));
        }
    });
}

/// The key of handles: one for all gateways.
pub fn handles() -> HandleKey {
    HandleKey::derive(&Secret::new([7; 32]))
}

/// The door for NFS: the product's, over connections in memory.
async fn serve_files(
    fs: Fs,
    rng: Arc<SeededRng>,
    mut connections: UnboundedReceiver<(DuplexStream, IpAddr)>,
) {
    const PORT: u16 = 2049;
    let traces = Traces::new([1, 2], 0.0);
    let begin = Arc::new(move || Stages::start(traces.next(None)));
    let told = Watch { begin, end: Arc::new(drop), audit: None };
    let runtime = tokio::runtime::Handle::current();
    let behaviour = Behaviour { port: PORT, watch: told, looks_up_groups: false };
    let desk = cairn_nfs::Desk::new(fs, handles(), &*rng, runtime, behaviour);
    tokio::spawn(cairn_nfs::Desk::sweep(Arc::downgrade(&desk)));
    let (_stop, stopped) = watch::channel(false);
    while let Some((stream, address)) = connections.recv().await {
        let (reader, writer) = tokio::io::split(stream);
        let (place, desk) = (Arc::new(()), Arc::clone(&desk));
        let served = converse(reader, writer, address, place, desk, stopped.clone());
        tokio::spawn(async move {
            if let Err(error) = served.await {
                tracing::debug!(%address, %error, "a connection ended");
            }
        });
    }
}
