//! Rows that check out and differ among members: comparisons find them, and say who is wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cairn_base::{Disk, Error};
use cairn_meta::engine::raft::MemberStore;
use cairn_meta::engine::raft::entry::Proposal;
use cairn_meta::engine::{Fence, Pace};
use cairn_sim::SimDisk;
use tokio::time::sleep;

use super::group::{Group, MEMBERS};
use super::model::{batch, entry, open};
use crate::support::{put, small};

/// Three members with rows, of which one has another row than the others as of the same entry.
/// Returns the leader and that one.
async fn with_a_wrong_row(group: &mut Group) -> (u64, u64) {
    let (leader, mut fence) = group.serve(&MEMBERS).await;
    for n in 0..20 {
        group.put(leader, &mut fence, vec![put(&format!("i {n}"), &"x".repeat(50))]).await;
    }
    let wrong = MEMBERS.into_iter().find(|id| *id != leader).unwrap();
    let next = group.engines[&leader].member().status().await.unwrap().applied.unwrap().index;
    let has_all = async |group: &Group| {
        group.engines[&wrong].member().status().await.unwrap().applied.unwrap().index == next
    };
    while !has_all(group).await {
        sleep(Duration::from_millis(20)).await;
    }
    let term = group.engines[&leader].member().status().await.unwrap().term;
    group.close(wrong).await;
    // The entry that the others get now, with another row.
    let before = fence;
    group.put(leader, &mut fence, vec![put("i 3", "right")]).await;
    let disk: Arc<dyn Disk> = Arc::new(group.disks[&wrong].clone());
    let store = MemberStore::open(disk, small(wrong), wrong).unwrap();
    let entry = batch(term, next + 1, before, vec![put("i 3", "wrong")]);
    store.append(vec![entry.clone()]).unwrap();
    store.apply(vec![entry]).unwrap();
    store.checkpoint().unwrap();
    store.abandon();
    group.open(wrong).await.unwrap();
    group.put(leader, &mut fence, vec![put("m after", "x")]).await;
    (leader, wrong)
}

fn damage(group: &Group, id: u64) -> Option<String> {
    group.engines[&id].member().damage().map(|damage| damage.what)
}

fn undecided(group: &Group, id: u64) -> Option<String> {
    group.engines[&id].member().undecided().map(|damage| damage.what)
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_rows_are_not_those_of_a_majority_says_so() {
    let mut group = Group::paused(small).await;
    let (_, wrong) = with_a_wrong_row(&mut group).await;
    group.until("it is found", |group| damage(group, wrong).is_some()).await;
    let found = damage(&group, wrong).unwrap();
    assert!(found.starts_with("rows that begin with i are not those of a majority"), "{found}");
    for id in MEMBERS {
        assert_eq!(damage(&group, id).is_some(), id == wrong, "{id}");
        assert_eq!(undecided(&group, id), None);
    }
    let leader = group.leader().await;
    assert_ne!(group.engines[&leader].member().successor(&[wrong].into()).await, Some(wrong));
}

#[tokio::test(start_paused = true)]
async fn of_two_that_differ_both_say_so_and_neither_is_damaged() {
    let mut group = Group::paused(small).await;
    let (leader, wrong) = with_a_wrong_row(&mut group).await;
    let third = MEMBERS.into_iter().find(|id| ![leader, wrong].contains(id)).unwrap();
    group.kill(third).await;
    group
        .until("both say so", |group| {
            [leader, wrong].iter().all(|id| undecided(group, *id).is_some())
        })
        .await;
    for id in [leader, wrong] {
        assert_eq!(damage(&group, id), None, "nothing decides");
    }
    // The third one decides.
    group.open(third).await.unwrap();
    group.until("it is decided", |group| damage(group, wrong).is_some()).await;
    assert_eq!(damage(&group, leader), None);
    group.until("nothing is undecided", |group| undecided(group, leader).is_none()).await;
}

/// Rows are compared as of one entry, though others change them meanwhile.
#[tokio::test(start_paused = true)]
async fn members_that_agree_are_sound_under_load() {
    let group = Arc::new(Group::paused(small).await);
    let (leader, fence) = group.serve(&MEMBERS).await;
    let ends = Arc::new(AtomicBool::new(false));
    let load = {
        let (group, ends, mut fence) = (Arc::clone(&group), Arc::clone(&ends), fence);
        tokio::spawn(async move {
            for n in 0.. {
                if ends.load(Ordering::Relaxed) {
                    return n;
                }
                group
                    .put(leader, &mut fence, vec![put(&format!("i {}", n % 50), &format!("{n}"))])
                    .await;
                sleep(Duration::from_millis(3)).await;
            }
            0
        })
    };
    let mut compared = 0;
    for _ in 0..10 {
        group.engines[&leader].member().begin_comparison().await.unwrap();
        sleep(Duration::from_secs(3)).await;
        let digests = MEMBERS.map(|id| group.engines[&id].member().digests());
        let [Some(first), Some(second), Some(third)] = digests else { continue };
        if first.entry == second.entry && second.entry == third.entry {
            assert!(first == second && second == third, "{first:?} {second:?} {third:?}");
            assert!(first.tables[&b'i'].rows > 0);
            compared += 1;
        }
    }
    ends.store(true, Ordering::Relaxed);
    assert!(load.await.unwrap() > 1000);
    assert!(compared >= 5, "{compared} of 10");
    for id in MEMBERS {
        assert_eq!((damage(&group, id), undecided(&group, id)), (None, None));
    }
}

/// A member without others, whose log is applied at once.
struct LoneMember {
    store: MemberStore,
    next: u64,
    batches: u64,
}

impl LoneMember {
    fn apply(&mut self, proposal: Proposal) {
        let entry = entry(1, self.next, proposal);
        self.next += 1;
        self.store.append(vec![entry.clone()]).unwrap();
        self.store.apply(vec![entry]).unwrap();
        self.store.checkpoint().unwrap();
    }

    fn change_all(&mut self) {
        let expected = Fence { epoch: 1, batch: self.batches };
        self.batches += 1;
        let value = format!("{} {}", self.batches, "x".repeat(200));
        let changes = (0..20).map(|n| put(&format!("i {n}"), &value)).collect();
        self.apply(Proposal::Batch { expected, changes });
    }
}

/// No page that is freed is used again while rows are kept for a comparison.
#[test]
fn a_comparison_is_given_up_when_the_table_has_grown_too_much() {
    let store = open(&SimDisk::new(4), small(4)).unwrap();
    let mut member = LoneMember { store, next: 0, batches: 0 };
    member.apply(Proposal::TakeOver { batch: 0 });
    member.change_all();
    let pace = Pace { growth_bytes: 0, ..Pace::default() };
    for (changes, ends) in [(3, true), (200, false), (3, true)] {
        member.store.await_comparison();
        member.apply(Proposal::Empty);
        (0..changes).for_each(|_| member.change_all());
        match member.store.sum_compared_rows(&pace) {
            Ok(Some((digests, _))) => {
                assert!(ends, "{changes} changes");
                assert_eq!(digests.tables[&b'i'].rows, 20);
            }
            Err(Error::Unavailable(text)) => assert!(!ends && text.contains("grew"), "{text}"),
            other => panic!("{other:?}"),
        }
    }
}
