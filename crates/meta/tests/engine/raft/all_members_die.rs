//! The power of all members fails, again and again, with logs that go round their rings.

use std::collections::BTreeMap;
use std::time::Duration;

use cairn_base::rng::SeededRng;
use cairn_meta::engine::Engine;
use cairn_meta::engine::embedded::Config;
use tokio::time::{sleep, timeout};

use super::group::{Group, MEMBERS};
use crate::support::{all, put, small};

/// Time within which a running majority serves.
const SERVES_WITHIN: Duration = Duration::from_secs(20);
const ROUNDS: u64 = 6;

/// Returns the config of a ring of five files of eight records each.
fn five_files(seed: u64) -> Config {
    Config { log_segments: 5, ..small(seed) }
}

/// The values that were acknowledged, by key.
type Values = BTreeMap<String, String>;

/// Commits `count` batches by whoever serves among `of`, once somebody does.
async fn write(group: &Group, of: &[u64], count: u64, values: &mut Values) -> Result<(), String> {
    let serving = timeout(SERVES_WITHIN, group.serve(of)).await;
    let (id, mut fence) = serving.map_err(|_| format!("none of {of:?} serves in time"))?;
    for n in 0..count {
        let (key, value) = (format!("key {}", n % 50), format!("{}-{}", fence.epoch, fence.batch));
        group.put(id, &mut fence, vec![put(&key, &value)]).await;
        values.insert(key, value);
    }
    Ok(())
}

/// Waits until all members have what was acknowledged.
async fn agree(group: &Group, values: &Values) -> Result<(), String> {
    let has_all = |id: &u64| {
        let rows = all(&group.engines[id]);
        values.iter().all(|(key, value)| rows.get(key.as_bytes()).is_some_and(|row| row == value))
    };
    let begun = group.now();
    while !MEMBERS.iter().all(has_all) {
        if group.now() - begun > SERVES_WITHIN {
            let fences: Vec<_> = group.engines.iter().map(|(id, one)| (id, one.fence())).collect();
            return Err(format!("some member stays behind: {fences:?}"));
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn kill_all_again_and_again(seed: u64) -> Result<(), String> {
    let rng = SeededRng::new(seed);
    let mut group = Group::paused(five_files).await;
    let mut values = Values::new();
    for _ in 0..ROUNDS {
        write(&group, &MEMBERS, 20 + rng.below(60), &mut values).await?;
        let mut order = MEMBERS;
        order.rotate_left(rng.below(3) as usize);
        for id in order {
            group.kill(id).await;
        }
        order.rotate_left(rng.below(3) as usize);
        for id in order {
            group.open(id).await.unwrap();
        }
        write(&group, &MEMBERS, 1, &mut values).await?;
        agree(&group, &values).await?;
    }
    Ok(())
}

/// A member that answers is behind by more than the ring while entries are on their way to it.
async fn leave_one_behind(seed: u64) -> Result<(), String> {
    let rng = SeededRng::new(seed);
    let group = Group::paused(five_files).await;
    let mut values = Values::new();
    let (leader, _) = group.serve(&MEMBERS).await;
    let slow = MEMBERS.into_iter().find(|id| *id != leader).unwrap();
    for _ in 0..ROUNDS {
        let late = Duration::from_millis(100 + rng.below(700));
        group.wires.delay(move |_, to, _| if to == slow { late } else { Duration::ZERO });
        write(&group, &MEMBERS, 60 + rng.below(60), &mut values).await?;
        group.wires.heal();
        agree(&group, &values).await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_majority_serves_again_and_nobody_stays_behind() {
    for seed in 1..=5 {
        assert_eq!(kill_all_again_and_again(seed).await, Ok(()), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_answers_late_does_not_stay_behind() {
    for seed in 1..=5 {
        assert_eq!(leave_one_behind(seed).await, Ok(()), "seed {seed}");
    }
}
