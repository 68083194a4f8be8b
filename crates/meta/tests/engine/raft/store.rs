//! A member's disk, without power cuts.

use cairn_meta::engine::embedded::Config;
use cairn_meta::engine::raft::entry::{Entry, EntryId, Proposal};
use cairn_meta::engine::raft::{LeaderEntries, MemberStore, Outcome, Vote};
use cairn_meta::engine::{EmbeddedEngine, Fence};
use cairn_sim::{Call, Fault, SimDisk};

use super::model::{MEMBER, batch, entry, log, open, rows};
use crate::support::{put, small};

fn ids(entries: &[Entry]) -> Vec<(u64, u64)> {
    entries.iter().map(|entry| (entry.id.term, entry.id.index)).collect()
}

fn rows_of(term: u64, index: u64, batch_number: u64, value: &str) -> Entry {
    batch(term, index, Fence { epoch: 0, batch: batch_number }, vec![put("a", value)])
}

#[test]
fn one_record_and_one_sync_an_append_and_a_vote() {
    let disk = SimDisk::new(1);
    let store = open(&disk, Config { memtable_bytes: 1 << 20, ..small(1) }).unwrap();
    let syncs = |work: &dyn Fn()| {
        disk.record();
        work();
        disk.recorded().len()
    };
    store.append(vec![rows_of(1, 0, 0, "0")]).unwrap();
    let entries: Vec<Entry> = (1..4).map(|n| rows_of(1, n, n, "x")).collect();
    assert_eq!(syncs(&|| store.append(entries.clone()).unwrap()), 1);
    assert_eq!(syncs(&|| store.append(vec![rows_of(2, 2, 2, "y")]).unwrap()), 1);
    assert_eq!(syncs(&|| store.truncate(2).unwrap()), 0);
    let vote = Vote { term: 3, member: 2, committed: false };
    assert_eq!(syncs(&|| store.save_vote(vote).unwrap()), 1);
    let applied = || drop(store.apply(store.entries(0, 2, usize::MAX).unwrap()).unwrap());
    assert_eq!(syncs(&applied), 0);
    assert_eq!(&rows(&store)[&b"a"[..]][..], b"x");
}

#[test]
fn the_log_that_is_in_effect_is_read() {
    let disk = SimDisk::new(2);
    let mut store = open(&disk, small(2)).unwrap();
    assert_eq!((store.last(), store.before(), log(&store)), (None, None, vec![]));
    for index in 0..6 {
        store.append(vec![rows_of(1, index, index, "old")]).unwrap();
    }
    store.append((3..5).map(|index| rows_of(2, index, index, "new")).collect()).unwrap();
    let wanted = [(1, 0), (1, 1), (1, 2), (2, 3), (2, 4)];
    for _ in 0..3 {
        assert_eq!(ids(&log(&store)), wanted);
        assert_eq!(store.last(), Some(EntryId { term: 2, index: 4 }));
        assert_eq!(ids(&store.entries(2, 4, usize::MAX).unwrap()), wanted[2..4]);
        assert_eq!(ids(&store.entries(1, 9, 1).unwrap()), wanted[1..2], "at least one");
        assert_eq!(store.entries(5, 9, 100).unwrap(), []);
        assert_eq!(store.entries(3, 3, 100).unwrap(), []);
        store.abandon();
        store = open(&disk, small(2)).unwrap();
    }
}

/// Entries of a leader that has become a follower must not be sent in its name.
#[test]
fn readers_of_a_log_that_was_shortened_find_nothing() {
    let store = open(&SimDisk::new(10), small(10)).unwrap();
    store.append((0..4).map(|index| rows_of(1, index, index, "x")).collect()).unwrap();
    let leader = store.removals();
    store.append(vec![rows_of(1, 4, 4, "x")]).unwrap();
    store.apply(store.entries(0, 2, usize::MAX).unwrap()).unwrap();
    store.truncate(5).unwrap();
    let count = |leader, end| match store.leader_entries(leader, 0, end, usize::MAX).unwrap() {
        LeaderEntries::Some(entries) => entries.len(),
        other => panic!("{other:?}"),
    };
    let is_replaced =
        |leader| store.leader_entries(leader, 0, 2, usize::MAX).unwrap() == LeaderEntries::Replaced;
    assert_eq!(count(leader, 9), 5);
    store.append(vec![rows_of(2, 4, 4, "y")]).unwrap();
    assert!(is_replaced(leader));
    let leader = store.removals();
    assert_eq!(count(leader, 9), 5);
    store.truncate(3).unwrap();
    assert!(is_replaced(leader));
}

