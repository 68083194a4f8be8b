//! Reads items: of each pack only the wanted ones, in as few requests as possible.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use bytes::Bytes;
use cairn_base::{BlockId, BodyId, Owner};

use super::super::frames::{At, HEADER_BYTES, Reader, Sort};
use super::{Item, ItemPlace, OWNER_BYTES, Repository};
use crate::failure::{Failure, Result};

/// Most bytes of one request, unless a frame is longer.
const RUN_BYTES: u64 = 32 << 20;
/// Most bytes between two items that are read with them: a request costs more.
const GAP_BYTES: u64 = 256 << 10;

type WantedItem = (Item, ItemPlace);

/// Splits the wanted items into runs that are read at once. Items of a run are in one pack, in
/// order.
fn runs(wanted: &[WantedItem]) -> impl Iterator<Item = &[WantedItem]> {
    let mut rest = wanted;
    std::iter::from_fn(move || {
        let (_, first) = rest.first()?;
        let mut count = 1;
        for pair in rest.windows(2) {
            let [(_, one), (_, next)] = pair else { break };
            let gap = u64::from(next.at.offset).checked_sub(one.at.end());
            let is_near = next.pack == one.pack && gap.is_some_and(|gap| gap <= GAP_BYTES);
            if !is_near || next.at.end() - u64::from(first.at.offset) > RUN_BYTES {
                break;
            }
            count += 1;
        }
        let (run, further) = rest.split_at(count);
        rest = further;
        Some(run)
    })
}

impl Repository {
    fn located(&self, item: &Item) -> Result<ItemPlace> {
        let found = self.items.get(item).copied();
        found.ok_or_else(|| Failure::new(format!("{item:?}: not in the backup")))
    }

    /// Calls `visit` with each of these items and its bytes, pack by pack.
    ///
    /// # Errors
    /// The first item that is missing or damaged, and the pack that it was in; those of `visit`.
    pub fn each(
        &self,
        items: impl Iterator<Item = Item>,
        visit: &mut dyn FnMut(Item, Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let mut wanted = self.wanted(items)?;
        wanted.sort_unstable_by_key(|(_, located)| (located.pack, located.at.offset));
        self.visit(&wanted, visit)
    }

    /// Calls `visit` like [`Repository::each`], in the order of `items`.
    pub fn each_in_order(
        &self,
        items: impl Iterator<Item = Item>,
        visit: &mut dyn FnMut(Item, Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        self.visit(&self.wanted(items)?, visit)
    }

    fn wanted(&self, items: impl Iterator<Item = Item>) -> Result<Vec<WantedItem>> {
        items.map(|item| Ok((item, self.located(&item)?))).collect()
    }

    fn visit(
        &self,
        wanted: &[WantedItem],
        visit: &mut dyn FnMut(Item, Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let mut readers: HashMap<u32, Reader> = HashMap::new();
        for run in runs(wanted) {
            let [(_, first), ..] = run else { continue };
            let (_, last) = run.last().unwrap_or(&run[0]);
            let name = &self.packs[first.pack as usize];
            let mut from = u64::from(first.at.offset);
            // The start of a pack is often needed anyway.
            if !readers.contains_key(&first.pack) && from <= GAP_BYTES {
                from = 0;
            }
            let bytes = self.range(name, from, last.at.end())?;
            let reader = match readers.entry(first.pack) {
                Entry::Occupied(reader) => reader.into_mut(),
                Entry::Vacant(vacant) => {
                    let header = match from {
                        0 => {
                            bytes.get(..HEADER_BYTES.min(bytes.len())).unwrap_or_default().to_vec()
                        }
                        _ => self.range(name, 0, HEADER_BYTES as u64)?,
                    };
                    vacant.insert(Reader::open(&self.keys, Sort::Pack, name, &header)?)
                }
            };
            for (item, located) in run {
                let offset = u64::from(located.at.offset) - from;
                // The offset within the run, which has less than 4 GiB.
                let at = At { offset: offset as u32, ..located.at };
                visit(*item, reader.frame(name, &bytes, at)?)?;
            }
        }
        Ok(())
    }

    fn range(&self, name: &str, from: u64, to: u64) -> Result<Vec<u8>> {
        let bytes = self.target.get_range(name, from..to)?;
        bytes.ok_or_else(|| Failure::new(format!("{name}: missing")))
    }

    /// Returns the bytes of a block, with its owner before them.
    pub fn block(&self, block: BlockId) -> Result<Vec<u8>> {
        let mut found = None;
        self.each(std::iter::once(Item::Block(block)), &mut |_, bytes| {
            found = Some(bytes);
            Ok(())
        })?;
        found.ok_or_else(|| Failure::new(format!("block {block}: not in the backup")))
    }
}

/// Splits the owner from the bytes of a block.
pub fn take_owner(bytes: Vec<u8>) -> Result<(Owner, Bytes)> {
    let mut bytes = Bytes::from(bytes);
    let bad = || Failure::new("a block in the backup has no owner: it is damaged");
    let body: [u8; 16] = bytes.get(..16).and_then(|id| id.try_into().ok()).ok_or_else(bad)?;
    let chunk: [u8; 4] = bytes.get(16..20).and_then(|at| at.try_into().ok()).ok_or_else(bad)?;
    let owner = Owner { body: BodyId::from_bytes(body), chunk: u32::from_le_bytes(chunk) };
    Ok((owner, bytes.split_off(OWNER_BYTES)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(all: &[(u32, u32, u32)]) -> Vec<WantedItem> {
        let of = |(pack, offset, length): &(u32, u32, u32)| {
            let at = At { offset: *offset, length: *length, number: 0 };
            (Item::Rows([0; 32]), ItemPlace { pack: *pack, at })
        };
        all.iter().map(of).collect()
    }

    #[test]
    fn neighbours_are_read_at_once() {
        let gap = GAP_BYTES as u32;
        let run = RUN_BYTES as u32;
        let counts = |all: &[(u32, u32, u32)]| -> Vec<usize> {
            runs(&wanted(all)).map(<[WantedItem]>::len).collect()
        };
        assert_eq!(counts(&[(0, 64, 10), (0, 74, 10), (0, 84 + gap, 5)]), [3]);
        assert_eq!(counts(&[(0, 64, 10), (0, 75 + gap, 10)]), [1, 1]);
        assert_eq!(counts(&[(0, 64, 10), (1, 74, 10)]), [1, 1]);
        assert_eq!(counts(&[(0, 64, 10), (0, 64, 10)]), [1, 1]);
        assert_eq!(counts(&[(0, 64, 10), (0, 10, 10)]), [1, 1]);
        assert_eq!(counts(&[(0, 0, run), (0, run, 10), (0, run + 10, 10)]), [1, 2]);
        assert_eq!(counts(&[]), [0; 0]);
    }
}
