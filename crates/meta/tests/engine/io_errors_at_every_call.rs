//! Each call to the disk fails in turn: every failure is a typed error, nothing acknowledged is
//! lost, and after a restart the state is exactly that of a batch.

use cairn_base::rng::SeededRng;
use cairn_meta::engine::{CommitError, Engine};
use cairn_sim::{Fault, SimDisk};
use std::io::ErrorKind;

use crate::support::{Rows, all, apply, commit, open, put, random_changes, short_log, small};

/// The result of a run: states by batch number, and the last that was acknowledged.
struct Run {
    states: Vec<Rows>,
    acked: u64,
}

/// Commits 40 batches, with two restarts in between, as far as the disk lets it.
fn run(disk: &SimDisk, seed: u64) -> Run {
    let rng = SeededRng::new(seed);
    let mut run = Run { states: vec![Rows::new()], acked: 0 };
    for _ in 0..3 {
        let config = if seed.is_multiple_of(2) { small(seed) } else { short_log(seed) };
        let Ok(engine) = open(disk, config) else { return run };
        let fence = engine.fence().unwrap();
        assert!(fence.batch >= run.acked);
        run.states.truncate(fence.batch as usize + 1);
        run.acked = fence.batch;
        for _ in 0..14 {
            let mut state = run.states[run.acked as usize].clone();
            let changes = random_changes(&rng, 20);
            apply(&mut state, &changes);
            run.states.truncate(run.acked as usize + 1);
            run.states.push(state);
            let fence = engine.fence().unwrap();
            match engine.commit(fence, changes) {
                Ok(()) => run.acked += 1,
                Err(CommitError::Failed(_)) => {}
                Err(CommitError::Poisoned(_)) => {
                    let again = engine.commit(fence, vec![]);
                    assert!(matches!(again, Err(CommitError::Poisoned(_))), "{again:?}");
                    break;
                }
                Err(other) => panic!("{other:?}"),
            }
            let snapshot = engine.snapshot().unwrap();
            if let Ok(rows) = snapshot.scan(b"", b"z", usize::MAX) {
                let state = &run.states[run.acked as usize];
                assert!(rows.iter().map(|(k, v)| (k, v)).eq(state), "batch {}", run.acked);
            }
        }
    }
    run
}

/// After the fault: a restart on what the page cache shows, commits, a power cut.
fn check(disk: &SimDisk, run: &Run, what: &str) {
    let disk = disk.kill();
    disk.record();
    let engine = open(&disk, small(1)).unwrap_or_else(|error| panic!("{what}: {error}"));
    let fence = engine.fence().unwrap();
    assert!(fence.batch >= run.acked, "{what}: {fence:?} found, {} acknowledged", run.acked);
    let mut state = run.states[fence.batch as usize].clone();
    assert!(all(&engine) == state, "{what}: not the state of batch {}", fence.batch);
    let changes = vec![put("after", "the fault"), put("key-0001", "new")];
    apply(&mut state, &changes);
    commit(&engine, changes);
    engine.abandon();
    // Cuts within that restart: what the failed calls left may still not be on the disk.
    for (point, snapshot) in disk.recorded().iter().enumerate() {
        let what = format!("{what}, cut at sync {point} of the restart");
        let image = snapshot.crash_image(point as u64);
        let engine = open(&image, small(1)).unwrap_or_else(|error| panic!("{what}: {error}"));
        let batch = engine.fence().unwrap().batch;
        assert!(batch >= run.acked, "{what}: batch {batch}");
        let want = run.states.get(batch as usize).filter(|_| batch <= fence.batch);
        assert!(all(&engine) == *want.unwrap_or(&state), "{what}: batch {batch}");
        engine.abandon();
    }
    for cut in 0..3 {
        let disk = disk.crash_image(cut);
        let engine =
            open(&disk, small(1)).unwrap_or_else(|error| panic!("{what}, cut {cut}: {error}"));
        assert_eq!(engine.fence().unwrap().batch, fence.batch + 1, "{what}, cut {cut}");
        assert!(all(&engine) == state, "{what}, cut {cut}");
        engine.abandon();
    }
}

fn every_call_fails(seeds: std::ops::Range<u64>, plan: impl Fn(u64) -> Fault) {
    for seed in seeds {
        let disk = SimDisk::new(seed);
        let clean = run(&disk, seed);
        assert_eq!(clean.acked, 42);
        let first = seed % cairn_sim::stride() as u64;
        for call in (first..disk.calls()).step_by(cairn_sim::stride()) {
            let disk = SimDisk::new(seed);
            disk.add_fault(plan(call));
            let run = run(&disk, seed);
            assert!(disk.faults_fired() > 0);
            check(&disk, &run, &format!("seed {seed}, call {call}"));
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
