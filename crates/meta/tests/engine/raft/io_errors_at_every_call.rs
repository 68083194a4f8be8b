//! Each call to the disk fails in turn: nothing acknowledged is lost, and after a restart all is as
//! before or as after the step that failed.

use std::io::ErrorKind;

use cairn_base::rng::SeededRng;
use cairn_sim::{Fault, SimDisk};

use super::model::{Model, config, open};

/// Two lives of a member, up to the first error. Returns as what it may be found.
fn run(disk: &SimDisk, seed: u64) -> Vec<Model> {
    let rng = SeededRng::new(seed);
    let mut allowed = vec![Model::default()];
    for _ in 0..2 {
        let Ok(store) = open(disk, config(seed)) else { return allowed };
        let Ok(mut model) = Model::try_adopt(&store, &[&allowed[0]], "reopened") else {
            store.abandon();
            return allowed;
        };
        for step in 0..25 {
            let before = model.clone();
            let done = match step {
                0 => model.try_apply(&store, model.committed()),
                _ => model.try_step(&store, &rng),
            };
            if done.is_err() {
                store.abandon();
                return vec![before, model];
            }
        }
        allowed = vec![model];
    }
    allowed
}

/// A restart on what the page cache shows, some steps, a power cut.
fn check(disk: &SimDisk, allowed: &[Model], what: &str) {
    let disk = disk.kill();
    disk.record();
    let store = open(&disk, config(1)).unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut model = Model::find(&store, &allowed.iter().collect::<Vec<_>>(), what);
    model.apply(&store, model.committed());
    let rng = SeededRng::new(2);
    disk.mark(1);
    let found = model.clone();
    model.step(&store, &rng);
    store.abandon();
    for (point, snapshot) in disk.recorded().iter().enumerate() {
        let what = format!("{what}, cut at sync {point} of the restart");
        let image = snapshot.crash_image(point as u64);
        let store = open(&image, config(1)).unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut possible = vec![&found, &model];
        if snapshot.mark == 0 {
            possible.extend(allowed);
        }
        Model::find(&store, &possible, &what);
        store.abandon();
    }
}

fn every_call_fails(seeds: std::ops::Range<u64>, plan: impl Fn(u64) -> Fault) {
    for seed in seeds {
        let disk = SimDisk::new(seed);
        assert_eq!(run(&disk, seed).len(), 1);
        let first = seed % cairn_sim::stride() as u64;
        for call in (first..disk.calls()).step_by(cairn_sim::stride()) {
            let disk = SimDisk::new(seed);
            disk.add_fault(plan(call));
            let allowed = run(&disk, seed);
            assert!(disk.faults_fired() > 0);
            check(&disk, &allowed, &format!("seed {seed}, call {call}"));
        }
    }
}

#[test]
fn each_call_fails_once() {
    every_call_fails(0..3, |call| Fault::once(None, call));
}

#[test]
fn each_call_fails_and_all_after_it() {
    every_call_fails(5..7, |call| Fault::once(None, call).sticky());
}

#[test]
fn each_call_finds_the_disk_full_once() {
    every_call_fails(8..10, |call| Fault::once(None, call).kind(ErrorKind::StorageFull));
}
