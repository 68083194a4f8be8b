//! The processes of a cluster, wired as `cairn master`, `cairn chunkserver` and `cairn gateway`
//! wire them, but for the network, the disks, the clocks and the threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cairn_auth::Caller;
use cairn_base::rng::SeededRng;
use cairn_base::{
    Clock, ClusterId, Disk, NodeId, Result, Rng, Role, SessionId, Threads, Timestamp,
};
use cairn_blocks::Store;
use cairn_cluster::control::messages::{Beat, Secrets, StoreState};
use cairn_cluster::control::{Agent, ControlService, Controller, Edit, Keeper, NodeView, Settings};
use cairn_cluster::data::{Chunkserver, MapSource, Pool, Replicated, Sick};
use cairn_cluster::identity::{Ca, Desk, Pins};
use cairn_cluster::wire::{NoService, Terms, serve};
use cairn_fs::Fs;
use cairn_meta::engine::Engine;
use cairn_meta::master;
use cairn_meta::master::host::Sessions;
use cairn_meta::ops::sessions::Format;
use cairn_meta::session::client::{self, Client};
use cairn_meta::{Master, Meta};
use cairn_sim::SimDisk;
use parking_lot::Mutex;
use tokio::sync::mpsc::{channel, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::client::Door;
use super::copies::Copies;
use super::database::{Database, Shared};
use super::host::Given;
use super::hostile;
use super::net::{Net, Purpose, address_of};

pub const CLUSTER: ClusterId = ClusterId(7);
/// How long a gateway writes that hears of no master, and how long after the end of its session
/// blocks of it may come: each write takes up to 10 s, and faults hold it up for 8 s at either end.
const ALONE: Duration = Duration::from_secs(6);
const LATE: Duration = Duration::from_secs(40);
const DRAIN: Duration = Duration::from_secs(5);
/// Of each gateway, at the same time.
const HOSTILE_MOUNTS: usize = 2;

/// What there is for all processes.
#[derive(Clone)]
pub struct Surroundings {
    pub net: Net,
    pub rng: Arc<SeededRng>,
    pub database: Arc<Database>,
    pub masters: Vec<NodeId>,
    /// What operators want of whatever master serves.
    pub orders: Arc<Mutex<Vec<Edit>>>,
    /// Whether gateways bring hostile mounts.
    pub hostile: Arc<AtomicBool>,
    pub tuning: Tuning,
}

/// What differs from seed to seed.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// Of a session.
    pub lease: Duration,
    /// The master reads missing rows itself.
    pub near: bool,
    pub leases: usize,
    pub cache_bytes: u64,
    pub segment_bytes: u64,
    /// Which gateways are told that operations are done when they have run, by bits.
    pub hasty: u64,
}

impl Tuning {
    /// One in four.
    fn is_hasty(&self, gateway: NodeId) -> bool {
        self.hasty >> (gateway.0 % 32 * 2) & 3 == 0
    }
}

/// What a process needs.
struct Process {
    all: Surroundings,
    node: NodeId,
    role: Role,
    clock: Arc<dyn Clock>,
    threads: Arc<dyn Threads>,
    view: Arc<NodeView>,
    agent: Arc<Agent>,
    terms: Terms,
}

impl Process {
    fn new(all: &Surroundings, node: NodeId, role: Role, given: Given) -> Process {
        let Given { clock, threads } = given;
        let terms = Terms::new(CLUSTER, node, role);
        let view = NodeView::new(Vec::new());
        let agent = Agent::without_tls(
            all.net.dialer(node, role.into(), Purpose::Wire),
            terms.clone(),
            all.masters.iter().map(|master| address_of(*master)).collect(),
            Arc::clone(&view),
            Arc::clone(&clock),
            Arc::clone(&all.rng) as Arc<dyn Rng>,
        );
        Process { all: all.clone(), node, role, clock, threads, view, agent, terms }
    }

    fn beat(&self, beat: impl Fn() -> Beat + Send + Sync + 'static) {
        let agent = Arc::clone(&self.agent);
        tokio::spawn(async move { agent.beat(beat).await });
    }

    fn pool(&self) -> Arc<Pool> {
        Pool::new(self.all.net.dialer(self.node, self.role.into(), Purpose::Blocks))
    }

    fn rng(&self) -> Arc<dyn Rng> {
        Arc::clone(&self.all.rng) as _
    }

    fn own_beat(&self) -> Beat {
        Beat { address: address_of(self.node), weight: 1, ..Beat::default() }
    }
}

/// Nobody asks it for anything.
fn ca() -> Ca {
    Ca::init(CLUSTER, Timestamp::from_secs(1_700_000_000), &SeededRng::new(1)).unwrap()
}

