//! Masters that keep metadata together, simulated on one thread from a seed.
//!
//! ```text
//!   clients ──► masters (the product's) ──► RaftEngine ──► members ──► disks
//!      │                                                    │    ▲
//!      ▼                                                    └────┘ messages
//!   history ──► is there one order that explains it?
//! ```
//!
//! The world is that of the other simulation: each process has a runtime of its own, whose time
//! the world sets forward; disks lose what was not synced; threads are given turns.

mod clients;
mod damaged;
mod faults;
mod history;
mod operator;
mod planted;
mod process;
mod scripts;
mod seating;
mod snapshots;
mod verbs;
mod wires;
mod world;

use std::panic::catch_unwind;
use std::time::Instant;

use cairn_base::planted::Bug;
use parking_lot::Mutex;
use planted::Planted;
use scripts::Script;
use world::{Report, Scene, run};

use crate::cluster::{each, number, trace};

/// Seeds of the test command, of each kind.
const SEEDS: u64 = 4;
/// Number of seeds of which at least one must find a bug.
const BUG_SEEDS: u64 = 24;
/// Three members that stay, and any faults.
const STAYING: Scene = Scene { changes: false, script: None, jumps: true };
/// Members come and go, lose their disks and are replaced.
const CHANGING: Scene = Scene { changes: true, script: None, jumps: true };

const fn aimed(script: Script) -> Scene {
    Scene { changes: false, script: Some(script), jumps: true }
}

const fn aimed_at_changes(script: Script) -> Scene {
    Scene { changes: true, script: Some(script), jumps: true }
}

/// Members change, a majority is lost, and one member goes on without the others.
const RECOVERING: Scene = aimed_at_changes(scripts::given_up);

/// All that can be planted here, each with the scene in which it is found.
const PLANTED: [(Planted, Scene); 18] = [
    (Planted::Of(Bug::VoteForgotten), aimed(scripts::voter_dies)),
    (Planted::Of(Bug::SeenVoteGranted), aimed(scripts::contested_again)),
    (Planted::Of(Bug::FormerLeaseIgnored), aimed(scripts::unheard_quietly)),
    (Planted::Of(Bug::LeaseFromAnswer), aimed(scripts::stopped_at_answer)),
    (Planted::Of(Bug::CommitBeforeMajority), aimed(scripts::left_alone)),
    (Planted::Of(Bug::ReadBeforeTerm), aimed(scripts::heir_untold)),
    (Planted::Of(Bug::LostLeaseServes), STAYING),
    (Planted::Of(Bug::WaitFromLastHeard), aimed(scripts::heard_by_one_quietly)),
    (Planted::Of(Bug::LeaseByWallClock), aimed(scripts::set_back_and_cut_off)),
    (Planted::ClockStops, aimed(scripts::suspended_and_cut_off)),
    (Planted::Of(Bug::FormerNotTold), RECOVERING),
    (Planted::WipedVotes, aimed_at_changes(scripts::wiped_and_heir_behind)),
    (Planted::RemovedVotes, aimed_at_changes(scripts::two_replaced)),
    (Planted::Of(Bug::OverwrittenIsEmpty), aimed(scripts::masters_die)),
    (Planted::Of(Bug::OldFileCountedOn), aimed(scripts::masters_die)),
    (Planted::Of(Bug::GapSent), aimed(scripts::masters_die)),
    (Planted::Of(Bug::RowMisapplied), STAYING),
    (Planted::Of(Bug::SuspectVotes), aimed(scripts::follower_rots_and_master_dies)),
];
/// More of them, which these worlds cannot find: see `snapshots.rs` and `damaged.rs`.
const OF_DISKS: [Bug; 3] = [Bug::NewerEntriesDropped, Bug::DamagedFills, Bug::DamagedLeads];

/// Returns whether only these worlds look for the bug.
pub fn is_planted_here(bug: Bug) -> bool {
    OF_DISKS.contains(&bug) || PLANTED.iter().any(|(planted, _)| *planted == Planted::Of(bug))
}

