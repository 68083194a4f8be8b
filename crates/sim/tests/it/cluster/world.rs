//! A whole cluster on one thread, from a seed: first everything goes wrong and must stay right,
//! then nothing goes wrong and all must become well.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cairn_auth::{Caller, Visibility};
use cairn_base::map::Node;
use cairn_base::planted::{Bug, plant};
use cairn_base::rng::SeededRng;
use cairn_base::{ClusterMap, KeyHash, NodeId, Pin, Rng, Role, UserId};

use cairn_cluster::control::Edit;
use cairn_meta::ops::buckets::CreateBucket;
use cairn_meta::ops::cluster::PutMap;
use cairn_meta::rows::BucketKind;
use cairn_meta::session::OwnMaster;
use cairn_meta::{Master, master};
use cairn_sim::{Fault as DiskFault, SimDisk};
use parking_lot::Mutex;

use super::client::{BUCKET, Client, Door, FILES};
use super::database::{DATABASE, Database};
use super::digest::Digest;
use super::faults::{Fault, Plan};
use super::files;
use super::health;
use super::history::History;
use super::host::Host;
use super::net::{Net, address_of};
use super::roles::{self, Drive, Serving, Slot, Surroundings, Tuning};
use super::seat::{self, Seat};

/// A turn of the world, microseconds.
const TICK_US: u64 = 2_000;
const CLIENTS: usize = 6;
/// Read-only clients of each gateway.
const READERS: usize = 2;
/// First seed in which directories are filled as well: by this many makers, and as many others that
/// look into the directories.
pub const MAKING: u64 = 1 << 32;
const MAKERS: usize = 2;
/// First seed with hostile mounts as well.
pub const HOSTILE: u64 = 1 << 33;
/// First seed in which gateways serve NFS: clients of NFS work, and only this many others beside
/// them.
pub const SERVING: u64 = 1 << 34;
const BESIDE: usize = 2;
/// Bit of seeds, of any kind otherwise, in which three masters keep the metadata together.
pub const TOGETHER: u64 = 1 << 35;
/// Bit of seeds, of any kind otherwise, in which the first masters share their processes with
/// gateways.
pub const PAIRED: u64 = 1 << 36;
/// Interval at which streams break while they break again and again, and interval of checks that
/// members have the blocks that they should, microseconds.
const FLAKY_US: u64 = 100_000;
const LOOK_US: u64 = 500_000;
/// Time that all may take to become well, seconds.
const RECOVERY_SECS: u64 = 90;
const CLIENT_HOST: NodeId = NodeId(2000);

/// The nodes of a world.
#[derive(Clone, Debug)]
pub struct Layout {
    pub masters: Vec<NodeId>,
    pub chunkservers: Vec<NodeId>,
    pub gateways: Vec<NodeId>,
    pub replicas: u8,
    /// The masters keep the metadata together, and have no database.
    pub together: bool,
}

impl Layout {
    fn draw(rng: &SeededRng, together: bool) -> Layout {
        let stores = 3 + rng.below(2);
        Layout {
            masters: (1..if together { 4 } else { 3 }).map(NodeId).collect(),
            chunkservers: (11..11 + stores).map(NodeId).collect(),
            gateways: vec![NodeId(21), NodeId(22)],
            replicas: 2 + rng.below(2) as u8,
            together,
        }
    }

    /// Returns the state that each gateway shares with the master in the same process.
    fn pairs(&self) -> BTreeMap<NodeId, Arc<OwnMaster>> {
        let pair = |(master, gateway): (&NodeId, &NodeId)| {
            let own = Arc::<OwnMaster>::default();
            [(*master, Arc::clone(&own)), (*gateway, own)]
        };
        self.masters.iter().zip(&self.gateways).flat_map(pair).collect()
    }

    pub fn all(&self) -> Vec<NodeId> {
        [&self.masters[..], &self.chunkservers, &self.gateways].concat()
    }
}

/// The result of a seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    pub digest: u64,
    pub violations: Vec<String>,
    pub ops: usize,
    pub answered: usize,
    pub faults: usize,
    /// Until all was well, milliseconds of the simulation.
    pub recovery_ms: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { digest, ops, answered, faults, recovery_ms, .. } = self;
        write!(f, "{answered} of {ops} operations answered, {faults} faults, ")?;
        write!(f, "well after {recovery_ms} ms, digest {digest:016x}")
    }
}

