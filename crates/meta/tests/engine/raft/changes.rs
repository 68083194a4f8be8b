//! Members come and go while masters serve, and one goes on without the others.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use cairn_base::clock::RealClock;
use cairn_base::rng::SeededRng;
use cairn_meta::engine::embedded::Config;
use cairn_meta::engine::raft::entry::Members;
use cairn_meta::engine::raft::{
    FrozenMember, Member, MemberStatus, MemberStore, Peers, RaftEngine, Seams, Timing, Vote,
};
use cairn_meta::engine::{Engine, Fence, Later};
use cairn_sim::SimDisk;

use super::group::Group;
use crate::support::{all, put, small};

fn roomy(seed: u64) -> Config {
    Config { memtable_bytes: 1 << 20, log_segment_bytes: 1 << 20, ..small(seed) }
}

fn set(ids: &[u64]) -> BTreeSet<u64> {
    ids.iter().copied().collect()
}

fn value(group: &Group, id: u64, key: &str) -> Option<Bytes> {
    all(&group.engines[&id]).get(key.as_bytes()).cloned()
}

async fn status(group: &Group, id: u64) -> MemberStatus {
    group.engines[&id].member().status().await.unwrap()
}

async fn change(group: &Group, id: u64, voters: &[u64], learners: &[u64]) {
    let member = group.engines[&id].member();
    member.change_members(&set(voters), &set(learners)).await.unwrap();
    let members = status(group, id).await.members;
    assert_eq!(members, Members { voters: vec![set(voters)], learners: set(learners) });
}

/// A master that is alone waits for nobody.
#[tokio::test(start_paused = true)]
async fn one_voter_serves_at_once() {
    let mut group = Group::alone(roomy).await;
    let begun = group.now();
    let (id, mut fence) = group.serve(&[1]).await;
    assert!(group.now() - begun < Duration::from_millis(500));
    group.put(id, &mut fence, vec![put("a", "1")]).await;
    group.close(1).await;
    group.open(1).await.unwrap();
    let begun = group.now();
    group.serve(&[1]).await;
    assert!(group.now() - begun < Duration::from_millis(500), "it has given up before");
    assert_eq!(value(&group, 1, "a").unwrap(), "1");
}

#[tokio::test(start_paused = true)]
async fn one_voter_becomes_three_in_one_step() {
    let mut group = Group::alone(roomy).await;
    let (id, mut fence) = group.serve(&[1]).await;
    group.put(id, &mut fence, vec![put("a", "1")]).await;
    change(&group, 1, &[1], &[2]).await;
    change(&group, 1, &[1], &[2, 3]).await;
    group.until("they learn", |group| (2..=3).all(|id| value(group, id, "a").is_some())).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let shown = status(&group, 1).await;
    assert!(shown.leads() && shown.leader == Some(1));
    assert_eq!((shown.lag_of(2), shown.lag_of(3)), (Some(0), Some(0)));
    change(&group, 1, &[1, 2, 3], &[]).await;
    // Asked again it changes nothing.
    let last = status(&group, 1).await.last;
    change(&group, 1, &[1, 2, 3], &[]).await;
    assert_eq!(status(&group, 1).await.last, last);
    group.put(1, &mut fence, vec![put("a", "2")]).await;
    group.kill(1).await;
    let (new, mut fence) = group.serve(&[2, 3]).await;
    assert_eq!(value(&group, new, "a").unwrap(), "2");
    group.put(new, &mut fence, vec![put("a", "3")]).await;
    group.open(1).await.unwrap();
    let follows = |group: &Group| value(group, 1, "a").is_some_and(|value| value == "3");
    group.until("it follows", follows).await;
    let shown = status(&group, 1).await;
    assert!(!shown.leads() && shown.leader == Some(new), "{shown:?}");
}

