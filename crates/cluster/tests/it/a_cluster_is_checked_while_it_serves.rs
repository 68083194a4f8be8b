//! An fsck finds what is missing and what does not fit, and nothing else, while clients go on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::{Caller, Visibility};
use cairn_base::clock::RealClock;
use cairn_base::fsck::{FsckFound, FsckPhase, FsckState, Orderer};
use cairn_base::rng::RealRng;
use cairn_base::scrub::{RunOrder, Wholeness};
use cairn_base::{
    BlockId, ClusterMap, Error, GroupId, NodeId, Result, Rng, Role, Timestamp, UserId,
};
use cairn_blocks::Blocks;
use cairn_cluster::control::messages::Secrets;
use cairn_cluster::control::{Controller, MapKeeper, NodeView, ServingMaster, Settings};
use cairn_fs::ops::buckets::CreateBucket;
use cairn_fs::ops::delete_object::DeleteObject;
use cairn_fs::rows::BucketKind;
use cairn_fs::{Config, Fs, PutRequest};
use cairn_meta::Master;
use cairn_meta::engine::{Engine, Memory};
use cairn_meta::master::host::Sessions;
use cairn_meta::ops::cluster::PutMap;
use cairn_meta::ops::sessions::Format;
use cairn_meta::session::LEASE;
use tokio::time::{sleep, timeout};

use crate::support::data::{World, data, pool, until};
use crate::support::{CLUSTER, MASTER, PATIENCE, denied};

const BUCKET: &str = "photos";
/// Of an object, which is one block.
const BYTES: usize = 40_000;
const POLL: Duration = Duration::from_millis(10);
/// The number of an fsck.
const RUN: u64 = 7;

/// Three chunkservers in two groups, and the master that serves.
struct Checked {
    world: World,
    meta: Master,
    controller: Arc<Controller>,
    fs: Fs,
}

fn root() -> Caller {
    Caller::verified(UserId::ROOT)
}

fn by() -> Orderer {
    Orderer { node: NodeId(9), user: "alice".into() }
}

impl Checked {
    async fn new() -> Checked {
        Checked::over(Arc::new(Memory::new())).await
    }

    async fn over(engine: Arc<Memory>) -> Checked {
        let members: &[u64] = &[11, 12, 13];
        let world = World::new(3, &[(3, members), (3, members)]).await;
        world.change(|map| (map.next_node, map.next_group) = (100, 100));
        let clock = Arc::new(RealClock::default());
        let meta = Master::start(engine, clock.clone(), Default::default()).unwrap();
        meta.run(&Caller::system(), Format { cluster: CLUSTER.0 as u64 }).await.unwrap();
        let first = ClusterMap { epoch: 1, ..ClusterMap::clone(&world.truth.lock()) };
        meta.run(&Caller::system(), PutMap { map: first.encode() }).await.unwrap();
        let (kind, visibility) = (BucketKind::S3, Visibility::Private);
        let made = CreateBucket { name: BUCKET.into(), kind, visibility };
        meta.run(&root(), made).await.unwrap();
        let blocks = Arc::new(world.blocks.clone());
        let fs = Fs::start(meta.clone(), blocks, clock, &RealRng, Config::default()).await.unwrap();
        let controller = controller(&world, &meta).await;
        let checked = Checked { world, meta, controller, fs };
        checked.agree().await;
        checked
    }

    /// The master hears of the map that everybody has.
    async fn agree(&self) {
        self.world.refresh();
        let map = ClusterMap::clone(&self.world.truth.lock());
        for epoch in self.controller.keeper.current().epoch + 1..=map.epoch {
            let map = ClusterMap { epoch, ..map.clone() }.encode();
            self.meta.run(&Caller::system(), PutMap { map }).await.unwrap();
        }
        self.controller.keeper.load().await.unwrap();
    }

    /// Writes an object, and says which block it is.
    async fn put(&self, key: &str) -> (GroupId, BlockId) {
        let before = self.blocks();
        put(&self.fs, key, key.len() as u64).await.unwrap();
        let after = self.blocks();
        let mut new = after.difference(&before);
        let (Some(block), None) = (new.next(), new.next()) else { panic!("it is one block") };
        *block
    }

