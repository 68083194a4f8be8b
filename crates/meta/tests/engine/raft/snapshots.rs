//! A member that is far behind gets all rows at once.

use cairn_base::rng::SeededRng;
use cairn_meta::engine::Fence;
use cairn_meta::engine::embedded::Config;
use cairn_meta::engine::raft::entry::{Entry, EntryId};
use cairn_meta::engine::raft::{MemberStore, SnapshotState, Vote};
use cairn_sim::SimDisk;

use super::model::{Model, batch, config, log, open, rows};
use crate::support::{put, small};

/// All that is needed to have the rows of `source` in `target`.
fn send(source: &MemberStore, target: &MemberStore) -> cairn_base::Result<(SnapshotState, bool)> {
    let mut outgoing = source.take_snapshot().unwrap();
    let mut incoming = target.receive_snapshot()?;
    while let Some(page) = outgoing.page()? {
        incoming.add(page)?;
    }
    let installed = target.install_snapshot(&outgoing.taken, incoming)?;
    Ok((outgoing.taken, installed))
}

fn entries(term: u64, range: std::ops::Range<u64>) -> Vec<Entry> {
    let fence = |batch| Fence { epoch: 0, batch };
    range
        .map(|n| batch(term, n, fence(n), vec![put(&format!("row {n}"), &format!("{term}"))]))
        .collect()
}

/// A store with 20 entries of term 2 and one of term 3 applied.
pub fn source() -> MemberStore {
    let store = open(&SimDisk::new(1), small(1)).unwrap();
    store.append(entries(2, 0..20)).unwrap();
    store.append(entries(3, 20..21)).unwrap();
    store.apply(log(&store)).unwrap();
    store
}

/// One transaction for each page would write more the larger the table is.
#[test]
fn pages_are_gathered_before_they_are_written() {
    let disk = SimDisk::new(2);
    let target = open(&disk, small(2)).unwrap();
    let mut incoming = target.receive_snapshot().unwrap();
    let before = disk.calls();
    for number in 0..100 {
        incoming.add(vec![(format!("row {number:03}").into(), "value".into())]).unwrap();
    }
    assert_eq!(disk.calls(), before);
    incoming.sync().unwrap();
    assert!(disk.calls() > before);
}

#[test]
fn it_takes_the_place_of_all_rows() {
    let source = source();
    let disk = SimDisk::new(2);
    let mut target = open(&disk, small(2)).unwrap();
    target.append(entries(1, 0..3)).unwrap();
    target.apply(log(&target)).unwrap();
    target.save_vote(Vote { term: 3, member: 1, committed: true }).unwrap();
    let old = target.snapshot();
    let (taken, installed) = send(&source, &target).unwrap();
    assert!(installed);
    assert_eq!(taken.applied, EntryId { term: 3, index: 20 });
    assert_eq!(old.batch(), 3);
    for _ in 0..3 {
        assert_eq!(rows(&target), rows(&source));
        assert_eq!(target.fence(), source.fence());
        assert_eq!((target.last(), target.before()), (Some(taken.applied), Some(taken.applied)));
        assert_eq!(target.vote().term, 3);
        target.abandon();
        target = open(&disk, small(2)).unwrap();
    }
    target.append(entries(3, 21..24)).unwrap();
    target.apply(target.entries(21, 24, usize::MAX).unwrap()).unwrap();
    drop(target);
    let target = open(&disk, small(2)).unwrap();
    assert_eq!(rows(&target).len(), 24);
}

#[test]
fn pages_are_bounded_and_complete() {
    let config = Config { log_segment_bytes: 4 << 20, memtable_bytes: 8 << 20, ..small(9) };
    let source = open(&SimDisk::new(9), config).unwrap();
    let small = (0..1200).map(|n| put(&format!("a{n:04}"), "small"));
    let large = (0..60).map(|n| put(&format!("b{n:04}"), &"x".repeat(40 << 10)));
    let huge = [put("c", &"x".repeat(1 << 20)), put("d", "last")];
    let fence = |batch| Fence { epoch: 0, batch };
    let changes = |n, changes| batch(1, n, fence(n), changes);
    let entries =
        vec![changes(0, small.collect()), changes(1, large.collect()), changes(2, huge.to_vec())];
    entries.iter().for_each(|entry| source.append(vec![entry.clone()]).unwrap());
    source.apply(entries).unwrap();
    let mut outgoing = source.take_snapshot().unwrap();
    let mut sizes = Vec::new();
    while let Some(page) = outgoing.page().unwrap() {
        let bytes: usize = page.iter().map(|(key, row)| key.len() + row.len()).sum();
        assert!(page.len() == 1 || page.len() <= 500 && bytes <= 1 << 20);
        sizes.push(page.len());
    }
    assert_eq!(sizes.iter().sum::<usize>(), 1262);
    assert!(sizes.len() >= 6, "{sizes:?}");
    let target = open(&SimDisk::new(10), crate::support::small(10)).unwrap();
    send(&source, &target).unwrap();
    assert_eq!(rows(&target), rows(&source));
}