pub struct World {
    pub all: Surroundings,
    pub layout: Layout,
    pub now_us: u64,
    pub hosts: BTreeMap<NodeId, Host>,
    pub drives: BTreeMap<NodeId, Drive>,
    pub serving: BTreeMap<NodeId, Slot<Serving>>,
    doors: Vec<Slot<Door>>,
    pub history: Arc<Mutex<History>>,
    /// The faults that end, by time.
    ending: Vec<(u64, Fault)>,
    digest: Digest,
    faults: usize,
    /// The work of clients: reads in a hundred operations.
    reads: u64,
    /// So many gateways, from the first on, are asked for changes.
    changing: usize,
    /// One master after the other is cut off together with a gateway that has leased all rows that
    /// it reads, and nothing else goes wrong.
    aimed: bool,
    /// Set if clients fill directories.
    makes: bool,
    /// Clients of NFS, where there are any.
    files: Option<files::Shared>,
    /// The ways that `Fault::Beside` cuts: longer than other faults last.
    beside: Vec<(NodeId, NodeId)>,
    /// Number of streams of which one breaks from time to time.
    flaky: Option<u64>,
}

/// Runs one seed, with a bug or without.
pub fn run(seed: u64, bug: Option<Bug>) -> Report {
    plant(bug);
    let mut world = World::new(seed);
    let rng = Arc::new(SeededRng::new(seed ^ 0xFA17));
    let mut violations = world.misbehave(&rng);
    let mut recovery_ms = 0;
    if violations.is_empty() {
        let healed_us = world.now_us;
        violations = world.recover();
        recovery_ms = (world.now_us - healed_us) / 1000;
    }
    let history = world.history.lock();
    let (ops, answered, seen) = (history.len(), history.answered(), history.digest.value());
    drop(history);
    let mut digest = world.digest;
    digest.add(&[world.all.net.digest(), seen, ops as u64]);
    let report = Report {
        digest: digest.value(),
        violations,
        ops,
        answered,
        faults: world.faults,
        recovery_ms,
    };
    drop(world);
    plant(None);
    report
}

impl World {
    fn new(seed: u64) -> World {
        let kind = seed & !(TOGETHER | PAIRED);
        let serves = kind >= SERVING;
        let makes = kind >= MAKING && !serves;
        let rng = Arc::new(SeededRng::new(seed));
        let layout = Layout::draw(&rng, seed & TOGETHER != 0);
        let net = Net::new(Arc::clone(&rng));
        let database = Database::new(net.clone(), Arc::clone(&rng));
        let mut tuning = Tuning {
            lease: Duration::from_secs([3, 10][rng.below(2) as usize]),
            near: rng.below(2) == 0,
            leases: [1 << 20, 20, 5][rng.below(3) as usize],
            cache_bytes: [0, 64 << 20][rng.below(2) as usize],
            segment_bytes: [256 << 10, 1 << 20][rng.below(2) as usize],
            files: serves,
            hasty: if makes { 0 } else { SeededRng::new(!seed).next_u64() },
        };
        let aimed = layout.together && kind < MAKING && rng.below(4) == 0;
        if aimed {
            (tuning.lease, tuning.leases) = (Duration::from_secs(3), 1 << 20);
        }
        let reads = [50, 80][rng.below(2) as usize];
        let seated = layout.masters.iter().filter(|_| layout.together);
        let all = Surroundings {
            net,
            rng: Arc::clone(&rng),
            database,
            masters: layout.masters.clone(),
            seats: seated.map(|node| (*node, Seat::new(rng.next_u64()))).collect(),
            orders: Arc::default(),
            hostile: Arc::new(AtomicBool::new(kind >= HOSTILE && !serves)),
            tuning,
            shared: if seed & PAIRED != 0 { layout.pairs() } else { BTreeMap::new() },
        };
        let skew = || rng.below(20_000) as i64 - 10_000;
        let hosts = layout.all().into_iter().chain([CLIENT_HOST]);
        let hosts = hosts.map(|node| (node, Host::new(skew()))).collect();
        let drives = layout.chunkservers.iter().map(|node| (*node, Drive::new(*node, &rng)));
        let drives = drives.collect();
        let serving = layout.chunkservers.iter().map(|node| (*node, Slot::default())).collect();
        let doors = layout.gateways.iter().map(|_| Slot::default()).collect();
        let changing = if aimed { 1 } else { layout.gateways.len() };
        let mut world = World {
            all,
            layout,
            now_us: 0,
            hosts,
            drives,
            serving,
            doors,
            history: Arc::default(),
            ending: Vec::new(),
            digest: Digest::default(),
            faults: 0,
            reads,
            changing,
            aimed,
            makes,
            files: serves.then(files::Shared::default),
            beside: Vec::new(),
            flaky: None,
        };
        world.fill();
        world.layout.all().into_iter().for_each(|node| world.start(node));
        world.start_clients();
        world
    }