    fn blocks(&self) -> BTreeSet<(GroupId, BlockId)> {
        let store = &self.world.servers[&11].store;
        let of = |group| {
            let page = store.inventory_now(group, None, usize::MAX);
            page.into_iter().map(move |info| (group, info.block))
        };
        store.groups().into_iter().flat_map(of).collect()
    }

    /// The disks of these chunkservers lose a block.
    async fn lose(&self, (group, block): (GroupId, BlockId), servers: &[u64]) {
        for server in servers {
            self.world.servers[server].store.delete(group, &[block]).await.unwrap();
        }
    }

    fn look(&self, run: u64) -> Result<FsckState> {
        self.controller.fsck(run, RunOrder::Look, Orderer::default())
    }

    fn begin(&self, run: u64) -> FsckState {
        self.controller.fsck(run, RunOrder::Begin, by()).unwrap()
    }

    /// One from its begin to its end.
    async fn check(&self) -> (FsckState, FsckFound) {
        let run = RealRng.next_u64().max(1);
        assert_eq!(self.begin(run).run, run);
        let state = self.ended(run).await;
        assert_eq!(state.phase, FsckPhase::Ended, "{state:?}");
        let found = self.controller.fsck_found(run).unwrap().unwrap();
        (state, FsckFound::clone(&found))
    }

    async fn found(&self, run: u64) -> FsckFound {
        self.ended(run).await;
        FsckFound::clone(&self.controller.fsck_found(run).unwrap().unwrap())
    }

    async fn ended(&self, run: u64) -> FsckState {
        let ended = async {
            loop {
                let state = self.look(run).unwrap();
                if !state.phase.is_under_way() {
                    return state;
                }
                sleep(POLL).await;
            }
        };
        timeout(PATIENCE, ended).await.expect("it comes to its end")
    }
}

/// Another master over the same metadata, as far as operators can tell.
async fn controller(world: &World, meta: &Master) -> Arc<Controller> {
    let node = world.cluster.node(NodeId(60), Role::Master);
    let clock = Arc::new(RealClock::default());
    let keeper = MapKeeper::start(meta.clone(), NodeView::new(Vec::new())).await.unwrap();
    let sessions = Sessions::start(meta.clone(), clock.clone(), LEASE).await.unwrap();
    let controller = Controller::new(
        MASTER,
        ServingMaster { master: meta.clone(), sessions },
        keeper,
        world.cluster.desk(),
        Secrets { seal: None, authority: None, links: None },
        clock,
        Settings::default(),
    );
    Arc::new(controller.with_pool(pool(&node)))
}

async fn put(fs: &Fs, key: &str, seed: u64) -> Result<()> {
    let mut body = fs.begin(&root(), BUCKET).await?;
    body.push(data(seed, BYTES)).await?;
    let written = body.finish().await?;
    let request = PutRequest { bucket: BUCKET.into(), key: key.into(), ..PutRequest::default() };
    fs.put_object(&root(), request, written).await.map(drop)
}

/// How bad each object is, by name.
fn objects(found: &FsckFound) -> Vec<(Wholeness, &str)> {
    found.degraded.objects.iter().map(|one| (one.wholeness, one.object.as_str())).collect()
}

