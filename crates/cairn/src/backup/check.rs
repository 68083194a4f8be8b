//! Reads a backup back and checks all of it.

use std::collections::BTreeMap;

use cairn_base::BlockId;

use super::repository::{Item, Repository};
use super::rows::{blocks_of, of_list};
use super::state::BackupState;
use super::time::compact_time;
use crate::failure::{Failure, Result};
use crate::output;

/// Result of a check.
#[derive(Default)]
pub struct CheckReport {
    pub states: u64,
    pub packs: u64,
    /// Lines about damage, for people.
    pub findings: Vec<String>,
}

/// Reads all packs, and looks for each item that a state needs. `repair` forgets damaged items, so
/// that the next backup writes them again while the store still has them. `since` is the earliest
/// time at which the newest state of each store may have begun: nothing else shows that newer
/// states were removed.
pub fn run(repository: &Repository, repair: bool, since: Option<u64>) -> Result<CheckReport> {
    let mut checked = CheckReport { packs: repository.packs(), ..CheckReport::default() };
    let bar = output::count_bar(checked.packs, "packs");
    let damaged = repository.damaged_packs(&mut || bar.inc(1))?;
    bar.finish_and_clear();
    for (pack, text) in &damaged {
        checked.findings.push(text.clone());
        if repair {
            repository.forget_damaged(pack)?;
        }
    }
    // Seconds since 1970, by the number of the store.
    let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
    for name in repository.states()? {
        checked.states += 1;
        let found = BackupState::get(repository, &name).and_then(|state| {
            let begun = newest.entry(state.about.cluster).or_default();
            *begun = state.about.begun.max(*begun);
            state_is_whole(repository, &state)
        });
        // The damage of the pack was already reported.
        if let Err(failure) = found {
            checked.findings.push(format!("{name}: {failure}"));
        }
    }
    checked.findings.extend(since.into_iter().flat_map(|since| too_old(&newest, since)));
    Ok(checked)
}

/// Returns a finding for each store without a state since then.
fn too_old(newest: &BTreeMap<u64, u64>, since: u64) -> Vec<String> {
    let wanted = compact_time(since);
    if newest.is_empty() {
        return vec![format!("there is no state, and one since {wanted} is wanted")];
    }
    let old = newest.iter().filter(|(_, begun)| **begun < since);
    let shown = |(store, begun): (&u64, &u64)| {
        let begun = compact_time(*begun);
        format!(
            "the newest state of store {store:016x} is of {begun}, and one since {wanted} is \
             wanted: backups failed, or newer states were removed"
        )
    };
    old.map(shown).collect()
}

/// Adds the blocks that lists of rows name, with the number of their named bytes. Lists may be in
/// any order.
pub fn blocks_of_lists(
    repository: &Repository,
    lists: impl Iterator<Item = [u8; 32]>,
    blocks: &mut BTreeMap<BlockId, u32>,
) -> Result<()> {
    repository.each(lists.map(Item::Rows), &mut |_, list| {
        let rows = of_list(list).ok_or_else(|| Failure::new("a list of rows makes no sense"))?;
        for (key, value) in rows {
            for named in blocks_of(&key, &value)? {
                let length = blocks.entry(named.block).or_insert(0);
                *length = named.length.max(*length);
            }
        }
        Ok(())
    })
}

/// Returns the blocks that a state names, with the number of their named bytes; checks that the
/// backup has all of them.
pub fn blocks(repository: &Repository, state: &BackupState) -> Result<BTreeMap<BlockId, u32>> {
    let mut blocks = BTreeMap::new();
    blocks_of_lists(repository, state.lists.iter().copied(), &mut blocks)?;
    let is_missing = |block: &BlockId, length: &u32| !repository.has_block(*block, *length);
    let missing = blocks.iter().filter(|(block, length)| is_missing(block, length)).count();
    match missing {
        0 => Ok(blocks),
        _ => Err(Failure::new(format!("{missing} of {} blocks are missing", blocks.len()))),
    }
}

fn state_is_whole(repository: &Repository, state: &BackupState) -> Result<()> {
    let found = blocks(repository, state)?.len() as u64;
    if found == state.about.blocks {
        Ok(())
    } else {
        Err(Failure::new(format!("names {found} blocks, not {}", state.about.blocks)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_store_has_a_state_that_is_new_enough() {
        let of = |stores: &[(u64, u64)], since| too_old(&stores.iter().copied().collect(), since);
        assert_eq!(of(&[(1, 100), (2, 101)], 100), Vec::<String>::new());
        let found = of(&[(1, 99), (2, 100)], 100);
        assert!(found.len() == 1 && found[0].contains("0000000000000001"), "{found:?}");
        assert!(of(&[], 100)[0].contains("no state"));
    }
}