pub fn master(all: &Surroundings, node: NodeId, given: Given) {
    let process = Process::new(all, node, Role::Master, given);
    let beat = process.own_beat();
    process.beat(move || beat.clone());
    let service = ControlService::default();
    let desk = Arc::new(Desk {
        ca: ca(),
        tokens: Arc::new(service.clone()),
        pins: Arc::clone(&process.view) as Arc<dyn Pins>,
        clock: Arc::clone(&process.clock),
        rng: process.rng(),
    });
    let listener = all.net.listen(node, Role::Master.into(), &address_of(node), None);
    let (stop, stopped) = watch::channel(false);
    let terms = process.terms.clone();
    tokio::spawn(serve(listener, terms, service.clone(), DRAIN, stopped));
    tokio::spawn(async move {
        let _stop = stop;
        loop {
            if let Err(error) = serve_once(&process, &service, &desk).await {
                tracing::warn!(node = %process.node, %error, "not serving");
            }
            service.serve(None);
            sleep(Duration::from_secs(1)).await;
        }
    });
}

async fn serve_once(process: &Process, service: &ControlService, desk: &Arc<Desk>) -> Result<()> {
    let all = &process.all;
    let turn = all.database.wait_for_turn(process.node).await;
    let engine = Shared::new(&all.database, process.node, turn, Arc::clone(&process.threads));
    let far = master::Config::far();
    let config = master::Config {
        threads: Some(Arc::clone(&process.threads)),
        leases: all.tuning.leases,
        inline_us: if all.tuning.near { u64::MAX } else { 0 },
        ..far
    };
    let clock = Arc::clone(&process.clock);
    let master = Master::start(Arc::clone(&engine) as _, Arc::clone(&clock), config)?;
    master.run(&Caller::system(), Format { cluster: CLUSTER.0 as u64 }).await?;
    let sessions = Sessions::start(master.clone(), Arc::clone(&clock), all.tuning.lease).await?;
    let keeper = Keeper::start(master.clone(), Arc::clone(&process.view)).await?;
    let (silence, patience) = (Duration::from_secs(2), Duration::from_secs(4));
    let settings = Settings { silence, patience, ..Settings::default() };
    let secrets = Secrets { seal: None, authority: None, links: None };
    let (desk, served) = (Arc::clone(desk), (master.clone(), sessions));
    let controller = Controller::new(process.node, served, keeper, desk, secrets, clock, settings);
    let controller = Arc::new(controller);
    service.serve(Some(Arc::clone(&controller)));
    tracing::info!(node = %process.node, "this master serves");
    let mut duties = JoinSet::new();
    duties.spawn(look_around(Arc::clone(&controller), Arc::clone(&all.orders)));
    duties.spawn(tick(Arc::clone(&controller)));
    duties.spawn(collect_garbage(fs_of_master(process, &controller), controller));
    let reason = master.wait_failed().await;
    tracing::warn!(node = %process.node, reason, "this master serves no longer");
    duties.shutdown().await;
    engine.give_up();
    Ok(())
}

fn fs_of_master(process: &Process, controller: &Controller) -> Fs {
    let map = Arc::clone(&controller.keeper) as _;
    let loads = process.agent.loads();
    let blocks = Arc::new(Replicated::new(map, process.pool(), loads, process.rng()));
    let meta =
        Meta::Local { master: controller.master.clone(), session: SessionId(0), sessions: None };
    let config = cairn_fs::Config { cache_bytes: 0, late: LATE, ..cairn_fs::Config::default() };
    let fs = Fs::over(meta, blocks, Arc::clone(&process.clock), config);
    let sessions = Arc::clone(&controller.sessions);
    fs.set_reads_floor(move || sessions.reads_from());
    fs
}

async fn look_around(controller: Arc<Controller>, orders: Arc<Mutex<Vec<Edit>>>) {
    let mut timer = interval(Duration::from_millis(500));
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        timer.tick().await;
        let order = orders.lock().first().cloned();
        if let Some(order) = order
            && controller.edit(&order).await.is_ok()
        {
            orders.lock().remove(0);
        }
        if let Err(error) = controller.look_around().await {
            tracing::warn!(%error, "the cluster map was not brought up to date");
        }
    }
}

async fn tick(controller: Arc<Controller>) {
    let mut timer = interval(Duration::from_millis(250));
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        timer.tick().await;
        if let Err(error) = controller.sessions.tick().await {
            tracing::warn!(%error, "sessions that lapsed were not ended");
        }
    }
}

async fn collect_garbage(fs: Fs, controller: Arc<Controller>) {
    controller.sessions.opened().await;
    let mut timer = interval(Duration::from_secs(1));
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        timer.tick().await;
        match fs.collect_garbage(&Caller::system(), false).await {
            Ok(report) => tracing::debug!(?report, "garbage collected"),
            Err(error) => tracing::debug!(%error, "garbage was not collected"),
        }
    }
}