#[tokio::test]
async fn objects_with_missing_replicas_are_named() {
    let checked = Checked::new().await;
    for key in ["one", "two"] {
        checked.put(key).await;
    }
    let (state, found) = checked.check().await;
    assert!(state.is_clean() && found == FsckFound::default(), "{state:?} {found:?}");
    assert_eq!((state.blocks, state.files, state.buckets), (2, 2, 1));
    assert_eq!((state.by, state.groups), (by(), state.total_groups));
    assert!(state.begun > Timestamp::default() && state.ended >= state.begun);
    assert!(state.rows > 0 && state.rows == state.total_rows, "{}", state.rows);

    let poor = checked.put("poorer").await;
    checked.lose(poor, &[12]).await;
    let gone = checked.put("gone").await;
    checked.lose(gone, &[11, 12, 13]).await;
    let (state, found) = checked.check().await;
    assert!(!state.is_clean());
    assert_eq!((state.lost_blocks, state.degraded_blocks, state.unknown_blocks), (1, 1, 0));
    let expected = [(Wholeness::Lost, "photos/gone"), (Wholeness::Degraded, "photos/poorer")];
    assert_eq!(objects(&found), expected);
    let range = &found.degraded.objects[0];
    assert_eq!((range.start, range.end), (0, BYTES as u64));
    assert_eq!((found.findings.len(), found.degraded.unnamed), (0, 0));
    assert_eq!(checked.controller.status().fsck.map(|state| state.phase), Some(FsckPhase::Ended));
}

#[tokio::test]
async fn a_member_that_is_down_lacks_all_and_one_that_is_silent_is_named() {
    let checked = Checked::new().await;
    checked.put("one").await;
    checked.world.servers[&13].kill().await;
    let (state, found) = checked.check().await;
    assert_eq!((state.unknown_blocks, state.degraded_blocks), (1, 0), "it is up by the map");
    assert!(!state.is_clean() && found.degraded.objects.is_empty());
    let silent: Vec<NodeId> = found.degraded.silent.iter().map(|(node, _)| *node).collect();
    assert_eq!(silent, [NodeId(13)]);

    checked.world.set_up(13, false);
    checked.agree().await;
    let (state, found) = checked.check().await;
    assert_eq!((state.unknown_blocks, state.degraded_blocks), (0, 1));
    assert_eq!(objects(&found), [(Wholeness::Degraded, "photos/one")]);
    assert!(found.degraded.silent.is_empty());
}

#[tokio::test]
async fn a_row_that_is_damaged_is_found() {
    let engine = Arc::new(Memory::new());
    let fence = engine.take_over().unwrap();
    let key = Bytes::from([&b"i"[..], &77_u64.to_be_bytes()].concat());
    engine.commit(fence, vec![(key, Some(Bytes::from_static(b"\x01\x01\x09x")))]).unwrap();
    let checked = Checked::over(engine).await;
    checked.put("one").await;
    let (state, found) = checked.check().await;
    assert!(!state.is_clean() && state.findings == 1, "{state:?}");
    let [(about, what)] = &found.findings[..] else { panic!("{:?}", found.findings) };
    assert!(about.starts_with("row ") && !what.is_empty(), "{about}: {what}");
}

/// Writes, overwrites and deletes until `done`. The first client collects garbage.
async fn change(fs: Fs, name: u64, done: Arc<AtomicBool>) -> Result<u64> {
    let mut changes = 0;
    while !done.load(Ordering::Relaxed) {
        let key = format!("{name}/{}", changes % 5);
        put(&fs, &key, changes).await?;
        if changes % 3 == 0 {
            let (bucket, conditions) = (BUCKET.into(), Default::default());
            fs.run(&root(), DeleteObject { bucket, key, conditions }).await?;
        }
        if name == 0 {
            fs.collect_known_garbage(&root(), false).await?;
        }
        changes += 1;
    }
    Ok(changes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_reported_of_what_is_written_and_deleted_meanwhile() {
    let checked = Checked::new().await;
    let (kept, done) = (checked.put("kept").await, Arc::new(AtomicBool::new(false)));
    let each = (0..4).map(|name| tokio::spawn(change(checked.fs.clone(), name, done.clone())));
    let clients: Vec<_> = each.collect();
    until(|| checked.blocks().len() > 3).await;
    for _ in 0..6 {
        let (state, found) = checked.check().await;
        assert!(state.is_clean(), "{state:?} {found:?}");
    }
    // What is missing is found among all that changes: nobody writes to this object.
    checked.lose(kept, &[12]).await;
    let (_, found) = checked.check().await;
    assert_eq!(objects(&found), [(Wholeness::Degraded, "photos/kept")]);
    done.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.await.unwrap().unwrap() > 5, "clients went on");
    }
}

