//! Three members and their masters: one of them at a time serves, whatever fails.

use std::time::Duration;

use bytes::Bytes;
use cairn_meta::engine::embedded::Config;
use cairn_meta::engine::raft::Timing;
use cairn_meta::engine::{CommitError, Engine, Fence};
use cairn_sim::{Call, Fault};
use tokio::time::{sleep, timeout};

use super::group::{Group, MEMBERS};
use crate::support::{all, put, small};

fn roomy(seed: u64) -> Config {
    Config { memtable_bytes: 1 << 20, log_segment_bytes: 1 << 20, ..small(seed) }
}

fn value(group: &Group, id: u64, key: &str) -> Option<Bytes> {
    all(&group.engines[&id]).get(key.as_bytes()).cloned()
}

fn others(id: u64) -> Vec<u64> {
    MEMBERS.into_iter().filter(|other| *other != id).collect()
}

fn is_held(group: &Group, id: u64) -> bool {
    group.engines[&id].lease().is_some_and(|lease| lease.is_held())
}

#[tokio::test(start_paused = true)]
async fn what_is_committed_comes_to_all_members() {
    let group = Group::paused(roomy).await;
    let (id, mut fence) = group.serve(&MEMBERS).await;
    assert_eq!(fence, Fence { epoch: 1, batch: 0 });
    for n in 0..20 {
        group.put(id, &mut fence, vec![put("a", &n.to_string())]).await;
        assert_eq!(group.engines[&id].fence().unwrap(), fence);
    }
    let is_there = |id| value(&group, id, "a").is_some_and(|value| value == "19");
    group.until("all have it", |_| MEMBERS.into_iter().all(is_there)).await;
    sleep(Duration::from_secs(20)).await;
    assert!(is_held(&group, id), "it is renewed without commits");
    assert_eq!(group.leader().await, id, "nobody starts an election");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_dies_is_followed_by_another() {
    let mut group = Group::paused(roomy).await;
    let mut dead = None;
    for round in 1..=5 {
        let (id, mut fence) = group.serve(&MEMBERS).await;
        assert!(fence.epoch >= round);
        for n in 0..round {
            assert!(value(&group, id, &n.to_string()).is_some() || n == 0, "{n} in {round}");
        }
        group.put(id, &mut fence, vec![put(&round.to_string(), "x")]).await;
        if let Some(dead) = dead.replace(id) {
            group.open(dead).await.unwrap();
        }
        group.kill(id).await;
        let died = group.now();
        let left = others(id);
        group.leader_of(&left).await;
        let took = group.now() - died;
        assert!(took < Duration::from_secs(15), "{took:?}");
    }
}

/// The former master answers from memory until its lease ends, and no longer; the new one answers
/// nothing before.
#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_serves_no_longer_than_its_lease() {
    let group = Group::paused(roomy).await;
    let (old, mut fence) = group.serve(&MEMBERS).await;
    group.put(old, &mut fence, vec![put("a", "1")]).await;
    group.wires.isolate(old);
    let cut = group.now();
    let left = others(old);
    let unknown = group.commit(old, fence, vec![put("a", "lost")]);
    let serving = async {
        let served = group.serve(&left).await;
        assert!(!is_held(&group, old), "both serve");
        served
    };
    let (unknown, (new, mut fence)) = tokio::join!(unknown, serving);
    assert!(matches!(unknown, Err(CommitError::Unknown(_))), "{unknown:?}");
    assert!(group.now() - cut < Duration::from_secs(15));
    assert_eq!(value(&group, new, "a").unwrap(), "1");
    group.put(new, &mut fence, vec![put("a", "2")]).await;
    assert!(group.engines[&old].settle().await.is_err(), "nobody can tell it");
    group.wires.heal();
    group.until("it catches up", |group| value(group, old, "a").unwrap() == "2").await;
    assert_eq!(group.engines[&old].settle().await.unwrap(), fence);
    assert!(!is_held(&group, old));
    let void = group.commit(old, Fence { epoch: 1, batch: 1 }, vec![put("a", "late")]).await;
    assert!(matches!(void, Err(CommitError::Unknown(_) | CommitError::Fenced { .. })), "{void:?}");
    assert_eq!(value(&group, new, "a").unwrap(), "2");
}

/// It must not keep others from an election with messages whose answers it never gets.
#[tokio::test(start_paused = true)]
async fn a_leader_that_hears_nobody_is_followed_by_another() {
    let group = Group::paused(roomy).await;
    let (deaf, mut fence) = group.serve(&MEMBERS).await;
    group.put(deaf, &mut fence, vec![put("a", "1")]).await;
    for other in others(deaf) {
        group.wires.cut(other, deaf);
    }
    let cut = group.now();
    let (new, _) = group.serve(&others(deaf)).await;
    let took = group.now() - cut;
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(value(&group, new, "a").unwrap(), "1");
}

