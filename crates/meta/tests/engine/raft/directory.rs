//! The directory of a member, as the first version of its formats wrote it. It stays readable.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cairn_base::Disk;
use cairn_meta::engine::Fence;
use cairn_meta::engine::embedded::Config;
use cairn_meta::engine::raft::entry::{Entry, EntryId, Members, Proposal};
use cairn_meta::engine::raft::{MemberStore, Membership, Vote};
use cairn_sim::SimDisk;

use super::model::{batch, entry, log, open, rows};
use crate::support::{delete, put, small};

/// The seed of its configuration.
const SEED: u64 = 21;
const VOTE: Vote = Vote { term: 3, member: 2, committed: true };
/// Applied, and in a table.
const IN_TABLE: u64 = 4;
/// Applied, and in the log alone.
const IN_LOG: u64 = 6;

const FILES: [&str; 4] = ["log-0", "log-1", "log-2", "rows.redb"];

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engine/raft/directory")
}

fn config() -> Config {
    small(SEED)
}

fn members() -> Members {
    Members { voters: vec![BTreeSet::from([2, 5, 7])], learners: BTreeSet::from([9]) }
}

/// The last one is of another term, and not applied.
fn entries() -> Vec<Entry> {
    let fence = |batch| Fence { epoch: 1, batch };
    vec![
        entry(1, 0, Proposal::Members(members())),
        entry(1, 1, Proposal::TakeOver { batch: 0 }),
        batch(1, 2, fence(0), vec![put("a", "1"), put("b", "2"), put("c", "3")]),
        batch(1, 3, fence(1), vec![delete("b")]),
        entry(2, 4, Proposal::Empty),
        batch(2, 5, fence(2), vec![put("a", "4")]),
        batch(3, 6, fence(3), vec![put("d", "5")]),
    ]
}

fn write() -> SimDisk {
    let disk = SimDisk::new(SEED);
    let store = open(&disk, config()).unwrap();
    let entries = entries();
    let apply = |range: std::ops::Range<u64>| {
        let range = range.start as usize..range.end as usize;
        store.append(entries[range.clone()].to_vec()).unwrap();
        drop(store.apply(entries[range].to_vec()).unwrap());
    };
    apply(0..IN_TABLE);
    store.checkpoint().unwrap();
    store.save_vote(VOTE).unwrap();
    apply(IN_TABLE..IN_LOG);
    store.append(entries[IN_LOG as usize..].to_vec()).unwrap();
    store.abandon();
    disk
}

fn kept() -> SimDisk {
    let disk = SimDisk::new(1);
    for name in FILES {
        let bytes = std::fs::read(fixture().join(name)).unwrap();
        disk.create(name).unwrap().write_at(&[&bytes], 0).unwrap();
    }
    disk
}

fn check(store: &MemberStore) {
    assert_eq!(store.vote(), VOTE);
    assert_eq!(store.last(), Some(EntryId { term: 3, index: 6 }));
    assert_eq!(log(store).last(), entries().last());
    store.apply(store.entries(store.applied_next(), IN_LOG, usize::MAX).unwrap()).unwrap();
    let membership = Membership { entry: Some(EntryId { term: 1, index: 0 }), members: members() };
    assert_eq!(store.applied(), (Some(EntryId { term: 2, index: 5 }), membership));
    assert_eq!(store.fence(), Fence { epoch: 1, batch: 3 });
    let rows = rows(store);
    let rows: Vec<(&[u8], &[u8])> =
        rows.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    assert_eq!(rows, [(&b"a"[..], &b"4"[..]), (b"c", b"3")]);
}

/// `CAIRN_WRITE_FIXTURE` makes it. The library writes the table as it likes.
#[test]
fn the_log_is_written_as_it_was() {
    let disk = write();
    let mut names = disk.list().unwrap();
    names.sort();
    assert_eq!(names, FILES);
    for name in FILES {
        let bytes = disk.contents(name).unwrap();
        if std::env::var_os("CAIRN_WRITE_FIXTURE").is_some() {
            std::fs::create_dir_all(fixture()).unwrap();
            std::fs::write(fixture().join(name), &bytes).unwrap();
        }
        let kept = std::fs::read(fixture().join(name)).unwrap();
        assert!(name == "rows.redb" || bytes == kept, "{name} differs");
    }
}

#[test]
fn is_read_and_goes_on() {
    let disk = kept();
    let store = open(&disk, config()).unwrap();
    check(&store);
    let last = log(&store).last().cloned().unwrap();
    store.apply(vec![last]).unwrap();
    assert_eq!(store.fence(), Fence { epoch: 1, batch: 4 });
    store.checkpoint().unwrap();
    store.abandon();
    let store = open(&disk, config()).unwrap();
    assert_eq!((store.vote(), store.fence().batch), (VOTE, 4));
    assert_eq!(rows(&store).len(), 3);
}