/// A run, or the assertion that ended it.
fn attempt(seed: u64, scene: Scene, bug: Option<Planted>) -> Result<Report, String> {
    let report = catch_unwind(|| run(seed, scene, bug));
    let report = report.map_err(|_| "an assertion failed".to_owned())?;
    match report.violations.first() {
        None => Ok(report),
        Some(first) => Err(first.clone()),
    }
}

/// `CAIRN_RAFT_SEEDS` of them, from `CAIRN_RAFT_SEED` on.
fn check_seeds(scene: Scene) {
    trace();
    let first = number("CAIRN_RAFT_SEED", 1);
    let count = number("CAIRN_RAFT_SEEDS", SEEDS * cairn_sim::scale());
    let seeds: Vec<u64> = (first..first + count).collect();
    let failed = Mutex::new(Vec::new());
    each(&seeds, |seed| match attempt(seed, scene, None) {
        Ok(report) => eprintln!("seed {seed}: {report}"),
        Err(what) => {
            eprintln!("seed {seed} FAILED: {what}");
            failed.lock().push(seed);
        }
    });
    let failed = failed.into_inner();
    assert!(failed.is_empty(), "seeds {failed:?}");
}

#[test]
fn what_masters_acknowledge_stays_whatever_fails() {
    check_seeds(STAYING);
}

#[test]
fn what_masters_acknowledge_stays_when_masters_come_and_go() {
    check_seeds(CHANGING);
}

#[test]
fn what_masters_acknowledge_stays_when_one_goes_on_alone() {
    check_seeds(RECOVERING);
}

/// Seeds of changing members which found faults in an earlier program. In all except the last,
/// nobody could lead any more: a voter that did not know of its vote yet refused the only other
/// member that was left. In the last, the leader was no voter of a step that was interrupted. So it
/// could neither end that step, nor hand over.
const STOOD_STILL: [u64; 5] = [1020, 1070, 1093, 1291, 10460];

#[test]
fn what_stood_still_once_does_not_again() {
    trace();
    each(&STOOD_STILL, |seed| {
        if let Err(what) = attempt(seed, CHANGING, None) {
            panic!("seed {seed}: {what}");
        }
    });
}

/// Seeds of heirs whose entries are lost in which a member never came back in an earlier program.
/// After elections without a commit its log was full of entries that were not committed. Then
/// entries, or a vote, found no room, and its core ended, or waited forever.
const STAYED_BEHIND: [u64; 5] = [22, 84, 103, 172, 178];

#[test]
fn a_member_that_stayed_behind_once_does_not_again() {
    trace();
    each(&STAYED_BEHIND, |seed| {
        if let Err(what) = attempt(seed, aimed(scripts::heir_untold), None) {
            panic!("seed {seed}: {what}");
        }
    });
}

/// A member whose last record rots leaves it to the others to lead.
#[test]
fn what_one_master_has_confirmed_and_lost_stays() {
    check_seeds(aimed(scripts::follower_rots_and_master_dies));
    check_seeds(aimed(scripts::one_rots));
}

/// Whoever dies, all serve again, though what others need may be overwritten.
#[test]
fn masters_that_die_come_back() {
    check_seeds(aimed(scripts::masters_die));
}

#[test]
fn the_same_seed_has_the_same_history() {
    for (seed, scene) in [(1, STAYING), (2, CHANGING)] {
        assert_eq!(attempt(seed, scene, None), attempt(seed, scene, None));
    }
}

/// Wall clocks that jump change nothing: whatever is counted is counted by another clock. While
/// they do not jump, the wall clock is as good as that one. So only jumps find who uses it.
#[test]
fn jumps_of_wall_clocks_change_nothing() {
    for (seed, scene) in [(1, aimed(scripts::set_back_and_cut_off)), (3, STAYING), (2, CHANGING)] {
        let right = attempt(seed, scene, None);
        let still = Scene { jumps: false, ..scene };
        assert!(right.is_ok(), "seed {seed}: {right:?}");
        assert_eq!(right, attempt(seed, still, Some(Planted::Of(Bug::LeaseByWallClock))));
    }
}

