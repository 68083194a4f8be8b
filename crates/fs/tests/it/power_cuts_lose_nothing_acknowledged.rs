use std::collections::BTreeMap;

use bytes::Bytes;
use cairn_base::rng::SeededRng;

use crate::world::{World, data, run};

/// After each acknowledged change the disk is told how far the workload is. A power cut anywhere
/// leaves every change up to there, the next one whole or not at all, and nothing else.
mod at_every_sync_point_of_puts_and_deletes {
    use super::check_seeds;

    #[test]
    fn first_quarter() {
        check_seeds(0);
    }

    #[test]
    fn second_quarter() {
        check_seeds(1);
    }

    #[test]
    fn third_quarter() {
        check_seeds(2);
    }

    #[test]
    fn last_quarter() {
        check_seeds(3);
    }
}

/// One in four of all seeds: no test takes very long.
fn check_seeds(quarter: u64) {
    for seed in (quarter..4 * cairn_sim::scale()).step_by(4) {
        let (snapshots, states) = run(workload(seed));
        for (at, snapshot) in snapshots.iter().enumerate() {
            for cut in 0..3 {
                let image = snapshot.crash_image(seed * 1000 + cut);
                let done = snapshot.mark as usize;
                let which = format!("seed {seed}, sync point {at}, cut {cut}");
                run(check(image, &states, done, &which));
            }
        }
    }
}

type Model = BTreeMap<String, Bytes>;

/// The snapshots, and the model after each number of changes.
async fn workload(seed: u64) -> (Vec<cairn_sim::Snapshot>, Vec<Model>) {
    let world = World::new(seed).await;
    let rng = SeededRng::new(seed);
    let mut states = vec![Model::new()];
    world.disk.record();
    for step in 0..40u64 {
        let mut model = states[states.len() - 1].clone();
        let key = format!("d{}/k{}", rng.below(2), rng.below(4));
        if rng.below(4) == 0 {
            model.remove(&key);
            world.delete(&key).await.unwrap();
        } else {
            let len = [50, 16 << 10, 17_000, 70_000][rng.below(4) as usize];
            let bytes = data(seed << 32 | step, len);
            world.put(&key, &bytes).await.unwrap();
            model.insert(key, bytes);
        }
        states.push(model);
        world.disk.mark(states.len() as u64 - 1);
    }
    (world.disk.recorded(), states)
}

async fn check(image: cairn_sim::SimDisk, states: &[Model], done: usize, which: &str) {
    let world = World::on(image, 1).await.unwrap_or_else(|error| panic!("{which}: {error}"));
    let mut found = Model::new();
    for directory in 0..2 {
        for key in (0..4).map(|key| format!("d{directory}/k{key}")) {
            let read = world.find(&key).await.unwrap_or_else(|error| panic!("{which}: {error}"));
            if let Some(bytes) = read {
                found.insert(key, bytes);
            }
        }
    }
    let next = (done + 1).min(states.len() - 1);
    assert!(found == states[done] || found == states[next], "{which}: {done} changes were done");
}
