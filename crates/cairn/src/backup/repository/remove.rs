//! Removes states, and packs that no state needs.

use std::collections::HashSet;

use super::{INDEX, Item, PACKS, Repository, is_id};
use crate::failure::{Failure, Result};

/// The needed part of a pack.
pub struct PackUse {
    pub name: String,
    /// Items of the pack that are needed.
    pub needed: Vec<Item>,
    /// Bytes of their frames.
    pub needed_bytes: u64,
    /// Bytes up to the end of the last known frame.
    pub bytes: u64,
}

impl Repository {
    /// Returns the use of each pack if only these items are needed.
    pub fn uses(&self, needed: &HashSet<Item>) -> Vec<PackUse> {
        let of = |name: &String| PackUse {
            name: name.clone(),
            needed: Vec::new(),
            needed_bytes: 0,
            bytes: 0,
        };
        let mut uses: Vec<PackUse> = self.packs.iter().map(of).collect();
        for (item, located) in &self.items {
            let Some(pack) = uses.get_mut(located.pack as usize) else { continue };
            pack.bytes = pack.bytes.max(located.at.end());
            if needed.contains(item) {
                pack.needed.push(*item);
                pack.needed_bytes += u64::from(located.at.length);
            }
        }
        uses
    }

    /// Returns packs without an index: their backups were interrupted.
    pub fn unfinished_packs(&self) -> Result<Vec<String>> {
        let known: HashSet<&String> = self.packs.iter().collect();
        let mut names = self.target.list(PACKS)?;
        names.retain(|name| is_id(name, PACKS) && !known.contains(name));
        Ok(names)
    }

    /// Forgets items, so that they can be added again.
    pub fn forget(&mut self, items: &[Item]) {
        for item in items {
            self.items.remove(item);
        }
    }

    /// Removes a pack. Its index goes first, so that nothing names absent items.
    pub fn remove_pack(&self, pack: &str) -> Result<()> {
        let id = pack.strip_prefix(PACKS).unwrap_or(pack);
        self.remove(&format!("{INDEX}{id}"))?;
        self.remove(pack)
    }

    pub fn remove_state(&self, name: &str) -> Result<()> {
        self.remove(name)
    }

    fn remove(&self, name: &str) -> Result<()> {
        let lock = self.lock.as_ref();
        lock.ok_or_else(|| Failure::new("nothing is removed without a lock"))?.check()?;
        self.target.remove(name)
    }
}