/// The log of the member that receives it, and the entries that are left of that.
#[test]
fn newer_entries_stay_where_they_belong_to_the_same_log() {
    let source = source();
    let same: Vec<Entry> = [entries(2, 0..20), entries(3, 20..23)].concat();
    let diverged: Vec<Entry> = [entries(2, 0..15), entries(2, 15..25)].concat();
    let shorter = entries(2, 0..10);
    let cases = [(same, Some(entries(3, 21..23))), (diverged, None), (shorter, None)];
    for (number, (before, kept)) in cases.into_iter().enumerate() {
        let disk = SimDisk::new(3);
        let mut target = open(&disk, small(3)).unwrap();
        before.chunks(5).for_each(|entries| target.append(entries.to_vec()).unwrap());
        target.apply(target.entries(0, 5, usize::MAX).unwrap()).unwrap();
        send(&source, &target).unwrap();
        for _ in 0..3 {
            assert_eq!(log(&target), kept.clone().unwrap_or_default(), "case {number}");
            assert_eq!(rows(&target).len(), 21, "case {number}");
            target.abandon();
            target = open(&disk, small(3)).unwrap();
        }
        target.apply(log(&target)).unwrap();
        let wanted = 21 + kept.map_or(0, |kept| kept.len());
        assert_eq!(rows(&target).len(), wanted, "case {number}");
    }
}

#[test]
fn an_old_one_changes_nothing() {
    let source = source();
    let target = open(&SimDisk::new(4), small(4)).unwrap();
    target.append([entries(2, 0..20), entries(3, 20..25)].concat()).unwrap();
    for applied in [21, 24] {
        let next = target.applied().0.map_or(0, |id| id.index + 1);
        target.apply(target.entries(next, applied, usize::MAX).unwrap()).unwrap();
        let (_, installed) = send(&source, &target).unwrap();
        assert!(!installed);
        assert_eq!(rows(&target).len() as u64, applied);
    }
    target.apply(target.entries(24, 25, usize::MAX).unwrap()).unwrap();
    // One that was begun before another one.
    let outgoing = source.take_snapshot().unwrap();
    let first = target.receive_snapshot().unwrap();
    let _second = target.receive_snapshot().unwrap();
    assert!(target.install_snapshot(&outgoing.taken, first).is_err());
}

/// Power is cut while one is received and installed, and after.
#[test]
fn cuts_while_it_is_installed() {
    let source = source();
    for seed in 0..6 * cairn_sim::scale() {
        let disk = SimDisk::new(seed);
        let rng = SeededRng::new(seed);
        let target = open(&disk, config(seed)).unwrap();
        let mut old = Model::default();
        (0..5).for_each(|_| old.step(&target, &rng));
        disk.record();
        disk.mark(0);
        let (taken, _) = send(&source, &target).unwrap();
        disk.mark(1);
        target.append(entries(100, 21..23)).unwrap();
        disk.mark(2);
        target.abandon();
        for (point, snapshot) in disk.recorded().iter().enumerate() {
            for cut in 0..6 {
                let what = format!("seed {seed}, sync point {point}, cut {cut}");
                let image = snapshot.crash_image(cut ^ (point as u64) << 8);
                let store = open(&image, config(seed)).unwrap_or_else(|e| panic!("{what}: {e}"));
                let is_new = store.applied().0 == Some(taken.applied);
                assert!(is_new || snapshot.mark == 0, "{what}");
                if !is_new {
                    Model::find(&store, &[&old], &what);
                    continue;
                }
                assert_eq!(rows(&store), rows(&source), "{what}");
                assert_eq!(store.vote(), old.vote, "{what}");
                let acked = if snapshot.mark == 2 { 2 } else { 0 };
                assert!(log(&store).len() >= acked, "{what}");
                assert!(entries(100, 21..23).starts_with(&log(&store)), "{what}");
            }
        }
    }
}
