//! Reads a backup back and checks all of it.

use std::collections::BTreeMap;

use cairn_base::BlockId;

use super::repository::{Item, Repository};
use super::rows::{blocks_of, of_list};
use super::state::BackupState;
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
/// that the next backup writes them again while the store still has them.
pub fn run(repository: &Repository, repair: bool) -> Result<CheckReport> {
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
    for name in repository.states()? {
        checked.states += 1;
        let found = BackupState::get(repository, &name)
            .and_then(|state| state_is_whole(repository, &state));
        // The damage of the pack was already reported.
        if let Err(failure) = found {
            checked.findings.push(format!("{name}: {failure}"));
        }
    }
    Ok(checked)
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
