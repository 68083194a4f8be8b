//! Removes old states, and what only they needed.
//!
//! ```text
//!   lock, so that no backup runs ─► what the kept states need ─► remove states
//!     ─► packs that are needed by half or less: what is needed, into new packs ─► remove packs
//! ```

use std::collections::{BTreeMap, HashSet};

use cairn_base::BlockId;
use time::OffsetDateTime;

use super::check;
use super::repository::{Item, PackUse, Packer, Repository};
use super::state::BackupState;
use crate::failure::{Failure, Result};
use crate::output;

/// Which states are kept: one is if any of these keeps it.
#[derive(Clone, Copy, Default, clap::Args)]
pub struct Keep {
    /// Keep the last N states
    #[arg(long, value_name = "N", default_value_t = 0)]
    keep_last: u32,
    /// Keep the last state of each of the last N days that have one
    #[arg(long, value_name = "N", default_value_t = 0)]
    keep_daily: u32,
    /// Keep the last state of each of the last N weeks that have one
    #[arg(long, value_name = "N", default_value_t = 0)]
    keep_weekly: u32,
}

/// The facts about a state that decide whether it is kept.
#[derive(Clone, Copy)]
struct StateDate {
    /// Number of the cluster that identifies the store.
    cluster: u64,
    /// Seconds since 1970.
    begun: u64,
}

/// States and packs that were removed, or, in a dry run, would be.
#[derive(Default)]
pub struct PruneResult {
    pub states: Vec<String>,
    pub packs: u64,
    /// Number of these packs of which a part was needed.
    pub rewritten: u64,
    pub bytes: u64,
}

/// Decides for each state whether it is kept. `states` are in the order of time.
fn kept(states: &[StateDate], keep: &Keep) -> Vec<bool> {
    let mut kept = vec![false; states.len()];
    let mut by_store: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (at, state) in states.iter().enumerate() {
        by_store.entry(state.cluster).or_default().push(at);
    }
    let date = |at: usize| {
        let secs = i64::try_from(states[at].begun).unwrap_or_default();
        OffsetDateTime::from_unix_timestamp(secs).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    };
    for of_store in by_store.values() {
        let newest = || of_store.iter().rev().copied();
        newest().take(keep.keep_last as usize).for_each(|at| kept[at] = true);
        let day = |at: usize| (date(at).year(), u32::from(date(at).ordinal()));
        let week = |at: usize| {
            let (year, week, _) = date(at).to_iso_week_date();
            (year, u32::from(week))
        };
        let mut last_of_each = |count: u32, period: &dyn Fn(usize) -> (i32, u32)| {
            let mut seen = HashSet::new();
            for at in newest() {
                if seen.len() < count as usize && seen.insert(period(at)) {
                    kept[at] = true;
                }
            }
        };
        last_of_each(keep.keep_daily, &day);
        last_of_each(keep.keep_weekly, &week);
    }
    kept
}

/// Returns all that these states need.
fn needed(repository: &Repository, states: &[&BackupState]) -> Result<HashSet<Item>> {
    let lists: HashSet<[u8; 32]> =
        states.iter().flat_map(|state| state.lists.iter().copied()).collect();
    let mut blocks: BTreeMap<BlockId, u32> = BTreeMap::new();
    check::blocks_of_lists(repository, lists.iter().copied(), &mut blocks)?;
    let blocks = blocks.into_keys().map(Item::Block);
    Ok(blocks.chain(lists.into_iter().map(Item::Rows)).collect())
}

