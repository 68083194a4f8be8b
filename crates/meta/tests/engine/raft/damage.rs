//! Metadata that rot on the disk of a member: its scrub finds them, and the others go on.

use std::sync::Arc;

use cairn_base::rng::SeededRng;
use cairn_base::{Disk, Error};
use cairn_meta::engine::embedded::Config;
use cairn_meta::engine::raft::MemberStore;
use cairn_meta::engine::raft::entry::{Entry, Proposal};
use cairn_meta::engine::{Fence, Pace};
use cairn_sim::{Call, Fault, SimDisk};

use super::group::{Group, MEMBERS};
use super::model::{MEMBER, batch, entry, log, rows};
use crate::support::{put, small};

const ROWS: &str = "rows.redb";

fn config() -> Config {
    Config { log_segment_bytes: 64 << 10, ..small(1) }
}

fn open(disk: &SimDisk) -> cairn_base::Result<MemberStore> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    MemberStore::open(disk, config(), MEMBER)
}

/// A take-over, and batches after it.
fn entries() -> Vec<Entry> {
    let fence = |batch| Fence { epoch: 1, batch };
    let rows =
        |n| (0..20).map(move |row| put(&format!("row {row} {n}"), &format!("{n}").repeat(40)));
    let batches = (0..30).map(|n| batch(1, n + 1, fence(n), rows(n).collect()));
    [entry(1, 0, Proposal::TakeOver { batch: 0 })].into_iter().chain(batches).collect()
}

/// A member whose entries are all applied, and all in the table.
fn member(disk: &SimDisk) -> MemberStore {
    let store = open(disk).unwrap();
    for entry in entries() {
        store.append(vec![entry.clone()]).unwrap();
        store.apply(vec![entry]).unwrap();
    }
    store.checkpoint().unwrap();
    store
}

fn is_corrupt<T>(result: &cairn_base::Result<T>) -> bool {
    matches!(result, Err(Error::Corrupt { .. }))
}

/// Any bit of the table that matters is found without a start, and without a read of that row.
#[test]
fn a_bit_of_the_table_is_found_or_does_not_matter() {
    let disk = SimDisk::new(1);
    let store = member(&disk);
    store.check_rows(&Pace::default()).unwrap();
    let (whole, rng) = (rows(&store), SeededRng::new(7));
    let bytes = disk.contents(ROWS).unwrap().len() as u64;
    let (mut found, mut harmless) = (0, 0);
    for n in 0..400_usize {
        let (offset, bit) = (rng.below(bytes), rng.below(8) as u32);
        let rotten = disk.kill();
        let store = member_again(&rotten);
        rotten.flip_bit(ROWS, offset, bit).unwrap();
        // All at once, or leaf by leaf.
        let portion_bytes = [u64::MAX, 0][n % 2];
        let checked = store.check_rows(&Pace { portion_bytes, ..Pace::default() });
        store.abandon();
        match checked {
            Err(error) => {
                assert!(matches!(error, Error::Corrupt { .. }), "{error}");
                found += 1;
            }
            Ok(()) => {
                let store = open(&rotten.kill()).unwrap();
                assert_eq!(rows(&store), whole, "bit {bit} of byte {offset}");
                store.abandon();
                harmless += 1;
            }
        }
    }
    println!("{found} flips were found, {harmless} do not matter");
    assert!(found > 20 && harmless > 20);
}

fn member_again(disk: &SimDisk) -> MemberStore {
    let store = open(disk).unwrap();
    store.check_rows(&Pace::default()).unwrap();
    store
}

#[test]
fn damage_stays_until_the_rows_are_replaced() {
    let disk = SimDisk::new(1);
    let store = member(&disk);
    let at = position(&disk.contents(ROWS).unwrap(), b"row 7 12");
    disk.flip_bit(ROWS, at, 3).unwrap();
    assert!(store.damage().is_none() && store.is_fit());
    assert!(is_corrupt(&store.check_rows(&Pace::default())));
    let damage = store.damage().unwrap();
    assert!(damage.contains("corrupt"), "{damage}");
    assert!(!store.is_fit(), "it is not to lead");
    // It takes what the leader sends nevertheless: it is asked for its log, not for its rows.
    store.append(vec![entry(1, 31, Proposal::Empty)]).unwrap();
    store.apply(vec![entry(1, 31, Proposal::Empty)]).unwrap();
    assert_eq!(store.damage(), Some(damage));
}

