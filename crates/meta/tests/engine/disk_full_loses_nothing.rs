//! A full disk: commits fail with `Full` once the log has no room, reads go on, and nothing is
//! lost. Commits go on when there is space again, without a restart or with one.

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

mod a_hundred_times_full_and_free_again {
    use super::{full_and_free_again, short_log, small};

    #[test]
    fn in_the_foreground() {
        full_and_free_again(false, small(1));
    }

    #[test]
    fn in_the_background() {
        full_and_free_again(true, small(1));
    }

    #[test]
    fn with_a_short_log() {
        full_and_free_again(false, short_log(1));
    }
}

fn full_and_free_again(background: bool, config: Config) {
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

#[test]
fn deletes_go_on_in_the_reserve() {
    let config = Config { reserve_bytes: 1 << 20, ..small(1) };
    let disk = SimDisk::new(1);
    let engine = open(&disk, config).unwrap();
    assert!(!engine.is_low_on_space());
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
    assert!(engine.is_low_on_space());
    assert_eq!(all(&engine).len(), 1);
    disk.set_capacity(None);
    engine.checkpoint().unwrap();
    commit(&engine, fill(&rng));
    engine.checkpoint().unwrap();
    assert!(!engine.is_low_on_space());
}

/// A user who stops at a low disk can delete everything, in any order, through restarts: no commit
/// of a delete fails, however little is free.
#[test]
fn who_stops_when_space_is_low_can_always_delete() {
    for seed in 0..6 {
        let config = Config {
            reserve_bytes: 2 << 20,
            memtable_bytes: 1 << 20,
            log_segment_bytes: 512 << 10,
            ..small(seed)
        };
        let disk = SimDisk::new(seed);
        let mut engine = open(&disk, config.clone()).unwrap();
        let (rng, mut model) = (SeededRng::new(seed), Rows::new());
        disk.set_capacity(Some(disk.used_bytes() + (6 << 20) + rng.below(2 << 20)));
        while !engine.is_low_on_space() {
            let changes = fill(&rng);
            apply(&mut model, &changes);
            commit(&engine, changes);
        }
        assert!(model.len() > 1000, "seed {seed}: low after {} rows", model.len());
        // Somebody else takes the rest.
        disk.set_capacity(Some(disk.used_bytes()));
        while !model.is_empty() {
            if rng.below(200) == 0 {
                engine.abandon();
                engine = open(&disk, config.clone()).unwrap();
                assert!(engine.is_low_on_space());
            }
            let at = rng.below(model.len() as u64) as usize;
            let deletes: Vec<_> =
                model.keys().skip(at).take(4).map(|k| (k.clone(), None)).collect();
            apply(&mut model, &deletes);
            commit(&engine, deletes);
        }
        assert_eq!(all(&engine), model);
        disk.set_capacity(None);
        commit(&engine, fill(&rng));
        engine.checkpoint().unwrap();
        assert!(!engine.is_low_on_space());
    }
}

/// Space that comes back is noticed by an engine that has nothing to do.
#[test]
fn space_that_comes_back_is_noticed() {
    let config = Config { reserve_bytes: 1 << 20, background: true, ..small(1) };
    let disk = SimDisk::new(1);
    let engine = open(&disk, config).unwrap();
    disk.set_capacity(Some(disk.used_bytes()));
    commit(&engine, fill(&SeededRng::new(1)));
    assert!(engine.is_low_on_space());
    engine.checkpoint().unwrap();
    disk.set_capacity(None);
    while engine.is_low_on_space() {
        std::thread::yield_now();
    }
}