/// The first seed from `CAIRN_RAFT_SEED` on that a bug, and nothing else, makes fail.
fn find(bug: Planted, scene: Scene, count: u64) -> Option<u64> {
    let first = number("CAIRN_RAFT_SEED", 1);
    let finds = |seed: &u64| match attempt(*seed, scene, Some(bug)) {
        Err(what) => {
            eprintln!("{bug:?}: seed {seed}: {}", what.lines().next().unwrap_or_default());
            match attempt(*seed, scene, None) {
                Ok(_) => true,
                Err(what) => {
                    eprintln!("{bug:?}: seed {seed} FAILED without it, too: {what}");
                    false
                }
            }
        }
        Ok(_) => false,
    };
    (first..first + count).find(finds)
}

fn find_all(wanted: &str, seeds: u64) {
    trace();
    let missed = Mutex::new(Vec::new());
    let is_wanted = |(bug, _): &(Planted, Scene)| wanted.is_empty() || bug.name() == wanted;
    let bugs: Vec<_> = PLANTED.into_iter().filter(is_wanted).collect();
    each(&bugs, |(bug, scene)| {
        let begun = Instant::now();
        let found = find(bug, scene, seeds);
        eprintln!("{bug:?}: {found:?} after {:.1?}", begun.elapsed());
        if found.is_none() {
            missed.lock().push(bug);
        }
    });
    let missed = missed.into_inner();
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn planted_bugs_are_found() {
    find_all("", BUG_SEEDS);
}

/// `CAIRN_BUG` of them, by its name, or all, in `CAIRN_RAFT_SEEDS` from `CAIRN_RAFT_SEED` on: how
/// many of the seeds find each, and whether all of them are right without it.
#[test]
#[ignore = "takes long"]
fn how_many_seeds_find_each_planted_bug() {
    trace();
    let wanted = std::env::var("CAIRN_BUG").unwrap_or_default();
    let first = number("CAIRN_RAFT_SEED", 1);
    let count = number("CAIRN_RAFT_SEEDS", 20);
    let seeds: Vec<u64> = (first..first + count).collect();
    let failed = Mutex::new(Vec::new());
    for (bug, scene) in PLANTED {
        if !wanted.is_empty() && bug.name() != wanted {
            continue;
        }
        let found = Mutex::new(Vec::new());
        each(&seeds, |seed| {
            if let Err(what) = attempt(seed, scene, None) {
                eprintln!("{bug:?}: seed {seed} FAILED without it: {what}");
                failed.lock().push((bug, seed));
            } else if let Err(what) = attempt(seed, scene, Some(bug)) {
                eprintln!("{bug:?}: seed {seed}: {}", what.lines().next().unwrap_or_default());
                found.lock().push(seed);
            }
        });
        eprintln!("{bug:?}: {} of {count} seeds", found.into_inner().len());
    }
    let failed = failed.into_inner();
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn a_late_snapshot_leaves_newer_entries() {
    for seed in 1..=30 {
        assert_eq!(snapshots::run(seed, None), Ok(()), "seed {seed}");
        assert!(snapshots::run(seed, Some(Bug::NewerEntriesDropped)).is_err(), "seed {seed}");
    }
}

#[test]
fn damaged_rows_go_nowhere() {
    for seed in 1..=30 {
        assert_eq!(damaged::run(seed, None), Ok(()), "seed {seed}");
        for bug in [Bug::DamagedFills, Bug::DamagedLeads] {
            assert!(damaged::run(seed, Some(bug)).is_err(), "seed {seed}: {bug:?}");
        }
    }
}
