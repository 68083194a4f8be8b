//! Checkpoints are counted, with the bytes that they write; what is checked in between is not.

use cairn_meta::engine::{Checkpoints, Engine, Memory, Pace};
use cairn_sim::SimDisk;

use crate::support::{commit, open, put, small};

#[test]
fn each_checkpoint_counts_once_and_with_its_bytes() {
    let disk = SimDisk::new(7);
    let engine = open(&disk, small(7)).unwrap();
    assert_eq!(engine.checkpoints(), Checkpoints::default());
    commit(&engine, vec![put("a", &"x".repeat(3000))]);
    assert_eq!(engine.checkpoints().count, 0, "rows are in the log alone");
    engine.checkpoint().unwrap();
    let first = engine.checkpoints();
    assert_eq!(first.count, 1);
    assert!(first.bytes > 3000, "{first:?}");
    assert!(first.longest_us <= first.took_us, "{first:?}");
    engine.checkpoint().unwrap();
    engine.check_rows(&Pace::default()).unwrap();
    assert_eq!(engine.checkpoints(), first, "nothing was left to move");
    commit(&engine, vec![put("b", "y")]);
    engine.checkpoint().unwrap();
    let second = engine.checkpoints();
    assert_eq!(second.count, 2);
    assert!(second.bytes > first.bytes && second.took_us >= first.took_us, "{second:?}");
    assert!(second.longest_us >= first.longest_us, "{second:?}");
    assert_eq!(Memory::new().checkpoints(), Checkpoints::default());
}