#[test]
fn what_does_not_follow_is_refused() {
    let disk = SimDisk::new(3);
    let store = open(&disk, small(3)).unwrap();
    store.append((0..4).map(|index| rows_of(2, index, index, "x")).collect()).unwrap();
    store.apply(log(&store)[..2].to_vec()).unwrap();
    for entries in [
        vec![rows_of(2, 5, 5, "a gap")],
        vec![rows_of(2, 4, 4, "then a gap"), rows_of(2, 6, 6, "")],
        vec![rows_of(3, 1, 1, "applied already")],
        vec![rows_of(1, 4, 4, "an older term")],
        vec![rows_of(3, 4, 4, "then an older term"), rows_of(2, 5, 5, "")],
        vec![batch(2, 4, Fence::default(), vec![put("a", &"x".repeat(33 << 10))])],
    ] {
        assert!(store.append(entries).is_err());
    }
    assert!(store.truncate(1).is_err());
    assert!(store.apply(log(&store)[3..].to_vec()).is_err());
    assert_eq!(log(&store).len(), 4);
    store.append(vec![rows_of(2, 4, 4, "y")]).unwrap();
    store.apply(log(&store)[2..].to_vec()).unwrap();
    assert_eq!(store.fence(), Fence { epoch: 0, batch: 5 });
}

#[test]
fn the_order_of_the_log_decides_who_is_fenced() {
    let store = open(&SimDisk::new(4), small(4)).unwrap();
    let fence = |epoch, batch| Fence { epoch, batch };
    let cases = [
        (Proposal::TakeOver { batch: 0 }, took_over(1, 0, false)),
        (changes(fence(1, 0), "1"), Outcome::Done),
        (Proposal::TakeOver { batch: 9 }, took_over(2, 9, false)),
        (changes(fence(1, 1), "2"), Outcome::Fenced { found: fence(2, 9) }),
        (changes(fence(2, 9), "3"), Outcome::Done),
        (changes(fence(2, 9), "sent twice"), Outcome::Fenced { found: fence(2, 10) }),
        (Proposal::GivenUp { epoch: 1 }, Outcome::Done),
        (Proposal::TakeOver { batch: 0 }, took_over(3, 10, false)),
        (Proposal::GivenUp { epoch: 3 }, Outcome::Done),
        (Proposal::Empty, Outcome::Done),
        (changes(fence(2, 10), "void"), Outcome::Fenced { found: fence(3, 10) }),
        (Proposal::TakeOver { batch: 0 }, took_over(4, 10, true)),
        (Proposal::TakeOver { batch: 0 }, took_over(5, 10, false)),
    ];
    for (index, (proposal, wanted)) in cases.into_iter().enumerate() {
        let entry = entry(1, index as u64, proposal);
        store.append(vec![entry.clone()]).unwrap();
        assert_eq!(store.apply(vec![entry]).unwrap(), [wanted], "entry {index}");
    }
    assert_eq!(&rows(&store)[&b"a"[..]][..], b"3");
}

fn changes(expected: Fence, value: &str) -> Proposal {
    Proposal::Batch { expected, changes: vec![put("a", value)] }
}

fn took_over(epoch: u64, batch: u64, alone: bool) -> Outcome {
    Outcome::TookOver { fence: Fence { epoch, batch }, alone }
}

/// More than the ring holds passes through it, while a member that is a little behind still finds
/// what it needs.
#[test]
fn files_are_used_again_once_their_entries_are_at_rest() {
    let disk = SimDisk::new(5);
    let mut store = open(&disk, small(5)).unwrap();
    let value = "x".repeat(3000);
    for index in 0..200 {
        store.append(vec![rows_of(1, index, index, &value)]).unwrap();
        store.apply(store.entries(index, index + 1, usize::MAX).unwrap()).unwrap();
        if index % 50 == 49 {
            store.abandon();
            store = open(&disk, small(5)).unwrap();
            let next = store.applied().0.map_or(0, |id| id.index + 1);
            store.apply(store.entries(next, index + 1, usize::MAX).unwrap()).unwrap();
        }
    }
    store.abandon();
    let store = open(&disk, small(5)).unwrap();
    let before = store.before().unwrap().index;
    assert!((150..195).contains(&before), "entries up to {before} are gone");
    assert_eq!(log(&store).last(), Some(&rows_of(1, 199, 199, &value)));
    assert_eq!(store.entries(before, 200, 1000).unwrap(), []);
}