/// All others are away for long, and come back: the leader goes on.
#[tokio::test(start_paused = true)]
async fn a_leader_whose_followers_come_back_goes_on() {
    let mut group = Group::paused(roomy).await;
    let (id, mut fence) = group.serve(&MEMBERS).await;
    for other in others(id) {
        group.close(other).await;
    }
    sleep(Duration::from_secs(30)).await;
    assert!(!is_held(&group, id));
    for other in others(id) {
        group.open(other).await.unwrap();
    }
    group.until("its lease is renewed", |group| is_held(group, id)).await;
    group.put(id, &mut fence, vec![put("a", "1")]).await;
}

/// A batch whose outcome is unknown, in all ways that it can end.
#[tokio::test(start_paused = true)]
async fn an_unknown_commit_is_settled_before_anything_else() {
    let (mut there, mut gone) = (0, 0);
    for round in 0..8u64 {
        let group = Group::paused(roomy).await;
        let (id, mut fence) = group.serve(&MEMBERS).await;
        group.put(id, &mut fence, vec![put("a", "before")]).await;
        for other in others(id) {
            // Either nothing reaches them, or nothing comes back.
            match round % 2 {
                0 => group.wires.cut(id, other),
                _ => group.wires.cut(other, id),
            }
        }
        let unknown = group.commit(id, fence, vec![put("a", "after")]).await;
        assert!(matches!(unknown, Err(CommitError::Unknown(_))), "{unknown:?}");
        sleep(Duration::from_millis(700) * round as u32).await;
        group.wires.heal();
        let settled = loop {
            match group.engines[&id].settle().await {
                Ok(settled) => break settled,
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        };
        let is_there = settled.batch > fence.batch;
        let wanted = if is_there { "after" } else { "before" };
        assert_eq!(value(&group, id, "a").unwrap(), wanted, "round {round}");
        // It stays so.
        let (new, fence) = group.serve(&MEMBERS).await;
        assert_eq!(fence.batch, settled.batch, "round {round}");
        assert_eq!(value(&group, new, "a").unwrap(), wanted, "round {round}");
        if is_there { there += 1 } else { gone += 1 }
    }
    assert!(there > 0, "{there} of them were committed, {gone} were not");
}

#[tokio::test(start_paused = true)]
async fn all_start_again_with_all_that_was_acknowledged() {
    let mut group = Group::paused(small).await;
    let mut epoch = 0;
    for round in 0..4 {
        let (id, mut fence) = group.serve(&MEMBERS).await;
        assert!(fence.epoch > epoch);
        epoch = fence.epoch;
        for n in 0..round * 40 {
            assert!(value(&group, id, &format!("{n:04}")).is_some(), "{n} in round {round}");
        }
        for n in round * 40..(round + 1) * 40 {
            group.put(id, &mut fence, vec![put(&format!("{n:04}"), &"x".repeat(700))]).await;
        }
        for id in MEMBERS {
            group.kill(id).await;
        }
        for id in MEMBERS {
            group.open(id).await.unwrap();
        }
    }
}

/// The library makes it the leader again at once, in its old term.
#[tokio::test(start_paused = true)]
async fn a_leader_that_starts_again_waits_for_its_former_lease() {
    let mut group = Group::paused(roomy).await;
    let (id, mut fence) = group.serve(&MEMBERS).await;
    group.put(id, &mut fence, vec![put("a", "1")]).await;
    group.kill(id).await;
    group.open(id).await.unwrap();
    let began = group.now();
    assert_eq!(group.leader_of(&[id]).await, id);
    assert!(group.now() - began < Duration::from_secs(1), "it leads again");
    group.serve(&[id]).await;
    assert!(group.now() - began >= Timing::default().lease);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_master_that_has_given_up() {
    let mut group = Group::paused(roomy).await;
    let (id, mut fence) = group.serve(&MEMBERS).await;
    group.put(id, &mut fence, vec![put("a", "1")]).await;
    group.close(id).await;
    group.open(id).await.unwrap();
    let began = group.now();
    assert_eq!(group.leader_of(&[id]).await, id);
    group.serve(&[id]).await;
    assert!(group.now() - began < Timing::default().lease / 2);
}

/// A master that has ended while its member went on: what it proposes is void.
#[tokio::test(start_paused = true)]
async fn two_masters_of_one_member_are_told_apart() {
    let group = Group::paused(roomy).await;
    let (id, mut old) = group.serve(&MEMBERS).await;
    group.put(id, &mut old, vec![put("a", "1")]).await;
    let engine = &group.engines[&id];
    engine.give_up();
    engine.given_up().await;
    let (again, mut new) = group.serve(&[id]).await;
    assert_eq!((again, new), (id, Fence { epoch: old.epoch + 1, ..old }));
    let void = group.commit(id, old, vec![put("a", "void")]).await;
    assert!(matches!(void, Err(CommitError::Fenced { found }) if found == new), "{void:?}");
    group.put(id, &mut new, vec![put("a", "2")]).await;
    assert_eq!(value(&group, id, "a").unwrap(), "2");
}

#[tokio::test(start_paused = true)]
async fn a_full_member_does_not_stop_the_others() {
    let group = Group::paused(small).await;
    let (id, mut fence) = group.serve(&MEMBERS).await;
    let full = others(id)[0];
    group.put(id, &mut fence, vec![put("first", "x")]).await;
    let used = group.disks[&full].used_bytes();
    group.disks[&full].set_capacity(Some(used));
    for n in 0..150 {
        group.put(id, &mut fence, vec![put(&format!("{n:04}"), &"x".repeat(2000))]).await;
    }
    assert!(is_held(&group, id));
    assert!(group.engines[&full].fence().unwrap() != fence, "it has room");
    group.disks[&full].set_capacity(None);
    let caught_up = |group: &Group| group.engines[&full].fence().unwrap() == fence;
    group.until("it goes on where it was", caught_up).await;
    assert_eq!(all(&group.engines[&full]), all(&group.engines[&id]));
}

/// A master whose own disk is full says so, and goes on when there is room.
#[tokio::test(start_paused = true)]
async fn a_full_leader_refuses_and_goes_on_later() {
    let group = Group::paused(small).await;
    let (id, mut fence) = group.serve(&MEMBERS).await;
    group.put(id, &mut fence, vec![put("first", "x")]).await;
    let used = group.disks[&id].used_bytes();
    group.disks[&id].set_capacity(Some(used));
    let refused = loop {
        let changes = vec![put(&format!("{:04}", fence.batch), &"x".repeat(2000))];
        match group.commit(id, fence, changes).await {
            Ok(()) => fence.batch += 1,
            Err(error) => break error,
        }
        assert!(fence.batch < 10_000);
    };
    assert!(
        matches!(&refused, CommitError::Failed(error) if error.kind() == "full"),
        "{refused:?}"
    );
    group.disks[&id].set_capacity(None);
    group.put(id, &mut fence, vec![put("last", "x")]).await;
}

/// They are replaced once it hears the next leader, without a new start.
#[tokio::test(start_paused = true)]
async fn entries_that_nobody_commits_fill_the_log_of_a_leader() {
    let group = Group::paused(small).await;
    let (id, mut fence) = group.serve(&MEMBERS).await;
    group.put(id, &mut fence, vec![put("a", "1")]).await;
    group.wires.isolate(id);
    for _ in 0..8 {
        assert!(group.engines[&id].settle().await.is_err(), "each try leaves entries");
    }
    let (next, mut fence) = group.serve(&others(id)).await;
    group.put(next, &mut fence, vec![put("a", "2")]).await;
    group.wires.heal();
    let caught_up = |group: &Group| group.engines[&id].fence().unwrap() == fence;
    group.until("it follows the next leader", caught_up).await;
    assert_eq!(value(&group, id, "a").unwrap(), "2");
}

/// The process of such a member is to end, and to start again.
#[tokio::test(start_paused = true)]
async fn a_member_whose_disk_fails_waits_for_no_turn() {
    let group = Group::paused(small).await;
    let (id, mut fence) = group.serve(&MEMBERS).await;
    let failed = others(id)[0];
    group.disks[&failed].add_fault(Fault::once(Some(Call::SyncData), 0).sticky());
    group.put(id, &mut fence, vec![put("a", "1")]).await;
    let turn = timeout(Duration::from_secs(60), group.engines[&failed].wait_for_turn()).await;
    assert_eq!(turn.unwrap().unwrap_err().kind(), "unavailable");
    assert!(is_held(&group, id));
}

#[tokio::test(start_paused = true)]
async fn a_member_that_was_away_for_long_gets_a_snapshot_while_others_go_on() {
    let mut group = Group::paused(small).await;
    let (id, mut fence) = group.serve(&MEMBERS).await;
    group.put(id, &mut fence, vec![put("first", "x")]).await;
    let away = others(id)[0];
    group.close(away).await;
    let write = async |group: &Group, id: u64, fence: &mut Fence, count: u64| {
        for _ in 0..count {
            let key = format!("{:04}", fence.batch % 400);
            group.put(id, fence, vec![put(&key, &"x".repeat(1500))]).await;
            sleep(Duration::from_millis(10)).await;
        }
    };
    write(&group, id, &mut fence, 300).await;
    // What they have in memory would do without one.
    for other in others(away) {
        group.kill(other).await;
        group.open(other).await.unwrap();
    }
    let (id, mut fence) = group.serve(&others(away)).await;
    sleep(Duration::from_secs(3)).await;
    group.open(away).await.unwrap();
    write(&group, id, &mut fence, 300).await;
    let caught_up = |group: &Group| group.engines[&away].fence().unwrap() == fence;
    group.until("it catches up", caught_up).await;
    assert_eq!(all(&group.engines[&away]), all(&group.engines[&id]));
    let sections = group.wires.sections.lock().clone();
    assert!(sections.len() > 1 && sections.iter().all(|bytes| *bytes <= 4 << 20), "{sections:?}");
    // It takes part as any other: with it alone there is a majority.
    let third = others(id).into_iter().find(|other| *other != away).unwrap();
    group.close(third).await;
    write(&group, id, &mut fence, 10).await;
}