/// A chunkserver's disk and what it is known by.
#[derive(Clone)]
pub struct Drive {
    pub disk: SimDisk,
    pub id: u128,
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
        rng: process.rng(),
        threads: Some(Arc::clone(&process.threads)),
        syncers: 1,
        ..cairn_blocks::Config::new(CLUSTER.0.to_be_bytes(), drive.id.to_be_bytes())
    };
    let disk = Arc::new(drive.disk.clone()) as Arc<dyn Disk>;
    let store = match Store::open(disk, config) {
        Ok(store) => store,
        Err(error) => return tracing::warn!(%node, %error, "the store was not opened"),
    };
    let pool = process.pool();
    let (sick, to_heal) = channel::<Sick>(1000);
    let map = Arc::clone(&process.agent) as Arc<dyn MapSource>;
    let served = Chunkserver::new(node, store.clone(), map, pool, Some(sick));
    let agent = Arc::clone(&process.agent);
    let copies = Arc::new(Copies::new(agent, Arc::clone(&served), store.clone()));
    beat_of_store(&process, drive.id, &store, &served, &copies);
    let taker = Some(served.taker());
    let listener = all.net.listen(node, Role::Chunkserver.into(), &address_of(node), taker);
    let (stop, stopped) = watch::channel(false);
    let terms = process.terms.clone();
    tokio::spawn(async move {
        serve(listener, terms, NoService, DRAIN, stopped).await;
        drop(stop);
    });
    tokio::spawn(Arc::clone(&copies).keep_up());
    tokio::spawn(Arc::clone(&copies).heal(to_heal));
    tokio::spawn(compact(store.clone()));
    *serving.lock() = Some(Serving { store, served });
}

fn beat_of_store(
    process: &Process,
    disk: u128,
    store: &Store,
    served: &Arc<Chunkserver>,
    copies: &Arc<Copies>,
) {
    let (store, served, copies) = (store.clone(), Arc::clone(served), Arc::clone(copies));
    let own = process.own_beat();
    process.beat(move || {
        let usage = store.usage_now().unwrap_or_default();
        let state = StoreState {
            blocks: usage.blocks,
            live_bytes: usage.live_bytes,
            free_bytes: usage.free_bytes,
            corrupt: usage.corrupt_reads,
            healed: served.healed(),
            is_full: store.is_short_of_space(),
        };
        Beat { disk, store: state, copying: copies.progress(), ..own.clone() }
    });
}

async fn compact(store: Store) {
    loop {
        sleep(Duration::from_secs(3)).await;
        if let Err(error) = store.blocking(|store| store.compact(false)).await {
            tracing::warn!(%error, "segments were not compacted");
        }
    }
}

pub fn gateway(all: &Surroundings, node: NodeId, door: &Slot<Door>, given: Given) {
    let process = Process::new(all, node, Role::Gateway, given);
    let beat = Beat { address: String::new(), ..process.own_beat() };
    process.beat(move || beat.clone());
    let (sender, mut requests) = unbounded_channel();
    *door.lock() = Some(Door { requests: sender, waiting: Arc::default() });
    for _ in 0..if all.hostile.load(Ordering::Relaxed) { HOSTILE_MOUNTS } else { 0 } {
        let agent = Arc::clone(&process.agent);
        tokio::spawn(hostile::mounts(agent, Arc::clone(&all.rng), all.tuning.lease));
    }
    tokio::spawn(async move {
        let fs = open(&process).await;
        tokio::spawn(clean(fs.clone()));
        while let Some(request) = requests.recv().await {
            tokio::spawn(request.answer(fs.clone()));
        }
    });
}

async fn open(process: &Process) -> Fs {
    process.agent.has_map().await;
    let client = loop {
        let dialer = Arc::clone(&process.agent) as _;
        let hasty = process.all.tuning.is_hasty(process.node);
        let config = client::Config { alone: ALONE, hasty, ..client::Config::default() };
        let clock = Arc::clone(&process.clock);
        match Client::start(dialer, clock, process.rng(), config).await {
            Ok(client) => break client,
            Err(error) => tracing::warn!(%error, "no session with a master yet"),
        }
    };
    let map = Arc::clone(&process.agent) as _;
    let loads = process.agent.loads();
    let blocks = Replicated::new(map, process.pool(), loads, process.rng());
    let cache_bytes = process.all.tuning.cache_bytes;
    let config = cairn_fs::Config { cache_bytes, ..cairn_fs::Config::default() };
    Fs::over(Meta::Remote(client), Arc::new(blocks), Arc::clone(&process.clock), config)
}

async fn clean(fs: Fs) {
    loop {
        sleep(Duration::from_secs(2)).await;
        if let Err(error) = fs.drop_abandoned().await {
            tracing::debug!(%error, "blocks that were not published stay");
        }
    }
}