    /// The first rows, as `cairn cluster init` writes them.
    fn fill(&mut self) {
        let mut map = ClusterMap {
            epoch: 1,
            replicas: self.layout.replicas,
            minimum: 2,
            next_node: 100,
            next_group: 1,
            ..ClusterMap::default()
        };
        let roles = [
            (Role::Master, &self.layout.masters),
            (Role::Chunkserver, &self.layout.chunkservers),
            (Role::Gateway, &self.layout.gateways),
        ];
        for (role, nodes) in roles {
            for node in nodes {
                let pin = Pin { key: key_of(*node), roles: role.into() };
                let address = match role {
                    Role::Gateway => String::new(),
                    _ => address_of(*node),
                };
                map.nodes.insert(*node, Node { address, ..Node::new(pin) });
            }
        }
        let all = self.all.clone();
        let done = Arc::new(Mutex::new(false));
        let told = Arc::clone(&done);
        let (makes, serves) = (self.makes, self.files.is_some());
        let mut host = Host::new(0);
        host.start(0, &self.all.rng, |given| {
            tokio::spawn(async move {
                let (engine, member) = seat::begin(&all, &given).await;
                let config =
                    master::Config { threads: Some(given.threads), ..master::Config::default() };
                let master = Master::start(engine, given.clock, config).unwrap();
                let system = Caller::system();
                master.run(&system, PutMap { map: map.encode() }).await.unwrap();
                let (name, kind) = (BUCKET.to_owned(), BucketKind::S3);
                let bucket = CreateBucket { name, kind, visibility: Visibility::Private };
                master.run(&Caller::verified(UserId::ROOT), bucket).await.unwrap();
                if makes {
                    let (name, kind) = (FILES.to_owned(), BucketKind::Posix);
                    let bucket = CreateBucket { name, kind, visibility: Visibility::Private };
                    master.run(&Caller::verified(UserId::ROOT), bucket).await.unwrap();
                }
                if serves {
                    files::fill(&master).await;
                }
                if let Some(engine) = member {
                    seat::close(&engine).await;
                }
                *told.lock() = true;
            });
        });
        while !*done.lock() {
            host.advance(TICK_US);
        }
        if let Some(seat) = self.all.seats.get_mut(&self.layout.masters[0]) {
            seat.disk = seat.disk.kill();
            host.end();
            seat.shown.clear();
        }
    }

    fn start(&mut self, node: NodeId) {
        let Some(host) = self.hosts.get_mut(&node) else { return };
        if host.is_running() {
            return;
        }
        let (all, now, rng) = (&self.all, self.now_us, Arc::clone(&self.all.rng));
        self.digest.add(&[now, node.0, 1]);
        all.net.appear(node);
        if self.layout.masters.contains(&node) {
            host.start(now, &rng, |given| roles::master(all, node, given));
        } else if let Some(drive) = self.drives.get(&node) {
            let serving = &self.serving[&node];
            host.start(now, &rng, |given| roles::chunkserver(all, node, drive, serving, given));
        } else if let Some(at) = self.layout.gateways.iter().position(|one| *one == node) {
            let door = &self.doors[at];
            host.start(now, &rng, |given| roles::gateway(all, node, door, given));
        }
    }

    fn start_clients(&mut self) {
        let (client, makes) = (self.client(), self.makes);
        let (history, rng) = (Arc::clone(&self.history), Arc::clone(&self.all.rng));
        let files = self.files.as_mut().map(|shared| {
            shared.history = history;
            let (shared, doors) = (shared.clone(), &self.doors);
            let client = move |number| {
                let own = Arc::new(SeededRng::new(rng.next_u64()));
                files::Client::new(number, shared.clone(), doors.clone(), own)
            };
            (1..=files::CLIENTS).map(client).collect::<Vec<_>>()
        });
        if let Some(host) = self.hosts.get_mut(&CLIENT_HOST) {
            host.start(self.now_us, &self.all.rng, |_| {
                for _ in 0..if makes { MAKERS } else { 0 } {
                    tokio::spawn(client.clone().make());
                    tokio::spawn(client.clone().interfere());
                }
                if let Some(files) = files {
                    for client in files {
                        tokio::spawn(client.work());
                    }
                    for _ in 0..BESIDE {
                        tokio::spawn(client.clone().work());
                    }
                    return;
                }
                for _ in 0..CLIENTS {
                    tokio::spawn(client.clone().work());
                }
                for door in (0..client.doors.len()).flat_map(|door| [door; READERS]) {
                    tokio::spawn(client.clone().read(door));
                }
            });
        }
    }

