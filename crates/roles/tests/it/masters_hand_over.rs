//! Three masters keep the metadata together: the one that serves has another one serve.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cairn_auth::{Caller, Visibility};
use cairn_base::clock::RealClock;
use cairn_base::map::Node;
use cairn_base::rng::SeededRng;
use cairn_base::{ClusterMap, Error, KeyHash, NodeId, Pin, Result, Role, UserId};
use cairn_cluster::control::{Controller, Edit, Settings};
use cairn_meta::Master;
use cairn_meta::engine::raft::{Member, Peers, RaftEngine, Seams, Timing};
use cairn_meta::engine::{Engine, Later, embedded};
use cairn_meta::ops::buckets::{CreateBucket, GetBucket};
use cairn_meta::ops::cluster::{GetMap, PutMap};
use cairn_meta::rows::BucketKind;
use cairn_roles::master::{Config, MasterNode, Source};
use cairn_sim::SimDisk;
use parking_lot::Mutex;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::{sleep, timeout};

use crate::masters_take_turns::master_of;

const MASTERS: [u64; 3] = [1, 2, 3];
/// Longer than anything that is waited for takes on any machine.
const PATIENCE: Duration = Duration::from_secs(120);
const MOMENT: Duration = Duration::from_millis(20);

/// The ways between members.
#[derive(Default)]
struct Wires(Mutex<BTreeMap<u64, Arc<Member>>>);

struct Port {
    from: u64,
    wires: Arc<Wires>,
}

impl Peers for Port {
    fn send(&self, to: u64, message: Bytes) -> Later<Result<Bytes>> {
        let (from, target) = (self.from, self.wires.0.lock().get(&to).cloned());
        Box::pin(async move {
            let target = target.ok_or_else(|| Error::Unavailable("nobody listens".into()))?;
            Ok(target.receive(from, message).await)
        })
    }
}

/// The metadata as the member of one master has them.
struct Stored(Arc<RaftEngine>);

#[async_trait]
impl Source for Stored {
    type Failure = Error;

    async fn start(&self) -> Result<(Master, String)> {
        self.0.wait_for_turn().await?;
        let engine = Arc::clone(&self.0) as Arc<dyn Engine>;
        let clock = Arc::new(RealClock::default());
        let master = block_in_place(|| Master::start(engine, clock, Default::default()))?;
        if master.read(&Caller::system(), GetMap).await?.is_none() {
            master.run(&Caller::system(), PutMap { map: map().encode() }).await?;
        }
        Ok((master, "a member".into()))
    }

    async fn stop(&self, master: Master) -> Result<()> {
        block_in_place(|| master.stop());
        self.0.given_up().await;
        Ok(())
    }

    fn is_passing(&self, _: &Error) -> bool {
        true
    }
}

fn map() -> ClusterMap {
    let mut map = ClusterMap { epoch: 1, replicas: 1, minimum: 1, ..ClusterMap::default() };
    for id in MASTERS {
        let pin = Pin { key: KeyHash([id as u8; 32]), roles: Role::Master.into() };
        map.nodes.insert(NodeId(id), Node { is_up: true, ..Node::new(pin) });
    }
    map.next_node = 4;
    map
}

/// So small that a disk is soon full, and a log comes round.
fn config(id: u64) -> embedded::Config {
    embedded::Config {
        memtable_bytes: 6 << 10,
        cache_bytes: 256 << 10,
        log_segments: 3,
        log_segment_bytes: 32 << 10,
        reserve_bytes: 0,
        idle: Duration::from_secs(3600),
        background: false,
        rng: Arc::new(SeededRng::new(id)),
    }
}

struct Trio {
    disks: BTreeMap<u64, SimDisk>,
    engines: BTreeMap<u64, Arc<RaftEngine>>,
    masters: BTreeMap<u64, Arc<MasterNode>>,
    _turns: JoinSet<()>,
}

impl Trio {
    async fn start() -> Trio {
        let (wires, mut turns) = (Arc::<Wires>::default(), JoinSet::new());
        let (mut disks, mut engines, mut masters) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for id in MASTERS {
            let disk = SimDisk::new(id);
            let seams = Seams {
                peers: Arc::new(Port { from: id, wires: Arc::clone(&wires) }),
                clock: Arc::new(RealClock::default()),
                rng: Arc::new(SeededRng::new(id)),
                threads: None,
            };
            let member = Member::open(
                Arc::new(disk.clone()),
                config(id),
                id,
                seams,
                Timing { lease: Duration::from_secs(1) },
            );
            let member = member.await.unwrap();
            wires.0.lock().insert(id, Arc::clone(&member));
            let engine = Arc::new(RaftEngine::new(Arc::clone(&member)));
            // Nobody beats here.
            let silence = Duration::from_secs(3600);
            let rest = Duration::from_secs(1);
            let settings = Settings { silence, rest, ..Settings::default() };
            let config = Config { settings, member: Some(member), ..Config::default() };
            let master = Arc::new(master_of(NodeId(id), config));
            disks.insert(id, disk);
            engines.insert(id, engine);
            masters.insert(id, master);
        }
        engines[&1].member().found(&BTreeSet::from(MASTERS)).await.unwrap();
        for id in MASTERS {
            let (master, stored) = (Arc::clone(&masters[&id]), Stored(Arc::clone(&engines[&id])));
            turns.spawn(async move {
                let ended = master.take_turns(&stored).await;
                tracing::error!(?ended, "a master takes no more turns");
            });
        }
        Trio { disks, engines, masters, _turns: turns }
    }

