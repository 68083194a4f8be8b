//! A leader has another member lead in its place.

use std::collections::BTreeSet;
use std::time::Duration;

use cairn_meta::engine::embedded::Config;
use cairn_meta::engine::raft::Timing;
use cairn_meta::engine::raft::message::Message;
use cairn_meta::engine::{CommitError, Engine, Fence};
use tokio::time::sleep;

use super::group::{Group, MEMBERS};
use crate::support::{all, delete, put, small};

fn others(id: u64) -> BTreeSet<u64> {
    MEMBERS.into_iter().filter(|other| *other != id).collect()
}

/// The master of `id` ends, as it does before a member hands over.
async fn give_up(group: &Group, id: u64) {
    group.engines[&id].give_up();
    group.engines[&id].given_up().await;
}

async fn successor(group: &Group, id: u64) -> Option<u64> {
    group.engines[&id].member().successor(&others(id)).await
}

#[tokio::test(start_paused = true)]
async fn the_next_master_serves_without_a_wait_for_a_lease() {
    let group = Group::paused(small).await;
    let (mut id, mut fence) = group.serve(&MEMBERS).await;
    for round in 0..6 {
        for n in 0..10 {
            group.put(id, &mut fence, vec![put(&format!("{round} {n}"), "x")]).await;
        }
        let to = successor(&group, id).await.unwrap();
        assert_ne!(to, id);
        let begun = group.now();
        give_up(&group, id).await;
        assert!(group.engines[&id].member().hand_over(to).await, "round {round}");
        let (next, its) = group.serve(&[to]).await;
        let took = group.now() - begun;
        assert!(took < Timing::default().lease, "{took:?}");
        assert_eq!((next, its), (to, Fence { epoch: fence.epoch + 1, ..fence }));
        assert_eq!(all(&group.engines[&to]).len(), 10 * (round + 1), "nothing is lost");
        // The former one follows, and its master is fenced.
        let void = group.commit(id, fence, vec![put("void", "x")]).await;
        let is_void = matches!(void, Err(CommitError::Unknown(_) | CommitError::Fenced { .. }));
        assert!(is_void, "{void:?}");
        (id, fence) = (next, its);
        group.put(id, &mut fence, vec![put("after", "x")]).await;
        group.put(id, &mut fence, vec![delete("after")]).await;
    }
}

/// The next leader has won, and nobody hears it yet: the former one, which heard no leader for as
/// long as it led, gives it time.
#[tokio::test(start_paused = true)]
async fn the_former_leader_stands_in_nobodys_way() {
    let group = Group::paused(small).await;
    let (id, mut fence) = group.serve(&MEMBERS).await;
    group.put(id, &mut fence, vec![put("a", "1")]).await;
    let timing = Timing::default();
    sleep(timing.lease * 3).await;
    let to = successor(&group, id).await.unwrap();
    give_up(&group, id).await;
    let (look, third) = (timing.look(), MEMBERS.into_iter().find(|one| ![id, to].contains(one)));
    group.wires.delay(move |from, _, message| match message {
        Message::Append { .. } if from == to => look * 3,
        // It has no turn.
        Message::Ask { .. } if third == Some(from) => look * 8,
        _ => Duration::ZERO,
    });
    assert!(group.engines[&id].member().hand_over(to).await);
    sleep(timing.lease / 2).await;
    group.wires.heal();
    let (next, its) = group.serve(&MEMBERS).await;
    assert_eq!((next, its), (to, Fence { epoch: fence.epoch + 1, ..fence }));
}