/// The scrub says so and looks again later: another number would not help, nor be needed.
#[test]
fn a_read_that_fails_is_no_damage() {
    let disk = SimDisk::new(3);
    let store = member(&disk);
    let before = disk.calls();
    store.check_rows(&Pace::default()).unwrap();
    let calls = disk.calls() - before;
    for after in (0..calls).step_by(3) {
        for fault in [Fault::once(Some(Call::Read), after), Fault::once(None, after).sticky()] {
            disk.add_fault(fault);
            let checked = store.check_rows(&Pace::default());
            disk.clear_faults();
            assert!(matches!(checked, Err(Error::Io(_))), "after {after} calls: {checked:?}");
            assert_eq!(store.damage(), None);
        }
    }
    store.check_rows(&Pace::default()).unwrap();
}

fn position(bytes: &[u8], part: &[u8]) -> u64 {
    bytes.windows(part.len()).position(|window| window == part).unwrap() as u64
}

/// A record that does not check out is needed no more once what it holds is in the table. It is
/// never sent, and a start does not miss it.
#[test]
fn a_damaged_record_is_let_go_of() {
    let disk = SimDisk::new(2);
    let store = member(&disk);
    let before = log(&store).len();
    assert_eq!(store.check_log(&Pace::default()).unwrap(), 0);
    let (segment, at) = (0..3)
        .find_map(|segment| {
            let bytes = disk.contents(&format!("log-{segment}")).unwrap();
            let found = bytes.windows(8).position(|window| window == b"row 7 12")?;
            Some((segment, found as u64))
        })
        .unwrap();
    disk.flip_bit(&format!("log-{segment}"), at, 0).unwrap();
    // A leader that reads it for another member does not end.
    let sent = store.leader_entries(store.removals(), 13, 14, usize::MAX).unwrap();
    println!("{sent:?}");
    assert_eq!(store.check_log(&Pace::default()).unwrap(), 1);
    assert!(store.damage().is_none());
    assert_eq!(store.check_log(&Pace::default()).unwrap(), 0, "it is looked at no more");
    assert!(log(&store).len() <= before);
    let whole = rows(&store);
    store.abandon();
    let store = open(&disk.kill()).unwrap();
    assert_eq!(rows(&store), whole);
    assert_eq!(store.last(), Some(entries().last().unwrap().id));
}

#[tokio::test(start_paused = true)]
async fn a_member_with_damaged_rows_is_no_successor() {
    let group = Group::paused(small).await;
    let (leader, mut fence) = group.serve(&MEMBERS).await;
    for n in 0..40 {
        let rows = (0..10).map(|row| put(&format!("{n} {row}"), &"x".repeat(50))).collect();
        group.put(leader, &mut fence, rows).await;
    }
    let id = MEMBERS.into_iter().find(|id| *id != leader).unwrap();
    let member = group.engines[&id].member();
    member.scrub().await.unwrap();
    assert!(member.damage().is_none());
    let heirs = [id].into();
    assert_eq!(group.engines[&leader].member().successor(&heirs).await, Some(id));
    let bytes = group.disks[&id].contents(ROWS).unwrap();
    group.disks[&id].flip_bit(ROWS, position(&bytes, &[b'x'; 30]), 1).unwrap();
    assert!(is_corrupt(&member.scrub().await));
    assert!(member.status().await.unwrap().damage.is_some());
    assert_eq!(group.engines[&leader].member().successor(&heirs).await, None);
    // It counts for the majority as before.
    group.put(leader, &mut fence, vec![put("after", "x")]).await;
}