    pub fn client(&self) -> Client {
        let (history, rng) = (Arc::clone(&self.history), Arc::clone(&self.all.rng));
        let (doors, changing) = (self.doors.clone(), self.changing);
        Client { doors, changing, history, rng, reads: self.reads }
    }

    /// A client of NFS that has not come to its end.
    pub fn unfinished(&self) -> Option<String> {
        let unfinished = self.files.as_ref()?.unfinished.lock().first().copied()?;
        Some(format!("client {unfinished} of NFS waits"))
    }

    /// Runs something on a host.
    pub fn inside(&self, node: NodeId, work: impl FnOnce()) {
        if let Some(host) = self.hosts.get(&node) {
            host.inside(work);
        }
    }

    pub fn inside_clients(&self, work: impl FnOnce()) {
        self.inside(CLIENT_HOST, work);
    }

    /// The process ends; with the power, what was not synced may be lost.
    fn stop(&mut self, node: NodeId, power_cut: bool) {
        self.digest.add(&[self.now_us, node.0, 2]);
        let (net, rng) = (self.all.net.clone(), Arc::clone(&self.all.rng));
        if let Some(disk) = self.disk(node) {
            // Before anything that dies can touch it.
            *disk = if power_cut { disk.crash_image(rng.next_u64()) } else { disk.kill() };
        }
        if let Some(serving) = self.serving.get(&node) {
            serving.lock().take();
        }
        let mut door = None;
        if let Some(at) = self.layout.gateways.iter().position(|one| *one == node) {
            door = self.doors[at].lock().take();
        }
        let shown = self.all.seats.get(&node).map(|seat| seat.shown.clone());
        if let Some(host) = self.hosts.get_mut(&node) {
            net.while_dying(node, power_cut, || {
                host.end();
                shown.into_iter().for_each(|shown| shown.clear());
            });
        }
        door.into_iter().for_each(|door| door.waiting.end());
    }

    /// The disk of a chunkserver, or of a master that has one.
    fn disk(&mut self, node: NodeId) -> Option<&mut SimDisk> {
        let seat = self.all.seats.get_mut(&node).map(|seat| &mut seat.disk);
        seat.or(self.drives.get_mut(&node).map(|drive| &mut drive.disk))
    }

    /// The process of a master whose member has ended is started again, as its machine would.
    fn restart_ended(&mut self) {
        self.all.seats.values().for_each(|seat| seat.shown.assert_whole());
        let ended = self.all.seats.iter().filter(|(_, seat)| seat.shown.has_ended());
        for node in ended.map(|(node, _)| *node).collect::<Vec<_>>() {
            self.stop(node, false);
            self.start(node);
        }
    }

    /// Time goes on.
    pub fn turn(&mut self) {
        self.now_us += TICK_US;
        if self.now_us.is_multiple_of(LOOK_US) {
            self.restart_ended();
        }
        self.all.net.advance(self.now_us);
        let mut order: Vec<NodeId> = self.hosts.keys().copied().collect();
        for at in (1..order.len()).rev() {
            order.swap(at, self.all.rng.below(at as u64 + 1) as usize);
        }
        for node in order {
            if let Some(host) = self.hosts.get_mut(&node) {
                host.advance(TICK_US);
            }
        }
    }