#[tokio::test(start_paused = true)]
async fn one_that_was_removed_disturbs_nobody() {
    let group = Group::paused(roomy).await;
    let (id, mut fence) = group.serve(&super::group::MEMBERS).await;
    let removed = id % 3 + 1;
    let left: Vec<u64> = [1, 2, 3].into_iter().filter(|other| *other != removed).collect();
    change(&group, id, &left, &[]).await;
    let term = status(&group, id).await.term;
    tokio::time::sleep(Duration::from_secs(60)).await;
    group.put(id, &mut fence, vec![put("a", "1")]).await;
    assert_eq!(status(&group, id).await.term, term);
    assert_eq!(value(&group, removed, "a"), None);
    let alone = group.engines[&id].member().change_members(&set(&[removed]), &set(&[])).await;
    assert!(alone.is_err(), "it does not leave out itself");
}

/// All that the survivor has is there, and the others never serve again, whenever they come back.
#[tokio::test(start_paused = true)]
async fn a_survivor_goes_on_alone() {
    let mut group = Group::paused(roomy).await;
    let (id, mut fence) = group.serve(&super::group::MEMBERS).await;
    for n in 0..20 {
        group.put(id, &mut fence, vec![put(&n.to_string(), "x")]).await;
    }
    for id in super::group::MEMBERS {
        group.close(id).await;
    }
    let disk = |group: &Group| -> Arc<SimDisk> { Arc::new(group.disks[&id].clone()) };
    let frozen = FrozenMember::open(disk(&group), roomy(1)).unwrap();
    assert_eq!(all(&frozen).len(), 20);
    assert!(frozen.commit(Fence::default(), Vec::new()).is_err());
    drop(frozen);
    let store = MemberStore::open_any(disk(&group), roomy(1)).unwrap();
    assert_eq!((store.member(), store.generation()), (id, 0));
    assert!(store.survive(0, Vec::new()).is_err(), "it is no newer generation");
    store.survive(9, vec![put("0", "rewritten")]).unwrap();
    drop(store);
    let former = [id % 3 + 1, (id + 1) % 3 + 1];
    for id in [former[0], former[1], id] {
        group.open(id).await.unwrap();
    }
    let (alone, mut later) = group.serve(&[id]).await;
    assert_eq!(alone, id);
    assert!(later.epoch > fence.epoch);
    assert_eq!(value(&group, id, "0").unwrap(), "rewritten");
    assert_eq!(all(&group.engines[&id]).len(), 20);
    group.put(id, &mut later, vec![put("new", "x")]).await;
    let shown = status(&group, id).await;
    assert_eq!((shown.generation, shown.members.voters), (9, vec![set(&[id])]));
    superseded(&mut group, former).await;
}

/// Members of a former generation take no part, not even after they start again.
async fn superseded(group: &mut Group, former: [u64; 2]) {
    let are_told =
        |group: &Group| former.iter().all(|id| group.engines[id].member().superseded().is_some());
    group.until("they hear of the newer generation", are_told).await;
    for id in former {
        let turn = group.engines[&id].wait_for_turn().await;
        assert!(turn.unwrap_err().to_string().contains("generation 9"));
        group.close(id).await;
        let refused = group.open(id).await.unwrap_err().to_string();
        assert!(refused.contains("generation 9"), "{refused}");
    }
}

/// The other two come back first, and do not reach the survivor. So they serve, as nothing can
/// keep them from it, and until they reach it.
#[tokio::test(start_paused = true)]
async fn those_that_were_given_up_stop_when_they_are_reached() {
    let mut group = Group::paused(roomy).await;
    let (id, _) = group.serve(&super::group::MEMBERS).await;
    for id in super::group::MEMBERS {
        group.close(id).await;
    }
    let disk: Arc<SimDisk> = Arc::new(group.disks[&id].clone());
    MemberStore::open_any(disk, roomy(1)).unwrap().survive(9, Vec::new()).unwrap();
    let former = [id % 3 + 1, (id + 1) % 3 + 1];
    group.wires.isolate(id);
    for id in super::group::MEMBERS {
        group.open(id).await.unwrap();
    }
    let (serving, mut fence) = group.serve(&former).await;
    group.put(serving, &mut fence, vec![put("a", "1")]).await;
    group.wires.heal();
    superseded(&mut group, former).await;
}

