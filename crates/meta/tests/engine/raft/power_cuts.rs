//! Power is cut at every sync of what members do, with unsynced bytes lost, kept, reordered or
//! torn. The vote and all entries that were acknowledged are there, those that were replaced are
//! not, and rows are exactly those of the entries that are applied.

use cairn_base::rng::SeededRng;
use cairn_meta::engine::embedded::Config;
use cairn_sim::{SimDisk, Snapshot};

use super::model::{Model, config, open};

/// The history of a member: by number of steps, the state in which it must be found afterwards.
struct History {
    models: Vec<Model>,
    snapshots: Vec<Snapshot>,
}

fn record(seed: u64, steps: u64, config: &Config) -> History {
    let disk = SimDisk::new(seed);
    let rng = SeededRng::new(seed);
    let mut store = open(&disk, config.clone()).unwrap();
    let mut model = Model::default();
    let mut models = vec![model.clone()];
    disk.mark(0);
    disk.record();
    for step in 1..=steps {
        match rng.below(25) {
            0 => {
                drop(store);
                store = open(&disk, config.clone()).unwrap();
                model = Model::find(&store, &[&model], &format!("seed {seed}, step {step}"));
            }
            1 => {
                store.abandon();
                store = open(&disk, config.clone()).unwrap();
                model = Model::find(&store, &[&model], &format!("seed {seed}, step {step}"));
            }
            _ => model.step(&store, &rng),
        }
        models.push(model.clone());
        disk.mark(step);
    }
    store.abandon();
    History { models, snapshots: disk.recorded() }
}

/// Opens an image; applies once more what was committed; goes on.
fn check(disk: &SimDisk, config: Config, allowed: &[&Model], what: &str) {
    let store = open(disk, config).unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut found = Model::find(&store, allowed, what);
    found.apply(&store, found.committed());
    let rng = SeededRng::new(1);
    (0..3).for_each(|_| found.step(&store, &rng));
    store.abandon();
}

fn cut_every_sync(seeds: std::ops::Range<u64>, cuts: u64, background: bool) {
    let mut images = 0;
    for seed in seeds {
        let history = record(seed, 60, &Config { background, ..config(seed) });
        for (point, snapshot) in history.snapshots.iter().enumerate() {
            let step = snapshot.mark as usize;
            let until = (step + 2).min(history.models.len());
            let allowed: Vec<&Model> = history.models[step..until].iter().collect();
            for cut in 0..cuts {
                let what = format!("seed {seed}, sync point {point}, step {step}, cut {cut}");
                let disk = snapshot.crash_image(cut ^ (point as u64) << 8);
                check(&disk, config(seed), &allowed, &what);
                images += 1;
            }
        }
    }
    println!("{images} images");
}

#[test]
fn every_sync_point_of_every_history() {
    cut_every_sync(0..8 * cairn_sim::scale(), 4, false);
}

#[test]
fn cuts_while_checkpoints_run_beside() {
    cut_every_sync(500..500 + 4 * cairn_sim::scale(), 2, true);
}

/// A cut, a start, a few steps, another cut, ...: what recovery itself writes is cut too.
#[test]
fn cuts_during_recovery_and_after() {
    for seed in 1000..1000 + 20 * cairn_sim::scale() {
        let rng = SeededRng::new(seed);
        let config = config(seed);
        let mut disk = SimDisk::new(seed);
        open(&disk, config.clone()).unwrap().abandon();
        let mut allowed = vec![Model::default()];
        for round in 0..12 {
            let what = format!("seed {seed}, round {round}");
            disk.mark(0);
            disk.record();
            let store = open(&disk, config.clone()).unwrap_or_else(|e| panic!("{what}: {e}"));
            let before = std::mem::take(&mut allowed);
            let mut model = Model::find(&store, &before.iter().collect::<Vec<_>>(), &what);
            let mut models = vec![model.clone()];
            disk.mark(1);
            let again = rng.below(2) as usize * model.committed();
            model.apply(&store, again.max(model.applied));
            for step in 0..rng.below(12) {
                model.step(&store, &rng);
                models.push(model.clone());
                disk.mark(2 + step);
            }
            store.abandon();
            let snapshots = disk.recorded();
            let snapshot = &snapshots[rng.below(snapshots.len() as u64) as usize];
            allowed = match snapshot.mark as usize {
                0 => before.into_iter().chain([models[0].clone()]).collect(),
                step => models[step - 1..(step + 1).min(models.len())].to_vec(),
            };
            disk = match rng.below(4) {
                0 => snapshot.kill_image(),
                _ => snapshot.crash_image(rng.below(1 << 40)),
            };
        }
    }
}