    /// Everything goes wrong. Events that must not happen are returned.
    fn misbehave(&mut self, rng: &SeededRng) -> Vec<String> {
        let layout = self.layout.clone();
        let mut plan = Plan::new(&layout, rng);
        if self.files.is_some() {
            plan.keep_clocks();
        }
        if self.aimed {
            plan.aim();
        }
        let begin_us = if layout.together { 8_000_000 } else { 6_000_000 };
        let end_us = begin_us + 10_000_000 + rng.below(20_000_000);
        let mean_ms = 300 + rng.below(3_000);
        let mut next_us = begin_us;
        while self.now_us < end_us {
            self.turn();
            if let Some(one_in) = self.flaky
                && self.now_us.is_multiple_of(FLAKY_US)
            {
                self.all.net.break_some(one_in);
            }
            if self.now_us.is_multiple_of(LOOK_US)
                && let Err(found) = health::check_members(self)
            {
                return vec![found];
            }
            if self.now_us >= next_us && !plan.is_calm() {
                next_us = self.now_us + rng.below(2 * mean_ms) * 1000;
                if let Some((fault, lasts_ms)) = plan.draw() {
                    self.begin(fault, rng);
                    self.ending.push((self.now_us + lasts_ms * 1000, fault));
                }
            }
            let now = self.now_us;
            let (over, later) =
                std::mem::take(&mut self.ending).into_iter().partition(|one| one.0 <= now);
            self.ending = later;
            let over: Vec<(u64, Fault)> = over;
            over.into_iter().for_each(|(_, fault)| self.end(fault));
        }
        self.history.lock().check()
    }

    fn begin(&mut self, fault: Fault, rng: &SeededRng) {
        self.faults += 1;
        tracing::info!(at_ms = self.now_us / 1000, ?fault, "FAULT");
        // Where masters have disks, they stand still or change when these are slow or fail.
        let disturbs = fault.disturbs() || self.layout.together && fault.is_of_disk();
        let mut history = self.history.lock();
        history.disturbed |= disturbs;
        history.forgetful |= disturbs || matches!(fault, Fault::Commits(_));
        drop(history);
        let net = self.all.net.clone();
        match fault {
            Fault::Kill(node) => self.stop(node, false),
            Fault::PowerCut(node) => self.stop(node, true),
            Fault::Pause(node) => self.host(node, |host| {
                host.paused_us.get_or_insert(0);
            }),
            Fault::CutOneWay(a, b) => net.cut(a, b),
            Fault::Cut(a, b) => both(a, b, |a, b| net.cut(a, b)),
            Fault::Isolate(_) | Fault::Halves(_) | Fault::Apart(_) => {
                self.pairs(fault).into_iter().for_each(|(a, b)| net.cut(a, b));
            }
            Fault::Beside(gateway) => {
                if self.beside.is_empty() {
                    self.beside = self.ways_beside(gateway);
                }
                self.beside.iter().for_each(|(a, b)| net.cut(*a, *b));
            }
            Fault::Deafen(gateway) => {
                self.layout.masters.iter().for_each(|master| net.cut(*master, gateway));
            }
            Fault::Delay(a, b, by_ms) => net.delay(a, b, by_ms * 1000),
            Fault::Break(one_in) => net.break_some(one_in),
            Fault::Flaky(one_in) => self.flaky = Some(one_in),
            Fault::Drain(node) => self.all.orders.lock().push(Edit::Drain(node)),
            Fault::Commits(thousandths) => self.all.database.set_faults(thousandths),
            Fault::Jump(node, secs) => self.host(node, |host| host.jump(secs)),
            Fault::Slow(node, factor) => self.host(node, |host| host.set_slow(factor)),
            Fault::DiskError(node, after) => {
                let fault = DiskFault::once(None, after);
                // Every other disk of a chunkserver fails until the fault ends.
                let lasts = after.is_multiple_of(2) && !self.all.seats.contains_key(&node);
                let fault = if lasts { fault.sticky() } else { fault };
                if let Some(disk) = self.disk(node) {
                    disk.add_fault(fault);
                }
            }
            Fault::DiskFull(node) => {
                let room = if self.all.seats.contains_key(&node) { 30_000 } else { 300_000 };
                if let Some(disk) = self.disk(node) {
                    disk.set_capacity(Some(disk.used_bytes() + room));
                }
            }
            Fault::Flip(node) => self.flip(node, rng),
            Fault::Wipe(node) => {
                self.stop(node, true);
                let (disk, id) = (SimDisk::new(rng.next_u64()), u128::from(node.0) << 32 | 2);
                self.drives.insert(node, Drive { disk, id });
            }
        }
    }

    /// The directions that are cut.
    fn pairs(&self, fault: Fault) -> Vec<(NodeId, NodeId)> {
        let all: Vec<NodeId> = self.layout.all().into_iter().chain([DATABASE]).collect();
        let side = |node: NodeId| match fault {
            Fault::Apart(gateway) => node == gateway,
            Fault::Isolate(alone) => node == alone,
            Fault::Halves(bits) => bits >> (node.0 % 64) & 1 == 1,
            _ => false,
        };
        let others = |a: NodeId| all.iter().map(move |b| (a, *b));
        let pairs = all.iter().flat_map(|a| others(*a));
        let is_meant = |(a, b): &(NodeId, NodeId)| match fault {
            Fault::Apart(_) => [a, b].iter().any(|node| self.layout.masters.contains(node)),
            _ => true,
        };
        pairs.filter(|(a, b)| side(*a) != side(*b)).filter(is_meant).collect()
    }