    /// The master that serves, or says so.
    async fn serving(&self) -> (u64, Arc<Controller>) {
        let looking = async {
            loop {
                for (id, master) in &self.masters {
                    if let Ok(controller) = master.service.serving() {
                        return (*id, controller);
                    }
                }
                sleep(MOMENT).await;
            }
        };
        timeout(PATIENCE, looking).await.expect("a master serves")
    }

    /// As operators ask: again, while no master serves.
    async fn edit(&self, edit: Edit) -> Result<()> {
        let asking = async {
            loop {
                match self.serving().await.1.edit(&edit).await {
                    Err(Error::Unavailable(_)) => sleep(MOMENT).await,
                    done => return done,
                }
            }
        };
        timeout(PATIENCE, asking).await.expect("an answer")
    }

    async fn create(&self, name: &str) -> Result<()> {
        let (name, kind) = (name.to_owned(), BucketKind::S3);
        let bucket = CreateBucket { name, kind, visibility: Visibility::Private };
        let master = self.serving().await.1.master.clone();
        let caller = Caller::verified(UserId::ROOT);
        let creating = master.run(&caller, bucket);
        timeout(PATIENCE, creating).await.expect("no call hangs").map(drop)
    }

    async fn has(&self, name: &str) -> bool {
        let (_, controller) = self.serving().await;
        let get = GetBucket { name: name.to_owned() };
        let got = controller.master.read(&Caller::verified(UserId::ROOT), get).await;
        match got {
            Ok(_) => true,
            Err(Error::NotFound(_)) => false,
            Err(error) => panic!("{error}"),
        }
    }

    async fn end(self) {
        for engine in self.engines.values() {
            engine.member().close().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_one_that_serves_can_be_removed() {
    let trio = Trio::start().await;
    trio.create("before").await.unwrap();
    let (first, _) = trio.serving().await;
    trio.edit(Edit::Remove(NodeId(first))).await.unwrap();
    let (second, controller) = trio.serving().await;
    assert_ne!(first, second);
    assert!(trio.has("before").await);
    trio.create("after").await.unwrap();
    let map = controller.keeper.current();
    assert_eq!(map.nodes.len(), 2);
    let members = trio.engines[&second].member().status().await.unwrap().members;
    let left: BTreeSet<u64> = MASTERS.into_iter().filter(|id| *id != first).collect();
    assert_eq!(members.voters, [left]);
    // Asked for again, since the answer was lost, it is done; a number that never was is unknown.
    trio.edit(Edit::Remove(NodeId(first))).await.unwrap();
    let unknown = trio.edit(Edit::Remove(NodeId(77))).await;
    assert!(matches!(unknown, Err(Error::NotFound(_))), "{unknown:?}");
    // The next one, and then there is nobody to hand over to.
    trio.edit(Edit::Remove(NodeId(second))).await.unwrap();
    let (third, _) = trio.serving().await;
    let last = trio.edit(Edit::Remove(NodeId(third))).await.unwrap_err();
    assert!(last.to_string().contains("no other one votes"), "{last}");
    trio.create("alone").await.unwrap();
    assert!(trio.has("before").await && trio.has("after").await);
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_whose_disk_is_full_has_one_with_room_serve() {
    let trio = Trio::start().await;
    let (full, _) = trio.serving().await;
    let used = trio.disks[&full].used_bytes();
    trio.disks[&full].set_capacity(Some(used));
    let (mut made, mut number) = (Vec::new(), 0);
    let filling = async {
        while trio.serving().await.0 == full {
            number += 1;
            let name = format!("bucket-{number:05}-{}", "x".repeat(40));
            match trio.create(&name).await {
                Ok(()) => made.push(name),
                Err(Error::Full(_) | Error::Unavailable(_)) => sleep(MOMENT).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    timeout(PATIENCE, filling).await.expect("another one serves");
    for name in &made {
        assert!(trio.has(name).await, "{name} was acknowledged");
    }
    trio.create("there-is-room").await.unwrap();
    trio.end().await;
}
