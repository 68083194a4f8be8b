//! Finds damage, and lets the next backup write the damaged items again.

use super::super::frames::{At, Reader, Sort};
use super::{INDEX, Item, PACKS, Repository, index_of};
use crate::failure::{Failure, Result};

impl Repository {
    /// Returns the packs that are missing, or have a damaged item.
    pub fn damaged_packs(&self, progress: &mut dyn FnMut()) -> Result<Vec<(String, String)>> {
        let of_packs = self.items_of_packs();
        let mut damaged = Vec::new();
        for (name, items) in self.packs.iter().zip(&of_packs) {
            let read = match self.target.get(name)? {
                None => Err(Failure::new(format!("{name}: missing"))),
                Some(bytes) => {
                    Reader::open(&self.keys, Sort::Pack, name, &bytes).and_then(|read| {
                        items.iter().try_for_each(|(_, at)| read.frame(name, &bytes, *at).map(drop))
                    })
                }
            };
            damaged.extend(read.err().map(|failure| (name.clone(), failure.to_string())));
            progress();
        }
        Ok(damaged)
    }

    fn items_of_packs(&self) -> Vec<Vec<(Item, At)>> {
        let mut of_packs = vec![Vec::new(); self.packs.len()];
        for (item, located) in &self.items {
            if let Some(items) = of_packs.get_mut(located.pack as usize) {
                items.push((*item, located.at));
            }
        }
        of_packs
    }

    /// Forgets the missing and damaged items of a pack, so that the next backup writes them again.
    /// All other items stay: an older state may need blocks that the store no longer has.
    pub fn forget_damaged(&self, pack: &str) -> Result<()> {
        let at = self.packs.iter().position(|name| name == pack);
        let items = at.and_then(|at| self.items_of_packs().into_iter().nth(at));
        let mut good = items.unwrap_or_default();
        match self.target.get(pack)? {
            None => good.clear(),
            // A pack that this program cannot open stays: another version may read it.
            Some(bytes) => {
                let reader = Reader::open(&self.keys, Sort::Pack, pack, &bytes)?;
                good.retain(|(_, at)| reader.frame(pack, &bytes, *at).is_ok());
            }
        }
        let index = format!("{INDEX}{}", pack.strip_prefix(PACKS).unwrap_or(pack));
        if good.is_empty() {
            self.target.remove(&index)
        } else {
            self.target.put(&index, &index_of(&self.keys, &index, &good)?.into())
        }
    }
}
