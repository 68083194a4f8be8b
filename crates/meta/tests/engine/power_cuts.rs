//! Power is cut at every sync of recorded workloads, with unsynced bytes lost, kept, reordered or
//! torn. All acknowledged batches are there, and the state is exactly that of a prefix of the
//! batches.

use cairn_base::rng::SeededRng;
use cairn_meta::engine::Engine;
use cairn_meta::engine::embedded::Config;
use cairn_sim::{SimDisk, Snapshot};

use crate::support::{Rows, all, apply, commit, open, put, random_changes, short_log, small};

/// State by batch number: the oracle. Take-overs change no rows.
struct History {
    states: Vec<Rows>,
    snapshots: Vec<Snapshot>,
}

/// Commits random batches, takes over, closes and opens again; records every sync. The mark of
/// the disk is the last batch that was acknowledged.
fn record(seed: u64, batches: u64, start: &SimDisk, config: Config) -> History {
    let rng = SeededRng::new(seed);
    let mut engine = open(start, config.clone()).unwrap();
    let mut state = all(&engine);
    let mut states = vec![state.clone()];
    start.mark(0);
    start.record();
    let first = engine.fence().unwrap().batch;
    assert_eq!(first, 0);
    for batch in 1..=batches {
        let changes = random_changes(&rng, 30);
        apply(&mut state, &changes);
        states.push(state.clone());
        commit(&engine, changes);
        start.mark(batch);
        match rng.below(30) {
            0 => drop(engine.take_over().unwrap()),
            1 => {
                drop(engine);
                engine = open(start, config.clone()).unwrap();
            }
            2 => {
                engine.abandon();
                engine = open(start, config.clone()).unwrap();
            }
            _ => {}
        }
    }
    engine.abandon();
    History { states, snapshots: start.recorded() }
}

/// Opens an image; it must show exactly one of the states, none older than the acknowledged.
fn check(disk: &SimDisk, acked: u64, states: &[Rows], what: &str) -> u64 {
    let engine = open(disk, small(1)).unwrap_or_else(|error| panic!("{what}: {error}"));
    let batch = engine.fence().unwrap().batch;
    assert!(batch >= acked, "{what}: batch {batch} found, {acked} was acknowledged");
    let state = states.get(batch as usize).unwrap_or_else(|| panic!("{what}: batch {batch}"));
    assert!(all(&engine) == *state, "{what}: not the state of batch {batch}");
    engine.abandon();
    batch
}

#[test]
fn every_sync_point_of_every_workload() {
    let images_wanted = 10_000 * cairn_sim::scale() as usize;
    let workers = 2;
    let start = std::time::Instant::now();
    let done: usize = std::thread::scope(|scope| {
        let run = |worker: u64| {
            let mut images = 0;
            let mut seed = worker;
            while images < images_wanted / workers {
                let config = if seed % 4 < 2 { small(seed) } else { short_log(seed) };
                let history = record(seed, 60, &SimDisk::new(seed), config);
                for (point, snapshot) in history.snapshots.iter().enumerate() {
                    for cut in 0..6 {
                        let what = format!("seed {seed}, sync point {point}, cut {cut}");
                        let disk = snapshot.crash_image(cut ^ (point as u64) << 8);
                        check(&disk, snapshot.mark, &history.states, &what);
                        images += 1;
                    }
                }
                seed += workers as u64;
            }
            images
        };
        let threads = (0..workers as u64).map(|worker| scope.spawn(move || run(worker)));
        threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    println!("{done} images in {:?}", start.elapsed());
}

/// A cut, a start, a few commits, another cut, ...: what recovery itself writes is cut too.
#[test]
fn cuts_during_recovery_and_after() {
    for seed in 1000..1000 + 20 * cairn_sim::scale() {
        let rng = SeededRng::new(seed);
        let mut disk = SimDisk::new(seed);
        let mut states = vec![Rows::new()];
        let mut acked = 0;
        // The first start is not cut here: see `cuts_while_an_engine_is_made`.
        open(&disk, small(seed)).unwrap().abandon();
        for round in 0..12 {
            let what = format!("seed {seed}, round {round}");
            disk.mark(acked);
            disk.record();
            let engine = open(&disk, small(seed)).unwrap_or_else(|e| panic!("{what}: {e}"));
            let batch = engine.fence().unwrap().batch;
            assert!(batch >= acked, "{what}: {batch} found, {acked} acknowledged");
            assert!(all(&engine) == states[batch as usize], "{what}: batch {batch}");
            // Rows that were seen must stay.
            acked = batch;
            states.truncate(batch as usize + 1);
            disk.mark(acked);
            for _ in 0..rng.below(12) {
                let mut state = states[acked as usize].clone();
                let changes = random_changes(&rng, 30);
                apply(&mut state, &changes);
                states.push(state);
                commit(&engine, changes);
                acked += 1;
                disk.mark(acked);
            }
            engine.abandon();
            let snapshots = disk.recorded();
            let snapshot = &snapshots[rng.below(snapshots.len() as u64) as usize];
            acked = snapshot.mark;
            disk = match rng.below(4) {
                0 => snapshot.kill_image(),
                _ => snapshot.crash_image(rng.below(1 << 40)),
            };
        }
    }
}

#[test]
fn cuts_while_an_engine_is_made() {
    for seed in 0..10 * cairn_sim::scale() {
        let disk = SimDisk::new(seed);
        disk.record();
        open(&disk, small(seed)).unwrap().abandon();
        for (point, snapshot) in disk.recorded().iter().enumerate() {
            for cut in 0..6 {
                let what = format!("seed {seed}, sync point {point}, cut {cut}");
                let image = snapshot.crash_image(cut);
                check(&image, 0, &[Rows::new()], &what);
                let engine = open(&image, small(seed)).unwrap();
                commit(&engine, vec![put("a", "1")]);
                engine.abandon();
                let engine = open(&image.kill(), small(seed)).unwrap();
                assert_eq!(all(&engine).len(), 1, "{what}");
            }
        }
    }
}

/// As above, with checkpoints in their own thread: syncs of log and table in any order.
#[test]
fn cuts_while_commits_and_checkpoints_overlap() {
    let mut images = 0;
    for seed in 2000..2000 + 10 * cairn_sim::scale() {
        let config = if seed.is_multiple_of(2) { small(seed) } else { short_log(seed) };
        let config = Config { background: true, ..config };
        let history = record(seed, 60, &SimDisk::new(seed), config);
        for (point, snapshot) in history.snapshots.iter().enumerate() {
            for cut in 0..2 {
                let what = format!("seed {seed}, sync point {point}, cut {cut}");
                let disk = snapshot.crash_image(cut ^ (point as u64) << 8);
                check(&disk, snapshot.mark, &history.states, &what);
                images += 1;
            }
        }
    }
    println!("{images} images");
}
