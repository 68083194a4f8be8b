//! A check of all rows goes on portion by portion. Nothing is held between two of them, so pages
//! that checkpoints free meanwhile are used again, and the table does not grow.

use cairn_base::{Disk, Error, Result};
use cairn_meta::engine::embedded::Config;
use cairn_meta::engine::{EmbeddedEngine, Engine, Pace};
use cairn_sim::SimDisk;

use crate::support::{commit, open, put, small};

const ROWS: &str = "rows.redb";
/// Rows of the table, and how often all of them are changed after each portion.
const COUNT: usize = 600;
const CHANGES: usize = 3;

fn config() -> Config {
    Config { memtable_bytes: 2 << 20, log_segment_bytes: 2 << 20, ..small(1) }
}

fn pace() -> Pace {
    Pace { portion_bytes: 128 << 10, ..Pace::default() }
}

/// Changes every row so many times. Returns the greatest length of the file of rows.
fn change_all(engine: &EmbeddedEngine, disk: &SimDisk, times: usize) -> u64 {
    let round = |round| {
        let row = |n| put(&format!("key {n:04}"), &format!("{round} {n:04}v {}", "x".repeat(990)));
        commit(engine, (0..COUNT).map(row).collect());
        engine.checkpoint().unwrap();
        disk.open(ROWS).unwrap().len().unwrap()
    };
    (0..times).map(round).max().unwrap()
}

/// Checks all rows, and calls `between` after each portion that is not the last. Returns their
/// number.
fn check(engine: &EmbeddedEngine, mut between: impl FnMut()) -> Result<usize> {
    let (mut from, mut portions) = (Vec::new(), 1);
    while let Some(next) = engine.check_portion(&from, &pace())? {
        assert!(next > from, "{next:?} comes after {from:?}");
        from = next;
        portions += 1;
        between();
    }
    Ok(portions)
}

#[test]
fn a_pass_beside_changes_does_not_make_the_table_grow() {
    let disk = SimDisk::new(1);
    let engine = open(&disk, config()).unwrap();
    let usual = change_all(&engine, &disk, 10);
    let mut beside = 0;
    let between = || beside = beside.max(change_all(&engine, &disk, CHANGES));
    let portions = check(&engine, between).unwrap();
    println!("{usual} bytes, {beside} beside {portions} portions");
    assert!((5..100).contains(&portions), "{portions}");
    assert!(beside <= 2 * usual, "{beside} bytes, {usual} before");
    // The same changes below one reader: the bound would be passed.
    let reader = engine.snapshot().unwrap();
    let below = change_all(&engine, &disk, (portions - 1) * CHANGES);
    assert!(below > 2 * usual, "{below} bytes, {usual} before");
    drop(reader);
}

#[test]
fn damage_is_found_in_each_portion_and_changes_are_none() {
    for (damaged, portion) in [("0003v", 1..2), ("0300v", 2..100)] {
        let disk = SimDisk::new(2);
        let engine = open(&disk, config()).unwrap();
        change_all(&engine, &disk, 1);
        let mut changes = 0;
        let mut change = || {
            changes += 1;
            commit(&engine, vec![put(&format!("z {changes}"), &"y".repeat(1000))]);
            engine.checkpoint().unwrap();
        };
        let whole = check(&engine, &mut change).unwrap();
        assert!(whole > 2, "{whole} portions");
        // Wherever the row is: pages that are not in use have it, too.
        let bytes = disk.contents(ROWS).unwrap();
        let places = bytes.windows(damaged.len()).enumerate();
        for (at, _) in places.filter(|(_, part)| *part == damaged.as_bytes()) {
            disk.flip_bit(ROWS, at as u64, 0).unwrap();
        }
        let mut met = 1;
        let found = check(&engine, || {
            met += 1;
            change();
        });
        assert!(matches!(found, Err(Error::Corrupt { .. })), "{damaged}: {found:?}");
        assert!(portion.contains(&met), "{damaged} was met in portion {met}");
        assert!(matches!(engine.check_rows(&Pace::default()), Err(Error::Corrupt { .. })));
        engine.abandon();
    }
}

/// redb shortens the keys of branches, so that the leaf before such a key is met again.
#[test]
fn each_portion_gets_further_whatever_keys_branches_have() {
    let disk = SimDisk::new(3);
    let engine = open(&disk, config()).unwrap();
    let row = |n: usize| put(&format!("{n:04} {}", "k".repeat(40)), &"v".repeat(990));
    commit(&engine, (0..COUNT).map(row).collect());
    engine.checkpoint().unwrap();
    let pace = Pace { portion_bytes: 1, ..Pace::default() };
    let (mut from, mut portions) = (Vec::new(), 0);
    while let Some(next) = engine.check_portion(&from, &pace).unwrap() {
        assert!(next > from, "{next:?} comes after {from:?}");
        from = next;
        portions += 1;
    }
    assert!(portions > 50, "{portions}");
}