/// Removes what `keep` does not keep. If a state cannot be read, nothing is removed.
pub fn run(
    repository: &mut Repository,
    keep: &Keep,
    pack_bytes: usize,
    dry: bool,
) -> Result<PruneResult> {
    if keep.keep_last + keep.keep_daily + keep.keep_weekly == 0 {
        let text = "nothing would be kept: use --keep-last, --keep-daily or --keep-weekly";
        return Err(Failure::usage(text));
    }
    let names = repository.states()?;
    let states: Result<Vec<BackupState>> =
        names.iter().map(|name| BackupState::get(repository, name)).collect();
    let unread = |failure: Failure| failure.and("nothing was removed: run cairn backup check");
    let states = states.map_err(unread)?;
    let dates: Vec<StateDate> = states
        .iter()
        .map(|state| StateDate { cluster: state.about.cluster, begun: state.about.begun })
        .collect();
    let kept = kept(&dates, keep);
    let of = |wanted: bool| {
        let pairs = states.iter().zip(&kept);
        pairs.filter(move |(_, kept)| **kept == wanted).map(|(state, _)| state)
    };
    let needed = needed(repository, &of(true).collect::<Vec<_>>()).map_err(unread)?;
    let mut pruned = PruneResult::default();
    for state in of(false) {
        pruned.states.push(state.id().to_owned());
        if !dry {
            repository.remove_state(&state.name)?;
        }
    }
    let uses = repository.uses(&needed).into_iter();
    let uses: Vec<PackUse> = uses.filter(|pack| pack.needed_bytes * 2 <= pack.bytes).collect();
    for pack in &uses {
        pruned.packs += 1;
        pruned.rewritten += u64::from(!pack.needed.is_empty());
        pruned.bytes += pack.bytes - pack.needed_bytes;
    }
    if dry {
        return Ok(pruned);
    }
    let bar = output::count_bar(uses.len() as u64, "packs");
    rewrite(repository, &uses, pack_bytes)?;
    for pack in &uses {
        repository.remove_pack(&pack.name)?;
        bar.inc(1);
    }
    for pack in repository.unfinished_packs()? {
        repository.remove_pack(&pack)?;
        pruned.packs += 1;
    }
    bar.finish_and_clear();
    Ok(pruned)
}

/// Moves the needed items of these packs into new packs.
fn rewrite(repository: &mut Repository, packs: &[PackUse], pack_bytes: usize) -> Result<()> {
    let mut packer = Packer::new(pack_bytes);
    for pack in packs.iter().filter(|pack| !pack.needed.is_empty()) {
        let mut items = Vec::new();
        repository.each(pack.needed.iter().copied(), &mut |item, bytes| {
            items.push((item, bytes));
            Ok(())
        })?;
        repository.forget(&pack.needed);
        for (item, bytes) in items {
            packer.add(repository, item, bytes)?;
        }
    }
    packer.flush(repository)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600;
    /// A Monday.
    const MONDAY: u64 = 1_795_996_800;

    fn kept_of(hours: &[u64], keep: Keep) -> Vec<u64> {
        let dated = |hour: &u64| StateDate { cluster: 1, begun: MONDAY + hour * 3600 };
        let states: Vec<StateDate> = hours.iter().map(dated).collect();
        let kept = kept(&states, &keep);
        hours.iter().zip(kept).filter(|(_, kept)| *kept).map(|(hour, _)| *hour).collect()
    }

    #[test]
    fn each_rule_keeps_its_own() {
        let hours = [0, 5, 24, 25, 72, 24 * 7, 24 * 8, 24 * 15 + 1, 24 * 15 + 2];
        let last = Keep { keep_last: 2, ..Keep::default() };
        assert_eq!(kept_of(&hours, last), [361, 362]);
        let daily = Keep { keep_daily: 3, ..Keep::default() };
        assert_eq!(kept_of(&hours, daily), [168, 192, 362]);
        let weekly = Keep { keep_weekly: 9, ..Keep::default() };
        assert_eq!(kept_of(&hours, weekly), [72, 192, 362]);
        let both = Keep { keep_last: 1, keep_daily: 0, keep_weekly: 2 };
        assert_eq!(kept_of(&hours, both), [192, 362]);
        assert_eq!(
            OffsetDateTime::from_unix_timestamp(MONDAY as i64).unwrap().weekday(),
            time::Weekday::Monday
        );
    }

    #[test]
    fn each_store_has_its_own_states() {
        let states = [(1, 0), (2, DAY), (1, 2 * DAY)];
        let states = states.map(|(cluster, begun)| StateDate { cluster, begun });
        let keep = Keep { keep_last: 1, ..Keep::default() };
        assert_eq!(kept(&states, &keep), [false, true, true]);
    }
}