/// One of three is away: the leader that hands over votes for its successor.
#[tokio::test(start_paused = true)]
async fn the_only_other_member_is_the_next() {
    let mut group = Group::paused(small).await;
    let (id, mut fence) = group.serve(&MEMBERS).await;
    group.put(id, &mut fence, vec![put("a", "1")]).await;
    let away = *others(id).first().unwrap();
    group.kill(away).await;
    let left = *others(id).last().unwrap();
    assert_eq!(successor(&group, id).await, Some(left));
    give_up(&group, id).await;
    assert!(group.engines[&id].member().hand_over(left).await);
    let (next, mut fence) = group.serve(&[left]).await;
    group.put(next, &mut fence, vec![put("a", "2")]).await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_does_not_answer_is_not_the_next() {
    let group = Group::paused(small).await;
    let (id, mut fence) = group.serve(&MEMBERS).await;
    let (silent, other) = (*others(id).first().unwrap(), *others(id).last().unwrap());
    // It hears, and its answers do not arrive.
    group.wires.cut(silent, id);
    assert_eq!(successor(&group, id).await, Some(other));
    sleep(Timing::default().lease * 2).await;
    assert_eq!(group.engines[&id].member().answering(), BTreeSet::from([other]));
    // It has answered until a moment ago.
    group.wires.cut(other, id);
    assert_eq!(successor(&group, id).await, None);
    group.wires.heal();
    group.put(id, &mut fence, vec![put("a", "1")]).await;
    assert_eq!(group.leader().await, id);
}

/// It was fit when it was asked, and is not there when it is to begin.
#[tokio::test(start_paused = true)]
async fn a_leader_whose_successor_fails_leads_on() {
    let mut group = Group::paused(small).await;
    let (id, mut fence) = group.serve(&MEMBERS).await;
    group.put(id, &mut fence, vec![put("a", "1")]).await;
    let to = successor(&group, id).await.unwrap();
    give_up(&group, id).await;
    group.wires.cut(to, id);
    let begun = group.now();
    assert!(!group.engines[&id].member().hand_over(to).await);
    assert!(group.now() - begun < Duration::from_secs(5));
    let (again, mut fence) = group.serve(&[id]).await;
    group.put(again, &mut fence, vec![put("a", "2")]).await;
    // Nor is it disturbed by what it had begun.
    group.wires.heal();
    sleep(Duration::from_secs(20)).await;
    group.put(again, &mut fence, vec![put("a", "3")]).await;
    group.kill(to).await;
    assert!(!group.engines[&id].member().hand_over(to).await);
    group.put(again, &mut fence, vec![put("a", "4")]).await;
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_disk_is_full_is_not_the_next() {
    let group = Group::paused(small).await;
    let (id, mut fence) = group.serve(&MEMBERS).await;
    let full = *others(id).first().unwrap();
    let used = group.disks[&full].used_bytes();
    group.disks[&full].set_capacity(Some(used));
    let is_low = |id| group.engines[&id].member().is_low_on_space();
    while !is_low(full) {
        let key = format!("{:04}", fence.batch);
        group.put(id, &mut fence, vec![put(&key, &"x".repeat(2000))]).await;
        assert!(fence.batch < 1000);
    }
    assert!(!is_low(id));
    let other = *others(id).last().unwrap();
    assert_eq!(successor(&group, id).await, Some(other));
    assert_eq!(group.engines[&id].member().successor(&[full].into()).await, None);
}

/// Nothing was committed since something else filled its disk, or freed it.
#[tokio::test(start_paused = true)]
async fn a_member_looks_at_its_disk_when_it_is_asked() {
    let with_reserve = |seed| Config { reserve_bytes: 64 << 10, ..small(seed) };
    let group = Group::paused(with_reserve).await;
    let (id, mut fence) = group.serve(&MEMBERS).await;
    group.put(id, &mut fence, vec![put("a", "1")]).await;
    sleep(Timing::default().lease).await;
    let one = *others(id).first().unwrap();
    let among = BTreeSet::from([one]);
    let used = group.disks[&one].used_bytes();
    group.disks[&one].set_capacity(Some(used));
    assert!(!group.engines[&one].member().is_low_on_space());
    assert_eq!(group.engines[&id].member().successor(&among).await, None);
    group.disks[&one].set_capacity(None);
    assert_eq!(group.engines[&id].member().successor(&among).await, Some(one));
}

/// The master whose own disk is full can hand over: what it says last needs hardly any room.
#[tokio::test(start_paused = true)]
async fn a_full_leader_hands_over_to_one_with_room() {
    let group = Group::paused(small).await;
    let (id, mut fence) = group.serve(&MEMBERS).await;
    let used = group.disks[&id].used_bytes();
    group.disks[&id].set_capacity(Some(used));
    loop {
        let changes = vec![put(&format!("{:04}", fence.batch), &"x".repeat(2000))];
        match group.commit(id, fence, changes).await {
            Ok(()) => fence.batch += 1,
            Err(CommitError::Failed(_)) => break,
            Err(error) => panic!("{error:?}"),
        }
        assert!(fence.batch < 10_000);
    }
    assert!(group.engines[&id].member().is_low_on_space());
    let to = successor(&group, id).await.unwrap();
    give_up(&group, id).await;
    assert!(group.engines[&id].member().hand_over(to).await);
    let (next, mut later) = group.serve(&[to]).await;
    assert_eq!(all(&group.engines[&next]).len() as u64, fence.batch);
    for n in 0..50 {
        group.put(next, &mut later, vec![put(&format!("later {n}"), &"x".repeat(2000))]).await;
    }
}