/// The survivor learns which members were given up, and notifies them: that suffices if they do not
/// find it. So two survivors do not both go on.
#[tokio::test(start_paused = true)]
async fn a_survivor_tells_those_that_were_given_up() {
    let mut group = Group::paused(roomy).await;
    let (id, _) = group.serve(&super::group::MEMBERS).await;
    for id in super::group::MEMBERS {
        group.close(id).await;
    }
    let other = id % 3 + 1;
    for (id, generation) in [(id, 9), (other, 8)] {
        let disk: Arc<SimDisk> = Arc::new(group.disks[&id].clone());
        MemberStore::open_any(disk, roomy(1)).unwrap().survive(generation, Vec::new()).unwrap();
    }
    group.wires.give_up(other);
    group.open(other).await.unwrap();
    group.serve(&[other]).await;
    group.open(id).await.unwrap();
    group.serve(&[id]).await;
    let is_told = |group: &Group| group.engines[&other].member().superseded().is_some();
    group.until("the older one hears of it", is_told).await;
    assert_eq!(group.engines[&id].member().superseded(), None);
    assert!(group.engines[&id].member().is_former(other));
}

/// The note is durable, and a new survivor may be made of the member.
#[test]
fn a_member_that_was_given_up_says_so() {
    let disk = SimDisk::new(1);
    MemberStore::make(&disk, &roomy(1), 7, 42).unwrap();
    let open = || MemberStore::open(Arc::new(disk.clone()), roomy(1), 7).unwrap();
    let store = open();
    store.supersede(43).unwrap();
    assert!(store.save_vote(Vote { term: 1, member: 7, committed: false }).is_err());
    drop(store);
    let store = open();
    assert_eq!((store.generation(), store.superseded()), (42, 43));
    assert!(store.survive(43, Vec::new()).is_err(), "that generation is another's");
    store.survive(44, Vec::new()).unwrap();
    drop(store);
    assert_eq!((open().generation(), open().superseded()), (44, 0));
}

/// The committer of a real master waits on a thread that belongs to no runtime.
#[test]
fn an_unknown_outcome_is_settled_from_any_thread() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let engine = runtime.block_on(async {
        let seams = Seams {
            peers: Arc::new(Nobody),
            clock: Arc::new(RealClock::default()),
            rng: Arc::new(SeededRng::new(1)),
            threads: None,
        };
        let disk = Arc::new(SimDisk::new(1));
        let timing = Timing::default();
        let member = Member::open(disk, roomy(1), 1, seams, timing);
        let member = member.await.unwrap();
        member.found(&set(&[1])).await.unwrap();
        let engine = RaftEngine::new(member);
        engine.wait_for_turn().await.unwrap();
        engine
    });
    let fence = engine.take_over().unwrap();
    engine.commit(fence, vec![put("a", "1")]).unwrap();
    let (mut settling, begun) = (engine.settle(), std::time::Instant::now());
    let mut context = Context::from_waker(Waker::noop());
    let settled = loop {
        match settling.as_mut().poll(&mut context) {
            Poll::Ready(settled) => break settled.unwrap(),
            Poll::Pending => std::thread::sleep(Duration::from_millis(5)),
        }
        assert!(begun.elapsed() < Duration::from_secs(60));
    };
    assert_eq!(settled, Fence { batch: fence.batch + 1, ..fence });
    runtime.block_on(engine.member().close());
}

struct Nobody;

impl Peers for Nobody {
    fn send(&self, _: u64, _: Bytes) -> Later<cairn_base::Result<Bytes>> {
        Box::pin(std::future::pending())
    }
}

/// A new member of a given generation.
#[test]
fn a_member_is_made_once() {
    let disk = SimDisk::new(1);
    MemberStore::make(&disk, &roomy(1), 7, 42).unwrap();
    assert!(MemberStore::make(&disk, &roomy(1), 7, 43).is_err());
    let store = MemberStore::open(Arc::new(disk), roomy(1), 7).unwrap();
    assert_eq!((store.member(), store.generation()), (7, 42));
    let none = MemberStore::open_any(Arc::new(SimDisk::new(2)), roomy(1));
    assert!(none.is_err(), "it makes no files");
}