#[tokio::test]
async fn one_runs_at_a_time_and_can_be_stopped() {
    let checked = Checked::new().await;
    assert_eq!(checked.look(0).unwrap().phase, FsckPhase::Unknown);
    // What is missing is looked up twice: until then it runs.
    let poor = checked.put("poor").await;
    checked.lose(poor, &[12]).await;
    assert_eq!(checked.begin(RUN).run, RUN);
    assert_eq!(checked.begin(RUN + 1).run, RUN, "one runs");
    assert_eq!(checked.look(0).unwrap().run, RUN);
    let other = checked.look(RUN + 1).unwrap();
    assert!(other.phase == FsckPhase::Unknown && other.failure.contains("another"), "{other:?}");
    assert_eq!(checked.controller.fsck_found(RUN).unwrap(), None);
    let stopped = checked.controller.fsck(RUN, RunOrder::Stop, by()).unwrap();
    assert_eq!(stopped.run, RUN);
    assert_eq!(checked.ended(RUN).await.phase, FsckPhase::Stopped);
    assert_eq!(checked.controller.fsck_found(RUN).unwrap(), None);
    assert_eq!(checked.begin(RUN).phase, FsckPhase::Stopped, "it is not begun again");
    let zero = checked.controller.fsck(0, RunOrder::Begin, by()).unwrap_err();
    let user = Orderer { user: "x".repeat(300), ..by() };
    let long = checked.controller.fsck(RUN, RunOrder::Begin, user).unwrap_err();
    assert_eq!((zero.kind(), long.kind()), ("invalid", "invalid"));
    assert_eq!(checked.begin(RUN + 1).run, RUN + 1);
    assert_eq!(objects(&checked.found(RUN + 1).await), [(Wholeness::Degraded, "photos/poor")]);
}

#[tokio::test]
async fn it_ends_when_another_master_serves() {
    let checked = Checked::new().await;
    let poor = checked.put("poor").await;
    checked.lose(poor, &[12]).await;
    checked.begin(RUN);
    let next = controller(&checked.world, &checked.meta).await;
    let asked = next.fsck(RUN, RunOrder::Look, Orderer::default()).unwrap();
    assert_eq!(asked.phase, FsckPhase::Replaced);
    assert!(asked.failure.contains("another master serves now"), "{}", asked.failure);
    assert!(matches!(next.fsck_found(RUN), Err(Error::NotFound(_))));
    checked.meta.end("another one took over");
    let phase = || checked.controller.status().fsck.map(|state| state.phase);
    until(|| phase() == Some(FsckPhase::Replaced)).await;
}

#[tokio::test]
async fn masters_and_gateways_order_it_by_grpc() {
    use crate::support::admin::Office;
    let office = Office::new().await;
    let chunkserver = office.client(&office.chunkserver);
    denied(chunkserver.fsck(RUN, RunOrder::Look, String::new()).await, "masters and gateways");
    denied(chunkserver.fsck_found(RUN).await, "masters and gateways");
    let client = office.client(&office.gateway);
    assert_eq!(client.status().await.unwrap().fsck, None);
    let state = client.fsck(RUN, RunOrder::Begin, "alice".into()).await.unwrap();
    assert_eq!((state.run, state.by.user.as_str()), (RUN, "alice"));
    let ended = async {
        loop {
            let state = client.fsck(RUN, RunOrder::Look, String::new()).await.unwrap();
            if !state.phase.is_under_way() {
                return state;
            }
            sleep(POLL).await;
        }
    };
    let state = timeout(PATIENCE, ended).await.unwrap();
    assert_eq!(state.phase, FsckPhase::Ended, "{state:?}");
    let found = client.fsck_found(RUN).await.unwrap().unwrap();
    assert_eq!(found.findings.len() as u64, state.findings);
    assert_eq!(chunkserver.status().await.unwrap().fsck, Some(state));
}