/// Elections without a commit: each leader leaves its vote and an entry, and replaces one of the
/// leader before. The log goes round many times.
#[test]
fn a_log_full_of_entries_that_are_not_committed_makes_room_when_asked() {
    for background in [false, true] {
        let disk = SimDisk::new(11);
        let config = Config { background, ..small(11) };
        let mut store = open(&disk, config.clone()).unwrap();
        store.append(vec![rows_of(1, 0, 0, "0")]).unwrap();
        let (mut wanted, mut set_aside) = (vec![(1, 0)], 0);
        for term in 2..200 {
            let vote = Vote { term, member: 1, committed: false };
            let write = |store: &MemberStore| {
                store.save_vote(vote)?;
                let entry = |index| rows_of(term, index, index, &index.to_string());
                store.append(vec![entry(term - 1), entry(term)])
            };
            if let Err(error) = write(&store) {
                assert!(error.to_string().contains("not committed yet"), "{error}");
                store.set_aside().unwrap();
                set_aside += 1;
                write(&store).unwrap();
            }
            if term % 30 == 0 {
                store.abandon();
                store = open(&disk, config.clone()).unwrap();
            }
            wanted.truncate(term as usize - 1);
            wanted.extend([(term, term - 1), (term, term)]);
            assert_eq!((store.vote(), ids(&log(&store))), (vote, wanted.clone()));
        }
        assert!(set_aside > 5, "{set_aside}");
        store.apply(log(&store)).unwrap();
        store.abandon();
        let store = open(&disk, config).unwrap();
        let left = store.entries(store.applied_next(), u64::MAX, usize::MAX).unwrap();
        store.apply(left).unwrap();
        assert_eq!(&rows(&store)[&b"a"[..]][..], b"199");
    }
}

/// Entries that are not committed fill the log: that is an error, not a wait without an end.
#[test]
fn a_log_full_of_entries_that_are_not_committed() {
    for background in [false, true] {
        let disk = SimDisk::new(6);
        let config = Config { background, ..small(6) };
        let store = open(&disk, config.clone()).unwrap();
        let append = |index| store.append(vec![rows_of(1, index, index, "x")]);
        let (full, error) =
            (0..).find_map(|index| append(index).err().map(|error| (index, error))).unwrap();
        assert!(error.to_string().contains("not committed yet"), "{error}");
        store.abandon();
        // They are beside the rows now, and the log has room.
        let store = open(&disk, config).unwrap();
        assert_eq!(log(&store).len(), full as usize);
        store.append(vec![rows_of(1, full, full, "y")]).unwrap();
        store.apply(log(&store)).unwrap();
        assert_eq!(&rows(&store)[&b"a"[..]][..], b"y");
    }
}

#[test]
fn a_failed_sync_ends_it_until_the_next_start() {
    let disk = SimDisk::new(7);
    let store = open(&disk, small(7)).unwrap();
    store.append(vec![rows_of(1, 0, 0, "x")]).unwrap();
    disk.add_fault(Fault::once(Some(Call::SyncData), 0));
    assert!(store.save_vote(Vote { term: 9, member: 1, committed: false }).is_err());
    assert_eq!(store.vote(), Vote::default(), "it did not vote");
    for _ in 0..2 {
        assert!(store.append(vec![rows_of(1, 1, 1, "y")]).is_err());
        assert!(store.apply(log(&store)).is_err());
    }
    disk.clear_faults();
    store.abandon();
    let store = open(&disk, small(7)).unwrap();
    store.append(vec![rows_of(1, 1, 1, "y")]).unwrap();
}

#[test]
fn each_engine_and_each_member_has_its_own_directory() {
    let disk = SimDisk::new(8);
    drop(open(&disk, small(8)).unwrap());
    let arc = || std::sync::Arc::new(disk.clone());
    let error = EmbeddedEngine::open(arc(), small(8)).unwrap_err();
    assert!(error.kind() == "invalid" && error.to_string().contains("replicated"), "{error}");
    let error = cairn_meta::engine::embedded::verify(&disk, &small(8)).unwrap_err();
    assert_eq!(error.kind(), "invalid");
    let other =
        cairn_meta::engine::raft::MemberStore::open(arc(), small(8), MEMBER + 1).unwrap_err();
    assert!(other.kind() == "invalid" && other.to_string().contains("member 7"), "{other}");
    let embedded = SimDisk::new(9);
    drop(crate::support::open(&embedded, small(9)).unwrap());
    let error = open(&embedded, small(9)).unwrap_err();
    assert!(error.kind() == "invalid" && error.to_string().contains("embedded"), "{error}");
}
