//! A full disk: commits fail with `Full` once the log has no room, reads go on, nothing is lost,
//! and commits go on when there is space again, without a restart or with one.

use bytes::Bytes;
use cairn_base::rng::SeededRng;
use cairn_meta::engine::embedded::Config;
use cairn_meta::engine::{CommitError, Engine};
use cairn_sim::SimDisk;

use crate::support::{Rows, all, apply, commit, open, short_log, small};

fn fill(rng: &SeededRng) -> Vec<(Bytes, Option<Bytes>)> {
    let row = |_| {
        let key = Bytes::from(format!("key-{:016x}", rng.below(u64::MAX)));
        (key, Some(Bytes::from(vec![rng.below(256) as u8; 2000])))
    };
    (0..3).map(row).collect()
}

/// Commits until the disk is full; panics on any other failure.
fn fill_up(engine: &dyn Engine, rng: &SeededRng, model: &mut Rows) {
    for _ in 0..100_000 {
        let changes = fill(rng);
        match engine.commit(engine.fence().unwrap(), changes.clone()) {
            Ok(()) => apply(model, &changes),
            Err(CommitError::Failed(error)) => {
                assert_eq!(error.kind(), "full");
                return;
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("the disk never gets full");
}

#[test]
fn a_hundred_times_full_and_free_again() {
    for (background, config) in [(false, small(1)), (true, small(1)), (false, short_log(1))] {
        let config = Config { background, ..config };
        let disk = SimDisk::new(1);
        let mut engine = open(&disk, config.clone()).unwrap();
        let (rng, mut model) = (SeededRng::new(2), Rows::new());
        for cycle in 0..34 {
            disk.set_capacity(Some(disk.used_bytes() + 200_000 + rng.below(100_000)));
            fill_up(&engine, &rng, &mut model);
            assert_eq!(all(&engine), model, "cycle {cycle}");
            match rng.below(4) {
                0 => {
                    drop(engine);
                    engine = open(&disk, config.clone()).unwrap();
                }
                1 => {
                    engine.abandon();
                    engine = open(&disk, config.clone()).unwrap();
                }
                _ => {}
            }
            assert_eq!(all(&engine), model, "cycle {cycle}");
            disk.set_capacity(None);
            // In the background the first attempt may still be told of the last failure.
            while engine.checkpoint().is_err() {}
            let deletes: Vec<_> = model.keys().take(200).map(|key| (key.clone(), None)).collect();
            for deletes in deletes.chunks(20) {
                apply(&mut model, deletes);
                commit(&engine, deletes.to_vec());
            }
            assert_eq!(all(&engine), model, "cycle {cycle}");
        }
    }
}

#[test]
fn deletes_go_on_in_the_reserve() {
    let config = Config { reserve_bytes: 1 << 20, ..small(1) };
    let disk = SimDisk::new(1);
    let engine = open(&disk, config).unwrap();
    assert!(!engine.low_on_space());
    let (rng, mut model) = (SeededRng::new(2), Rows::new());
    for _ in 0..60 {
        let changes = fill(&rng);
        apply(&mut model, &changes);
        commit(&engine, changes);
    }
    disk.set_capacity(Some(disk.used_bytes()));
    // Far more than the log holds.
    for _ in 0..3 {
        for key in model.keys().cloned().collect::<Vec<_>>() {
            let fence = engine.fence().unwrap();
            engine.commit(fence, vec![(key.clone(), None), (Bytes::from("t"), Some(key))]).unwrap();
        }
    }
    assert!(engine.low_on_space());
    assert_eq!(all(&engine).len(), 1);
    disk.set_capacity(None);
    engine.checkpoint().unwrap();
    commit(&engine, fill(&rng));
    engine.checkpoint().unwrap();
    assert!(!engine.low_on_space());
}