    fn host(&mut self, node: NodeId, change: impl FnOnce(&mut Host)) {
        if let Some(host) = self.hosts.get_mut(&node) {
            change(host);
        }
    }

    /// Changes a bit of what is stored.
    fn flip(&mut self, node: NodeId, rng: &SeededRng) {
        use cairn_base::Disk;
        let disk = &self.drives[&node].disk;
        let mut names = disk.list().unwrap_or_default();
        names.retain(|name| name.ends_with(".seg"));
        names.sort();
        for name in names {
            let length = disk.contents(&name).map_or(0, |bytes| bytes.len() as u64);
            if length > 8192 && rng.below(2) == 0 {
                let at = 4096 + rng.below(length - 4096);
                disk.flip_bit(&name, at, rng.below(8) as u32).unwrap();
                self.history.lock().flipped = true;
            }
        }
    }

    fn end(&mut self, fault: Fault) {
        tracing::info!(at_ms = self.now_us / 1000, ?fault, "over");
        match fault {
            Fault::Kill(node) | Fault::PowerCut(node) | Fault::Wipe(node) => self.start(node),
            Fault::Pause(node) => self.host(node, Host::resume),
            Fault::CutOneWay(..)
            | Fault::Cut(..)
            | Fault::Isolate(_)
            | Fault::Halves(_)
            | Fault::Apart(_)
            | Fault::Beside(_)
            | Fault::Deafen(_)
            | Fault::Delay(..) => {
                self.all.net.heal();
                if matches!(fault, Fault::Beside(_)) {
                    self.beside.clear();
                }
                self.beside.iter().for_each(|(a, b)| self.all.net.cut(*a, *b));
            }
            Fault::Flaky(_) => self.flaky = None,
            Fault::Drain(node) => self.all.orders.lock().push(Edit::Undrain(node)),
            Fault::Commits(_) => self.all.database.set_faults(0),
            Fault::Slow(node, _) => self.host(node, |host| host.set_slow(1)),
            Fault::DiskError(node, _) => {
                self.disk(node).into_iter().for_each(|disk| disk.clear_faults());
            }
            Fault::DiskFull(node) => {
                self.disk(node).into_iter().for_each(|disk| disk.set_capacity(None));
            }
            Fault::Break(_) | Fault::Jump(..) | Fault::Flip(_) => {}
        }
    }

    /// Nothing goes wrong any more: all must become well, in time.
    fn recover(&mut self) -> Vec<String> {
        tracing::info!(at_ms = self.now_us / 1000, "RECOVERY");
        let ending = std::mem::take(&mut self.ending);
        ending.into_iter().for_each(|(_, fault)| self.end(fault));
        self.all.net.heal();
        self.all.database.set_faults(0);
        self.history.lock().close();
        for node in self.layout.all() {
            self.disk(node).into_iter().for_each(|disk| disk.clear_faults());
            // One whose disk could not be read has ended.
            if self.serving.get(&node).is_some_and(|serving| serving.lock().is_none()) {
                self.stop(node, false);
            }
            self.start(node);
        }
        let found = health::await_health(self, RECOVERY_SECS, false);
        if !found.is_empty() {
            return found;
        }
        // A hostile session may keep deleted bytes from being given back.
        self.all.hostile.store(false, Ordering::Relaxed);
        // Blocks that a gateway wrote and nothing names may stay until it has ended.
        for gateway in self.layout.gateways.clone() {
            self.stop(gateway, false);
            self.start(gateway);
        }
        let found = health::await_health(self, RECOVERY_SECS, true);
        if !found.is_empty() {
            return found;
        }
        self.history.lock().check()
    }
}

/// The key of a node. No two have the same one: a master is known by it under a new number.
fn key_of(node: NodeId) -> KeyHash {
    let mut hash = [0; 32];
    hash[..8].copy_from_slice(&node.0.to_le_bytes());
    KeyHash(hash)
}

fn both(a: NodeId, b: NodeId, cut: impl Fn(NodeId, NodeId)) {
    cut(a, b);
    cut(b, a);
}
